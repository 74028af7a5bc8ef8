"""Intervals: a percentile bootstrap that resamples clusters within groups.

Pairs of one annotator (or one question) are not independent, so whole clusters are drawn; each group draws as many of its
own clusters as it has, so that no group can vanish from a resample. A cluster that stands in several groups
(GlobalOpinionQA: one question asked in many countries) is drawn in each group separately: intervals of one group are
right, those of macro, micro and gap leave out that the same question moves several groups at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scpo.errors import UserError

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

CHUNK = 4_000_000
"""Integer draws held in memory at once (32 MB)."""

MIN_DEFINED = 0.9
"""Share of resamples in which a number must be defined; below it the interval is undefined."""


@dataclass(frozen=True)
class Draws:
    """Resampled sums; divide for accuracies.

    Attributes:
        correct, pairs: (resamples, num_groups, n_columns) right and all pairs of each group in each resample.
    """

    correct: FloatArray
    pairs: FloatArray

    @property
    def accuracy(self) -> FloatArray:
        """(resamples, num_groups, n_columns); NaN where a resample has no pair of the column."""
        return ratio(self.correct, self.pairs)

    def accuracy_of(self, group: int, column: int) -> FloatArray:
        """(resamples,) of one group and column."""
        return ratio(self.correct[:, group, column], self.pairs[:, group, column])


@dataclass(frozen=True)
class Aggregate:
    """Numbers over groups; each of the shape of the leading dimensions plus (n_columns,), NaN where undefined."""

    macro: FloatArray
    micro: FloatArray
    worst: FloatArray
    best: FloatArray
    gap: FloatArray


def ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """``numerator / denominator``, NaN where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.full(np.shape(denominator), np.nan), where=denominator > 0)


def resample(
    correct: FloatArray,
    pairs: FloatArray,
    group: IntArray,
    num_groups: int,
    *,
    resamples: int = 2000,
    seed: int = 0,
    keys: list[int] | None = None,
) -> Draws:
    """Draw clusters with replacement inside each group, exactly (integer draws), and sum their pairs.

    Args:
        correct, pairs: (n_units, n_columns) sums of each cluster, a unit being one cluster in one group.
        group: (n_units,) code of the unit's group, 0 to num_groups - 1.
        num_groups: groups without units get zeros.
        resamples: number of resamples.
        seed: with a group's key it starts that group's own stream.
        keys: (num_groups,) stable number of each group, default its code. With keys from names, another group's
            presence never changes this group's draws, and two runs on the same clusters draw the same ones.
    """
    if resamples < 1:
        raise UserError(f"resamples: expected at least 1, found {resamples}")
    values = np.concatenate([correct, pairs], axis=1).astype(np.float64)  # (n_units, 2 * n_columns)
    out = np.zeros((resamples, num_groups, values.shape[1]))
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(num_groups + 1))
    for g in range(num_groups):
        own = values[order[bounds[g] : bounds[g + 1]]]
        if len(own):
            rng = np.random.default_rng([seed, keys[g] if keys is not None else g])
            out[:, g] = _resampled_sums(own, resamples, rng)
    n = correct.shape[1]
    return Draws(out[..., :n], out[..., n:])


def _resampled_sums(values: FloatArray, resamples: int, rng: np.random.Generator) -> FloatArray:
    """(resamples, n_columns) sums over as many rows, drawn with replacement, as `values` (n_units, n_columns) has."""
    n = len(values)
    out = np.empty((resamples, values.shape[1]))
    step = max(1, CHUNK // n)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        drawn = rng.integers(0, n, size=(size, n))
        drawn += np.arange(size)[:, None] * n
        times = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n)  # how often each unit was drawn
        out[start : start + size] = times.astype(np.float64) @ values
    return out


def aggregate(correct: FloatArray, pairs: FloatArray, include: BoolArray) -> Aggregate:
    """Macro, micro, worst, best and max-min gap over the included groups; the same code for estimates and resamples.

    Args:
        correct, pairs: (..., num_groups, n_columns).
        include: (num_groups, n_columns). An included group without a pair makes the macro, worst, best and gap of that
            resample undefined: it never counts as 0 and never drops out.

    The gap of a single group is undefined.
    """
    accuracy = ratio(correct, pairs)
    number = include.sum(axis=0)  # (n_columns,)
    some, several = number > 0, number > 1
    macro = np.where(some, np.where(include, accuracy, 0.0).sum(axis=-2) / np.maximum(number, 1), np.nan)
    micro = ratio(np.where(include, correct, 0.0).sum(axis=-2), np.where(include, pairs, 0.0).sum(axis=-2))
    worst = np.where(some, np.where(include, accuracy, np.inf).min(axis=-2, initial=np.inf), np.nan)
    best = np.where(some, np.where(include, accuracy, -np.inf).max(axis=-2, initial=-np.inf), np.nan)
    gap = np.where(several, best - worst, np.nan)
    return Aggregate(macro, micro, worst, best, gap)


def interval(draws: FloatArray, level: float = 0.95) -> list[float] | None:
    """Percentile interval ``[low, high]`` of (resamples,) draws; None where too few resamples define the number."""
    defined = draws[~np.isnan(draws)]
    if len(defined) == 0 or len(defined) < MIN_DEFINED * len(draws):
        return None
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return [float(low), float(high)]
