"""Evaluation without training: a run's saved predictions again, a run's models on other data, or any reward model."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scpo import conditioning
from scpo.data.manifest import read_manifest
from scpo.errors import UserError
from scpo.evaluation.predictions import read_predictions
from scpo.io import read_json, sha256_file
from scpo.model.files import model_fingerprint, resolve_model, reward_head, steered_fingerprint
from scpo.model.reward import ModelOptions
from scpo.model.steering_files import load_steered
from scpo.model.trained import trained_rows
from scpo.run.config import Config, check_evaluate_config, config_hash
from scpo.run.folder import RunFolder, default_run_dir
from scpo.run.inputs import RunData, check_groups, check_reference, load_data
from scpo.run.launch import read_config
from scpo.run.measure import measure
from scpo.run.predict import count_notes, predict, under_other_groups, with_reference
from scpo.run.progress import Progress
from scpo.run.rewards import score_reference, set_threads, tell

log = logging.getLogger(__name__)


def evaluate(config: Config, given: set[str], command: str) -> tuple[Path, dict[str, Any]]:
    """Evaluate as the config says; returns the folder of the results and the metrics.

    Args:
        config: the resolved config of ``scpo evaluate``.
        given: the keys that the user set, so that a run's own settings stand where nothing was said.
        command: what the user typed, for the record.
    """
    check_evaluate_config(config)
    set_threads(config)
    if config["run"] is None:
        folder = resolve_model(config["model"]["name_or_path"], allow_pickle=config["model"]["allow_pickle"])
        return _score_and_measure(config, folder, None, command)
    run_dir = Path(config["run"])
    trained = read_config(run_dir)
    if "run" in trained or "selection" not in trained:
        raise UserError(f"{run_dir}: expected the folder of a training run, found one of an evaluation")
    status = read_json(run_dir / "status.json")
    if status.get("state") != "finished":
        raise UserError(
            f"{run_dir}: expected a finished run, found one that is {status.get('state')}: {status.get('error')}"
        )
    trained = _found_from(trained, Path(str(status.get("cwd") or ".")))
    own_gap = config["data"]["min_gap"]
    config = _with_settings_of(config, trained, given)
    # The run's own settings stand in it now, from a file that somebody may have edited.
    check_evaluate_config(config)
    anew = ("data", "split", "groups", "reference", "model")
    if not any(key.split(".")[0] in anew or key == "evaluation.split" for key in given):
        return _measure_again(config, run_dir, command)
    data_hash = str(read_manifest(Path(config["data"]["dir"]))["content_hash"])
    if data_hash != status["inputs"]["data"]:
        # Other data have scores on a scale of their own, and their own split: the run's would be drawn anew over them.
        config["data"] = {**config["data"], "min_gap": own_gap}
        if not any(key.split(".")[0] == "split" for key in given):
            config["split"] = {**config["split"], "method": "prepared"}
    return _score_and_measure(config, run_dir / "model", run_dir, command)


def _found_from(trained: Config, cwd: Path) -> Config:
    """The run's config with the relative paths of its data and models as they were meant where the run was started."""
    found = dict(trained)
    for section, key in (("data", "dir"), ("model", "name_or_path"), ("reference", "name_or_path")):
        value = trained[section][key]
        if isinstance(value, str) and not Path(value).exists() and (cwd / value).exists():
            found[section] = {**trained[section], key: str(cwd / value)}
    return found


def _with_settings_of(config: Config, trained: Config, given: set[str]) -> Config:
    """The evaluation's config with the run's data, groups, split, model and reference wherever the user set nothing."""
    merged = {**config, "selection": trained["selection"], "conditioning": trained["conditioning"]}
    for section in ("data", "groups", "split", "reference", "evaluation", "batch"):
        mine = {k.split(".", 1)[1] for k in given if k.startswith(f"{section}.")}
        if section in given:
            continue
        kept = {k: v for k, v in config[section].items() if k in mine}
        merged[section] = {
            **config[section],
            **{k: trained[section][k] for k in config[section] if k in trained[section]},
            **kept,
        }
    start = trained["model"]["name_or_path"]
    named = "reference.name_or_path" in given
    if merged["reference"]["name_or_path"] is None and not named and start is not None and _has_head(trained):
        merged["reference"] = {
            **merged["reference"],
            "name_or_path": start,
            "allow_pickle": trained["model"]["allow_pickle"],
        }
    own = {k for k in config["model"] if f"model.{k}" in given}
    model = {k: trained["model"][k] for k in config["model"] if k in trained["model"] and k not in own}
    merged["model"] = {**config["model"], **model, "name_or_path": None}
    merged["seed"] = config["seed"] if "seed" in given else trained["seed"]
    return merged


def _has_head(trained: Config) -> bool:
    """True where the run's starting model holds a trained reward head, and so was the run's reference too."""
    model = trained["model"]
    try:
        return reward_head(resolve_model(model["name_or_path"], allow_pickle=model["allow_pickle"]))
    except UserError as error:
        raise UserError(
            f"the run's starting and reference model: {error}; give reference.name_or_path=PATH, or null to do without"
        ) from error


def _measure_again(config: Config, run_dir: Path, command: str) -> tuple[Path, dict[str, Any]]:
    """New metrics from a run's predictions; the run itself is left as it was."""
    predictions = read_predictions(run_dir / "predictions.parquet")
    old = read_json(run_dir / "metrics.json")
    out = _out(config, run_dir)
    folder = RunFolder(out, config)
    data_dir = Path(config["data"]["dir"])
    with folder.open({"predictions": sha256_file(run_dir / "predictions.parquet")}, command):
        metrics = measure(
            config,
            predictions,
            folder,
            train=old["train"],
            kept={g: v["kept_ratio"] for g, v in old["by_group"].items()},
            groups=list(old["by_group"]),
            selected=old.get("selection"),
            losses=read_manifest(data_dir)["counts"] if data_dir.is_dir() else None,
            notes=old.get("notes"),
        )
    return out, metrics


def _score_and_measure(config: Config, model: Path, run_dir: Path | None, command: str) -> tuple[Path, dict[str, Any]]:
    """Score the chosen split of the data with a run's models or with one reward model, then measure."""
    data = load_data(config, need_train=False)
    steering = conditioning.read_steering(model) if run_dir is not None else None
    mode = steering["mode"] if steering is not None else "none"
    if steering is not None and mode != "none":
        _restrict_to_known(data, list(steering["groups"]), config)
    reference = None
    if config["reference"]["name_or_path"] is not None:
        reference = resolve_model(config["reference"]["name_or_path"], allow_pickle=config["reference"]["allow_pickle"])
        check_reference(reference)
    folders = {g: conditioning.folder_of(model, steering, g if steering is not None else None) for g in data.groups}
    for served in set(folders.values()):
        if not (served / "config.json").is_file():
            raise UserError(
                f"{served}: expected a model folder of the run, found no config.json in it; train the run again"
            )
    _leave_out_trained(data, config, folders, run_dir is not None)
    out = _out(config, run_dir)
    folder = RunFolder(out, config)
    inputs = {
        "data": str(data.manifest["content_hash"]),
        "models": " ".join(steered_fingerprint(f) for f in sorted(set(folders.values()))),
        "reference": model_fingerprint(reference) if reference is not None else "none",
    }
    if folder.is_finished(inputs):
        log.info("%s is finished; nothing to do", out)
        return out, dict(read_json(out / "metrics.json"))
    with folder.open(inputs, command):
        rewards = score_reference(config, data, reference)
        frame = with_reference(_score(config, data, folders, steering), data, rewards)
        metrics = measure(
            config,
            frame,
            folder,
            groups=data.groups,
            losses=data.manifest["counts"],
            notes=data.notes,
        )
    return out, metrics


def _score(config: Config, data: RunData, folders: dict[str, Path], steering: dict[str, Any] | None) -> pd.DataFrame:
    """Predictions of every group by the model that serves it; each model is loaded once."""
    mode = steering["mode"] if steering is not None else "none"
    model_config = config["model"]
    options = ModelOptions(
        max_length=model_config["max_length"],
        overlong=model_config["overlong"],
        dtype=model_config["dtype"],
        allow_pickle=model_config["allow_pickle"],
        attention=model_config["attention"],
    )
    if steering is not None:
        options = replace(options, template=steering["template"])
    tables, several = [], []
    for folder in dict.fromkeys(folders.values()):
        model, notes = load_steered(folder, options)
        tell(notes)
        served = [g for g in data.groups if folders[g] == folder]
        table, counts = predict(config, data, model, served, mode, Progress(f"scoring with {folder.name}", sys.stderr))
        tables.append(table)
        conditions = served if mode == "separate" else [None, *(steering["groups"] if steering is not None else ())]
        tables.append(under_other_groups(config, data, model, conditions, mode))
        several.append(counts)
    data.notes += count_notes("Test", several)
    return pd.concat([table for table in tables if len(table)], ignore_index=True)


def _leave_out_trained(data: RunData, config: Config, folders: dict[str, Path], is_run: bool) -> None:
    """Take out the rows of clusters that a model was trained on, in whatever preparation or split they stand.

    Args:
        data: the comparisons; changed in place, with a note of what was left out of the evaluated split.
        config: the evaluation's.
        folders: the model folder of each group.
        is_run: the models are a run's, which should tell what they were trained on; other models need not.
    """
    seen = np.zeros(len(data.frame), dtype=bool)
    for folder in sorted(set(folders.values())):
        trained = trained_rows(folder, data.frame)
        if trained is not None:
            # A cluster is held out of a whole run: what one group's model has seen, another's is not measured on either.
            seen |= trained
        elif is_run:
            data.notes.append(
                f"{folder.name} does not tell what it was trained on, so its rows were not checked for it."
            )
    split = config["evaluation"]["split"]
    measured = np.ones(len(seen), dtype=bool) if split == "all" else (data.frame["split"] == split).to_numpy()
    data.drop(seen, "that the model was trained on, left out", noted=seen & measured)
    try:
        check_groups(data, config, need_train=False)
    except UserError as error:
        raise UserError(f"{error} (rows that the model was trained on are left out)") from error


def _restrict_to_known(data: RunData, known: list[str], config: Config) -> None:
    """Keep the groups that the run was trained for; named ones that it does not know are an error, others are noted."""
    unknown = [g for g in data.groups if g not in known]
    if not unknown:
        return
    if config["groups"]["names"] is not None or len(unknown) == len(data.groups):
        raise UserError(
            f"{config['run']}: expected groups that the run was trained for ({', '.join(known)}), found {', '.join(unknown)} "
            "in the data; choose groups.names among them"
        )
    data.notes.append(f"Groups that the run does not know are left out: {', '.join(unknown)}.")
    data.restrict([g for g in data.groups if g in known])


def _out(config: Config, run_dir: Path | None) -> Path:
    if config["run_dir"]:
        return Path(config["run_dir"])
    if run_dir is None:
        return default_run_dir(config)
    return run_dir / "evaluations" / config_hash(config)[:8]
