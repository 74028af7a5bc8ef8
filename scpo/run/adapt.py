"""A new group on a frozen, steered model: only what is the group's own is trained, from 10 to 200 comparisons."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scpo import conditioning
from scpo.errors import UserError
from scpo.groups import canonical, resolve
from scpo.io import read_json, write_json
from scpo.model.files import model_fingerprint, resolve_model, steered_fingerprint
from scpo.model.reward import ModelOptions, RewardNetwork
from scpo.model.steering import Steering
from scpo.model.steering_files import describe, load_steered, save_steering
from scpo.model.trained import TRAINED_ON, write_trained_on
from scpo.run.config import Config, check_accelerator, check_train_config
from scpo.run.fit import fit_part
from scpo.run.folder import RunFolder
from scpo.run.inputs import RunData, check_reference, load_data
from scpo.run.launch import process_count
from scpo.run.measure import measure
from scpo.run.parts import Inputs, pair_set, prepare_inputs
from scpo.run.predict import count_notes, predict, scales, score_rows, under_other_groups, with_reference
from scpo.run.rewards import score_reference, set_threads, tell

log = logging.getLogger(__name__)

INITS = ("nearest", "default")


def adapt(config: Config, run_dir: Path, command: str) -> dict[str, Any]:
    """Add a group to a steered model; writes a run folder whose model knows the old groups and the new one.

    Args:
        config: the resolved config of ``scpo adapt``.
        run_dir: the run folder.
        command: what the user typed, for the record.

    Returns:
        The metrics on the new group's test pairs; the steering check compares them to the default and the known groups.

    Raises:
        UserError: a model that learned nothing for groups, a group that it knows already, anything wrong with the data.
    """
    base = _base(config)
    steering = conditioning.read_steering(base)
    if steering is None or steering["mode"] not in conditioning.LEARNED:
        mode = "a plain reward model" if steering is None else f"conditioning={steering['mode']}"
        raise UserError(
            f"model={base}: expected a model that learned something for each group (conditioning=embedding, head or adapter), "
            f"found {mode}"
        )
    config = complete(config, steering, base)
    check_train_config(config)
    check_accelerator(config["trainer"])
    if process_count(config["trainer"]) > 1:
        raise UserError(
            f"trainer.devices={config['trainer']['devices']}: a group is adapted on one process; set trainer.devices=1"
        )
    set_threads(config)
    data = load_data(config)
    config["groups"] = {**config["groups"], "names": data.groups}  # as the data spell it
    reference = None
    if config["reference"]["name_or_path"] is not None:
        reference = resolve_model(config["reference"]["name_or_path"], allow_pickle=config["reference"]["allow_pickle"])
        check_reference(reference)
    inputs = {
        "data": str(data.manifest["content_hash"]),
        "start": steered_fingerprint(base),
        "reference": model_fingerprint(reference) if reference is not None else "none",
    }
    folder = RunFolder(run_dir, config)
    if folder.is_finished(inputs):
        log.info("%s is finished; nothing to do", run_dir)
        return dict(read_json(folder.path / "metrics.json"))
    with folder.open(inputs, command):
        rewards = score_reference(config, data, reference)
        metrics = _train(config, prepare_inputs(config, data, base, rewards), steering, folder)
        if not config["callbacks"]["keep_checkpoints"]:
            shutil.rmtree(folder.path / "checkpoints", ignore_errors=True)
    return metrics


def _base(config: Config) -> Path:
    """The steered model's folder."""
    if not isinstance(config["group"], str) or not config["group"].strip():
        raise UserError(f"group: expected the name of the new group (group=NAME), found {config['group']!r}")
    if config["init"] not in INITS:
        raise UserError(f"init: expected one of {', '.join(INITS)}, found {config['init']!r}")
    if config["model"]["name_or_path"] is None:
        raise UserError("model: expected RUN/model of a steered run (model=RUN/model), found none")
    if config["selection"]["name"] != "full":
        raise UserError(f"selection={config['selection']['name']}: scpo adapt trains on all pairs; leave it full")
    path = Path(str(config["model"]["name_or_path"])).expanduser()
    if conditioning.read_steering(path) is not None and not (path / "config.json").is_file():
        return path  # one model per group: refused with its own words
    return resolve_model(path, allow_pickle=config["model"]["allow_pickle"])


def complete(config: Config, steering: dict[str, Any], base: Path) -> Config:
    """The config of the run that adapts: what the model's own steering file says, in the sections of ``scpo train``.

    Raises:
        UserError: the model knows the group already.
    """
    group = canonical(config["group"])
    known = list(steering["groups"])
    if group in known or _known(group, known):
        raise UserError(
            f"group={config['group']}: {base} knows this group already; score with it, or give another name"
        )
    learned = steering["learned"]
    model = {key: steering[key] for key in ("max_length", "overlong")}
    return {
        **config,
        "groups": {"name": "adapt", "names": [config["group"]], "attribute": None},
        "model": {"name": "adapted", **config["model"], **model, "dtype": steering["trained_dtype"], "lora": None},
        "conditioning": {
            "name": steering["mode"],
            "template": steering["template"],
            "group_dropout": 0.0,
            "lr_scale": 1.0,
            "freeze": True,
            **{k: learned[k] for k in ("embedding", "head_rank", "adapter_rank", "adapter_alpha", "adapter_targets")},
        },
    }


def _known(group: str, known: list[str]) -> bool:
    try:
        resolve([group], known)
    except UserError:
        return False
    return True


def _train(config: Config, inputs: Inputs, steering: dict[str, Any], folder: RunFolder) -> dict[str, Any]:
    """Load, train what is the new group's, save, score its test candidates under every group, measure."""
    data, group, mode = inputs.data, inputs.data.groups[0], config["conditioning"]["name"]
    options = ModelOptions(
        max_length=config["model"]["max_length"],
        overlong=config["model"]["overlong"],
        template=steering["template"],
        dtype=config["model"]["dtype"],
        gradient_checkpointing=config["model"]["gradient_checkpointing"],
        allow_pickle=config["model"]["allow_pickle"],
        attention=config["model"]["attention"],
    )
    model, notes = load_steered(inputs.start, options)
    tell(notes)
    old = model.steering
    assert old is not None
    nearest, accuracy = nearest_group(config, inputs, model, mode)
    old.detach()
    alone = Steering([group], old.options, model.network)
    alone.copy_row(old, nearest if config["init"] == "nearest" else None)
    # The known groups keep their weights: the network and what the groups share are frozen.
    for name, parameter in [*model.network.named_parameters(), *alone.named_parameters()]:
        parameter.requires_grad_(name in alone.per_group())
    model.steering = alone
    train, counts = pair_set(config, data, model, inputs.pairs, inputs.weight)
    val_pairs = data.pairs("val", config["data"]["min_gap"])
    val, _ = pair_set(config, data, model, val_pairs, np.ones(len(val_pairs)))
    trained = len(np.unique(train.comparison[train.pairs.chosen]))
    tell([f"{group}: {trained} comparisons, {len(train.pairs)} pairs; nearest known group: {nearest}"])
    result = fit_part(config, model, [group], train, val if len(val.pairs) else None, folder.path, "adapt")
    model.steering = joined(old, alone, model)
    model.eval()
    frame, test_counts = predict(config, data, model, [group], mode)
    others = under_other_groups(config, data, model, [None, *old.groups], mode)
    scale = {**(steering["scale"] or {}), **scales(config, data, model, [group], mode)}
    out = folder.path / "model"
    model.save(out)
    save_steering(model, out)
    conditioning.write_steering(out, config, model.steering.groups, mode, scale, describe(model), steering["default"])
    keep_trained_on(config, data, inputs.start, out)
    frame = with_reference(pd.concat([frame, others], ignore_index=True), data, inputs.rewards)
    return measure(
        config,
        frame,
        folder,
        groups=[group],
        kept={group: inputs.counts[group]["kept share"]},
        selected=inputs.counts,
        train={key: result[key] for key in ("pairs", "candidates_encoded", "seconds")},
        losses=data.manifest["counts"],
        notes=[
            *data.notes,
            f"Adapted on {trained} comparisons ({len(train.pairs)} pairs) of {group}; all other weights are those of "
            f"{inputs.start}.",
            f"Nearest known group on these training pairs: {nearest} ({100 * accuracy:.1f} % ranked right).",
            *count_notes("Training", [counts]),
            *count_notes("Test", [test_counts]),
        ],
    )


def nearest_group(config: Config, inputs: Inputs, model: RewardNetwork, mode: str) -> tuple[str, float]:
    """The known group under which the model ranks most of the new group's training pairs right, and that share."""
    assert model.steering is not None
    frame = inputs.data.frame
    rows = np.unique(np.concatenate([inputs.pairs.chosen, inputs.pairs.rejected]))
    shares = {}
    for known in model.steering.groups:
        table, encoded = score_rows(config, model, frame.iloc[rows], [known] * len(rows), mode)
        rewards = np.full(len(frame), np.nan)
        rewards[rows[~encoded.dropped]] = table["reward"]
        shares[known] = float(np.mean(rewards[inputs.pairs.chosen] > rewards[inputs.pairs.rejected]))
    best = max(shares, key=lambda g: shares[g])
    return best, shares[best]


def joined(old: Steering, new: Steering, model: RewardNetwork) -> Steering:
    """One steering of the groups of both; what the groups share is the old one's."""
    new.detach()
    both = Steering([*old.groups, *new.groups], old.options, model.network)
    for row, group in enumerate(both.groups):
        both.copy_row(old if row < len(old.groups) else new, group, row)
    return both.to(model.device)


def keep_trained_on(config: Config, data: RunData, base: Path, out: Path) -> None:
    """Write what the adapted model was trained on: the new group's rows, and all that its base was trained on."""
    unit = "comparison_id" if config["split"]["method"] == "row" else "cluster_id"
    write_trained_on(out, unit, data.frame[data.frame["split"] == "train"])
    if not (base / TRAINED_ON).is_file():
        return
    before, now = read_json(base / TRAINED_ON), read_json(out / TRAINED_ON)
    if before.get("unit") == unit:
        now["keys"] = sorted({*before["keys"], *now["keys"]})
        write_json(out / TRAINED_ON, now)
    else:
        data.notes.append(
            f"The model was first trained on a split by {before.get('unit')}, now on one by {unit}: only the rows of this "
            "one are kept apart."
        )
