"""`scpo export`: real runs on a world, arguments in Hydra's spelling, uploads, and one line for every mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from exported import make_run
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from world import Command, World, own_rows

from scpo.cli.export import read_settings
from scpo.errors import UserError
from scpo.io import read_json
from scpo.run.execute import execute


@pytest.fixture(scope="module")
def trained(world: World, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("trained")
    for mode in ("separate", "embedding"):
        config = world.config(f"conditioning={mode}", "selection=full", "optim.lr=0.01")
        execute(config, root / mode, f"scpo train conditioning={mode} data.dir={world.data}")
    return {mode: root / mode for mode in ("separate", "embedding")}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run whose data are gone."""
    return make_run(tmp_path_factory.mktemp("tiny") / "run", "bert", "head")


@pytest.mark.parametrize("mode", ["separate", "embedding"])
def test_a_run_is_exported_with_its_rewards(
    scpo: Command, trained: dict[str, Path], world: World, tmp_path: Path, mode: str
) -> None:
    done = scpo("export", f"run={trained[mode]}", "--out", tmp_path / "out", "group=S. Africa")
    assert done.code == 0, done.err
    assert done.out.startswith(f"{tmp_path / 'out'}: model for South Africa; 14 rewards by transformers alone equal")
    assert done.err == ""
    saved = own_rows(trained[mode])
    saved = saved[saved["group"] == "South Africa"].head(20)
    table = pd.read_parquet(world.data / "comparisons.parquet").set_index("candidate_id").loc[saved["candidate_id"]]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    inputs = tokenizer(list(table["prompt"]), list(table["response"]), padding=True, return_tensors="pt")
    rewards = model(**inputs).logits[:, 0].detach().numpy()
    np.testing.assert_allclose(rewards, saved["reward"], atol=1e-4)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "| South Africa | 389 | 389 | 9 | 90 | 2 |" in card
    assert "survey.jsonl (SHA-256 " in card
    assert "planted by a program" in card
    assert str(world.root) not in card
    assert not any(text in card for text in table["prompt"])
    assert (tmp_path / "out" / "steering" / "trained_on.json").is_file()


def test_without_a_group_and_without_data(scpo: Command, run: Path, tmp_path: Path) -> None:
    done = scpo("export", f"run={run}", "group=null", "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert "model without a group; 6 rewards" in done.out
    assert "gone: the run's data are gone; the model card leaves out what only the data tell" in done.err
    assert read_json(tmp_path / "out" / "export.json")["group"] is None


def test_changed_data_are_not_described_as_the_runs(
    scpo: Command, trained: dict[str, Path], tmp_path: Path, world: World
) -> None:
    import shutil

    copy = Path(shutil.copytree(trained["embedding"], tmp_path / "run"))
    text = (copy / "config.yaml").read_text(encoding="utf-8")
    (copy / "config.yaml").write_text(text.replace(str(world.data), str(world.goqa)), encoding="utf-8")
    done = scpo("export", f"run={copy}", "group=Chile", "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert "holds other data than the run was trained on" in done.err
    assert "global_opinions" not in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_push_comes_after_the_folder(scpo: Command, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed = []

    def push(folder: Path, hub_id: str, *, private: bool) -> str:
        pushed.append((folder, hub_id, private, (folder / "README.md").is_file()))
        return "https://hub/owner/name"

    monkeypatch.setattr("scpo.export.push.push", push)
    done = scpo("export", f"run={run}", "group=Chile", "--out", tmp_path / "out", "--push", "owner/name", "--private")
    assert done.code == 0, done.err
    assert pushed == [(tmp_path / "out", "owner/name", True, True)]
    assert done.out.endswith("uploaded: https://hub/owner/name\n")
    assert 'name = "owner/name"' in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_a_failed_push_keeps_the_folder(
    scpo: Command, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Hub's own client, told to stay offline."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    done = scpo("export", f"run={run}", "group=Chile", "--out", tmp_path / "out", "--push", "owner/name")
    said = done.err.splitlines()[-1]
    assert done.code == 2
    assert said.startswith(f"scpo: {tmp_path / 'out'} is written, but not uploaded to owner/name (")
    assert said.endswith(f"run 'hf upload owner/name {tmp_path / 'out'}'")
    assert (tmp_path / "out" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--out", "o"], "expected the run to export (run=RUN), found none"),
        (["run=RUN"], "the following arguments are required: --out"),
        (
            ["run=RUN", "goup=Chile", "--out", "o"],
            "expected run=RUN or group=G, found 'goup=Chile'. Did you mean 'group'?",
        ),
        (["RUN", "--out", "o"], " Did you mean 'run=RUN'?"),
        (["run=RUN", "group=", "--out", "o"], "group: expected a value, found none"),
        (["run=RUN", "run=RUN", "--out", "o"], "expected run once, found it twice"),
        (["run=RUN", "--out", "o", "--private"], "--private: expected --push ID with it"),
        (
            ["run=RUN", "--out", "o", "--push", "name"],
            "expected the id of a model on the Hub (owner/name), found 'name'",
        ),
        (["run=RUN", "group=Chiel", "--out", "o"], "found 'Chiel'. Did you mean 'Chile'?"),
        (["run=nowhere", "--out", "o"], "nowhere: expected the folder of a run (run=RUN), found nothing"),
        (["run=RUN", "--out", "RUN"], "expected a new or empty folder, found"),
        (["run=RUN", "--out", "o", "--outt", "x"], "unrecognized arguments: --outt"),
    ],
)
def test_mistakes_are_one_line(scpo: Command, run: Path, arguments: list[str], words: str) -> None:
    done = scpo("export", *(a.replace("RUN", str(run)) for a in arguments))
    assert words in done.line.replace(str(run), "RUN")
    assert not Path("o").exists()


def test_settings_are_hydras() -> None:
    assert read_settings(["run=a=b", "group='South Africa'"]) == {"run": "a=b", "group": "South Africa"}
    assert read_settings(['group="Chile"', "run=x"]) == {"group": "Chile", "run": "x"}
    assert read_settings(["run=x", "group=null"]) == {"run": "x"}
    with pytest.raises(UserError, match="expected a value"):
        read_settings(["run=''"])


def test_help_is_light_and_has_an_example(scpo: Command) -> None:
    done = scpo("export", "--help")
    assert done.code == 0
    assert "scpo export run=runs/scpo-1a2b3c4d group=Chile --out export/chile" in done.out
    code = "import sys, scpo.cli.export; assert not {'torch', 'transformers', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
