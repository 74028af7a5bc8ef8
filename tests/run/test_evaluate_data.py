"""Which rows an evaluation of a run measures: its own split, none that it was trained on, and other data by their own rules."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from world import World, compose, own_rows

from scpo.data.manifest import finish
from scpo.data.prism import read_prism
from scpo.data.schema import read_comparisons
from scpo.data.simulate import simulate
from scpo.errors import UserError
from scpo.io import read_json
from scpo.model.reward import ModelOptions, load_model
from scpo.model.score import score_texts
from scpo.run.evaluate import evaluate
from scpo.run.execute import execute

GROUPS = ["United States", "United Kingdom"]
"""Those with enough annotators for two splits to share some of their test part."""
NAMES = f"groups.names=[{','.join(GROUPS)}]"
QUICK = "evaluation.resamples=100"


def measured(*overrides: str) -> tuple[pd.DataFrame, dict[str, Any], Path]:
    """Evaluate with these overrides: predictions, metrics and the folder."""
    given = {o.split("=")[0] for o in overrides}
    out, metrics = evaluate(compose(*overrides, name="evaluate"), given, "scpo evaluate")
    return own_rows(out), metrics, out


@pytest.fixture(scope="module")
def run(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose split is drawn by the run, not by the preparation, and whose pairs have a gap."""
    folder = tmp_path_factory.mktemp("evaluate") / "run"
    config = world.config(NAMES, "split=stratified", "split.seed=7", "data.min_gap=5", "balance=sqrt")
    execute(config, folder, "scpo train")
    return folder


@pytest.fixture(scope="module")
def trained(world: World) -> set[str]:
    """The annotators that the run was trained on."""
    from scpo.run.inputs import load_data

    frame = load_data(world.config(NAMES, "split=stratified", "split.seed=7")).frame
    assert list(frame["split"]) != list(load_data(world.config(NAMES)).frame["split"]), "not the prepared split"
    return set(frame.loc[frame["split"] == "train", "cluster_id"])


def note(metrics: dict[str, Any]) -> dict[str, int]:
    """How many candidates were left out because the run was trained on them, by group."""
    found = [n for n in metrics["notes"] if "that the model was trained on, left out: " in n]
    assert len(found) <= 1
    return {g: int(k) for g, k in re.findall(r"([A-Z][\w ]+) (\d+)[,.]", found[0].partition(": ")[2])} if found else {}


def test_the_same_data_by_name_keep_the_runs_split(world: World, run: Path, trained: set[str], tmp_path: Path) -> None:
    found, metrics, _ = measured(f"run={run}", f"data.dir={world.data}", QUICK, f"run_dir={tmp_path / 'out'}")
    saved = own_rows(run)
    assert sorted(found["candidate_id"]) == sorted(saved["candidate_id"])
    assert not set(found["cluster_id"]) & trained
    assert {g: metrics["by_group"][g]["n_clusters"] for g in GROUPS} == saved.groupby("group")[
        "cluster_id"
    ].nunique().to_dict()


def test_a_split_that_is_asked_for_loses_the_rows_that_were_trained_on(
    world: World, run: Path, trained: set[str], tmp_path: Path
) -> None:
    """The prepared split puts some of them into its test part."""
    found, metrics, _ = measured(f"run={run}", "split=prepared", QUICK, f"run_dir={tmp_path / 'out'}")
    table = pd.read_parquet(world.data / "comparisons.parquet")
    test = table[(table["split"] == "test") & table["group"].isin(GROUPS)]
    seen = test["cluster_id"].isin(trained)
    assert 0 < seen.sum() < len(test)
    assert sorted(found["candidate_id"]) == sorted(test.loc[~seen, "candidate_id"])
    assert all(note(metrics)[g] >= n > 0 for g, n in test.loc[seen, "group"].value_counts().items())


def test_all_splits_of_the_runs_own_data_are_all_but_what_was_trained_on(
    world: World, run: Path, trained: set[str], tmp_path: Path
) -> None:
    found, metrics, out = measured(f"run={run}", "evaluation.split=all", QUICK, f"run_dir={tmp_path / 'out'}")
    table = pd.read_parquet(world.data / "comparisons.parquet")
    table = table[table["group"].isin(GROUPS)]
    unseen = table[~table["cluster_id"].isin(trained)]
    assert sorted(found["candidate_id"]) == sorted(unseen["candidate_id"])
    assert (
        note(metrics)
        == table.loc[~table["candidate_id"].isin(unseen["candidate_id"]), "group"].value_counts().to_dict()
    )
    assert "that the model was trained on, left out: " in (out / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("split", "told"), [("all", True), ("train", True), ("test", False)])
def test_a_training_that_measures_its_own_training_rows_says_so(
    world: World, tmp_path: Path, split: str, told: bool
) -> None:
    config = world.config(f"evaluation.split={split}", "selection=full", "groups.names=[Chile]")
    notes = execute(config, tmp_path / "run", "")["notes"]
    want = f"Evaluated on split {split}: rows that the model was trained on are among them."
    assert (want in notes) == told


def test_the_same_corpus_prepared_again_elsewhere(world: World, run: Path, trained: set[str], tmp_path: Path) -> None:
    """Another folder, other options, another split: the people are the same."""
    other = tmp_path / "other"
    finish(read_prism(world.raw / "prism", history=True), other, seed=5)
    found, metrics, _ = measured(f"run={run}", f"data.dir={other}", QUICK, f"run_dir={tmp_path / 'out'}")
    table = pd.read_parquet(other / "comparisons.parquet")
    table = table[table["group"].isin(GROUPS)]
    test = table[table["split"] == "test"]
    assert 0 < test["cluster_id"].isin(trained).sum() < len(test)
    assert sorted(found["candidate_id"]) == sorted(test.loc[~test["cluster_id"].isin(trained), "candidate_id"])
    assert set(note(metrics)) == set(GROUPS)


def test_trained_rows_are_known_when_the_runs_own_data_are_gone_or_prepared_anew(
    world: World, run: Path, trained: set[str], tmp_path: Path
) -> None:
    """What was trained on stands in the run, so a new table at the old path, or none, hides nothing."""
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    config = (copy / "config.yaml").read_text().replace(str(world.data), str(tmp_path / "gone"))
    (copy / "config.yaml").write_text(config)
    finish(read_prism(world.raw / "prism"), tmp_path / "gone", seed=3)
    found, metrics, _ = measured(
        f"run={copy}",
        f"data.dir={tmp_path / 'gone'}",
        "evaluation.min_clusters=20",
        QUICK,
        f"run_dir={tmp_path / 'out'}",
    )
    assert len(found)
    assert not set(found["cluster_id"]) & trained
    assert note(metrics)


def test_a_model_that_does_not_tell_its_training_rows_is_noted(world: World, run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "model" / "United_States" / "steering" / "trained_on.json").unlink()
    _, metrics, _ = measured(f"run={copy}", f"data.dir={world.data}", QUICK, f"run_dir={tmp_path / 'out'}")
    untold = [n for n in metrics["notes"] if "does not tell what it was trained on" in n]
    assert len(untold) == 1
    assert untold[0].startswith("United_States ")


def test_other_people_with_the_same_ids_are_measured(world: World, run: Path, tmp_path: Path) -> None:
    """Every corpus of this layout has a user0; another world's is somebody else."""
    simulate(tmp_path / "raw", annotators=240, questions=10, seed=9)
    finish(read_prism(tmp_path / "raw" / "prism"), tmp_path / "data")
    found, metrics, _ = measured(
        f"run={run}", f"data.dir={tmp_path / 'data'}", "evaluation.split=all", QUICK, f"run_dir={tmp_path / 'out'}"
    )
    table = pd.read_parquet(tmp_path / "data" / "comparisons.parquet")
    assert sorted(found["candidate_id"]) == sorted(table.loc[table["group"].isin(GROUPS), "candidate_id"])
    assert not note(metrics)


def test_a_model_given_by_its_folder_is_not_measured_on_its_training_rows(
    world: World, run: Path, trained: set[str], tmp_path: Path
) -> None:
    """One group's model of a run, as any reward model; it knows the training rows of its own group only."""
    found, metrics, _ = measured(
        f"model.name_or_path={run / 'model' / 'United_States'}",
        f"data.dir={world.data}",
        NAMES,
        "evaluation.split=all",
        QUICK,
        f"run_dir={tmp_path / 'out'}",
    )
    own, other = (set(found.loc[found["group"] == g, "cluster_id"]) for g in GROUPS)
    assert own
    assert not own & trained
    assert other & trained
    assert note(metrics)["United Kingdom"] == 0


def test_when_all_rows_were_trained_on_the_reason_is_said(world: World, run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="rows that the model was trained on are left out"):
        measured(
            f"run={run}", "split=stratified", "split.seed=7", "evaluation.split=train", f"run_dir={tmp_path / 'out'}"
        )


def test_texts_cut_in_an_evaluation_are_counted(world: World, run: Path, tmp_path: Path) -> None:
    found, metrics, _ = measured(f"run={run}", "model.max_length=40", QUICK, f"run_dir={tmp_path / 'out'}")
    table = read_comparisons(world.data).set_index("candidate_id").loc[found["candidate_id"]]
    model, _ = load_model(run / "model" / "United_States", ModelOptions(max_length=200))
    long = model.formatter.encode(list(table["prompt"]), list(table["response"])).lengths > 40
    want = {g: int(long[(table["group"] == g).to_numpy()].sum()) for g in GROUPS}
    assert all(want.values())
    assert f"Test, texts truncated: {', '.join(f'{g} {n}' for g, n in want.items())}." in metrics["notes"]


def test_a_lost_starting_model_is_named_as_the_reference(world: World, run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    config = (copy / "config.yaml").read_text().replace(str(world.model), str(tmp_path / "lost"))
    (copy / "config.yaml").write_text(config)
    out = f"run_dir={tmp_path / 'out'}"
    with pytest.raises(UserError, match=r"starting and reference model: .*lost.*give reference.name_or_path=PATH"):
        measured(f"run={copy}", QUICK, out)
    _, metrics, _ = measured(f"run={copy}", "reference.name_or_path=null", QUICK, out)
    assert metrics["baselines"]["reference"] is None


def test_the_gap_of_the_training_corpus_is_not_that_of_other_data(world: World, run: Path, tmp_path: Path) -> None:
    """Shares of answers have gaps of at most 1: under the run's gap of 5 no pair would be left."""
    base = (
        f"run={run}",
        f"data.dir={world.goqa}",
        "evaluation.split=all",
        "groups.names=[United States]",
        QUICK,
    )
    found, metrics, _ = measured(*base, f"run_dir={tmp_path / 'out'}")
    joined = found.merge(found, on="comparison_id")
    want = int((joined["score_x"] > joined["score_y"]).sum())
    assert metrics["by_group"]["United States"]["n_pairs"] == want > 0
    _, metrics, _ = measured(*base, "data.min_gap=0.2", f"run_dir={tmp_path / 'own'}")
    assert (
        metrics["by_group"]["United States"]["n_pairs"]
        == int((joined["score_x"] - joined["score_y"] > 0.2).sum())
        < want
    )


def test_measured_again_the_report_still_tells_what_the_run_told(world: World, run: Path) -> None:
    """Notes, the selection's account and what the preparation dropped."""
    _, metrics, out = measured(f"run={run}", "evaluation.resamples=150")
    old = read_json(run / "metrics.json")
    assert metrics["notes"] == old["notes"]
    assert "Optimiser steps per model: 2." in metrics["notes"]
    assert "Balance has no effect with one model per group." in metrics["notes"]
    assert metrics["selection"] == old["selection"]
    assert set(metrics["selection"]) == set(GROUPS)
    first, again = ((folder / "report.md").read_text(encoding="utf-8") for folder in (run, out))
    for line in metrics["notes"]:
        assert line in first
        assert line in again
    for kept in metrics["selection"].values():
        assert str(kept["training pairs"]) in again
    headings = [[line for line in text.splitlines() if line.startswith("#")][1:] for text in (first, again)]
    assert headings[0] == headings[1], "no section is lost"


def test_a_length_that_is_asked_for_is_used(world: World, run: Path, tmp_path: Path) -> None:
    """Rewards of the run's models over texts cut to 16 tokens, computed apart."""
    base = (f"run={run}", QUICK, "groups.names=[United States]")
    found, _, _ = measured(*base, "model.max_length=16", f"run_dir={tmp_path / 'out'}")
    table = pd.read_parquet(world.data / "comparisons.parquet").set_index("candidate_id").loc[found["candidate_id"]]
    model, _ = load_model(run / "model" / "United_States", ModelOptions(max_length=16), require_head=True)
    rewards = score_texts(model, list(table["prompt"]), list(table["response"]))
    assert abs(found["reward"].to_numpy() - rewards).max() < 1e-5
    saved = own_rows(run).set_index("candidate_id")["reward"]
    assert abs(found["reward"].to_numpy() - saved.loc[found["candidate_id"]].to_numpy()).max() > 1e-3
