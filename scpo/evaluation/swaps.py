"""Rewards of the same comparisons under every condition, and what a swap of the group does to them. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from scpo.data.pairs import make_pairs
from scpo.evaluation.predictions import float32
from scpo.metrics.functional import group_sums

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Float32Array = npt.NDArray[np.float32]

OWN, OTHERS, DEFAULT, CHANGES, SHIFT, LEVEL = range(6)
"""Columns of the sums: pairs right under the own group, under the others and under none, then what a swap moves."""


@dataclass(frozen=True)
class Swaps:
    """Rewards of the sampled comparisons under every condition; candidates sorted by comparison.

    Attributes:
        groups: names, in the order in which numbers are given.
        conditions: the groups that the model was told.
        rewards: (n_candidates, n_conditions).
        default: (n_candidates,) rewards without a group; None where the model has no default.
        own: (n_candidates,) column of the own group.
        score: (n_candidates,) the annotator's, NaN where there is none.
        comparison: (n_candidates,) codes 0 to n_comparisons - 1, ascending.
        group, cluster: (n_comparisons,) position in `groups`, and code of the cluster.
        counts: comparisons sampled, used, without rows of their own group, and with missing rows.
    """

    groups: list[str]
    conditions: list[str]
    rewards: Float32Array
    default: Float32Array | None
    own: IntArray
    score: FloatArray
    comparison: IntArray
    group: IntArray
    cluster: IntArray
    counts: dict[str, int]

    @property
    def size(self) -> IntArray:
        """(n_comparisons,) number of candidates."""
        return np.bincount(self.comparison, minlength=len(self.group)).astype(np.int64)

    @property
    def starts(self) -> IntArray:
        """(n_comparisons,) position of each comparison's first candidate."""
        return np.searchsorted(self.comparison, np.arange(len(self.group)))


def read_swaps(frame: pd.DataFrame, groups: list[str]) -> Swaps | None:
    """The comparisons that have rows under another condition than their own; None where there are none.

    A comparison is used where each of its candidates has a row under every condition of the table; others are counted.
    """
    told, of = frame["conditioned_on"], frame["group"]
    plain = told.isna().to_numpy()
    own = ~plain & told.eq(of).to_numpy(dtype=bool, na_value=False)
    steered = frame["comparison_id"].isin(frame["comparison_id"][own]).to_numpy()
    other = (~plain & ~own) | (plain & steered)
    if not other.any():
        return None
    sampled = frame["comparison_id"].isin(frame["comparison_id"][other]).to_numpy()
    columns = ["candidate_id", "comparison_id", "cluster_id", "group", "score", "conditioned_on", "reward"]
    rows, plain = frame.loc[sampled, columns], plain[sampled]
    found = set(rows["conditioned_on"][~plain])
    conditions = [g for g in groups if g in found] + sorted(found - set(groups))

    candidate, names = pd.factorize(rows["candidate_id"], sort=True)
    _, first = np.unique(candidate, return_index=True)
    one = rows.iloc[first]  # one row per candidate
    comparison, ids = pd.factorize(one["comparison_id"], sort=True)
    order = np.argsort(comparison, kind="stable")
    place = np.empty(len(names), dtype=np.int64)
    place[order] = np.arange(len(names))
    one, comparison = one.iloc[order], comparison[order]
    rewards = np.full((len(names), len(conditions) + 1), np.nan, dtype=np.float32)  # the last column: no group
    column = np.where(plain, len(conditions), pd.Index(conditions).get_indexer(pd.Index(rows["conditioned_on"])))
    rewards[place[candidate], column] = float32(rows, "reward", "predictions")
    if not plain.any():
        rewards = rewards[:, :-1]

    known = one["group"].isin(conditions).to_numpy()
    without_own = np.bincount(comparison[~known], minlength=len(ids)) > 0
    incomplete = np.bincount(comparison[np.isnan(rewards).any(axis=1)], minlength=len(ids)) > 0
    use = ~without_own & ~incomplete
    keep = use[comparison]
    one, rewards = one[keep], rewards[keep]
    code = np.unique(comparison[keep], return_inverse=True)[1].astype(np.int64)
    head = one.iloc[np.unique(code, return_index=True)[1]]
    return Swaps(
        groups=groups,
        conditions=conditions,
        rewards=rewards[:, : len(conditions)],
        default=rewards[:, -1] if plain.any() else None,
        own=pd.Index(conditions).get_indexer(pd.Index(one["group"])).astype(np.int64),
        score=one["score"].to_numpy(dtype=np.float64, na_value=np.nan),
        comparison=code,
        group=pd.Index(groups).get_indexer(pd.Index(head["group"])).astype(np.int64),
        cluster=pd.factorize(head["cluster_id"], sort=True)[0].astype(np.int64),
        counts={
            "comparisons_sampled": len(ids),
            "comparisons_used": int(use.sum()),
            "comparisons_without_own_group": int(without_own.sum()),
            "comparisons_with_missing_rows": int((incomplete & ~without_own).sum()),
            "candidates": len(one),
        },
    )


def pair_counts(swaps: Swaps, min_gap: float) -> tuple[FloatArray, FloatArray]:
    """Right pairs of each comparison, (n_comparisons, n_conditions), a last column without a group; all pairs (n_comparisons,).

    Margins are float32 and a tie is wrong, as in :func:`scpo.evaluation.accuracy.score_pairs`.
    """
    pairs = make_pairs(swaps.comparison, swaps.score, min_gap)
    rewards = swaps.rewards
    if swaps.default is not None:
        rewards = np.concatenate([rewards, swaps.default[:, None]], axis=1)
    # A difference of float32 numbers is above 0 exactly where one is above the other.
    right = (rewards[pairs.chosen] > rewards[pairs.rejected]).astype(np.float64)
    of, n = swaps.comparison[pairs.chosen], len(swaps.group)
    return group_sums(right, of, n), np.bincount(of, minlength=n).astype(np.float64)


def movements(swaps: Swaps) -> tuple[FloatArray, FloatArray]:
    """What a swap of the group moves, per comparison: numerators and denominators, (n_comparisons, 3).

    Columns, each a mean over the other groups: whether the set of best candidates differs; the sum over candidates of the
    squared change of the reward after the comparison's mean change is taken out, over that of the squared deviations
    under the own group; the absolute mean change. Comparisons of one candidate have no best one and count 0 of 0.
    """
    starts, n = swaps.starts, len(swaps.group)
    if n == 0:
        return np.zeros((0, 3)), np.zeros((0, 3))
    size = swaps.size[:, None].astype(np.float64)
    several = (size > 1).astype(np.float64)
    others = swaps.rewards.shape[1] - 1
    several = several if others else np.zeros_like(several)
    rewards = swaps.rewards.astype(np.float64)  # (n_candidates, n_conditions)
    own = rewards[np.arange(len(rewards)), swaps.own][:, None]

    def centred(values: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean = np.add.reduceat(values, starts, axis=0) / size
        return values - mean[swaps.comparison], mean

    best = rewards == np.maximum.reduceat(rewards, starts, axis=0)[swaps.comparison]
    own_best = best[np.arange(len(best)), swaps.own][:, None]
    changed = np.logical_or.reduceat(best != own_best, starts, axis=0)
    change, level = centred(rewards - own)  # 0 in the own column
    squares = np.add.reduceat(change**2, starts, axis=0)
    spread = np.add.reduceat(centred(own)[0] ** 2, starts, axis=0)
    moved = [changed.sum(axis=1), squares.sum(axis=1), np.abs(level).sum(axis=1)]
    numerator = np.stack(moved, axis=1) / max(others, 1) * several
    return numerator, np.concatenate([several, spread * several, several], axis=1)


@dataclass(frozen=True)
class Units:
    """Sums of each cluster inside a group: numerators and denominators (n_units, 6), group and cluster (n_units,)."""

    numerator: FloatArray
    denominator: FloatArray
    group: IntArray
    cluster: IntArray


def unit_sums(swaps: Swaps, right: FloatArray, pairs: FloatArray) -> Units:
    """The columns above per cluster, from the counts of :func:`pair_counts`; a column without data counts 0 of 0."""
    n = len(swaps.group)
    own_column = pd.Index(swaps.conditions).get_indexer(pd.Index(swaps.groups))[swaps.group]
    own = right[np.arange(n), own_column]
    others = len(swaps.conditions) - 1
    # The mean over the others stays a ratio of whole numbers: equal accuracies then differ by 0, not by rounding.
    elsewhere = right[:, : len(swaps.conditions)].sum(axis=1) - own
    none = np.zeros(n)
    default = (right[:, -1], pairs) if swaps.default is not None else (none, none)
    moved, bounds = movements(swaps)
    numerator = np.column_stack([own, elsewhere, default[0], moved])
    denominator = np.column_stack([pairs, pairs * others, default[1], bounds])
    width = int(swaps.cluster.max()) + 1 if n else 1
    keys, unit = np.unique(swaps.group * width + swaps.cluster, return_inverse=True)
    total = len(keys)
    sums = [group_sums(values, unit, total) for values in (numerator, denominator)]
    return Units(sums[0], sums[1], keys // width, keys % width)
