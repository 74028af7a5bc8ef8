"""Evaluation without training: saved predictions again, a run's models on other data, any reward model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from world import World, compose, own_rows, tree

from scpo.errors import UserError
from scpo.io import read_json
from scpo.run import evaluate as module
from scpo.run.evaluate import evaluate
from scpo.run.execute import execute
from scpo.run.launch import read_config

QUICK = "evaluation.resamples=100"


def measured(*overrides: str) -> tuple[Path, dict[str, Any]]:
    """Evaluate with these overrides, as the command does."""
    given = {o.split("=")[0] for o in overrides}
    return evaluate(compose(*overrides, name="evaluate"), given, "scpo evaluate")


@pytest.fixture(scope="module")
def run(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of one model per group."""
    folder = tmp_path_factory.mktemp("evaluate") / "run"
    execute(world.config(), folder, "scpo train")
    return folder


def own_files(run: Path) -> dict[str, tuple[int, int]]:
    return {name: what for name, what in tree(run).items() if not name.startswith("evaluations")}


def test_saved_predictions_give_the_same_numbers_and_load_no_model(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = own_files(run)
    monkeypatch.setattr(module, "load_steered", None)
    out, metrics = measured(f"run={run}")
    assert out.parent == run / "evaluations"
    assert len(out.name) == 8
    assert own_files(run) == before
    old = read_json(run / "metrics.json")
    for key in ("macro", "micro", "by_group", "worst_group", "gap", "baselines", "train"):
        assert metrics[key] == old[key], key
    assert read_json(out / "status.json")["state"] == "finished"
    other, more = measured(f"run={run}", "evaluation.resamples=200")
    assert other != out
    assert more["macro"]["accuracy"] == old["macro"]["accuracy"]
    assert [read_config(folder)["evaluation"]["resamples"] for folder in (out, other)] == [100, 200]


def test_scoring_again_gives_the_rewards_that_the_run_saved(world: World, run: Path, tmp_path: Path) -> None:
    before = own_files(run)
    out, metrics = measured(f"run={run}", f"data.dir={world.data}", QUICK, f"run_dir={tmp_path / 'out'}")
    assert out == tmp_path / "out"
    assert own_files(run) == before
    saved = own_rows(run).set_index("candidate_id")
    again = own_rows(out).set_index("candidate_id")
    assert set(saved.index) == set(again.index)
    assert (saved["reward"] - again["reward"].loc[saved.index]).abs().max() < 1e-5
    assert (saved["reference_reward"] - again["reference_reward"].loc[saved.index]).abs().max() < 1e-5
    assert metrics["by_group"]["Chile"]["reference"]["distinctive"] == 0.0


def test_a_second_evaluation_of_the_same_is_read(
    world: World, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = (f"run={run}", f"data.dir={world.data}", QUICK, f"run_dir={tmp_path / 'out'}", "groups.names=[Chile]")
    _, first = measured(*overrides)
    monkeypatch.setattr(module, "load_steered", None)
    assert measured(*overrides)[1] == first


def test_other_data_and_groups(world: World, run: Path, tmp_path: Path) -> None:
    base = (f"run={run}", f"data.dir={world.goqa}", "data=goqa", QUICK)
    _, metrics = measured(*base, "groups.names=[Chile]", "evaluation.split=all", f"run_dir={tmp_path / 'a'}")
    assert list(metrics["by_group"]) == ["Chile"]
    with pytest.raises(
        UserError, match=r"expected groups that the run was trained for \(Chile, South Africa\), found Japan"
    ):
        measured(*base, "groups.names=[Japan]", f"run_dir={tmp_path / 'b'}")
    with pytest.raises(UserError, match=r"found 'Chilly'\. Did you mean 'Chile'"):
        measured(*base, "groups.names=[Chilly]", f"run_dir={tmp_path / 'c'}")
    out, metrics = measured(*base, "groups=all", "evaluation.split=all", f"run_dir={tmp_path / 'd'}")
    assert set(metrics["by_group"]) <= {"Chile", "South Africa"}
    assert "Groups that the run does not know are left out: " in (out / "report.md").read_text(encoding="utf-8")
    assert not (tmp_path / "b").exists()


def test_any_reward_model_without_training(world: World, tmp_path: Path) -> None:
    base = (f"model.name_or_path={world.model}", f"data.dir={world.data}", QUICK, "groups.names=[Chile]")
    out, metrics = measured(*base, f"run_dir={tmp_path / 'plain'}")
    assert metrics["by_group"]["Chile"]["reference"]["distinctive"] is None
    assert metrics["train"] is None or metrics["train"]["pairs"] in (0, None)
    frame = own_rows(out)
    assert frame["conditioned_on"].isna().all()
    # Measured against itself, it is wrong on every distinctive pair and right on every shared one.
    _, metrics = measured(*base, f"reference.name_or_path={world.model}", f"run_dir={tmp_path / 'self'}")
    chile = metrics["by_group"]["Chile"]
    assert (chile["distinctive"]["accuracy"], chile["shared"]["accuracy"]) == (0.0, 1.0)


def test_the_same_model_has_the_same_rewards_at_any_batch_size(world: World, tmp_path: Path) -> None:
    base = (f"model.name_or_path={world.model}", f"data.dir={world.data}", QUICK, "groups.names=[Chile]")
    frames = []
    for tokens in (64, 8192):
        out, _ = measured(*base, f"batch.tokens={tokens}", f"run_dir={tmp_path / str(tokens)}")
        frames.append(own_rows(out).set_index("candidate_id")["reward"])
    assert (frames[0] - frames[1].loc[frames[0].index]).abs().max() < 1e-5


def test_what_is_no_finished_training_run(world: World, run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected a run folder, found no config.yaml"):
        measured(f"run={tmp_path}")
    out, _ = measured(f"run={run}", "evaluation.resamples=101")
    with pytest.raises(UserError, match="found one of an evaluation"):
        measured(f"run={out}")
    failed = tmp_path / "failed"
    failed.mkdir()
    shutil.copy(run / "config.yaml", failed)
    (failed / "status.json").write_text(json.dumps({"state": "failed", "error": "odd"}), encoding="utf-8")
    with pytest.raises(UserError, match="expected a finished run, found one that is failed: odd"):
        measured(f"run={failed}")
    with pytest.raises(UserError, match=r"expected groups|expected the name of a group"):
        measured(f"run={run}", "groups.names=[United States]", f"run_dir={tmp_path / 'x'}")
    with pytest.raises(UserError, match="holds one model per group"):
        measured(f"model.name_or_path={run / 'model'}", f"data.dir={world.data}", f"run_dir={tmp_path / 'y'}")


def test_a_start_without_a_head_is_no_reference(world: World, tmp_path: Path) -> None:
    headless = tmp_path / "headless"
    shutil.copytree(world.model, headless)
    config = read_json(headless / "config.json")
    (headless / "config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}), encoding="utf-8")
    quick = world.config("groups.names=[Chile]", "selection=full", f"model.name_or_path={headless}")
    execute(quick, tmp_path / "run", "")
    _, metrics = measured(f"run={tmp_path / 'run'}", f"data.dir={world.data}", QUICK)
    assert metrics["by_group"]["Chile"]["reference"]["all"] is None
