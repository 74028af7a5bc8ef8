"""What the parts of a run start from: pairs, their selection and balance, texts over the length; and their trainings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from world import Command, World, compose, own_rows

from scpo.data.encode import Formatter
from scpo.errors import UserError
from scpo.io import read_json
from scpo.model.reward import load_model, load_tokenizer
from scpo.run.config import PRECISIONS
from scpo.run.execute import execute
from scpo.run.inputs import RunData, load_data
from scpo.run.parts import Inputs, model_options, prepare_inputs
from scpo.run.predict import predict

LONG = 80
"""Tokens: about one text in ten of the world is longer."""


def hand_made(groups: dict[str, list[list[str]]]) -> RunData:
    """Training comparisons whose responses stand in the order of their scores, best first."""
    rows = [
        {
            "comparison_id": f"{group}{i}",
            "candidate_id": f"{group}{i}/{j}",
            "response": response,
            "score": float(10 - j),
            "group": group,
            "split": "train",
        }
        for group, comparisons in groups.items()
        for i, responses in enumerate(comparisons)
        for j, response in enumerate(responses)
    ]
    data = RunData(pd.DataFrame(rows), np.zeros(0, dtype=np.int64), list(groups), {})
    data.restrict(list(groups))
    return data


def prepared(data: RunData, rewards: list[float] | None, *overrides: str) -> Inputs:
    """The inputs of a run on these comparisons."""
    known = None if rewards is None else np.array(rewards, dtype=np.float32)
    return prepare_inputs(compose(*overrides), data, Path("start"), known)


def test_pairs_of_equal_responses_leave_before_the_selection() -> None:
    """Of the 3 + 1 pairs of a, one has two equal texts: the shares are of the three others."""
    data = hand_made({"a": [["x", "y", "x"], ["x", "z"]], "b": [["x", "z"]]})
    full = prepared(data, None, "selection=full")
    names = data.frame["candidate_id"].to_numpy()
    kept = list(zip(names[full.pairs.chosen], names[full.pairs.rejected], strict=True))
    assert kept == [("a0/0", "a0/1"), ("a0/1", "a0/2"), ("a1/0", "a1/1"), ("b0/0", "b0/1")]
    assert {name: counts["training pairs"] for name, counts in full.counts.items()} == {"a": 3, "b": 1}
    assert {name: counts["kept share"] for name, counts in full.counts.items()} == {"a": 1.0, "b": 1.0}
    # The filter drops a1/0 over a1/1, which the reference is sure of: two of three are left, not three of four.
    rewards = [0.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0]
    filtered = prepared(data, rewards, "selection=filter")
    assert filtered.counts["a"]["kept"] == 2
    assert filtered.counts["a"]["kept share"] == pytest.approx(2 / 3)


def drawn(world: World, names: str) -> dict[str, set[tuple[str, str]]]:
    """The pairs that the random arm keeps, by group."""
    config = world.config("selection=random", f"groups.names={names}")
    data = load_data(config)
    # Rewards of the texts alone, so that they do not depend on the groups that are read.
    rewards = data.frame["response"].str.len().to_numpy(dtype=np.float32) / 100
    inputs = prepare_inputs(config, data, world.model, rewards)
    ids, group = data.frame["candidate_id"].to_numpy(), data.frame["group"].to_numpy()
    kept: dict[str, set[tuple[str, str]]] = {}
    for plus, minus in zip(inputs.pairs.chosen, inputs.pairs.rejected, strict=True):
        kept.setdefault(group[plus], set()).add((ids[plus], ids[minus]))
    assert 0 < inputs.counts["Chile"]["kept share"] < 1
    return kept


def test_the_random_arm_draws_a_group_alike_in_any_company(world: World) -> None:
    """Whatever other groups are named, and in what order."""
    alone = drawn(world, "[Chile]")
    first, second = drawn(world, "[Chile,South Africa]"), drawn(world, "[Israel,South Africa,Chile]")
    assert alone["Chile"] == first["Chile"] == second["Chile"]
    assert first["South Africa"] == second["South Africa"]


SIZES = {"a": [["x", "y"]], "b": [["x", "y"]] * 3}


def test_balance_evens_groups_out_in_one_model_and_does_nothing_in_separate_ones() -> None:
    """Inverse of 1 and 3 pairs with mean 1: 4 pairs over 2 groups are 2 a group, so 2 and 2/3."""
    one = prepared(hand_made(SIZES), None, "selection=full", "balance=inverse", "conditioning=none")
    np.testing.assert_allclose(one.weight, [2, 2 / 3, 2 / 3, 2 / 3])
    each = prepared(hand_made(SIZES), None, "selection=full", "balance=inverse", "conditioning=separate")
    np.testing.assert_array_equal(each.weight, np.ones(4))


def test_balance_with_separate_models_is_noted(world: World, tmp_path: Path) -> None:
    note = "Balance has no effect with one model per group."
    for mode, name in (("separate", "a"), ("none", "b")):
        config = world.config("balance=inverse", "selection=full", f"conditioning={mode}")
        assert (note in execute(config, tmp_path / name, "")["notes"]) == (mode == "separate")


def over(world: World) -> tuple[pd.DataFrame, pd.Series]:
    """The rows of the two groups, and which of them are over the length; an own count."""
    table = pd.read_parquet(world.data / "comparisons.parquet")
    table = table[table["group"].isin(["Chile", "South Africa"])]
    tokenizer = load_tokenizer(world.model)
    lengths = [len(tokenizer(p, r)["input_ids"]) for p, r in zip(table["prompt"], table["response"], strict=True)]
    return table, pd.Series(lengths, index=table.index) > LONG


@pytest.mark.parametrize("mode", ["separate", "none"])
def test_texts_that_are_too_long_are_dropped_everywhere_and_counted(world: World, tmp_path: Path, mode: str) -> None:
    table, long = over(world)
    counts = table.loc[long, "group"].value_counts()
    assert counts.min() > 5
    config = world.config(
        "model.overlong=drop", f"model.max_length={LONG}", f"conditioning={mode}", f"cache_dir={tmp_path / 'cache'}"
    )
    metrics = execute(config, tmp_path / "run", "")
    told = f"Chile {counts['Chile']}, South Africa {counts['South Africa']}."
    assert metrics["notes"].count(f"Candidates over {LONG} tokens (model.overlong=drop): {told}") == 1
    assert metrics == read_json(tmp_path / "run" / "metrics.json")
    assert "NaN" not in (tmp_path / "run" / "metrics.json").read_text(encoding="utf-8")
    found = own_rows(tmp_path / "run")
    left = table[~long & (table["split"] == "test")]
    assert sorted(found["candidate_id"]) == sorted(left["candidate_id"])
    assert np.isfinite(found[["reward", "reference_reward"]]).all(axis=None)
    joined = left.merge(left, on="comparison_id")
    assert metrics["micro"]["n_pairs"] == (joined["score_x"] > joined["score_y"]).sum()
    training = table[~long & (table["split"] == "train")]
    joined = training.merge(training, on="comparison_id")
    of_chile = (joined["score_x"] > joined["score_y"]) & (joined["group_x"] == "Chile")
    assert metrics["selection"]["Chile"]["training pairs"] == of_chile.sum()


def test_a_text_that_is_too_long_can_be_an_error(scpo: Command, world: World, tmp_path: Path) -> None:
    table, long = over(world)
    done = scpo(
        "train",
        *world.overrides("selection=full", "model.overlong=error", f"model.max_length={LONG}", "conditioning=none"),
        f"run_dir={tmp_path / 'run'}",
        f"cache_dir={tmp_path / 'cache'}",
    )
    assert done.code == 2, done.err
    line = done.err.splitlines()[-1]
    named = [c for c in table.loc[long, "candidate_id"] if f"{c}: expected at most {LONG} tokens" in line]
    assert len(named) == 1, line
    assert "raise model.max_length or set model.overlong=truncate" in line
    assert read_json(tmp_path / "run" / "status.json")["state"] == "failed"


def test_a_test_text_that_is_too_long_is_named_too(world: World) -> None:
    config = world.config("model.overlong=error", f"model.max_length={LONG}", "groups.names=[Chile]")
    model, _ = load_model(world.model, model_options(config))
    table, long = over(world)
    first = table.loc[long & (table["split"] == "test") & (table["group"] == "Chile"), "candidate_id"].iloc[0]
    with pytest.raises(UserError, match=rf"{re.escape(first)}: expected at most {LONG} tokens"):
        predict(config, load_data(config), model, ["Chile"], "separate")


def test_the_length_counts_the_name_of_the_group(world: World, tmp_path: Path) -> None:
    """With `prefix` a text is longer, and what is dropped is what would not fit."""
    config = world.config(
        "model.overlong=drop",
        f"model.max_length={LONG}",
        "conditioning=prefix",
        "selection=full",
        f"cache_dir={tmp_path / 'cache'}",
    )
    execute(config, tmp_path / "run", "")
    table, long = over(world)
    template = config["conditioning"]["template"]
    formatter = Formatter(load_tokenizer(world.model), max_length=LONG, overlong="drop", template=template)
    encoded = formatter.encode(list(table["prompt"]), list(table["response"]), None, list(table["group"]))
    assert encoded.dropped.sum() > long.sum()
    found = own_rows(tmp_path / "run")
    want = table[~encoded.dropped & (table["split"] == "test").to_numpy()]
    assert sorted(found["candidate_id"]) == sorted(want["candidate_id"])


def test_cut_texts_are_counted_per_group(world: World, tmp_path: Path) -> None:
    """Training texts of pairs, and test texts."""
    table, long = over(world)
    config = world.config(f"model.max_length={LONG}", "selection=full", f"cache_dir={tmp_path / 'cache'}")
    notes = execute(config, tmp_path / "run", "")["notes"]
    counts = table.loc[long & (table["split"] == "test"), "group"].value_counts()
    want = f"Test, texts truncated: Chile {counts['Chile']}, South Africa {counts['South Africa']}."
    assert want in notes
    assert sum(note.startswith("Training, texts truncated: Chile ") for note in notes) == 1


@pytest.mark.parametrize("precision", PRECISIONS)
def test_each_precision_trains_on_the_cpu(world: World, tmp_path: Path, precision: str) -> None:
    config: dict[str, Any] = world.config(f"trainer.precision={precision}", "groups.names=[Chile]", "selection=full")
    config["trainer"]["log_every_n_steps"] = 1
    config["trainer"]["val_check_interval"] = 1
    metrics = execute(config, tmp_path / "run", "")
    assert "Optimiser steps per model: 2." in metrics["notes"]
    logged = pd.read_csv(tmp_path / "run" / "logs" / "Chile" / "metrics.csv")
    assert np.isfinite(logged["train/loss"].dropna()).all()
    assert logged["train/loss"].notna().sum() == logged["val/loss"].notna().sum() == 2
    steering = json.loads((tmp_path / "run" / "model" / "steering" / "steering.json").read_text(encoding="utf-8"))
    assert str(steering["trained_precision"]) == precision
    # Rewards are of the saved weights in float32, whatever training was done in: they moved away from the start's.
    found = own_rows(tmp_path / "run")
    assert np.isfinite(found["reward"]).all()
    assert (found["reward"] != found["reference_reward"]).any()
