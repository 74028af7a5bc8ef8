"""A training run from its resolved config to its folder: reference rewards, selection, training, predictions, report."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scpo import conditioning, selection
from scpo.errors import UserError
from scpo.evaluation.predictions import read_predictions
from scpo.io import read_json
from scpo.model.files import model_fingerprint
from scpo.run.config import Config, check_train_config
from scpo.run.folder import RunFolder
from scpo.run.inputs import load_data, reference_folder, starting_folder
from scpo.run.measure import measure
from scpo.run.parts import Inputs, prepare_inputs, train_parts
from scpo.run.rewards import score_reference, set_threads

log = logging.getLogger(__name__)


def execute(config: Config, run_dir: Path, command: str) -> dict[str, Any]:
    """Run a training config into a folder and return its metrics; a finished run is read, a killed one goes on.

    Args:
        config: the resolved config, plain dicts and lists.
        run_dir: the run folder.
        command: what the user typed, for the record.

    Raises:
        UserError: anything wrong with the config, the data or the models.
    """
    check_train_config(config)
    set_threads(config)
    folder = RunFolder(run_dir, config)
    data = load_data(config)
    # The tiny starting model is a function of config and data, so its identity is theirs.
    named = config["model"]["name_or_path"] is not None
    start, _ = starting_folder(config, data, folder.work) if named else (None, True)
    reference = reference_folder(config, start or folder.work, start is None)
    if selection.needs_reference(config["selection"]["name"]) and reference is None:
        raise UserError(
            f"selection={config['selection']['name']} needs a reference model with a trained reward head, and there is none; "
            "train one with 'scpo train experiment=global' and pass its folder as model.name_or_path=RUN/model "
            "(or reference.name_or_path), or use selection=full"
        )
    inputs = {
        "data": str(data.manifest["content_hash"]),
        "start": model_fingerprint(start) if start is not None else "scratch",
        "reference": model_fingerprint(reference) if reference is not None else "none",
    }
    if folder.is_finished(inputs):
        log.info("%s is finished; nothing to do", run_dir)
        return dict(read_json(folder.path / "metrics.json"))
    with folder.open(inputs, command):
        if start is None:
            start, _ = starting_folder(config, data, folder.work)
        prepared = prepare_inputs(config, data, start, score_reference(config, data, reference))
        if needs_launch(config):
            from scpo.run.launch import launch

            launch(folder.path, config["trainer"]["devices"])
        else:
            train_parts(config, prepared, folder.path)
        metrics = finish(config, prepared, folder)
        if not config["callbacks"]["keep_checkpoints"]:
            shutil.rmtree(folder.path / "checkpoints", ignore_errors=True)
    return metrics


def needs_launch(config: Config) -> bool:
    """True where the trainer wants several processes on this machine."""
    trainer = config["trainer"]
    return str(trainer["strategy"]) not in ("auto", "single") and trainer["devices"] not in (1, "1")


def finish(config: Config, inputs: Inputs, folder: RunFolder) -> dict[str, Any]:
    """Join the parts' predictions, measure, write metrics and report."""
    data, run_dir = inputs.data, folder.path
    parts = conditioning.parts(config["conditioning"]["name"], data.groups)
    results = {part.name: read_json(folder.work / f"{part.name}.json") for part in parts}
    frame = pd.concat([read_predictions(folder.work / f"{part.name}.parquet") for part in parts], ignore_index=True)
    if inputs.rewards is not None:
        known = pd.Series(inputs.rewards, index=data.frame["candidate_id"])
        frame["reference_reward"] = known.loc[frame["candidate_id"]].to_numpy(dtype=np.float32)
    conditioning.write_steering(run_dir / "model", config, data.groups, config["conditioning"]["name"])
    train = {key: sum(r[key] for r in results.values()) for key in ("pairs", "candidates_encoded", "seconds")}
    notes = [*data.notes, *training_notes(results)]
    return measure(
        config,
        frame,
        folder,
        groups=data.groups,
        kept={group: counts["kept share"] for group, counts in inputs.counts.items()},
        selected=inputs.counts,
        train=train,
        losses=data.manifest["counts"],
        notes=notes,
    )


def training_notes(results: dict[str, dict[str, Any]]) -> list[str]:
    """What the reader of the report should know of the trainings: steps, best checkpoints, truncation."""
    steps = sorted({r["steps"] for r in results.values()})
    notes = [
        f"Optimiser steps per model: {steps[0]}."
        if len(steps) == 1
        else f"Optimiser steps per model: {steps[0]} to {steps[-1]}."
    ]
    best = {name: r["best_step"] for name, r in results.items() if r["best_step"] is not None}
    if best:
        notes.append("Weights of the best validation step: " + ", ".join(f"{n} {s}" for n, s in best.items()) + ".")
    for reason in ("texts truncated", "pairs dropped as too long", "pairs of equal texts"):
        lost = {name: r["truncation"][reason] for name, r in results.items() if r["truncation"][reason]}
        if lost:
            notes.append(f"Training, {reason}: " + ", ".join(f"{n} {k}" for n, k in lost.items()) + ".")
    return notes
