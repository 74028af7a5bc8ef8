"""What is exported: a finished training run, the group asked for, and the folder whose weights serve it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scpo.conditioning import LEARNED, STEERING, folder_of, read_steering
from scpo.errors import UserError, did_you_mean
from scpo.evaluation.runs import FINISHED, check_metrics
from scpo.groups import resolve
from scpo.io import read_json, require_dir, shorten, shown
from scpo.run.config import check_train_config
from scpo.run.launch import read_config

REPORTED = ("sufficient_only", "macro", "micro", "gap", "baselines", "settings", "counts", "n_groups", "n_pairs")
"""Keys of metrics.json that the card needs, beside those that every table reads."""


@dataclass(frozen=True)
class Source:
    """A run to export.

    Attributes:
        run: its folder.
        config: its resolved config.
        status: its status.json.
        metrics: its metrics.json.
        steering: the steering file of its model.
        group: what the exported model is told, in the model's own name; None: no group.
        folder: the model folder whose weights are exported.
    """

    run: Path
    config: dict[str, Any]
    status: dict[str, Any]
    metrics: dict[str, Any]
    steering: dict[str, Any]
    group: str | None
    folder: Path

    @property
    def mode(self) -> str:
        """The conditioning of the run."""
        return str(self.steering["mode"])

    @property
    def sentence(self) -> str | None:
        """The words that name the group in the input; None where no text does."""
        if self.mode != "prefix" or self.group is None:
            return None
        return str(self.steering["template"].format(group=self.group))

    @property
    def learned(self) -> bool:
        """True where the group's change lies in weights that must be folded into the model's own."""
        return self.mode in LEARNED and self.group is not None


def read_source(run: Path, group: str | None = None) -> Source:
    """Read and check a run folder.

    Args:
        run: the folder of a finished ``scpo train`` or ``scpo adapt``.
        group: a name or an alias; None: the model's rewards without a group.

    Raises:
        UserError: not the folder of a finished training run, its model is gone, or a group that it does not have.
    """
    run = require_dir(Path(run).expanduser(), "the folder of a run (run=RUN)")
    _refuse_others(run)
    config = read_config(run)
    if "run" in config or "selection" not in config:
        raise UserError(
            f"{run}: expected the folder of a training run, found one of an evaluation; give the run it measured"
        )
    status = read_json(run / "status.json")
    state = status.get("state") if isinstance(status, dict) else None
    if state != FINISHED:
        why = f": {shorten(str(status['error']))}" if isinstance(status, dict) and status.get("error") else ""
        raise UserError(
            f"{run}: expected a finished run, found one that is {shown(state)}{why}; give its command again"
        )
    check_train_config(config)
    metrics = read_json(run / "metrics.json")
    _check_metrics(metrics, run / "metrics.json")
    model = run / "model"
    if not model.is_dir():
        raise UserError(f"{run}: the export needs {model}, which is gone; train the run again")
    steering = read_steering(model)
    if steering is None:
        raise UserError(
            f"{model / STEERING}: expected how the model was trained, found no such file; train the run again"
        )
    group = _group(group, steering, run)
    folder = folder_of(model, steering, group)
    if not folder.is_dir():
        raise UserError(f"{run}: the export needs {folder}, which is gone; train the run again")
    return Source(run, config, status, metrics, steering, group, folder)


def _refuse_others(run: Path) -> None:
    """Say what stands there where it is no run folder."""
    if (run / "config.yaml").is_file():
        return
    if (run / "config.json").is_file() or (run / STEERING).is_file():
        inside = next((p for p in run.resolve().parents[:2] if (p / "config.yaml").is_file()), None)
        raise UserError(
            f"{run}: expected the folder of a run, found a model folder; give {inside or 'the run it belongs to'}"
        )
    below = sorted(p.parent.name for p in run.glob("*/config.yaml"))
    if below:
        raise UserError(
            f"{run}: expected one run, found a folder of runs; give one of them, such as run={run / below[0]}"
        )
    raise UserError(f"{run}: expected the folder of a run of 'scpo train', found no config.yaml in it")


def _check_metrics(metrics: Any, path: Path) -> None:
    if not isinstance(metrics, dict):
        raise UserError(f"{path}: expected the metrics of a run, found {shown(metrics)}")
    check_metrics(metrics, str(path))
    missing = [key for key in REPORTED if key not in metrics]
    if missing:
        raise UserError(
            f"{path}: expected key {missing[0]}, found none: it is damaged or of another version; train again"
        )


def _group(group: str | None, steering: dict[str, Any], run: Path) -> str | None:
    """The group in the model's own name.

    Raises:
        UserError: unknown; given where the model is not told groups; missing where there is one model per group.
    """
    mode, known = steering["mode"], list(steering["groups"])
    if mode == "none" and group is not None:
        raise UserError(
            f"group={group}: {run} trained one model that is not told the group (conditioning=none); leave group out"
        )
    if mode == "separate" and group is None:
        raise UserError(f"{run}: holds one model per group; say which with group=NAME.{did_you_mean('', known)}")
    return None if group is None else resolve([group], known, whose=str(run))[0]
