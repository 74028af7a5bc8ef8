"""The run folder: states, the lock, what it refuses and what it clears."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scpo.errors import UserError
from scpo.io import read_json
from scpo.run.folder import RunFolder, default_run_dir, safe_name, versions

CONFIG: dict[str, Any] = {"name": "x", "seed": 0}
INPUTS = {"data": "1"}


RESULTS = ("predictions.parquet", "report.html", "report.md")


def write_results(path: Path) -> None:
    """What a run leaves behind, as far as the folder looks at it."""
    (path / "metrics.json").write_text('{"schema": 1}', encoding="utf-8")
    for name in RESULTS:
        (path / name).touch()


def finished(path: Path, config: dict[str, Any] = CONFIG) -> RunFolder:
    folder = RunFolder(path, config)
    with folder.open(INPUTS, "scpo train"):
        write_results(path)
    return folder


def fail_in(folder: RunFolder, error: BaseException, *made: str) -> None:
    """Work that makes folders and ends with an error."""

    def work() -> None:
        with folder.open(INPUTS, ""):
            for name in made:
                (folder.path / name).mkdir()
            raise error

    with pytest.raises(type(error)):
        work()


def test_a_run_that_ends_well(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "deep" / "run", CONFIG)
    with folder.open(INPUTS, "scpo train seed=0"):
        status = read_json(folder.status_path)
        assert status["state"] == "running"
        assert status["finished"] is None
        folder.work.mkdir()
        write_results(folder.path)
        assert not folder.is_finished(INPUTS)
    status = read_json(folder.status_path)
    assert status["state"] == "finished"
    assert status["error"] is None
    assert status["command"] == "scpo train seed=0"
    assert status["config_hash"] == folder.hash
    assert status["inputs"] == INPUTS
    assert status["started"] <= status["finished"]
    assert status["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert {"scpo", "torch", "lightning", "transformers", "datasets", "hydra-core"} <= set(status["versions"])
    assert not folder.work.exists()
    assert folder.is_finished(INPUTS)
    assert not folder.is_finished({"data": "2"})
    assert not RunFolder(folder.path, {**CONFIG, "seed": 1}).is_finished(INPUTS)


@pytest.mark.parametrize("name", ["metrics.json", *RESULTS])
def test_a_run_that_lost_a_result_is_made_again(tmp_path: Path, name: str) -> None:
    folder = finished(tmp_path)
    assert folder.is_finished(INPUTS)
    (tmp_path / name).unlink()
    assert not folder.is_finished(INPUTS)


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 2}'])
def test_metrics_that_were_broken_are_made_again(tmp_path: Path, text: str) -> None:
    folder = finished(tmp_path)
    (tmp_path / "metrics.json").write_text(text, encoding="utf-8")
    assert not folder.is_finished(INPUTS)


def test_a_training_whose_model_is_gone_is_made_again(tmp_path: Path) -> None:
    """An evaluation has none, and needs none."""
    config = {**CONFIG, "selection": {"name": "full"}}
    folder = finished(tmp_path, config)
    assert not folder.is_finished(INPUTS)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    assert folder.is_finished(INPUTS)
    measured = finished(tmp_path / "evaluation", {**config, "run": "x"})
    assert measured.is_finished(INPUTS)


@pytest.mark.parametrize(
    ("error", "state", "text"),
    [
        (KeyboardInterrupt(), "interrupted", "KeyboardInterrupt"),
        (UserError("tau: wrong"), "failed", "tau: wrong"),
        (ValueError("odd"), "failed", "ValueError: odd"),
    ],
)
def test_a_run_that_ends_otherwise(tmp_path: Path, error: BaseException, state: str, text: str) -> None:
    folder = RunFolder(tmp_path, CONFIG)
    fail_in(folder, error, "work")
    status = read_json(folder.status_path)
    assert status["state"] == state
    assert status["error"].startswith(text)
    assert status["finished"] is not None
    assert folder.work.is_dir(), "finished pieces are kept for the next try"
    with folder.open(INPUTS, ""):
        assert folder.work.is_dir()
        assert read_json(folder.status_path)["error"] is None


def test_pieces_of_other_inputs_are_cleared(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, CONFIG)
    fail_in(folder, ValueError("odd"), "work", "checkpoints", "model", "logs", "plots")
    (tmp_path / "metrics.json").write_text("{}", encoding="utf-8")
    with folder.open({"data": "2"}, ""):
        left = {p.name for p in tmp_path.iterdir()}
    assert left == {".lock", "config.yaml", "status.json"}


def test_a_finished_run_of_another_config_is_refused(tmp_path: Path) -> None:
    finished(tmp_path)
    before = read_json(tmp_path / "status.json")
    with (
        pytest.raises(UserError, match="holds a finished run of another config"),
        RunFolder(tmp_path, {**CONFIG, "seed": 1}).open(INPUTS, ""),
    ):
        pass
    assert read_json(tmp_path / "status.json") == before


def test_a_file_and_a_foreign_folder_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine", encoding="utf-8")
    with (
        pytest.raises(UserError, match="expected a folder for the run, found a file"),
        RunFolder(file, {}).open({}, ""),
    ):
        pass
    assert file.read_text(encoding="utf-8") == "mine"
    with pytest.raises(UserError, match="found one with file"), RunFolder(tmp_path, {}).open({}, ""):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_damaged_status_is_one_clear_line(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    (tmp_path / "status.json").write_text('{"state": "fin', encoding="utf-8")
    with pytest.raises(UserError, match=r"status.json: expected a JSON document"):
        folder.is_finished(INPUTS)
    (tmp_path / "status.json").write_text("[]", encoding="utf-8")
    with pytest.raises(UserError, match=r"status.json: "):
        folder.is_finished(INPUTS)


def test_a_lock_of_another_process_is_respected(tmp_path: Path) -> None:
    code = (
        "import sys, filelock; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); "
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(UserError, match="another process is working on this run"),
            RunFolder(tmp_path, CONFIG).open(INPUTS, ""),
        ):
            pass
        assert not (tmp_path / "status.json").exists(), "the state is the other process's to write"
        assert other.stdin is not None
        other.stdin.close()
    finished(tmp_path)


def test_a_failure_before_the_work_is_recorded_where_nothing_else_stands(tmp_path: Path) -> None:
    path = tmp_path / "new"
    RunFolder(path, CONFIG).record_failure("batch.pairs: expected at least 1", "scpo train batch.pairs=0")
    status = read_json(path / "status.json")
    assert (status["state"], status["error"]) == ("failed", "batch.pairs: expected at least 1")
    assert status["command"] == "scpo train batch.pairs=0"
    RunFolder(path, CONFIG).record_failure("again", "")
    assert read_json(path / "status.json")["error"] == "again"
    finished(path)  # a later try goes on

    RunFolder(path, CONFIG).record_failure("late", "")
    assert read_json(path / "status.json")["state"] == "finished"
    file = tmp_path / "file"
    file.touch()
    RunFolder(file, CONFIG).record_failure("no folder", "")
    assert file.is_file()


def test_names_of_folders_can_be_typed() -> None:
    assert safe_name("a=b,c d/e") == "a_b_c_d_e"
    assert safe_name("") == "run"
    path = default_run_dir({"name": "a,b", "seed": 0})
    assert path.parent == Path("runs")
    assert path.name.startswith("a_b-")
    assert len(path.name) == len("a_b-") + 8


def test_versions_are_json() -> None:
    assert json.loads(json.dumps(versions())) == versions()
