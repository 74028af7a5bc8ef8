"""The end of every run and every evaluation: predictions to metrics.json, report and plots."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import pandas as pd

from scpo.evaluation.predictions import write_predictions
from scpo.evaluation.report import write_report
from scpo.evaluation.steering import steering_check
from scpo.evaluation.summary import summarise
from scpo.io import write_json
from scpo.run.config import Config
from scpo.run.folder import RunFolder, versions


def measure(
    config: Config,
    predictions: pd.DataFrame,
    folder: RunFolder,
    *,
    groups: list[str],
    kept: Mapping[str, float | None] | None = None,
    selected: dict[str, dict[str, Any]] | None = None,
    train: dict[str, Any] | None = None,
    losses: dict[str, Any] | None = None,
    notes: list[str] | None = None,
) -> dict[str, Any]:
    """Write predictions.parquet, metrics.json, report.md, report.html and plots; return the metrics.

    Args:
        predictions: the predictions table.
        groups: to report, also those without pairs.
        kept: share of training pairs kept by the selection, by group.
        selected: per group, what the selection kept, as a table of the report.
        train: counters of the training.
        losses: the manifest's account of dropped rows.
        notes: sentences for the report.
    """
    evaluation, arm = config["evaluation"], config.get("selection", {})
    has_reference = bool(predictions["reference_reward"].notna().any())
    tau = evaluation["tau"] if evaluation["tau"] is not None else arm.get("tau")
    beta = evaluation["beta"] if evaluation["beta"] is not None else arm.get("beta")
    metrics = summarise(
        predictions,
        kept_ratio=kept,
        train=train,
        min_gap=config["data"]["min_gap"],
        tau=tau if has_reference else None,
        beta=beta if has_reference else None,
        min_clusters=evaluation["min_clusters"],
        min_pairs=evaluation["min_pairs"],
        resamples=evaluation["resamples"],
        seed=config["seed"],
        groups=groups,
    )
    steering = steering_check(
        predictions,
        min_gap=config["data"]["min_gap"],
        min_clusters=evaluation["min_clusters"],
        min_pairs=evaluation["min_pairs"],
        resamples=evaluation["resamples"],
        seed=config["seed"],
        groups=groups,
    )
    metrics |= {"steering": steering, "selection": selected, "notes": notes or []}
    write_predictions(predictions, folder.path / "predictions.parquet")
    write_json(folder.path / "metrics.json", metrics)
    status = folder.status() or {}
    context = {
        "title": title(config),
        "config": config,
        "command": status.get("command", ""),
        "versions": versions(),
        "data_losses": losses,
        "selection": selected,
        "notes": notes or [],
    }
    write_report(folder.path, metrics, context=context)
    return metrics


def title(config: Config) -> str:
    """A heading for the report."""
    what = config["data"]["name"]
    if "selection" not in config:
        return f"Evaluation on {what}"
    return (
        f"{config['selection']['name']} on {what}, conditioning {config['conditioning']['name']}, seed {config['seed']}"
    )


def command_line(argv: list[str]) -> str:
    """The command as it can be typed again."""
    return shlex.join(["scpo", *argv])
