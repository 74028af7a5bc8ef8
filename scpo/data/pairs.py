"""Pairs (chosen, rejected) derived from the scores of a comparison's candidates. Never stored as text twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Pairs:
    """Row positions of the chosen and rejected candidates, and their score gap (> 0); all of shape (n_pairs,)."""

    chosen: IntArray
    rejected: IntArray
    gap: FloatArray

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, keep: npt.NDArray[np.bool_] | IntArray) -> Pairs:
        return Pairs(self.chosen[keep], self.rejected[keep], self.gap[keep])


def all_pairs(comparison: IntArray, scores: FloatArray) -> Pairs:
    """Every unordered pair inside each comparison, oriented so that the higher score is chosen; ties have gap 0.

    Args:
        comparison: (n_candidates,) integer code of each row's comparison, in any order.
        scores: (n_candidates,) scores; rows with NaN take part in no pair.

    Returns:
        Pairs sorted by the position of the earlier row, then of the later row.
    """
    comparison = np.asarray(comparison, dtype=np.int64)
    scores = np.asarray(scores, dtype=np.float64)
    rows = np.flatnonzero(~np.isnan(scores))
    rows = rows[np.argsort(comparison[rows], kind="stable")]
    _, starts, sizes = np.unique(comparison[rows], return_index=True, return_counts=True)
    firsts, seconds = [], []
    for size in np.unique(sizes):
        if size < 2:
            continue
        block = rows[starts[sizes == size][:, None] + np.arange(size)]  # (n_comparisons_of_size, size)
        i, j = np.triu_indices(int(size), k=1)
        firsts.append(block[:, i].ravel())
        seconds.append(block[:, j].ravel())
    if not firsts:
        empty = np.zeros(0, dtype=np.int64)
        return Pairs(empty, empty, np.zeros(0))
    first, second = np.concatenate(firsts), np.concatenate(seconds)
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    gap = scores[first] - scores[second]
    swap = gap < 0
    return Pairs(np.where(swap, second, first), np.where(swap, first, second), np.abs(gap))


def make_pairs(comparison: IntArray, scores: FloatArray, min_gap: float = 0.0) -> Pairs:
    """The preference pairs: those of :func:`all_pairs` whose gap is above ``min_gap`` (0: only ties are left out)."""
    pairs = all_pairs(comparison, scores)
    return pairs[pairs.gap > min_gap]
