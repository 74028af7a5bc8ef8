"""Predictions: the candidates of the evaluated split with a model's rewards, as rows of the predictions table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from scpo import conditioning
from scpo.model.reward import RewardNetwork
from scpo.model.score import Progress, score_encoded
from scpo.run.config import Config
from scpo.run.inputs import RunData
from scpo.run.rewards import FloatArray, pick_device

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
    """Score the evaluated split's candidates of some groups.

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
    model.to(pick_device(config))
    split = config["evaluation"]["split"]
    inside = data.frame["group"].isin(groups)
    if split != "all":
        inside &= data.frame["split"] == split
    rows = data.frame[inside]
    of, names = list(rows["group"]), list(rows["candidate_id"])
    encoded = model.formatter.encode(
        list(rows["prompt"]), list(rows["response"]), list(rows["history"]), conditioning.named_groups(mode, of), names
    )
    tokens = config["batch"]["tokens"]
    rewards = score_encoded(model, encoded, batch_tokens=tokens, progress=progress, names=names)
    told: Any = [conditioning.conditioned_on(mode, group) for group in of]
    table = rows.assign(
        reward=rewards,
        reference_reward=np.float32(np.nan),
        conditioned_on=told,
        response_length=rows["response"].str.len().astype("int64"),
    )
    counts = {
        "texts truncated": count_by(of, encoded.truncated),
        "candidates left out as too long": count_by(of, encoded.dropped),
    }
    return table[~encoded.dropped].reset_index(drop=True), counts


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
