"""A training run from its resolved config to its folder: reference rewards, selection, training, predictions, report."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pandas as pd

from scpo import conditioning
from scpo.evaluation.predictions import read_predictions
from scpo.io import read_json
from scpo.model.files import model_fingerprint
from scpo.run.config import Config, check_accelerator, check_train_config
from scpo.run.folder import RunFolder
from scpo.run.inputs import build_start, load_data, named_start, reference_folder
from scpo.run.launch import launch, process_count
from scpo.run.measure import measure
from scpo.run.parts import Inputs, check_selection, drop_overlong, prepare_inputs, train_parts
from scpo.run.predict import count_notes, with_reference
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
    check_accelerator(config["trainer"])
    set_threads(config)
    folder = RunFolder(run_dir, config)
    # A model from scratch is built later, from the data: its identity is that of config and data.
    start = named_start(config)
    reference = reference_folder(config, start)
    check_selection(config, reference)
    data = load_data(config)
    inputs = {
        "data": str(data.manifest["content_hash"]),
        "start": model_fingerprint(start) if start is not None else "scratch",
        "reference": model_fingerprint(reference) if reference is not None else "none",
    }
    if folder.is_finished(inputs):
        log.info("%s is finished; nothing to do", run_dir)
        return dict(read_json(folder.path / "metrics.json"))
    with folder.open(inputs, command):
        start = start or build_start(config, data, folder.work)
        drop_overlong(config, data, start)
        prepared = prepare_inputs(config, data, start, score_reference(config, data, reference))
        processes = process_count(config["trainer"])
        if processes > 1:
            launch(folder.path, processes)
        else:
            train_parts(config, prepared, folder.path)
        metrics = finish(config, prepared, folder)
        if not config["callbacks"]["keep_checkpoints"]:
            shutil.rmtree(folder.path / "checkpoints", ignore_errors=True)
    return metrics


def finish(config: Config, inputs: Inputs, folder: RunFolder) -> dict[str, Any]:
    """Join the parts' predictions, measure, write metrics and report."""
    data, run_dir = inputs.data, folder.path
    parts = conditioning.parts(config["conditioning"]["name"], data.groups)
    results = {part.name: read_json(folder.work / f"{part.name}.json") for part in parts}
    frame = pd.concat([read_predictions(folder.work / f"{part.name}.parquet") for part in parts], ignore_index=True)
    frame = with_reference(frame, data, inputs.rewards)
    scale = {group: values for r in results.values() for group, values in r["scale"].items()}
    learned = next(iter(results.values()))["learned"]
    conditioning.write_steering(
        run_dir / "model", config, data.groups, config["conditioning"]["name"], scale or None, learned
    )
    train = {key: sum(r[key] for r in results.values()) for key in ("pairs", "candidates_encoded", "seconds")}
    notes = [*data.notes, *training_notes(results)]
    if config["conditioning"]["name"] == "separate" and config["balance"]["name"] != "none":
        notes.append("Balance has no effect with one model per group.")
    if config["evaluation"]["split"] in ("train", "all"):
        notes.append(
            f"Evaluated on split {config['evaluation']['split']}: rows that the model was trained on are among them."
        )
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
    for which in ("Training", "Validation", "Test"):
        notes += count_notes(which, [r["counts"][which] for r in results.values()])
    return notes
