"""Whole runs of one network for all groups: what the folder holds, that others can read it, and that it scores as it did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from world import World, compose, own_rows

from scpo.conditioning import read_steering
from scpo.errors import UserError
from scpo.run.evaluate import evaluate
from scpo.run.execute import execute

SAMPLE = 4
RUNS: dict[str, tuple[str, ...]] = {
    "embedding": ("conditioning=embedding",),
    "head": ("conditioning=head", "conditioning.head_rank=2", "conditioning.freeze=true", "balance=dro"),
    "adapter": ("conditioning=adapter", "conditioning.adapter_rank=2"),
    "prefix": ("conditioning=prefix", "conditioning.group_dropout=0.5"),
}
LEARNED = [name for name in RUNS if name != "prefix"]


@dataclass(frozen=True)
class Run:
    """A finished run and what `execute` returned."""

    folder: Path
    metrics: dict[str, Any]

    @property
    def frame(self) -> pd.DataFrame:
        return pd.read_parquet(self.folder / "predictions.parquet")


@pytest.fixture(scope="module")
def runs(world: World, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Each mode, for two steps."""
    root = tmp_path_factory.mktemp("conditioned")
    done = {}
    for name, overrides in RUNS.items():
        more = (
            "selection=full",
            f"evaluation.steering_sample={SAMPLE}",
            "optim.lr=0.001",
            "trainer.log_every_n_steps=1",
        )
        done[name] = Run(root / name, execute(world.config(*more, *overrides), root / name, ""))
    return done


def rows_of(frame: pd.DataFrame, condition: str | None) -> pd.Series[float]:
    """Rewards by candidate under one condition."""
    inside = frame["conditioned_on"].isna() if condition is None else frame["conditioned_on"] == condition
    return frame[inside].set_index("candidate_id")["reward"]


@pytest.mark.parametrize("name", RUNS)
def test_every_candidate_under_its_own_group_and_a_sample_under_the_others(
    world: World, runs: dict[str, Run], name: str
) -> None:
    """The table of the design: own rows are exactly the test candidates; the sample holds whole comparisons."""
    frame = runs[name].frame
    assert not frame.duplicated(["candidate_id", "conditioned_on"]).any()
    own = own_rows(runs[name].folder)
    table = pd.read_parquet(world.data / "comparisons.parquet")
    test = table[(table["split"] == "test") & table["group"].isin(["Chile", "South Africa"])]
    assert sorted(own["candidate_id"]) == sorted(test["candidate_id"])
    assert (own["conditioned_on"] == own["group"]).all()
    size = test.groupby("comparison_id")["candidate_id"].nunique()
    for group, other in (("Chile", "South Africa"), ("South Africa", "Chile")):
        for condition in (other, None):
            inside = frame["conditioned_on"].isna() if condition is None else frame["conditioned_on"] == condition
            sample = frame[inside & (frame["group"] == group)]
            counts = sample.groupby("comparison_id")["candidate_id"].nunique()
            assert len(counts) == SAMPLE
            assert (counts == size[counts.index]).all()
    # A group changes rewards, and the reference rewards stand beside every row.
    both = own.set_index("candidate_id")["reward"]
    default = rows_of(frame, None)
    assert (np.abs(both[default.index] - default) > 0).mean() > 0.9
    assert frame["reference_reward"].notna().all()


@pytest.mark.parametrize("name", LEARNED)
def test_transformers_alone_gives_the_reward_without_a_group(world: World, runs: dict[str, Run], name: str) -> None:
    """`model/` is a plain folder; what steers lies below it."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = runs[name].folder / "model"
    assert not (folder / "adapter_config.json").exists()
    network, info = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    default = rows_of(runs[name].frame, None)
    table = pd.read_parquet(world.data / "comparisons.parquet").set_index("candidate_id").loc[default.index[:6]]
    for candidate, row in table.iterrows():
        if len(row["history"]):
            continue
        inputs = tokenizer(row["prompt"], row["response"], return_tensors="pt", truncation=True, max_length=128)
        with torch.no_grad():
            reward = float(network.eval()(**inputs).logits[0, 0])
        assert reward == pytest.approx(default[str(candidate)], abs=1e-5)
    steering = read_steering(folder)
    assert steering is not None
    assert list(steering["groups"]) == ["Chile", "South Africa"]
    assert steering["default"] is True
    assert set(steering["scale"]) == {"Chile", "South Africa"}


@pytest.mark.parametrize("name", RUNS)
def test_evaluating_again_gives_the_rewards_that_the_run_saved(
    world: World, runs: dict[str, Run], tmp_path: Path, name: str
) -> None:
    """From the folder alone, at another batch size: own rows, other groups' rows and those without a group."""
    overrides = [f"run={runs[name].folder}", f"data.dir={world.data}", "batch.tokens=300", f"run_dir={tmp_path}/again"]
    folder, metrics = evaluate(compose(*overrides, name="evaluate"), {o.partition("=")[0] for o in overrides}, "")
    keys = ["candidate_id", "conditioned_on"]
    saved, again = (
        f.assign(conditioned_on=f["conditioned_on"].fillna("")).set_index(keys)["reward"].sort_index()
        for f in (runs[name].frame, pd.read_parquet(folder / "predictions.parquet"))
    )
    assert saved.index.equals(again.index)
    np.testing.assert_allclose(again, saved, rtol=1e-5, atol=1e-5)
    assert metrics["macro"]["accuracy"] == runs[name].metrics["macro"]["accuracy"]


def test_a_frozen_network_is_the_starting_model(world: World, runs: dict[str, Run]) -> None:
    """Its no-group rewards are the reference's, who is the same model; the groups' are not."""
    frame = runs["head"].frame
    silent = frame["conditioned_on"].isna()
    np.testing.assert_allclose(frame["reward"][silent], frame["reference_reward"][silent], rtol=1e-5, atol=1e-5)
    assert (np.abs(frame["reward"] - frame["reference_reward"])[~silent] > 1e-6).mean() > 0.9


def test_group_weights_are_logged_for_all_groups(runs: dict[str, Run]) -> None:
    log = pd.read_csv(runs["head"].folder / "logs" / "all" / "metrics.csv")
    q = log[["dro/Chile", "dro/South Africa"]].dropna()
    assert len(q) == 2
    np.testing.assert_allclose(q.sum(axis=1), 1.0, rtol=1e-5)
    assert "dro/Chile" not in pd.read_csv(runs["embedding"].folder / "logs" / "all" / "metrics.csv").columns


def test_what_was_learned_is_stored_small(runs: dict[str, Run]) -> None:
    """At most 1.1 times one model: the point of one network for all groups."""
    for name in ("embedding", "head"):
        folder = runs[name].folder / "model"
        steering = sum(p.stat().st_size for p in (folder / "steering").rglob("*.safetensors"))
        assert 0 < steering < 0.1 * (folder / "model.safetensors").stat().st_size


def test_an_unknown_adapter_target_is_one_line_with_the_nearest_name(world: World, tmp_path: Path) -> None:
    """Only the model knows its modules' names, so it is said when the model is loaded, before any step."""
    config = world.config("conditioning=adapter", "selection=full", "conditioning.adapter_targets=[Wqvk]")
    with pytest.raises(
        UserError, match=r"adapter_targets: no linear module .* is named 'Wqvk'\. Did you mean 'Wqkv'"
    ) as caught:
        execute(config, tmp_path / "run", "")
    assert "\n" not in str(caught.value)
