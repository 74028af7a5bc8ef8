"""Predictions: the candidates of the evaluated split with a model's rewards, as rows of the predictions table."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from scpo import conditioning
from scpo.data.encode import Encoded
from scpo.model.reward import RewardNetwork
from scpo.model.score import Progress, score_encoded
from scpo.run.config import Config
from scpo.run.inputs import RunData
from scpo.run.rewards import FloatArray, pick_device

SCALE_SAMPLE = 256
"""Texts from which the scale of each group's rewards is taken: enough for a mean and a deviation to a few percent."""

SCALE_STREAM = 2
"""Tells the draw of these texts from other draws with the same seed."""

Counts = dict[str, dict[str, int]]
"""What happened to texts: reason, then number per group."""


def count_by(groups: Sequence[str], flags: npt.NDArray[np.bool_]) -> dict[str, int]:
    """How many flags are set in each group; groups with none are left out."""
    return dict(Counter(group for group, flag in zip(groups, flags, strict=True) if flag))


def predict(
    config: Config,
    data: RunData,
    model: RewardNetwork,
    groups: Sequence[str],
    mode: str,
    progress: Progress | None = None,
) -> tuple[pd.DataFrame, Counts]:
    """Score the evaluated split's candidates of some groups, each under its own group.

    Args:
        config: its `evaluation.split`, `batch.tokens` and `trainer` are used.
        data: the comparisons.
        model: serves these groups.
        groups: whose rows are scored.
        mode: the conditioning that the model was trained with.
        progress: see :func:`scpo.model.score.score_encoded`.

    Returns:
        Rows of the predictions table without reference rewards (see :func:`with_reference`), and what was cut or left out.
    """
    rows = evaluated(config, data, groups)
    of = list(rows["group"])
    table, encoded = score_rows(config, model, rows, [conditioning.conditioned_on(mode, g) for g in of], mode, progress)
    counts = {
        "texts truncated": count_by(of, encoded.truncated),
        "candidates left out as too long": count_by(of, encoded.dropped),
    }
    return table, counts


def evaluated(config: Config, data: RunData, groups: Sequence[str]) -> pd.DataFrame:
    """The rows of the evaluated split that belong to some groups."""
    split = config["evaluation"]["split"]
    inside = data.frame["group"].isin(groups)
    return data.frame[inside if split == "all" else inside & (data.frame["split"] == split)]


def score_rows(
    config: Config,
    model: RewardNetwork,
    rows: pd.DataFrame,
    told: Sequence[str | None],
    mode: str,
    progress: Progress | None = None,
) -> tuple[pd.DataFrame, Encoded]:
    """Rows of a comparisons table scored under these groups, as rows of the predictions table; overlong ones are left out.

    Args:
        told: (n_rows,) the group that the model is told with each row, or None.
    """
    model.to(pick_device(config))
    names = list(rows["candidate_id"])
    encoded = model.formatter.encode(
        list(rows["prompt"]),
        list(rows["response"]),
        list(rows["history"]),
        conditioning.named_groups(mode, told),
        names,
    )
    rewards = score_encoded(
        model,
        encoded,
        group=None if model.steering is None else conditioning.group_rows(model.steering.groups, told),
        batch_tokens=config["batch"]["tokens"],
        progress=progress,
        names=names,
    )
    conditions: Any = list(told)
    table = rows.assign(
        reward=rewards,
        reference_reward=np.float32(np.nan),
        conditioned_on=pd.Series(conditions, index=rows.index, dtype=object),
        response_length=rows["response"].str.len().astype("int64"),
    )
    return table[~encoded.dropped].reset_index(drop=True), encoded


def under_other_groups(
    config: Config,
    data: RunData,
    model: RewardNetwork,
    conditions: Sequence[str | None],
    mode: str,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """A sample of each group's comparisons scored under other groups than their own: the rows of the steering check.

    Args:
        conditions: the groups that this model can be told, and None for its default.

    Returns:
        Rows of the predictions table; none where the check is off or the model is not told groups.
    """
    rows = steering_sample(config, data)
    if mode == "none":
        return rows.iloc[:0]
    tables = [
        score_rows(config, model, other, [condition] * len(other), mode, progress)[0]
        for condition in conditions
        if len(other := rows[rows["group"] != condition])
    ]
    return pd.concat(tables, ignore_index=True) if tables else rows.iloc[:0]


def steering_sample(config: Config, data: RunData) -> pd.DataFrame:
    """The evaluated rows of `evaluation.steering_sample` comparisons of each group, drawn by the seed and the group's name."""
    wanted = int(config["evaluation"]["steering_sample"])
    rows = evaluated(config, data, data.groups)
    chosen: list[str] = []
    for group, ids in rows.groupby("group")["comparison_id"]:
        unique = np.sort(ids.unique())
        rng = np.random.default_rng([int(config["seed"]), zlib.crc32(str(group).encode())])
        chosen += list(rng.permutation(unique)[:wanted])
    return rows[rows["comparison_id"].isin(chosen)]


def scales(
    config: Config, data: RunData, model: RewardNetwork, groups: Sequence[str], mode: str
) -> dict[str, list[float]]:
    """Mean and standard deviation of the rewards that a model gives under each group, over one sample of texts.

    The same validation texts of all groups of `data` serve every group, so the scales differ by the rewards and not by the
    texts; without validation texts training ones are taken. `scpo adapt` has the new group's texts only.
    """
    frame = data.frame
    rows = frame[frame["split"] == ("val" if (frame["split"] == "val").any() else "train")]
    rng = np.random.default_rng([int(config["seed"]), SCALE_STREAM])
    rows = rows.iloc[np.sort(rng.permutation(len(rows))[:SCALE_SAMPLE])]
    found = {}
    for group in groups:
        told = [conditioning.conditioned_on(mode, group)] * len(rows)
        rewards = score_rows(config, model, rows, told, mode)[0]["reward"].to_numpy(dtype=np.float64)
        found[group] = [float(rewards.mean()), float(rewards.std())]
    return found


def with_reference(table: pd.DataFrame, data: RunData, rewards: FloatArray | None) -> pd.DataFrame:
    """The predictions with the reference rewards of the data's candidates, where there are any."""
    if rewards is None:
        return table
    known = pd.Series(rewards, index=data.frame["candidate_id"])
    return table.assign(reference_reward=known.loc[table["candidate_id"]].to_numpy(dtype=np.float32))


def count_notes(which: str, several: Sequence[Counts]) -> list[str]:
    """One sentence per reason, with the number of each group; nothing where nothing happened."""
    notes = []
    for reason in sorted({reason for counts in several for reason in counts}):
        lost = {group: n for counts in several for group, n in counts.get(reason, {}).items()}
        if lost:
            notes.append(f"{which}, {reason}: " + ", ".join(f"{group} {n}" for group, n in lost.items()) + ".")
    return notes
