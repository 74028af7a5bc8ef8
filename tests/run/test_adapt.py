"""A new group on a frozen, steered model: what is trained, what stays, what is written, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from world import Command, World, compose, own_rows

from scpo.conditioning import LEARNED, read_steering
from scpo.io import read_json
from scpo.model.reward import ModelOptions
from scpo.model.score import score_texts
from scpo.model.steering_files import load_steered
from scpo.run.adapt import adapt
from scpo.run.execute import execute

QUICK = ("trainer.max_steps=3", "evaluation.resamples=100", "evaluation.steering_sample=5")
TEXTS = (["should the town build a bridge?", "is the lake cold"], ["yes, and soon", "no one agrees on it"])


@pytest.fixture(scope="module", params=LEARNED)
def steered(request: pytest.FixtureRequest, world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two groups for each learned mode."""
    folder: Path = tmp_path_factory.mktemp("steered") / str(request.param)
    execute(world.config(f"conditioning={request.param}", "evaluation.steering_sample=5"), folder, "")
    return folder


def config(world: World, steered: Path, *more: str) -> dict[str, Any]:
    base = (f"model.name_or_path={steered / 'model'}", f"data.dir={world.data}", "group=Israel", *QUICK)
    return compose(*base, *more, name="adapt")


def rewards(folder: Path, group: str | None) -> np.ndarray:
    steering = read_steering(folder)
    assert steering is not None
    model, _ = load_steered(folder, ModelOptions(max_length=steering["max_length"]))
    return score_texts(model, *TEXTS, groups=[group] * 2)


def test_the_known_groups_and_the_default_stay_and_the_new_one_is_trained(
    world: World, steered: Path, tmp_path: Path
) -> None:
    metrics = adapt(config(world, steered), tmp_path / "run", "scpo adapt")
    before, after = steered / "model", tmp_path / "run" / "model"
    for group in (None, "Chile", "South Africa"):
        np.testing.assert_array_equal(rewards(after, group), rewards(before, group))
    assert np.abs(rewards(after, "Israel") - rewards(after, None)).max() > 1e-4
    assert list(metrics["by_group"]) == ["Israel"]
    steering, old = read_steering(after), read_steering(before)
    assert steering is not None
    assert old is not None
    assert list(steering["groups"]) == ["Chile", "South Africa", "Israel"]
    assert steering["default"] == old["default"] is True
    assert set(steering["scale"]) == {"Chile", "South Africa", "Israel"}
    assert steering["scale"]["Chile"] == old["scale"]["Chile"]


def test_the_saved_rewards_are_those_of_the_saved_model(world: World, steered: Path, tmp_path: Path) -> None:
    adapt(config(world, steered), tmp_path / "run", "scpo adapt")
    table = pd.read_parquet(world.data / "comparisons.parquet").set_index("candidate_id")
    found = own_rows(tmp_path / "run").head(8)
    steering = read_steering(tmp_path / "run" / "model")
    assert steering is not None
    model, _ = load_steered(tmp_path / "run" / "model", ModelOptions(max_length=steering["max_length"]))
    rows = table.loc[found["candidate_id"]]
    again = score_texts(model, list(rows["prompt"]), list(rows["response"]), groups=["Israel"] * len(rows))
    np.testing.assert_allclose(again, found["reward"], rtol=1e-5, atol=1e-5)
    conditions = set(pd.read_parquet(tmp_path / "run" / "predictions.parquet")["conditioned_on"].dropna())
    assert conditions == {"Chile", "South Africa", "Israel"}


def test_a_draw_of_comparisons_is_the_beginning_of_a_larger_one(world: World, tmp_path: Path) -> None:
    from scpo.run.inputs import load_data
    from scpo.run.parts import drawn

    data = load_data(world.config("groups.names=[Chile,Israel]"))
    pairs = data.pairs("train", 0.0)
    few, more = (drawn(data, pairs, n, seed=3) for n in (4, 9))
    assert not (few & ~more).any()
    for code in (0, 1):
        of = data.group_code[pairs.chosen] == code
        assert [len(np.unique(data.comparison[pairs.chosen[of & kept]])) for kept in (few, more)] == [4, 9]
    assert (drawn(data, pairs, 4, seed=4) != few).any()
    assert drawn(data, pairs, 10**6, seed=3).all()


def test_what_it_starts_from(world: World, steered: Path, tmp_path: Path) -> None:
    """`init=nearest` begins at a known group's weights, `init=default` at no change."""
    still = ("trainer.max_steps=1", "optim.lr=1e-30")
    for init in ("nearest", "default"):
        adapt(config(world, steered, *still, f"init={init}"), tmp_path / init, "")
    new = rewards(tmp_path / "default" / "model", "Israel")
    np.testing.assert_allclose(new, rewards(steered / "model", None), atol=1e-6)
    nearest = rewards(tmp_path / "nearest" / "model", "Israel")
    known = [rewards(steered / "model", group) for group in ("Chile", "South Africa")]
    assert min(np.abs(nearest - k).max() for k in known) < 1e-6


def test_an_adapted_run_is_a_run(world: World, steered: Path, scpo: Command, tmp_path: Path) -> None:
    """It is skipped when finished, measured again, and its model takes a further group."""
    arguments = (f"model={steered / 'model'}", "group=IL", f"data.dir={world.data}", f"run_dir={tmp_path / 'run'}")
    first = scpo("adapt", *arguments, *QUICK, "data.train_comparisons=10")
    assert first.code == 0, first.err
    assert "Israel" in first.out
    status = read_json(tmp_path / "run" / "status.json")
    assert scpo("adapt", *arguments, *QUICK, "data.train_comparisons=10").code == 0
    assert read_json(tmp_path / "run" / "status.json") == status
    again = scpo("evaluate", f"run={tmp_path / 'run'}", f"data.dir={world.data}", "evaluation.resamples=100")
    assert again.code == 0, again.err
    further = (f"model={tmp_path / 'run' / 'model'}", "group=Canada", f"data.dir={world.data}")
    done = scpo("adapt", *further, f"run_dir={tmp_path / 'more'}", *QUICK)
    assert done.code == 0, done.err
    steering = read_steering(tmp_path / "more" / "model")
    assert steering is not None
    assert list(steering["groups"]) == ["Chile", "South Africa", "Israel", "Canada"]
    trained = read_json(tmp_path / "more" / "model" / "steering" / "trained_on.json")["keys"]
    assert set(read_json(steered / "model" / "steering" / "trained_on.json")["keys"]) < set(trained)


def test_wrong_requests_are_one_line(world: World, steered: Path, scpo: Command, tmp_path: Path) -> None:
    data, model = f"data.dir={world.data}", f"model={steered / 'model'}"
    plain = f"model={world.model}"
    for arguments, said in (
        ((plain, "group=Israel", data), "expected a model that learned something for each group"),
        ((model, "group=ZA", data), "knows this group already"),
        ((model, "group=Irsael", data), "Did you mean 'Israel'"),
        ((model, data), "group: expected the name of the new group"),
        (("group=Israel", data), "model: expected RUN/model of a steered run"),
        ((model, "group=Israel", data, "init=far"), "init: expected one of nearest, default"),
        ((model, "group=Israel", data, "selection=scpo"), "trains on all pairs"),
        ((model, "group=Israel", data, "trainer.devices=2"), "adapted on one process; set trainer.devices=1"),
        ((model, "group=Israel", data, "data.train_comparisons=0"), "data.train_comparisons: expected at least 1"),
        (("model=absent/model", "group=Israel", data), "absent/model"),
    ):
        assert said in scpo("adapt", *arguments, f"run_dir={tmp_path / 'run'}").line, arguments
        assert not (tmp_path / "run" / "model").exists()


def test_only_the_groups_own_weights_get_a_gradient(world: World, steered: Path, tmp_path: Path) -> None:
    adapt(config(world, steered, "callbacks.keep_checkpoints=true", "callbacks.every_n_steps=1"), tmp_path / "run", "")
    saved = torch.load(next((tmp_path / "run" / "checkpoints").rglob("last.ckpt")), weights_only=True)["state_dict"]
    assert saved
    assert all(name.startswith("model.steering.") for name in saved)
    assert all(len(tensor) == 1 for tensor in saved.values()), "one group"
