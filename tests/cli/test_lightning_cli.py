"""`scpo cli`: the same training as `scpo train` step by step, files of its own for each run, one line for each mistake."""

from __future__ import annotations

import importlib.util
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import load_file
from world import Command, Done, World

from scpo import lightning_cli as scpo_lightning
from scpo.cli.cli import examples_dir
from scpo.cli.lightning import LINKED_TO, MUST_BE
from scpo.conditioning import MODES
from scpo.io import read_json
from scpo.lightning_cli import SteerableModule, TableData
from scpo.run.execute import execute

STEPS = 5
CASES: dict[str, tuple[list[str], list[str]]] = {
    # What differs from the mode's example config: to scpo train, and the same to scpo cli.
    "separate": ([], []),
    "none": (
        ["balance=dro", "balance.eta=0.5", "trainer.gradient_clip_val=0.01"],
        ["--data.balance=dro", "--data.eta=0.5", "--model.gradient_clip_val=0.01"],
    ),
    "prefix": (
        ["conditioning.group_dropout=0.5", "selection=weight", "selection.beta=0.5"],
        ["--model.group_dropout=0.5", "--data.selection=weight", "--data.beta=0.5"],
    ),
    "embedding": (
        ["schedule=cosine", "schedule.warmup=0.4", "loss.margin=0.01", "batch.pairs=5"],
        ["--model.schedule=cosine", "--model.warmup=0.4", "--model.margin=0.01", "--data.batch_pairs=5"],
    ),
    "head": (
        ["conditioning.group_dropout=0.5", "balance=sqrt", "seed=3", "split=stratified", "split.seed=2"],
        [
            *("--model.group_dropout=0.5", "--data.balance=sqrt", "--seed_everything=3"),
            *("--data.split=stratified", "--data.split_seed=2"),
        ],
    ),
    "adapter": (
        ["conditioning.adapter_rank=2", "model.max_length=80", "data.train_comparisons=20"],
        ["--model.adapter_rank=2", "--model.max_length=80", "--data.train_comparisons=20"],
    ),
}


def groups(mode: str) -> str:
    return "[Chile]" if mode == "separate" else "[Chile,South Africa]"


def arguments(world: World, mode: str, *more: str, command: str = "fit") -> list[str]:
    """A short training with a mode's example config."""
    config = ["--config", str(examples_dir() / f"fit_{mode}.yaml"), f"--data.groups={groups(mode)}"]
    paths = [f"--data.dir={world.data}", f"--model.name_or_path={world.model}"]
    return ["cli", command, *config, *paths, f"--trainer.max_steps={STEPS}", "--trainer.log_every_n_steps=1", *more]


def losses(log: Path) -> list[float]:
    """The training loss of each step, from a CSV log."""
    return [float(x) for x in pd.read_csv(log / "metrics.csv")["train/loss"].dropna()]


def tensors(model: Path) -> dict[str, torch.Tensor]:
    """Every saved weight below a model folder."""
    files = sorted(model.rglob("*.safetensors"))
    return {f"{f.relative_to(model)}: {k}": v for f in files for k, v in load_file(f).items()}


@pytest.mark.parametrize("mode", MODES)
def test_both_doors_train_alike(world: World, scpo: Command, tmp_path: Path, mode: str) -> None:
    """Each of the first five losses, the weights after them, what is told of the model, and the test's accuracy."""
    overrides, flags = CASES[mode]
    short = (f"trainer.max_steps={STEPS}", "trainer.log_every_n_steps=1", "optim.lr=2.0e-4")
    config = world.config(f"conditioning={mode}", f"groups.names={groups(mode)}", *short, *overrides)
    metrics = execute(config, tmp_path / "run", "scpo train")
    (log,) = (tmp_path / "run" / "logs").iterdir()

    done = scpo(*arguments(world, mode, *flags))
    assert done.code == 0, done.err
    assert done.out == "checkpoint: runs/cli/version_0/checkpoints/last.ckpt\nmodel: runs/cli/version_0/model\n"
    version = Path("runs/cli/version_0")
    theirs = losses(log)
    assert len(theirs) == STEPS
    assert len(set(theirs)) == STEPS
    assert losses(version) == theirs

    mine, other = tensors(version / "model"), tensors(tmp_path / "run" / "model")
    assert mine.keys() == other.keys()
    assert all(torch.equal(mine[name], other[name]) for name in mine)
    for file in sorted((tmp_path / "run" / "model").rglob("steering*/*.json")):
        assert read_json(version / "model" / file.relative_to(tmp_path / "run" / "model")) == read_json(file)

    tested = scpo(*arguments(world, mode, *flags, f"--ckpt_path={version}/checkpoints/last.ckpt", command="test"))
    assert tested.code == 0, tested.err
    row = pd.read_csv("runs/cli/version_1/metrics.csv").iloc[-1]
    assert {name: pytest.approx(row[f"test/accuracy/{name}"]) for name in metrics["by_group"]} == {
        name: part["all"]["accuracy"] for name, part in metrics["by_group"].items()
    }
    assert row["test/accuracy"] == pytest.approx(metrics["macro"]["accuracy"])
    assert "test/accuracy" in tested.out
    names = {name.removeprefix("test/") for name in row.index if name.startswith("test/")}
    logged = pd.read_csv(version / "metrics.csv").columns
    assert names == {name.removeprefix("val/") for name in logged if name.startswith("val/")}


@pytest.fixture(scope="module")
def trained(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log folder of a training with two groups' vectors, as a process of its own; callbacks from the command line."""
    root = tmp_path_factory.mktemp("trained")
    command = arguments(
        world,
        "head",
        *("--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.every_n_train_steps=2"),
        *("--trainer.callbacks.save_top_k=-1", "--trainer.callbacks.save_last=false"),
        f"--trainer.default_root_dir={root}",
    )
    done = process(*command, cwd=root)
    assert done.code == 0, done.err
    return root / "cli" / "version_0"


def process(*argv: str, cwd: Path, **environment: str) -> Done:
    """The command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "scpo.cli.main", *argv],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def test_a_training_goes_on_from_a_checkpoint_to_the_same_end(trained: Path, world: World, scpo: Command) -> None:
    """In a log folder of its own; the old one is only read."""
    (checkpoint,) = trained.glob("checkpoints/*step=2.ckpt")
    done = scpo(*arguments(world, "head", f"--ckpt_path={checkpoint}"))
    assert done.code == 0, done.err
    assert losses(Path("runs/cli/version_0")) == losses(trained)[2:]
    mine, first = tensors(Path("runs/cli/version_0/model")), tensors(trained / "model")
    assert all(torch.equal(mine[name], first[name]) for name in first)
    assert checkpoint.is_file()


def test_checkpoint_and_config_are_plain(trained: Path) -> None:
    """Nothing in a checkpoint needs code to be read; the config of the log folder says everything, and is read again."""
    state = torch.load(trained / "checkpoints" / "last.ckpt", weights_only=True)
    assert state["scpo"]["identity"] == {
        "conditioning": "head",
        "groups": ["Chile", "South Africa"],
        "template": None,
    }
    assert "hyper_parameters" not in state
    config = yaml.safe_load((trained / "config.yaml").read_text(encoding="utf-8"))
    assert config["model"]["conditioning"] == "head"
    assert set(config["model"]) == set(inspect.signature(SteerableModule).parameters) - {"data"}
    assert set(config["data"]) == set(inspect.signature(TableData).parameters) - {"seed", "trainer"}


def test_the_saved_config_trains_again(trained: Path, scpo: Command) -> None:
    done = scpo("cli", "fit", "--config", trained / "config.yaml", "--trainer.default_root_dir=again")
    assert done.code == 0, done.err
    assert losses(Path("again/cli/version_0")) == losses(trained)


@pytest.mark.parametrize(
    ("mode", "flags", "text"),
    [
        ("embedding", [], "trained with conditioning 'head', and --model.conditioning says 'embedding'"),
        (
            "head",
            ["--data.groups=[Chile,Canada]"],
            "with groups ['Chile', 'South Africa'], and --data.groups says ['Chile', 'Canada']",
        ),
        ("head", ["--model.head_rank=1"], "do not fit the model (such as model.steering."),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(
    trained: Path, world: World, scpo: Command, mode: str, flags: list[str], text: str
) -> None:
    checkpoint = f"--ckpt_path={trained}/checkpoints/last.ckpt"
    assert text in scpo(*arguments(world, mode, checkpoint, *flags, command="test")).err.splitlines()[-1]


def test_a_foreign_checkpoint_is_refused(world: World, scpo: Command, tmp_path: Path) -> None:
    torch.save(
        {"state_dict": {}, "epoch": 0, "global_step": 0, "pytorch-lightning_version": "2.6.6"}, tmp_path / "x.ckpt"
    )
    done = scpo(*arguments(world, "none", f"--ckpt_path={tmp_path}/x.ckpt", command="validate"))
    assert done.code == 2
    assert "expected a checkpoint of scpo cli or scpo train, found another one" in done.err.splitlines()[-1]


def test_a_second_run_gets_a_folder_of_its_own_and_a_fixed_one_is_overwritten(world: World, scpo: Command) -> None:
    """PITFALLS T8, 68: Lightning stops at the config.yaml of an earlier run and names a flag that does not exist."""
    for _ in range(2):
        assert scpo(*arguments(world, "none", "--trainer.max_steps=1")).code == 0
    assert {p.name for p in Path("runs/cli").iterdir()} == {"version_0", "version_1"}
    first = scpo(*arguments(world, "none", "--trainer.max_steps=1", "--trainer.logger=false"))
    assert "overwritten" not in first.err
    second = scpo(*arguments(world, "none", "--trainer.max_steps=2", "--trainer.logger=false"))
    assert second.code == 0
    assert "runs/config.yaml of an earlier run is overwritten; --trainer.default_root_dir=NEW keeps" in second.err
    assert yaml.safe_load(Path("runs/config.yaml").read_text(encoding="utf-8"))["trainer"]["max_steps"] == 2


def test_validate_measures_the_starting_model_and_says_so(world: World, scpo: Command) -> None:
    done = scpo(*arguments(world, "none", command="validate"))
    assert done.code == 0
    assert "no --ckpt_path: the starting model is measured" in done.err
    row = pd.read_csv("runs/cli/version_0/metrics.csv").iloc[-1]
    assert {"val/accuracy/Chile", "val/accuracy/South Africa", "val/accuracy"} <= set(row.index)
    assert not Path("runs/cli/version_0/checkpoints").exists()


def test_a_test_counts_pairs_of_equal_texts(world: World, scpo: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training leaves them out; an evaluation counts them, as ties, which are wrong: here every test pair of Chile."""
    real = scpo_lightning.load_data

    def same_words(config: dict[str, Any]) -> Any:
        data = real(config)
        data.frame.loc[(data.frame["group"] == "Chile") & (data.frame["split"] == "test"), "response"] = "the same"
        return data

    monkeypatch.setattr(scpo_lightning, "load_data", same_words)
    done = scpo(*arguments(world, "none", "--data.selection=full", "--data.cache_dir=cache", command="test"))
    assert done.code == 0, done.err
    row = pd.read_csv("runs/cli/version_0/metrics.csv").iloc[-1]
    assert row["test/accuracy/Chile"] == 0
    assert 0.3 < row["test/accuracy/South Africa"] < 1


def test_without_validation_pairs(world: World, scpo: Command) -> None:
    """A training does without; a validation has nothing to measure."""
    assert scpo(*arguments(world, "none", "--data.split=paper", "--trainer.max_steps=1")).code == 0
    done = scpo(*arguments(world, "none", "--data.split=paper", command="validate"))
    assert done.code == 2
    assert "data.split: expected a split with validation pairs" in done.err.splitlines()[-1]


def test_a_start_from_scratch(world: World, scpo: Command) -> None:
    """Built anew in each process from data and seed, so that the checkpoint of one fits the other's."""
    scratch = ["--data.dir", str(world.data), "--data.groups=[Chile]", "--data.selection=full", "--trainer.max_steps=1"]
    done = scpo("cli", "fit", *scratch)
    assert done.code == 0, done.err
    done = scpo("cli", "test", *scratch, "--ckpt_path=runs/cli/version_0/checkpoints/last.ckpt")
    assert done.code == 0, done.err


@pytest.mark.parametrize("key", MUST_BE)
def test_what_must_hold_is_refused_in_one_line(world: World, scpo: Command, key: str) -> None:
    right, why = MUST_BE[key]
    wrong = str(not right).lower() if isinstance(right, bool) else "value" if key.endswith("algorithm") else "3"
    line = scpo(*arguments(world, "none", f"--trainer.{key}={wrong}")).line
    assert f"trainer.{key}: expected " in line
    assert why in line


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--data.groups=[Chille]"], "expected the name of a group in the data, found 'Chille'. Did you mean 'Chile'?"),
        (["--data.groups=Chille"], "found 'Chille'. Did you mean 'Chile'?"),
        (["--data.dirr=x"], "data.dirr: unknown key. Did you mean 'data.dir'"),
        (["--model.learning_rate=1"], "model.learning_rate: unknown key."),
        (
            ["--data.selection=scppo"],
            "data.selection: expected one of full, filter, weight, inverse, scpo, random, found scppo",
        ),
        (["--model.lr=abc"], "model.lr: expected a number or null, found abc"),
        (["--model.lr=-1", "--data.tau=4"], "data.tau: expected a number above 0 and at most 1, found 4.0; model.lr: "),
        (["--data.name=table", "--data.dir=nowhere"], "nowhere: no such data folder"),
        (["--model.name_or_path=nowhere/model"], "nowhere/model"),
        (["--config=nowhere.yaml"], "nowhere.yaml"),
        (["--config=bad.yaml"], "config: while parsing"),
        (["--config=unknown.yaml"], "data.dirr: unknown key. Did you mean 'data.dir'"),
        (["--ckpt_path=nowhere.ckpt"], "ckpt_path: expected a checkpoint file, found no file nowhere.ckpt"),
        (["--ckpt_path=last"], "ckpt_path: expected a checkpoint file, found no file last"),
        (["--weights_only=false"], "weights_only: expected true, found false"),
        (["--seed_everything=true"], "seed_everything: expected a whole number, found True"),
        (["--trainer.max_steps=0"], "trainer.max_steps: expected -1 (no cap) or at least 1, found 0"),
        (["--trainer.precision=16-true"], "float16 rewards overflow"),
        (["--trainer.min_steps=x"], "trainer.min_steps: expected a whole number or null, found x"),
        (
            ["--model.conditioning=separate"],
            "model.conditioning=separate: expected one group, since scpo cli trains one model",
        ),
        (["--data.reference=null", "--model.name_or_path=null"], "data.selection=scpo needs a reference model"),
    ],
)
def test_a_mistake_is_one_line(world: World, scpo: Command, flags: list[str], text: str) -> None:
    Path("bad.yaml").write_text("data: [", encoding="utf-8")
    Path("unknown.yaml").write_text("data:\n  dirr: x\n", encoding="utf-8")
    line = scpo(*arguments(world, "none", *flags)).line
    assert text in line
    assert not Path("runs").exists()


def test_wrong_commands(scpo: Command) -> None:
    assert "expected fit, validate or test, found 'predict'" in scpo("cli", "predict").line
    assert "lr" not in scpo("cli", "--config", "x").line


def test_the_debug_variable_shows_where(tmp_path: Path) -> None:
    done = process("cli", "fit", "--data.tauu=1", cwd=tmp_path, SCPO_DEBUG="1")
    assert done.code == 1
    assert "Traceback" in done.err
    assert "UserError" in done.err


def test_help(scpo: Command) -> None:
    short = scpo("cli", "--help")
    assert short.code == 0
    assert str(examples_dir()) in short.out
    long = scpo("cli", "fit", "--help")
    assert long.code == 0
    assert "scpo cli fit --config" in long.out
    assert "--data.tau" in long.out
    assert "threshold of the filter, in (0, 1]" in " ".join(long.out.split())
    for key in LINKED_TO:
        assert f"--{key} " not in long.out, key


def test_without_jsonargparse(scpo: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jsonargparse" else real(name))
    assert scpo("cli", "fit").line == "scpo: scpo cli needs jsonargparse: pip install 'scpo[cli]'\n"
    assert scpo("cli", "--help").code == 0


def test_an_interrupted_training_says_how_to_go_on(
    world: World, scpo: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it trains in training mode, which the tiny model without dropout would not show."""
    modes = []

    def stop(module: SteerableModule, *args: Any) -> None:
        modes.append(module.model.training)
        raise KeyboardInterrupt

    monkeypatch.setattr(SteerableModule, "training_step", stop)
    done = scpo(*arguments(world, "none"))
    assert modes == [True]
    assert done.code == 130
    assert done.err.endswith(
        "interrupted; --ckpt_path goes on from a checkpoint in the log folder, where there is one\n"
    )


@pytest.mark.ddp
def test_two_processes_measure_as_one(world: World, trained: Path, scpo: Command, tmp_path: Path) -> None:
    """Lightning starts the second process itself; every pair is counted once, and every group is logged."""
    two = ["--trainer.devices=2", "--trainer.strategy=ddp", f"--trainer.default_root_dir={tmp_path}/two"]
    done = process(*arguments(world, "head", *two), cwd=tmp_path)
    assert done.code == 0, done.err
    assert losses(tmp_path / "two" / "cli" / "version_0") == pytest.approx(losses(trained), abs=1e-4)
    assert (tmp_path / "two" / "cli" / "version_0" / "model" / "steering" / "steering.json").is_file()
    checkpoint = f"--ckpt_path={trained}/checkpoints/last.ckpt"
    done = process(*arguments(world, "head", *two, checkpoint, command="test"), cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.err.count("training pairs") == 1
    assert scpo(*arguments(world, "head", checkpoint, command="test")).code == 0
    mine = pd.read_csv(tmp_path / "two" / "cli" / "version_1" / "metrics.csv").iloc[-1]
    one = pd.read_csv("runs/cli/version_0/metrics.csv").iloc[-1]
    for name in one.index:
        assert mine[name] == pytest.approx(one[name], abs=1e-6), name
