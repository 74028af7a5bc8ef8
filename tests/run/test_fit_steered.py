"""Training a steered part: resuming, the best weights, what a checkpoint of a frozen network holds, group DRO's state."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from steered import GROUPS, MODES, PLAIN, rewards, steered_pairs
from test_fit import extra, same, settings, weights
from tiny_backbones import build_backbone

from scpo.data.datamodule import PairSet
from scpo.model.reward import RewardNetwork, load_model
from scpo.run.fit import fit_part, make_dro

SETTINGS = {"trainer": {"max_steps": 14}, "conditioning": {"group_dropout": 0.3, "lr_scale": 10.0}}


def config(balance: str = "none", **callbacks: Any) -> dict[str, Any]:
    """14 steps over two epochs, with group dropout and a validation every 4 steps."""
    made = settings(**callbacks)
    for section, values in SETTINGS.items():
        made[section].update(values)
    made["balance"].update(name=balance, eta=0.5)
    return made


def start(tmp_path: Path, mode: str, *, freeze: bool = False) -> tuple[RewardNetwork, PairSet, PairSet]:
    """A fresh tiny model with dropout, and its pairs; always the same."""
    folder = tmp_path / "start"
    if not folder.exists():
        build_backbone("modernbert", folder, classifier_dropout=0.1, mlp_dropout=0.1)
    model = load_model(folder, PLAIN)[0]
    model.add_steering(GROUPS, MODES[mode], freeze=freeze)
    return model, steered_pairs(model, comparisons=17), steered_pairs(model, comparisons=6, seed=1)


def fit(
    made: dict[str, Any], tmp_path: Path, run: str, mode: str, *, freeze: bool = False
) -> tuple[RewardNetwork, Any]:
    model, train, val = start(tmp_path, mode, freeze=freeze)
    return model, fit_part(made, model, GROUPS, train, val, tmp_path / run, "part")


def shares(run: Path) -> dict[int, list[float]]:
    """The groups' weights by step, from the last line that logged each."""
    with (run / "logs" / "part" / "metrics.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get(f"dro/{GROUPS[0]}")]
    return {int(row["step"]): [float(row[f"dro/{group}"]) for group in GROUPS] for row in rows}


def checkpoint(run: Path, name: str = "last") -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(run / "checkpoints" / "part" / f"{name}.ckpt", weights_only=True)
    return loaded


@pytest.mark.parametrize("mode", ["embedding", "all"])
@pytest.mark.parametrize(("every", "kill"), [(5, 7), (4, 12)])
def test_a_killed_training_goes_on_to_the_same_groups_and_weights(
    tmp_path: Path, mode: str, every: int, kill: int
) -> None:
    """52: what is learned for each group, group dropout, and the weights of group DRO."""
    _, expected = whole = fit(config("dro", every_n_steps=every), tmp_path, "whole", mode)
    with pytest.raises(RuntimeError, match="killed"):
        fit(config("dro", every_n_steps=every, extra=killed(kill)), tmp_path, "cut", mode)
    saved = checkpoint(tmp_path / "cut")
    assert saved["global_step"] < kill
    resumed, found = fit(config("dro", every_n_steps=every), tmp_path, "cut", mode)
    assert same(weights(resumed), weights(whole[0]))
    assert {k: v for k, v in found.items() if k != "seconds"} == {k: v for k, v in expected.items() if k != "seconds"}
    q = shares(tmp_path / "whole")
    assert list(q) == list(range(14))
    assert shares(tmp_path / "cut")[13] == q[13]
    assert saved["state_dict"]["dro.q"].tolist() == pytest.approx(q[saved["global_step"] - 1], rel=1e-5)
    assert abs(q[13][0] - q[0][0]) > 0.01
    assert sum(q[13]) == pytest.approx(1.0, abs=1e-5)


def killed(step: int) -> dict[str, Any]:
    """A kill after a step; the callback is that of the tests of plain training."""
    return {name: {**what, "_target_": "test_fit.StopAfter"} for name, what in extra(StopAfter={"step": step}).items()}


@pytest.mark.parametrize("mode", list(MODES))
def test_a_frozen_network_trains_and_saves_what_is_the_groups_alone(tmp_path: Path, mode: str) -> None:
    """64: the checkpoint holds nothing else, and is enough to resume from."""
    model, _ = fit(config(every_n_steps=7), tmp_path, "run", mode, freeze=True)
    before = start(tmp_path, mode)[0]
    after, first = weights(model), weights(before)
    changed = {name for name in first if not torch.equal(after[name], first[name])}
    assert changed
    assert all(name.startswith("steering.") for name in changed)
    np.testing.assert_array_equal(rewards(model, None), rewards(before, None))
    own = {f"model.{name}" for name in first if name.startswith("steering.")}
    assert set(checkpoint(tmp_path / "run")["state_dict"]) == own
    with pytest.raises(RuntimeError, match="killed"):
        fit(config(every_n_steps=5, extra=killed(7)), tmp_path, "cut", mode, freeze=True)
    resumed, _ = fit(config(every_n_steps=5), tmp_path, "cut", mode, freeze=True)
    assert same(weights(resumed), after)


def test_the_best_weights_of_the_groups_come_back(tmp_path: Path) -> None:
    """A learning rate of 3, ten times the network's, ruins them after the first validations."""
    made = config(monitor="val/loss")
    made["trainer"].update(val_check_interval=1, max_steps=6, gradient_clip_val=0.0)
    made["schedule"]["name"] = "constant"
    made["optim"]["factory"]["lr"] = 0.3
    model, result = fit(made, tmp_path, "run", "all", freeze=True)
    assert 1 <= result["best_step"] < 6
    made["trainer"].update(max_steps=result["best_step"])
    assert same(weights(model), weights(fit(made, tmp_path, "short", "all", freeze=True)[0]))


def test_the_optimiser_of_a_run_has_both_learning_rates(tmp_path: Path) -> None:
    """The config's optimiser keeps them in the checkpoint, fallen alike along the schedule."""
    fit(config(every_n_steps=9), tmp_path, "run", "head")
    groups = checkpoint(tmp_path / "run")["optimizer_states"][0]["param_groups"]
    assert [group["initial_lr"] for group in groups] == pytest.approx([0.003, 0.03])
    fallen = [group["lr"] / group["initial_lr"] for group in groups]
    assert fallen[0] == pytest.approx(fallen[1])
    assert 0.2 < fallen[0] < 0.5  # 5 of 14 steps are left


def test_dro_needs_two_groups_with_pairs(tmp_path: Path) -> None:
    """With one (separate models) there is nothing to weigh; a group without pairs gets no weight."""
    _, train, _ = start(tmp_path, "head")
    dro = make_dro(config("dro"), train, GROUPS, 8.0)
    assert dro is not None
    assert dro.eta == 0.5
    counts = np.bincount(train.group, minlength=3)
    np.testing.assert_allclose(dro.share.numpy(), counts / counts.sum(), rtol=1e-6)
    assert make_dro(config("none"), train, GROUPS, 8.0) is None
    one = train.group == 1
    alone = replace(train, pairs=train.pairs[one], weight=train.weight[one], group=train.group[one])
    assert make_dro(config("dro"), alone, GROUPS, 8.0) is None
    two = train.group != 2
    without = replace(train, pairs=train.pairs[two], weight=train.weight[two], group=train.group[two])
    dro = make_dro(config("dro"), without, GROUPS, 8.0)
    assert dro is not None
    assert dro.q.tolist() == [0.5, 0.5, 0.0]
