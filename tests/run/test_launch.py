"""Training on two processes of this machine: the numbers of one, whatever share a process gets."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file
from world import World, own_rows

from scpo.errors import UserError
from scpo.io import read_json
from scpo.run.execute import execute
from scpo.run.launch import ERROR, launch, process_count, read_config

DDP = ("trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2")


def curve(run: Path, column: str = "train/loss") -> dict[int, float]:
    """A logged value by step: the training loss."""
    with (run / "logs" / "all" / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return {int(row["step"]): float(row[column]) for row in csv.DictReader(file) if row[column]}


@pytest.mark.ddp
def test_two_processes_train_the_model_of_one(world: World, tmp_path: Path) -> None:
    """58, 70: equal loss curves, predictions and counts; where a step is one comparison, the second has nothing to do."""
    overrides = (
        "conditioning=none",
        "selection=full",
        "batch.pairs=3",
        "batch.tokens=1000",
        "trainer.max_steps=6",
        "trainer.val_check_interval=3",
        "trainer.log_every_n_steps=1",
        "callbacks.monitor=val/accuracy",
    )
    one, two = world.config(*overrides), world.config(*overrides, *DDP)
    for config in (one, two):
        # Adam turns the rounding of a gradient that is zero (of the last bias: only differences are trained) into whole steps.
        config["optim"]["factory"] = {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.05}
    metrics = [execute(one, tmp_path / "one", ""), execute(two, tmp_path / "two", "")]
    losses = [curve(tmp_path / name) for name in ("one", "two")]
    assert list(losses[0]) == list(losses[1]) == list(range(6))
    np.testing.assert_allclose(list(losses[1].values()), list(losses[0].values()), rtol=1e-5, atol=1e-5)
    tables = [own_rows(tmp_path / name) for name in ("one", "two")]
    assert list(tables[0]["candidate_id"]) == list(tables[1]["candidate_id"])
    np.testing.assert_allclose(tables[1]["reward"], tables[0]["reward"], rtol=1e-5, atol=1e-5)
    for key in ("pairs", "candidates_encoded"):
        assert metrics[0]["train"][key] == metrics[1]["train"][key] > 0
    assert metrics[0]["macro"] == metrics[1]["macro"]
    assert read_json(tmp_path / "two" / "status.json")["state"] == "finished"


@pytest.mark.ddp
def test_two_processes_train_the_groups_of_one(world: World, tmp_path: Path) -> None:
    """58, 70: all that can be learned for a group, with group dropout and group DRO.

    Steps of one or two comparisons: a process sees one group, or no comparison at all, and no weight counts as unused.
    """
    overrides = (
        "conditioning=adapter",
        "conditioning.embedding=true",
        "conditioning.head_rank=2",
        "conditioning.group_dropout=0.3",
        "balance=dro",
        "balance.eta=0.5",
        "selection=full",
        "batch.pairs=3",
        "batch.tokens=1000",
        "trainer.max_steps=6",
        "trainer.log_every_n_steps=1",
        "evaluation.steering_sample=5",
    )
    one, two = world.config(*overrides), world.config(*overrides, *DDP)
    for config in (one, two):
        config["optim"]["factory"] = {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.05}
    for name, config in (("one", one), ("two", two)):
        execute(config, tmp_path / name, "")
    for column in ("train/loss", "dro/Chile", "dro/South Africa"):
        found = [curve(tmp_path / name, column) for name in ("one", "two")]
        assert list(found[0]) == list(found[1]) == list(range(6))
        np.testing.assert_allclose(list(found[1].values()), list(found[0].values()), rtol=1e-5, atol=1e-5)
    assert abs(found[0][5] - found[0][0]) > 1e-3
    tables = [pd.read_parquet(tmp_path / name / "predictions.parquet") for name in ("one", "two")]
    assert tables[0]["conditioned_on"].isna().any()
    for key in ("candidate_id", "conditioned_on"):
        assert tables[0][key].tolist() == tables[1][key].tolist()
    np.testing.assert_allclose(tables[1]["reward"], tables[0]["reward"], rtol=1e-5, atol=1e-5)
    own = [load_file(tmp_path / name / "model" / "steering" / "steering.safetensors") for name in ("one", "two")]
    for key, tensor in own[0].items():
        np.testing.assert_allclose(own[1][key], tensor, rtol=1e-4, atol=1e-6)
        assert tensor.any(), key


@pytest.mark.ddp
def test_a_mistake_that_a_worker_finds_comes_back_as_one_line(world: World, tmp_path: Path) -> None:
    """Here a logger that cannot be made; the other process does not wait for ever."""
    config = world.config(*DDP, "conditioning=none", "selection=full")
    config["logger"] = {"_target_": "scpo.no_such_logger"}
    with pytest.raises(UserError, match=r"logger: scpo\.no_such_logger cannot be made"):
        execute(config, tmp_path / "run", "")
    assert read_json(tmp_path / "run" / "status.json")["state"] == "failed"


def test_a_folder_without_config_is_no_run(tmp_path: Path) -> None:
    """Nor is a list one."""
    with pytest.raises(UserError, match=r"expected a run folder, found no config\.yaml"):
        read_config(tmp_path)
    (tmp_path / "config.yaml").write_text("- 1\n", encoding="utf-8")
    with pytest.raises(UserError, match="expected a mapping of settings"):
        read_config(tmp_path)


def test_a_worker_that_crashes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the workers get the run folder, never a command line: no second Hydra run can start (69)."""
    commands: list[list[str]] = []

    def crash(command: list[str], **kwargs: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 7)

    monkeypatch.setattr(subprocess, "run", crash)
    with pytest.raises(RuntimeError, match="a worker process ended with exit code 7"):
        launch(tmp_path, 2)
    assert commands[0][-3:] == ["-m", "scpo.run.worker", str(tmp_path)]
    assert "--nproc_per_node=2" in commands[0]


def test_an_old_mistake_is_not_told_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run that failed before, in the same folder."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / ERROR).write_text('{"error": "old"}', encoding="utf-8")
    monkeypatch.setattr(subprocess, "run", lambda command, **kwargs: subprocess.CompletedProcess(command, 1))
    with pytest.raises(RuntimeError, match="exit code 1"):
        launch(tmp_path, 2)


@pytest.mark.parametrize(
    ("devices", "cpu", "gpu"), [(1, 1, 1), (2, 2, 2), ([0, 1], 2, 2), ([3], 1, 1), ("auto", 1, 4), (-1, 1, 4)]
)
def test_how_many_processes_the_devices_ask_for(
    monkeypatch: pytest.MonkeyPatch, devices: Any, cpu: int, gpu: int
) -> None:
    """All devices of this machine are one CPU, or its GPUs; here it is made to have four of them, or none."""
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    for accelerator, count in (("cpu", cpu), ("mps", cpu), ("gpu", gpu), ("cuda", gpu), ("auto", gpu)):
        assert process_count({"accelerator": accelerator, "devices": devices}) == count
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert process_count({"accelerator": "auto", "devices": devices}) == cpu
