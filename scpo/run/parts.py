"""The parts of a run: select and balance the pairs, then train, save and score one model after another."""

from __future__ import annotations

import gc
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from scpo import balance, conditioning, selection
from scpo.conditioning import Part
from scpo.data.datamodule import PairSet
from scpo.data.encode import Formatter
from scpo.data.pairs import Pairs
from scpo.errors import UserError
from scpo.evaluation.predictions import write_predictions
from scpo.io import write_json
from scpo.model.head import head_hash
from scpo.model.reward import ModelOptions, RewardNetwork, load_model, load_tokenizer
from scpo.model.steering import SteeringOptions
from scpo.model.steering_files import describe, save_steering
from scpo.model.trained import write_trained_on
from scpo.run.config import Config
from scpo.run.fit import fit_part
from scpo.run.folder import is_main_process
from scpo.run.inputs import RunData, check_groups
from scpo.run.predict import Counts, count_by, predict, scales, under_other_groups
from scpo.run.rewards import FloatArray, tell


@dataclass
class Inputs:
    """What training starts from.

    Attributes:
        data: comparisons of the run's groups.
        start: folder of the starting model.
        rewards: (n_candidates,) reference rewards, or None without a reference model.
        pairs: training pairs that are kept, positions in the frame.
        weight: (n_pairs,) selection times balance.
        counts: per group, for the report: pairs, kept pairs, their share, the mean W.
    """

    data: RunData
    start: Path
    rewards: FloatArray | None
    pairs: Pairs
    weight: npt.NDArray[np.float64]
    counts: dict[str, dict[str, Any]]


@dataclass
class Ready:
    """One part before its training.

    Attributes:
        model: the starting model, with what it will learn for each group.
        train, val: pairs of the part's groups; None without validation pairs.
        rows: (n_candidates,) True for the candidates of the part's groups.
        counts: what happened to training and validation texts.
    """

    model: RewardNetwork
    train: PairSet
    val: PairSet | None
    rows: npt.NDArray[np.bool_]
    counts: dict[str, Counts]


def model_options(config: Config) -> ModelOptions:
    """How the config's model is loaded for training."""
    model = config["model"]
    return ModelOptions(
        max_length=model["max_length"],
        overlong=model["overlong"],
        template=config["conditioning"]["template"] if "conditioning" in config else "{group}",
        dtype=model["dtype"],
        gradient_checkpointing=model.get("gradient_checkpointing", False),
        lora=model.get("lora"),
        allow_pickle=model["allow_pickle"],
        attention=model["attention"],
        seed=config["seed"],
    )


def steering_options(config: Config) -> SteeringOptions:
    """What the config's model learns for each group."""
    conditioning = config["conditioning"]
    targets = conditioning["adapter_targets"]
    return SteeringOptions(
        embedding=conditioning["embedding"],
        head_rank=conditioning["head_rank"],
        adapter_rank=conditioning["adapter_rank"],
        adapter_alpha=float(conditioning["adapter_alpha"]),
        adapter_targets=targets if isinstance(targets, str) else tuple(targets),
        seed=config["seed"],
    )


def check_selection(config: Config, reference: Path | None) -> None:
    """Raise UserError where the selection needs a reference model and there is none."""
    arm = config["selection"]["name"]
    if selection.needs_reference(arm) and reference is None:
        raise UserError(
            f"selection={arm} needs a reference model with a trained reward head, and there is none; train one with 'scpo "
            "train experiment=global' and pass its folder as model.name_or_path=RUN/model (or reference.name_or_path), or "
            "use selection=full"
        )


def prepare_inputs(config: Config, data: RunData, start: Path, rewards: FloatArray | None) -> Inputs:
    """Select and balance the training pairs."""
    arm, settings = config["selection"]["name"], config["selection"]
    pairs = data.pairs("train", config["data"]["min_gap"])
    # Two equal texts have a gradient of zero; they would only dilute what follows.
    text = pd.factorize(data.frame["response"])[0]
    equal = text[pairs.chosen] == text[pairs.rejected]
    left_out = np.bincount(data.group_code[pairs.chosen[equal]], minlength=len(data.groups))
    pairs = pairs[~equal]
    wanted = config["data"]["train_comparisons"]
    if wanted is not None:
        pairs = pairs[drawn(data, pairs, wanted, config["seed"])]
        data.notes.append(f"Trained on at most {wanted} comparisons of each group (data.train_comparisons).")
    group = data.group_code[pairs.chosen]
    # Only `full` runs without rewards, and it does not look at them.
    known: Any = rewards if rewards is not None else np.zeros(len(data.frame), dtype=np.float32)
    plus, minus = known[pairs.chosen], known[pairs.rejected]
    # The random arm draws by the group's name, so that the order and number of groups change no group's draw.
    names = np.array([zlib.crc32(name.encode()) for name in data.groups], dtype=np.int64)[group]
    chosen = selection.select(arm, plus, minus, names, tau=settings["tau"], beta=settings["beta"], seed=config["seed"])
    n_groups = len(data.groups)
    before, after = np.bincount(group, minlength=n_groups), np.bincount(group[chosen.keep], minlength=n_groups)
    counts = {
        name: {
            "training pairs": int(before[g]),
            "equal texts left out": int(left_out[g]),
            "kept": int(after[g]),
            "kept share": float(after[g] / before[g]) if before[g] else 0.0,
            "mean W of kept": float(chosen.weight[chosen.keep & (group == g)].mean()) if after[g] else None,
        }
        for g, name in enumerate(data.groups)
    }
    empty = [name for g, name in enumerate(data.groups) if after[g] == 0]
    if empty:
        raise UserError(
            f"selection={arm} keeps no training pair of {', '.join(empty)}; raise selection.tau (now {settings['tau']}) or "
            "choose other groups"
        )
    # A model of one group has nothing to balance, and a constant would only move the clipping of its gradient.
    method = "none" if config["conditioning"]["name"] == "separate" else config["balance"]["name"]
    per_group = balance.group_weights(after, method, effective_beta=config["balance"]["effective_beta"])
    weight = (chosen.weight * per_group[group])[chosen.keep]
    return Inputs(data, start, rewards, pairs[chosen.keep], weight, counts)


def drawn(data: RunData, pairs: Pairs, wanted: int, seed: int) -> npt.NDArray[np.bool_]:
    """(n_pairs,) True for the pairs of `wanted` comparisons of each group; a smaller draw is the beginning of a larger one."""
    comparison, group = data.comparison[pairs.chosen], data.group_code[pairs.chosen]
    keep = np.zeros(len(pairs), dtype=bool)
    for code, name in enumerate(data.groups):
        there = np.unique(comparison[group == code])
        order = np.random.default_rng([seed, zlib.crc32(name.encode())]).permutation(there)
        keep |= np.isin(comparison, order[:wanted])
    return keep


def drop_overlong(config: Config, data: RunData, start: Path) -> None:
    """Under ``model.overlong=drop`` take out of the data, and count per group, the candidates that are too long."""
    if config["model"]["overlong"] != "drop":
        return
    options = model_options(config)
    formatter = Formatter(
        load_tokenizer(start), max_length=options.max_length, overlong="drop", template=options.template
    )
    frame = data.frame
    named = conditioning.named_groups(config["conditioning"]["name"], list(frame["group"]))
    encoded = formatter.encode(list(frame["prompt"]), list(frame["response"]), list(frame["history"]), named)
    data.drop(encoded.dropped, f"over {options.max_length} tokens (model.overlong=drop)")
    check_groups(data, config, need_train=True)


def train_parts(config: Config, inputs: Inputs, run_dir: Path) -> None:
    """Train, save and score every part that is not done yet."""
    for part in conditioning.parts(config["conditioning"]["name"], inputs.data.groups):
        done = run_dir / "work" / f"{part.name}.json"
        if done.is_file():
            continue
        train_part(config, inputs, part, run_dir, done)
        gc.collect()


def load_part(config: Config, inputs: Inputs, part: Part) -> Ready:
    """Load the starting model of a part and encode the part's pairs.

    Raises:
        UserError: no training pair is left once the texts are cut.
    """
    data = inputs.data
    model, notes = load_model(inputs.start, model_options(config))
    tell(notes)
    if config["conditioning"]["name"] in conditioning.LEARNED:
        model.add_steering(data.groups, steering_options(config), freeze=bool(config["conditioning"]["freeze"]))
    rows = np.isin(data.group_code, [data.groups.index(g) for g in part.groups])
    inside = rows[inputs.pairs.chosen]
    dropout = config["conditioning"]["group_dropout"] > 0
    train, counts = pair_set(config, data, model, inputs.pairs[inside], inputs.weight[inside], unnamed=dropout)
    if not len(train.pairs):
        raise UserError(
            f"{part.name}: no training pair is left at model.max_length={config['model']['max_length']}: {counts}"
        )
    val_pairs = data.pairs("val", config["data"]["min_gap"])
    val_pairs = val_pairs[rows[val_pairs.chosen]]
    val, val_counts = pair_set(config, data, model, val_pairs, np.ones(len(val_pairs)))
    if is_main_process():
        sample = model.formatter.show(train.encoded.text(int(train.pairs.chosen[0])).tolist())[:400]
        head = head_hash(model.classifier)
        tell([f"{part.name}: {len(train.pairs)} training pairs; head {head}; one input: {sample}"])
    return Ready(model, train, val if len(val.pairs) else None, rows, {"Training": counts, "Validation": val_counts})


def save_part(
    config: Config, data: RunData, model: RewardNetwork, part: Part, rows: npt.NDArray[np.bool_], root: Path
) -> None:
    """Write a part's trained model, what it learned for groups and what it was trained on below `root`."""
    folder = root / part.folder
    model.save(folder)
    save_steering(model, folder)
    if part.folder != ".":
        conditioning.write_steering(folder, config, part.groups, "none")
    unit = "comparison_id" if config["split"]["method"] == "row" else "cluster_id"
    write_trained_on(folder, unit, data.frame[rows & (data.frame["split"] == "train")])


def train_part(config: Config, inputs: Inputs, part: Part, run_dir: Path, done: Path) -> None:
    """One model: load, train, save, score its test candidates; ``done`` is written last."""
    data, mode = inputs.data, config["conditioning"]["name"]
    ready = load_part(config, inputs, part)
    model = ready.model
    result = fit_part(config, model, data.groups, ready.train, ready.val, run_dir, part.name)
    frame, test_counts = predict(config, data, model, part.groups, mode)
    default = [None] if mode != "separate" else []
    others = under_other_groups(config, data, model, [*default, *part.groups], mode)
    scale = scales(config, data, model, part.groups, mode) if mode != "none" else {}
    if is_main_process():
        save_part(config, data, model, part, ready.rows, run_dir / "model")
        frame = pd.concat([frame, others], ignore_index=True) if len(others) else frame
        write_predictions(frame, run_dir / "work" / f"{part.name}.parquet")
        happened = {**ready.counts, "Test": test_counts}
        write_json(done, {**result, "counts": happened, "scale": scale, "learned": describe(model)})


def pair_set(
    config: Config,
    data: RunData,
    model: RewardNetwork,
    pairs: Pairs,
    weight: npt.NDArray[np.float64],
    *,
    unnamed: bool = False,
    keep_equal: bool = False,
) -> tuple[PairSet, Counts]:
    """Encode the candidates of pairs; pairs whose texts are equal once truncated are left out and counted.

    Args:
        unnamed: a model that reads the group in the text gets every text without it as well, for group dropout.
        keep_equal: keep them: in a test they are ties, which count as wrong.
    """
    rows = np.unique(np.concatenate([pairs.chosen, pairs.rejected]))
    frame = data.frame.iloc[rows]
    groups, mode = list(frame["group"]), config["conditioning"]["name"]
    prompts, responses, histories = (list(frame[column]) for column in ("prompt", "response", "history"))
    names = list(frame["candidate_id"])
    named = conditioning.named_groups(mode, groups)
    encoded = model.formatter.encode(prompts, responses, histories, named, names)
    silent = model.formatter.encode(prompts, responses, histories) if unnamed and mode == "prefix" else None
    moved = Pairs(np.searchsorted(rows, pairs.chosen), np.searchsorted(rows, pairs.rejected), pairs.gap)
    equal = [encoded.same(int(i), int(j)) for i, j in zip(moved.chosen, moved.rejected, strict=True)]
    keep = ~np.array(equal, dtype=bool) | keep_equal
    counts = {
        "texts truncated": count_by(groups, encoded.truncated),
        "pairs equal once truncated": count_by([groups[i] for i in moved.chosen], ~keep),
    }
    return (
        PairSet(
            encoded.joined(silent) if silent is not None else encoded,
            frame["candidate_id"].to_numpy(dtype=object),
            data.comparison[rows],
            moved[keep],
            weight[keep],
            data.group_code[rows][moved.chosen][keep],
            None if model.steering is None else conditioning.group_rows(model.steering.groups, groups),
            silent is not None,
            model.steering is not None and model.steering.options.late,
            pd.factorize(frame["prompt"])[0].astype(np.int64) if config["batch"]["together"] == "prompt" else None,
        ),
        counts,
    )
