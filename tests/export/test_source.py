"""What can be exported, and one line for everything that cannot."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from exported import make_run

from scpo.errors import UserError
from scpo.export.bundle import export
from scpo.export.source import read_source
from scpo.io import read_json, write_json


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("runs")
    return {mode: make_run(root / mode, "bert", mode) for mode in ("separate", "none", "prefix", "head", "adapter")}


@pytest.fixture
def copy(runs: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda mode: Path(shutil.copytree(runs[mode], tmp_path / "run"))


def edit(path: Path, **changes: Any) -> None:
    write_json(path, {**read_json(path), **changes})


def test_names_are_resolved(runs: dict[str, Path]) -> None:
    source = read_source(runs["separate"], "s. africa")
    assert source.group == "South Africa"
    assert source.folder == runs["separate"] / "model" / "South_Africa"
    assert source.sentence is None
    assert read_source(runs["prefix"], "ZA").sentence == "The reader lives in South Africa."
    assert read_source(runs["prefix"]).sentence is None
    assert read_source(runs["head"], "chl").folder == runs["head"] / "model"
    assert [read_source(runs["head"], group).learned for group in ("Chile", None)] == [True, False]
    assert not read_source(runs["separate"], "Chile").learned


@pytest.mark.parametrize(
    ("mode", "group", "words"),
    [
        ("head", "Chiel", r"expected the name of a group in .*head, found 'Chiel'\. Did you mean 'Chile'\?"),
        ("separate", "Kenya", r"found 'Kenya'\. Known: Chile, Israel, South Africa\."),
        ("separate", None, r"one model per group; say which with group=NAME\. Known: Chile, Israel, South Africa\."),
        ("none", "Chile", r"group=Chile: .* is not told the group \(conditioning=none\); leave group out"),
    ],
)
def test_groups_that_cannot_be(runs: dict[str, Path], mode: str, group: str | None, words: str) -> None:
    with pytest.raises(UserError, match=words):
        read_source(runs[mode], group)


def test_what_is_no_run(runs: dict[str, Path], tmp_path: Path) -> None:
    head = runs["head"]
    for folder, words in (
        (tmp_path / "absent", r"expected the folder of a run \(run=RUN\), found nothing"),
        (head / "status.json", r"expected the folder of a run \(run=RUN\), found a file"),
        (tmp_path, "expected the folder of a run of 'scpo train', found no config.yaml"),
        (head / "model", f"expected the folder of a run, found a model folder; give {head}"),
        (runs["separate"] / "model", f"found a model folder; give {runs['separate']}"),
        (runs["separate"] / "model" / "Chile", f"found a model folder; give {runs['separate']}"),
        (head.parent, f"found a folder of runs; give one of them, such as run={head.parent / 'adapter'}"),
    ):
        with pytest.raises(UserError, match=words):
            read_source(folder, "Chile")


def test_an_evaluation_is_no_training_run(copy: Callable[[str], Path]) -> None:
    run = copy("none")
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    (run / "config.yaml").write_text(yaml.safe_dump({**config, "run": "runs/x"}), encoding="utf-8")
    with pytest.raises(UserError, match="found one of an evaluation; give the run it measured"):
        read_source(run)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"state": "running"}, r"expected a finished run, found one that is 'running'; give its command again"),
        ({"state": "failed", "error": "no\ndisk"}, r"found one that is 'failed': no disk;"),
        ({"state": None}, r"found one that is None;"),
    ],
)
def test_an_unfinished_run(copy: Callable[[str], Path], status: dict[str, Any], words: str) -> None:
    run = copy("none")
    edit(run / "status.json", **status)
    with pytest.raises(UserError, match=words):
        read_source(run)


def test_files_of_a_run_that_are_gone_or_damaged(copy: Callable[[str], Path]) -> None:
    run = copy("separate")

    def refused(words: str) -> None:
        with pytest.raises(UserError, match=words):
            read_source(run, "Chile")

    metrics = (run / "metrics.json").read_text(encoding="utf-8")
    write_json(run / "metrics.json", {k: v for k, v in json.loads(metrics).items() if k != "sufficient_only"})
    refused(r"metrics.json: expected key sufficient_only, found none")
    write_json(run / "metrics.json", [1])
    refused(r"metrics.json: expected the metrics of a run, found \[1\]")
    (run / "metrics.json").write_text(metrics, encoding="utf-8")
    shutil.rmtree(run / "model" / "Chile")
    refused(r"the export needs .*model/Chile, which is gone; train the run again")
    assert read_source(run, "Israel").group == "Israel"
    (run / "model" / "steering" / "steering.json").unlink()
    refused(r"steering.json: expected how the model was trained, found no such file")
    shutil.rmtree(run / "model")
    refused(r"the export needs .*run/model, which is gone; train the run again")


def test_damaged_weights_are_refused_and_nothing_is_written(copy: Callable[[str], Path], tmp_path: Path) -> None:
    """44 to 48: what steers is never random."""
    run = copy("adapter")
    weights = run / "model" / "steering" / "adapters" / "Chile" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-40])
    with pytest.raises(UserError, match=r"adapter_model.safetensors: damaged, not read"):
        export(run, "Chile", tmp_path / "out")
    weights.unlink()
    with pytest.raises(UserError, match=r"expected the weights of the steering, found no such file"):
        export(run, "Chile", tmp_path / "out")
    (run / "model" / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"expected model weights \(\*.safetensors\), found none"):
        export(run, "Chile", tmp_path / "out")
    assert not (tmp_path / "out").exists()
