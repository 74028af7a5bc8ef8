"""The parts of a run: select and balance the pairs, then train, save and score one model after another."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from scpo import balance, conditioning, selection
from scpo.conditioning import Part
from scpo.data.datamodule import PairSet
from scpo.data.pairs import Pairs
from scpo.errors import UserError
from scpo.evaluation.predictions import write_predictions
from scpo.io import write_json
from scpo.model.reward import ModelOptions, RewardModel, load_model
from scpo.model.score import score_encoded
from scpo.run.config import Config
from scpo.run.fit import fit_part
from scpo.run.folder import is_main_process
from scpo.run.inputs import RunData
from scpo.run.rewards import FloatArray, pick_device, tell


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


def prepare_inputs(config: Config, data: RunData, start: Path, rewards: FloatArray | None) -> Inputs:
    """Select and balance the training pairs."""
    arm, settings = config["selection"]["name"], config["selection"]
    pairs = data.pairs("train", config["data"]["min_gap"])
    group = data.group_code[pairs.chosen]
    # Only `full` runs without rewards, and it does not look at them.
    known: Any = rewards if rewards is not None else np.zeros(len(data.frame), dtype=np.float32)
    plus, minus = known[pairs.chosen], known[pairs.rejected]
    chosen = selection.select(arm, plus, minus, group, tau=settings["tau"], beta=settings["beta"], seed=config["seed"])
    n_groups = len(data.groups)
    before, after = np.bincount(group, minlength=n_groups), np.bincount(group[chosen.keep], minlength=n_groups)
    counts = {
        name: {
            "training pairs": int(before[g]),
            "kept": int(after[g]),
            "kept share": float(after[g] / before[g]),
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
    per_group = balance.group_weights(
        after, config["balance"]["name"], effective_beta=config["balance"]["effective_beta"]
    )
    weight = (chosen.weight * per_group[group])[chosen.keep]
    return Inputs(data, start, rewards, pairs[chosen.keep], weight, counts)


def train_parts(config: Config, inputs: Inputs, run_dir: Path) -> None:
    """Train, save and score every part that is not done yet."""
    for part in conditioning.parts(config["conditioning"]["name"], inputs.data.groups):
        done = run_dir / "work" / f"{part.name}.json"
        if done.is_file():
            continue
        train_part(config, inputs, part, run_dir, done)
        gc.collect()


def train_part(config: Config, inputs: Inputs, part: Part, run_dir: Path, done: Path) -> None:
    """One model: load, train, save, score its test candidates; ``done`` is written last."""
    data = inputs.data
    model, notes = load_model(inputs.start, model_options(config))
    tell(notes)
    codes = [data.groups.index(g) for g in part.groups]
    in_part = np.isin(data.group_code, codes)
    inside = in_part[inputs.pairs.chosen]
    train, counts = pair_set(config, data, model, inputs.pairs[inside], inputs.weight[inside])
    if not len(train.pairs):
        raise UserError(
            f"{part.name}: no training pair is left at model.max_length={config['model']['max_length']}: {counts}"
        )
    val_pairs = data.pairs("val", config["data"]["min_gap"])
    val_pairs = val_pairs[in_part[val_pairs.chosen]]
    val = pair_set(config, data, model, val_pairs, np.ones(len(val_pairs)))[0] if len(val_pairs) else None
    if is_main_process():
        sample = train.encoded.text(int(train.pairs.chosen[0]))
        tell(
            [
                f"{part.name}: {len(train.pairs)} training pairs; one input: {model.formatter.show(sample.tolist())[:400]}"
            ]
        )
    result = fit_part(config, model, data.groups, train, val, run_dir, part.name)
    frame = score_split(config, data, model, part)
    if is_main_process():
        model.save(run_dir / "model" / part.folder)
        if part.folder != ".":
            conditioning.write_steering(run_dir / "model" / part.folder, config, part.groups, "none")
        write_predictions(frame, run_dir / "work" / f"{part.name}.parquet")
        write_json(done, {**result, "truncation": counts})


def pair_set(
    config: Config, data: RunData, model: RewardModel, pairs: Pairs, weight: npt.NDArray[np.float64]
) -> tuple[PairSet, dict[str, int]]:
    """Encode the candidates of pairs; pairs whose texts are equal (also after truncation) are left out and counted."""
    rows = np.unique(np.concatenate([pairs.chosen, pairs.rejected]))
    frame = data.frame.iloc[rows]
    groups = list(frame["group"])
    encoded = model.formatter.encode(
        list(frame["prompt"]),
        list(frame["response"]),
        list(frame["history"]),
        conditioning.named_groups(config["conditioning"]["name"], groups),
    )
    moved = Pairs(np.searchsorted(rows, pairs.chosen), np.searchsorted(rows, pairs.rejected), pairs.gap)
    dropped = encoded.dropped[moved.chosen] | encoded.dropped[moved.rejected]
    equal = np.array(
        [not d and encoded.same(int(i), int(j)) for i, j, d in zip(moved.chosen, moved.rejected, dropped, strict=True)],
        dtype=bool,
    )
    keep = ~(dropped | equal)
    counts = {
        "texts truncated": int(encoded.truncated.sum()),
        "pairs dropped as too long": int(dropped.sum()),
        "pairs of equal texts": int(equal.sum()),
    }
    return (
        PairSet(
            encoded,
            frame["candidate_id"].to_numpy(dtype=object),
            data.comparison[rows],
            moved[keep],
            weight[keep],
            data.group_code[rows][moved.chosen][keep],
        ),
        counts,
    )


def score_split(config: Config, data: RunData, model: RewardModel, part: Part) -> pd.DataFrame:
    """The predictions of one part: its groups' candidates of the evaluation split with their rewards."""
    model.to(pick_device(config))
    split = config["evaluation"]["split"]
    inside = data.frame["group"].isin(part.groups)
    if split != "all":
        inside &= data.frame["split"] == split
    frame = data.frame[inside]
    mode = config["conditioning"]["name"]
    groups = list(frame["group"])
    encoded = model.formatter.encode(
        list(frame["prompt"]), list(frame["response"]), list(frame["history"]), conditioning.named_groups(mode, groups)
    )
    rewards = score_encoded(model, encoded, batch_tokens=config["batch"]["tokens"])
    told: Any = [conditioning.conditioned_on(mode, g) for g in groups]
    frame = frame.assign(
        reward=rewards,
        reference_reward=np.float32(np.nan),
        conditioned_on=told,
        response_length=frame["response"].str.len().astype("int64"),
    )
    return frame[~np.isnan(rewards)]
