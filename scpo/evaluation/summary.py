"""``metrics.json``: everything the evaluation says about one model, from its predictions table."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from scpo import selection
from scpo.errors import UserError
from scpo.evaluation.accuracy import ScoredPairs, cell_totals, cluster_sums, score_pairs
from scpo.evaluation.bootstrap import Aggregate, Draws, aggregate, interval, ratio, resample

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

SUBSETS = ("all", "distinctive", "shared")
TRAIN_KEYS = ("pairs", "candidates_encoded", "seconds")


@dataclass(frozen=True)
class Settings:
    """Minimum size of a cell, and the bootstrap's number of resamples and seed."""

    min_clusters: int
    min_pairs: int
    resamples: int
    seed: int

    def insufficient(self, n_pairs: float, n_clusters: float) -> bool:
        """True for a cell whose number pages must not print."""
        return bool(n_pairs < self.min_pairs or n_clusters < self.min_clusters)


@dataclass(frozen=True)
class Table:
    """Sums and resamples of a set of cells; columns are named subsets of the pairs, or other judges of the same pairs."""

    columns: list[str]
    correct: FloatArray  # (n_cells, n_columns)
    pairs: FloatArray  # (n_cells, n_columns)
    clusters: FloatArray  # (n_cells, n_columns)
    draws: Draws
    settings: Settings

    def insufficient(self, row: int, column: str = "all") -> bool:
        """Whether a cell is below the minimum."""
        c = self.columns.index(column)
        return self.settings.insufficient(self.pairs[row, c], self.clusters[row, c])

    def cell(self, row: int, column: str) -> dict[str, Any]:
        """Accuracy, interval and n of one cell; the interval needs two clusters."""
        c = self.columns.index(column)
        n_pairs, n_clusters = int(self.pairs[row, c]), int(self.clusters[row, c])
        ci = interval(self.draws.accuracy_of(row, c)) if n_clusters > 1 else None
        return {
            "accuracy": float(self.correct[row, c]) / n_pairs if n_pairs else None,
            "ci": ci,
            "n_pairs": n_pairs,
            "n_clusters": n_clusters,
            "insufficient": self.insufficient(row, column),
        }


def summarise(
    predictions: pd.DataFrame,
    *,
    kept_ratio: Mapping[str, float | None] | None = None,
    train: Mapping[str, Any] | None = None,
    min_gap: float = 0.0,
    tau: float | None = None,
    beta: float | None = None,
    min_clusters: int = 5,
    min_pairs: int = 30,
    resamples: int = 2000,
    seed: int = 0,
    groups: list[str] | None = None,
    response_length: pd.Series | None = None,
    where: str = "predictions",
) -> dict[str, Any]:
    """Compute the content of ``metrics.json`` (schema 1).

    Accuracies are fractions; a tie of rewards is wrong and is counted again in `tie_rate`; undefined is None. Macro, micro,
    worst group and gap cover every group with a test pair; `sufficient_only` gives them again over the groups that are not
    below the minimum, and is what pages print. Intervals: see :mod:`scpo.evaluation.bootstrap`.

    Args:
        predictions: the predictions table; rows conditioned on another group than their own are counted, not used.
        kept_ratio: share of training pairs kept by the selection, by group.
        train: `pairs`, `candidates_encoded`, `seconds` of the training.
        min_gap: a test pair needs a score gap above it.
        tau: test threshold; adds `selected` to each group: pairs whose reference margin is below logit(tau).
        beta: with it `selected` gets `weighted_accuracy`, each pair weighted by W = min(exp(margin / beta), 1).
        min_clusters, min_pairs: cells below either are marked `insufficient`.
        resamples, seed: of the bootstrap.
        groups: names to report, also those without test pairs; None: the groups found.
        response_length: length of each response by candidate_id, for the length baseline.
        where: name of the table in error messages.

    Raises:
        UserError: see :func:`scpo.evaluation.accuracy.score_pairs`; tau or beta out of range.
    """
    if tau is not None:
        selection.check_tau(tau)
    if beta is not None:
        selection.check_beta(beta)
    settings = Settings(min_clusters, min_pairs, resamples, seed)
    pairs = score_pairs(predictions, min_gap=min_gap, groups=groups, response_length=response_length, where=where)
    table = _table(pairs.group, pairs.cluster, pairs.groups, _columns(pairs, tau), settings)
    has_pairs = table.pairs > 0  # (n_groups, n_columns)
    enough = np.array([not table.insufficient(g) for g in range(len(pairs.groups))], dtype=bool)
    by_group = {
        name: _group(pairs, table, g, tau, beta, (kept_ratio or {}).get(name)) for g, name in enumerate(pairs.groups)
    }
    return {
        "schema": 1,
        **_overall(pairs, table, has_pairs),
        "sufficient_only": _overall(pairs, table, has_pairs & enough[:, None]),
        "n_pairs": len(pairs.group),
        "n_clusters": len(np.unique(pairs.cluster)),
        "n_groups": len(pairs.groups),
        "n_groups_insufficient": int((~enough).sum()),
        "insufficient_groups": [name for name, ok in zip(pairs.groups, enough, strict=True) if not ok],
        "tie_rate": _mean(pairs.margin == 0),
        "by_group": by_group,
        "by_subcommunity": subcommunities(pairs, settings),
        "baselines": {
            "chance": 0.5,
            "length": _macro(table, "length", has_pairs),
            "reference": _macro(table, "reference", has_pairs),
        },
        "train": {key: _number((train or {}).get(key)) for key in TRAIN_KEYS},
        "counts": pairs.counts,
        "settings": {
            "min_gap": min_gap,
            "tau": tau,
            "beta": beta,
            "min_clusters": min_clusters,
            "min_pairs": min_pairs,
            "interval": {
                "method": "percentile",
                "level": 0.95,
                "resamples": resamples,
                "seed": seed,
                "unit": "cluster within group",
            },
        },
    }


def _columns(pairs: ScoredPairs, tau: float | None) -> dict[str, tuple[BoolArray, BoolArray]]:
    """For each column whether a pair is right and whether it belongs there."""
    right, every = pairs.correct, np.ones(len(pairs.group), dtype=bool)
    none = ~every
    reference = pairs.reference_margin
    distinctive = none if reference is None else reference < 0  # strictly, in float32
    columns = {
        "all": (right, every),
        "distinctive": (right, distinctive),
        "shared": (right, none if reference is None else ~distinctive),
        "reference": (none, none) if reference is None else (reference > 0, every),
        "length": (none, none) if pairs.longer is None else (pairs.longer, every),
    }
    if tau is not None and pairs.reference is not None:
        columns["selected"] = (right, selection.filter_mask(pairs.reference[0], pairs.reference[1], tau))
    return columns


def _table(
    cell: npt.NDArray[np.int64],
    cluster: npt.NDArray[np.int64],
    names: list[str],
    columns: dict[str, tuple[BoolArray, BoolArray]],
    settings: Settings,
) -> Table:
    correct = np.stack([right for right, _ in columns.values()], axis=1)
    member = np.stack([belongs for _, belongs in columns.values()], axis=1)
    sums = cluster_sums(cell, cluster, correct, member)
    totals = cell_totals(sums, len(names))
    # A stream per name: adding a group or an attribute leaves every other cell's interval as it was.
    keys = [zlib.crc32(name.encode("utf-8")) for name in names]
    draws = resample(
        sums.correct, sums.pairs, sums.cell, len(names), resamples=settings.resamples, seed=settings.seed, keys=keys
    )
    return Table(list(columns), totals["correct"], totals["pairs"], totals["clusters"], draws, settings)


def _overall(pairs: ScoredPairs, table: Table, include: BoolArray) -> dict[str, Any]:
    """`macro`, `micro`, `worst_group`, `best_group` and `gap` over the included groups, (n_groups, n_columns)."""
    point = aggregate(table.correct, table.pairs, include)
    drawn = aggregate(table.draws.correct, table.draws.pairs, include)
    a, ref = table.columns.index("all"), table.columns.index("reference")
    inside = include[:, a]
    # With one cluster a group cannot be resampled: an interval that treats it as known would be too narrow.
    firm = bool(inside.any()) and bool((table.clusters[inside, a] > 1).all())
    insufficient = any(table.insufficient(g) for g in np.flatnonzero(inside).tolist())
    accuracy = ratio(table.correct[:, a], table.pairs[:, a])
    order: list[int] = sorted(np.flatnonzero(inside).tolist(), key=lambda g: (accuracy[g], pairs.groups[g]))

    def extreme(g: int | None, values: FloatArray) -> dict[str, Any]:
        """A named group, with the interval of the extreme value whichever group attains it in a resample."""
        if g is None:
            return {"name": None, "accuracy": None, "ci": None, "n_pairs": 0, "n_clusters": 0, "insufficient": True}
        return {"name": pairs.groups[g], **table.cell(g, "all"), "ci": interval(values[:, a]) if firm else None}

    to_reference = drawn.macro[:, a] - drawn.macro[:, ref]
    return {
        "macro": _average(pairs, table, point, drawn, "macro", include),
        "micro": _average(pairs, table, point, drawn, "micro", include),
        "worst_group": extreme(order[0] if order else None, drawn.worst),
        "best_group": extreme(order[-1] if order else None, drawn.best),
        "gap": {
            "max_min": _number(point.gap[a]),
            "ci": interval(drawn.gap[:, a]) if firm and len(order) > 1 else None,
            "to_reference": _number(point.macro[a] - point.macro[ref]),
            "to_reference_ci": interval(to_reference) if firm else None,
            "n_groups": len(order),
            "insufficient": insufficient or len(order) < 2,
        },
    }


def _average(
    pairs: ScoredPairs, table: Table, point: Aggregate, drawn: Aggregate, which: str, include: BoolArray
) -> dict[str, Any]:
    """One average on all pairs, with the same on distinctive and shared pairs inside."""

    def one(column: str) -> dict[str, Any]:
        c = table.columns.index(column)
        inside = include[:, c]
        firm = bool(inside.any()) and bool((table.clusters[inside, c] > 1).all())
        return {
            "accuracy": _number(getattr(point, which)[c]),
            "ci": interval(getattr(drawn, which)[:, c]) if firm else None,
            "n_pairs": int(table.pairs[inside, c].sum()),
            "n_clusters": _distinct_clusters(pairs, inside, column),
            "n_groups": int(inside.sum()),
            "n_groups_insufficient": sum(table.insufficient(g, column) for g in np.flatnonzero(inside).tolist()),
        }

    return {**one("all"), "distinctive": one("distinctive"), "shared": one("shared")}


def _distinct_clusters(pairs: ScoredPairs, inside: BoolArray, column: str) -> int:
    """Distinct clusters behind an average; a question asked in ten countries is one."""
    member = _columns(pairs, None)[column][1]
    return len(np.unique(pairs.cluster[member & inside[pairs.group]]))


def _group(
    pairs: ScoredPairs, table: Table, g: int, tau: float | None, beta: float | None, kept: float | None
) -> dict[str, Any]:
    whole = table.cell(g, "all")
    mine = pairs.group == g
    reference = pairs.reference_margin
    judged = None if reference is None else reference > 0
    masks = _columns(pairs, None)
    result: dict[str, Any] = {
        "n_pairs": whole["n_pairs"],
        "n_clusters": whole["n_clusters"],
        "tie_rate": _mean(pairs.margin[mine] == 0),
        **{subset: table.cell(g, subset) for subset in SUBSETS},
        "reference": {s: None if judged is None else _mean(judged[mine & masks[s][1]]) for s in SUBSETS},
        "reference_tie_rate": None if reference is None else _mean(reference[mine] == 0),
        "baselines": {
            "chance": 0.5 if whole["n_pairs"] else None,
            "length": table.cell(g, "length")["accuracy"],
            "reference": table.cell(g, "reference")["accuracy"],
        },
        "kept_ratio": _number(kept),
        "insufficient": whole["insufficient"],
    }
    if tau is not None:
        result["selected"] = _selected(pairs, table, g, tau, beta)
    return result


def _selected(pairs: ScoredPairs, table: Table, g: int, tau: float, beta: float | None) -> dict[str, Any]:
    """The test pairs that the filter would keep at the test's tau."""
    if "selected" not in table.columns or pairs.reference is None:
        return {"accuracy": None, "ci": None, "n_pairs": 0, "n_clusters": 0, "insufficient": True}
    cell = table.cell(g, "selected")
    if beta is not None:
        plus, minus = pairs.reference
        mine = (pairs.group == g) & selection.filter_mask(plus, minus, tau)
        weight = selection.weight(plus[mine], minus[mine], beta)
        total = float(weight.sum())
        cell["weighted_accuracy"] = float(weight[pairs.correct[mine]].sum()) / total if total > 0 else None
        cell["weight_sum"] = total
    return cell


def subcommunities(pairs: ScoredPairs, settings: Settings) -> list[dict[str, Any]]:
    """Accuracy of every group crossed with every value of every attribute, in the order group, attribute, value.

    A pair whose annotator lacks an attribute stands in no cell of that attribute.
    """
    cells: dict[tuple[int, str, str], int] = {}
    cell, index = [], []
    for i, (g, attributes) in enumerate(zip(pairs.group, pairs.attributes, strict=True)):
        for attribute, value in attributes.items():
            if value is not None:
                cell.append(cells.setdefault((int(g), attribute, value), len(cells)))
                index.append(i)
    if not cells:
        return []
    rows = np.array(index, dtype=np.int64)
    right = pairs.correct[rows]
    names = ["\0".join((pairs.groups[g], attribute, value)) for g, attribute, value in cells]
    table = _table(
        np.array(cell, dtype=np.int64), pairs.cluster[rows], names, {"all": (right, np.ones_like(right))}, settings
    )
    return [
        {
            "group": pairs.groups[g],
            "attribute": attribute,
            "value": value,
            **table.cell(cells[g, attribute, value], "all"),
        }
        for g, attribute, value in sorted(cells)
    ]


def _macro(table: Table, column: str, include: BoolArray) -> float | None:
    return _number(aggregate(table.correct, table.pairs, include).macro[table.columns.index(column)])


def _mean(values: BoolArray) -> float | None:
    return float(values.mean()) if len(values) else None


def _number(value: Any) -> Any:
    """A JSON number, None where undefined; whole numbers stay whole."""
    if value is None:
        return None
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    number = float(value)
    if np.isinf(number):
        raise UserError(f"expected a finite number, found {value}")
    return None if np.isnan(number) else number
