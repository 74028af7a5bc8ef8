"""The steering check: does a conditioned model follow the group that it is told?

A sample of every group's comparisons is scored again under every other group, and without a group where the model has a
default. Only the condition differs between the numbers compared here: comparisons, pairs and resamples are the same.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from scpo.evaluation.accuracy import check_min_gap, group_names
from scpo.evaluation.bootstrap import interval, ratio, resample
from scpo.evaluation.predictions import check_predictions
from scpo.evaluation.summary import Settings
from scpo.evaluation.swaps import (
    CHANGES,
    DEFAULT,
    LEVEL,
    OTHERS,
    OWN,
    SHIFT,
    Swaps,
    Units,
    pair_counts,
    read_swaps,
    unit_sums,
)
from scpo.evaluation.verdict import verdict
from scpo.metrics.functional import group_sums

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

MEASURES = {
    "advantage": OTHERS,
    "advantage_over_default": DEFAULT,
    "best_changes": CHANGES,
    "reward_shift": SHIFT,
    "level_shift": LEVEL,
}
"""Name of each measure, and the column whose denominator says which groups and clusters it rests on."""


def steering_check(
    predictions: pd.DataFrame,
    *,
    min_gap: float = 0.0,
    groups: list[str] | None = None,
    resamples: int = 2000,
    seed: int = 0,
    min_clusters: int = 5,
    min_pairs: int = 30,
    where: str = "predictions",
) -> dict[str, Any] | None:
    """Whether the model follows the group that it is told: the content of ``metrics.json``'s `steering`.

    Fractions are 0 to 1, undefined is None. `matrix[g][h]` is the accuracy on h's pairs when the model is told g,
    `default_row["default"][h]` that when it is told none. Macro numbers cover every group with data; `sufficient_only`
    gives them over the groups that are not below the minimum.

    - `advantage`: accuracy on a group's pairs under the own group, minus the mean under the others.
    - `best_changes`: share of comparisons of two or more candidates whose set of best candidates (ties: several) is
      another one under another group; mean over the other groups.
    - `reward_shift`: how far rewards move when the group is swapped, root mean square over candidates after each
      comparison's mean change is taken out (a constant moves no ranking), over the root mean square deviation of rewards
      inside comparisons under the own group. Rewards on another scale count as moved.
    - `level_shift`: that mean change, absolute, in units of the reward.

    Args:
        predictions: the predictions table.
        min_gap: a pair needs a score gap above it (0: only ties are left out).
        groups: to give numbers for, also those without rows; None: the groups found, sorted.
        resamples, seed: of the bootstrap over clusters within groups.
        min_clusters, min_pairs: cells below are marked insufficient.
        where: name of the table in error messages.

    Returns:
        None where no comparison was scored under another condition than its own.

    Raises:
        UserError: a faulty table, a group that is not in `groups`.
    """
    check_predictions(predictions, where)
    check_min_gap(min_gap)
    swaps = read_swaps(predictions, group_names(predictions, groups, where))
    if swaps is None:
        return None
    settings = Settings(min_clusters, min_pairs, resamples, seed)
    right, pairs = pair_counts(swaps, min_gap)
    sums = _sum(swaps, right, pairs, settings)
    enough = np.array([not sums.insufficient(g) for g in range(len(swaps.groups))], dtype=bool)
    every = np.ones(len(enough), dtype=bool)
    check = {
        "groups": swaps.groups,
        "conditions": swaps.conditions,
        **_matrix(swaps, right, sums),
        **{name: sums.macro(name, every) for name in MEASURES},
        "sufficient_only": {name: sums.macro(name, enough) for name in MEASURES},
        "insufficient_groups": [name for name, ok in zip(swaps.groups, enough, strict=True) if not ok],
        "by_group": {name: sums.of_group(g) for g, name in enumerate(swaps.groups)},
        "counts": swaps.counts,
    }
    check["verdict"], check["sentence"] = verdict(check)
    return check


@dataclass(frozen=True)
class Sums:
    """Sums of every group and their resamples; columns as in :mod:`scpo.evaluation.swaps`.

    Attributes:
        units: the clusters behind the sums.
        clusters: (n_groups, 6) clusters with something to count in a column.
        measures: (n_groups,) and (resamples, n_groups) of each measure, NaN where undefined.
        accuracy: (n_groups, 3) under the own group, under the others, under none.
        pairs, comparisons: (n_groups,); comparisons are those of two or more candidates.
    """

    units: Units
    clusters: FloatArray
    measures: dict[str, tuple[FloatArray, FloatArray]]
    accuracy: FloatArray
    pairs: FloatArray
    comparisons: FloatArray
    settings: Settings

    def insufficient(self, g: int) -> bool:
        """Whether a group is below the minimum."""
        return self.settings.insufficient(self.pairs[g], self.clusters[g, OWN])

    def macro(self, name: str, include: BoolArray) -> dict[str, Any] | None:
        """Unweighted mean of a measure over the included groups that have it; None where the model has no default."""
        column = MEASURES[name]
        point, draws = self.measures[name]
        inside = include & ~np.isnan(point)
        if name == "advantage_over_default" and not self.units.denominator[:, DEFAULT].any():
            return None
        # With one cluster a group cannot be resampled: an interval that treats it as known would be too narrow.
        firm = bool(inside.any()) and bool((self.clusters[inside, column] > 1).all())
        result = {
            "value": float(point[inside].mean()) if inside.any() else None,
            "ci": interval(draws[:, inside].mean(axis=1)) if firm else None,
            "n_groups": int(inside.sum()),
            "n_comparisons": int(self.comparisons[inside].sum()),
            "n_pairs": int(self.pairs[inside].sum()),
            "n_clusters": self._distinct_clusters(inside, column),
        }
        if name in ("advantage", "advantage_over_default"):
            result["own"] = _number(self.accuracy[inside, OWN].mean()) if inside.any() else None
            result["other"] = _number(self.accuracy[inside, column].mean()) if inside.any() else None
        return result

    def _distinct_clusters(self, inside: BoolArray, column: int) -> int:
        """A question asked in ten countries is one cluster."""
        counted = inside[self.units.group] & (self.units.denominator[:, column] > 0)
        return len(np.unique(self.units.cluster[counted]))

    def of_group(self, g: int) -> dict[str, Any]:
        """Every number of one group; intervals need two clusters."""
        result: dict[str, Any] = {
            key: _number(self.accuracy[g, c]) for key, c in (("own", OWN), ("others", OTHERS), ("default", DEFAULT))
        }
        for name, column in MEASURES.items():
            point, draws = self.measures[name]
            ci = interval(draws[:, g]) if self.clusters[g, column] > 1 else None
            result[name] = {"value": _number(point[g]), "ci": ci}
        return result | {
            "n_comparisons": int(self.comparisons[g]),
            "n_pairs": int(self.pairs[g]),
            "n_clusters": int(self.clusters[g, OWN]),
            "insufficient": self.insufficient(g),
        }


def _sum(swaps: Swaps, right: FloatArray, pairs: FloatArray, settings: Settings) -> Sums:
    units = unit_sums(swaps, right, pairs)
    n = len(swaps.groups)
    draws = resample(
        units.numerator,
        units.denominator,
        units.group,
        n,
        resamples=settings.resamples,
        seed=settings.seed,
        # A stream per name, as in the summary: another group's presence leaves a group's interval as it was.
        keys=[zlib.crc32(name.encode("utf-8")) for name in swaps.groups],
    )
    sums = [group_sums(values, units.group, n) for values in (units.numerator, units.denominator)]
    point, drawn = ratio(sums[0], sums[1]), draws.accuracy
    return Sums(
        units=units,
        clusters=group_sums((units.denominator > 0).astype(np.float64), units.group, n),
        measures={name: (_measure(name, point), _measure(name, drawn)) for name in MEASURES},
        accuracy=point[:, : DEFAULT + 1],
        pairs=group_sums(pairs, swaps.group, n),
        comparisons=group_sums((swaps.size > 1).astype(np.float64), swaps.group, n),
        settings=settings,
    )


def _measure(name: str, ratios: FloatArray) -> FloatArray:
    """A measure from the ratios (..., 6) of its sums."""
    column = MEASURES[name]
    if column in (OTHERS, DEFAULT):
        return ratios[..., OWN] - ratios[..., column]
    # The sums of reward shifts are of squares.
    return np.sqrt(ratios[..., column]) if column == SHIFT else ratios[..., column]


def _matrix(swaps: Swaps, right: FloatArray, sums: Sums) -> dict[str, Any]:
    """`matrix` and `default_row`: accuracy on the pairs of each group under each condition."""
    totals = group_sums(right, swaps.group, len(swaps.groups))  # (n_groups, n_conditions [+ 1])

    def row(column: int) -> dict[str, Any]:
        return {
            name: {
                "accuracy": float(totals[g, column] / sums.pairs[g]) if sums.pairs[g] else None,
                "n_pairs": int(sums.pairs[g]),
                "n_clusters": int(sums.clusters[g, OWN]),
                "insufficient": sums.insufficient(g),
            }
            for g, name in enumerate(swaps.groups)
        }

    return {
        "matrix": {condition: row(c) for c, condition in enumerate(swaps.conditions)},
        "default_row": {"default": row(-1)} if swaps.default is not None else None,
    }


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
