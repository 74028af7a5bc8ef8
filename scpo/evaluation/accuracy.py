"""From predictions to scored test pairs, and from pairs to sums per cluster. Pure functions of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from scpo.data.pairs import all_pairs
from scpo.errors import UserError, did_you_mean
from scpo.evaluation.predictions import check_predictions, float32
from scpo.metrics.functional import group_sums

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Float32Array = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ScoredPairs:
    """The test pairs of a predictions table; every array has the shape (n_pairs,).

    Attributes:
        groups: names, in the order in which numbers are given.
        group: position in `groups`.
        cluster: code of the cluster; codes follow the sorted cluster ids, so the order of rows does not matter.
        margin: reward of the chosen minus the rejected response, float32.
        reference: chosen and rejected reference rewards, float32, (2, n_pairs); None without a reference.
        longer: the chosen response is strictly the longer one; None where lengths are not known.
        attributes: those of the pair's annotator.
        counts: what was looked at and left out: rows, rows under another condition than their own (another group's, or
            none beside the own), candidates that have only such rows, candidates without a score, pairs of tied scores.
    """

    groups: list[str]
    group: IntArray
    cluster: IntArray
    margin: Float32Array
    reference: Float32Array | None
    longer: BoolArray | None
    attributes: list[dict[str, str]]
    counts: dict[str, int]

    @property
    def correct(self) -> BoolArray:
        """Strictly higher reward for the chosen response: a tie is wrong."""
        return self.margin > 0

    @property
    def reference_margin(self) -> Float32Array | None:
        """Reference reward of the chosen minus the rejected response, float32."""
        return None if self.reference is None else difference(self.reference[0], self.reference[1])


def difference(chosen: Float32Array, rejected: Float32Array) -> Float32Array:
    """``chosen - rejected`` in float32; overflow gives an infinity of the right sign, without a warning."""
    with np.errstate(over="ignore"):
        return chosen - rejected


def steered_rows(frame: pd.DataFrame, where: str) -> BoolArray:
    """(n_rows,) True for the rows of the steered evaluation: conditioned on the row's own group, or on none.

    Where a comparison has both, its own group's rows count and those without a condition do not: the model's default
    beside its steered reward, which the steering check reads. Where *no* candidate of a comparison has both, candidates
    under their group stand beside others without a condition: their rewards cannot be compared, which is an error.
    """
    own = (frame["conditioned_on"].notna() & frame["conditioned_on"].eq(frame["group"])).to_numpy(dtype=bool)
    plain = frame["conditioned_on"].isna().to_numpy()
    comparison, candidate = frame["comparison_id"], frame["candidate_id"]
    steered = comparison.isin(comparison[own]).to_numpy()
    has_own = candidate.isin(candidate[own]).to_numpy()
    has_both = comparison.isin(comparison[plain & has_own]).to_numpy()
    mixed = plain & steered & ~has_own & ~has_both
    if mixed.any():
        row = frame.iloc[int(mixed.argmax())]
        raise UserError(
            f"{where}: comparison {row['comparison_id']!r}: expected all candidates conditioned on {row['group']!r} or none, "
            f"found {row['candidate_id']!r} without a condition beside others with one; predict the missing rows"
        )
    return own | (plain & ~steered)


def check_min_gap(min_gap: float) -> None:
    """Raise UserError unless the gap is a number of at least 0."""
    if not 0.0 <= min_gap < np.inf:
        raise UserError(f"min_gap: expected a number of at least 0, found {min_gap}")


def group_names(frame: pd.DataFrame, groups: list[str] | None, where: str) -> list[str]:
    """The groups to give numbers for: those asked for, which must cover the table's, or those found, sorted."""
    found = sorted(set(frame["group"]))
    names = list(dict.fromkeys(groups)) if groups is not None else found
    for name in found:
        if name not in names:
            raise UserError(f"{where}: expected only the groups asked for, found {name!r}.{did_you_mean(name, names)}")
    return names


def score_pairs(
    frame: pd.DataFrame,
    *,
    min_gap: float = 0.0,
    groups: list[str] | None = None,
    response_length: pd.Series | None = None,
    where: str = "predictions",
) -> ScoredPairs:
    """Derive the test pairs of a predictions table.

    Args:
        frame: columns of :data:`scpo.evaluation.predictions.PREDICTIONS`, optionally `response_length`.
        min_gap: a pair needs a score gap above it (0: only ties are left out).
        groups: names to give numbers for, also those without rows; None: the groups found, sorted.
        response_length: lengths by candidate_id, before the frame's own column.
        where: name of the table in error messages.

    Raises:
        UserError: a faulty table, a group that is not in `groups`, a candidate without a length, a negative min_gap.
    """
    check_predictions(frame, where)
    check_min_gap(min_gap)
    names = group_names(frame, groups, where)
    keep = steered_rows(frame, where)
    rows = frame[keep].reset_index(drop=True)
    scores = rows["score"].to_numpy(dtype=np.float64, na_value=np.nan)
    every = all_pairs(pd.factorize(rows["comparison_id"])[0].astype(np.int64), scores)
    pairs = every[every.gap > min_gap]
    chosen, rejected = pairs.chosen, pairs.rejected
    rewards = float32(rows, "reward", where)
    reference = float32(rows, "reference_reward", where)
    lengths = _lengths(rows, response_length, where)
    attributes = rows["attributes"].to_list()
    return ScoredPairs(
        groups=names,
        group=pd.Index(names).get_indexer(pd.Index(rows["group"]))[chosen].astype(np.int64),
        cluster=pd.factorize(rows["cluster_id"], sort=True)[0][chosen].astype(np.int64),
        margin=difference(rewards[chosen], rewards[rejected]),
        reference=None if np.isnan(reference).any() else np.stack([reference[chosen], reference[rejected]]),
        longer=None if lengths is None else lengths[chosen] > lengths[rejected],
        attributes=[attributes[i] for i in chosen],
        counts={
            "rows": len(frame),
            "rows_other_condition": int((~keep).sum()),
            "candidates": len(rows),
            "candidates_other_condition_only": int(frame["candidate_id"].nunique()) - len(rows),
            "candidates_without_score": int(np.isnan(scores).sum()),
            "comparisons": int(rows["comparison_id"].nunique()),
            "pairs": len(pairs),
            "pairs_tied_or_below_min_gap": len(every) - len(pairs),
        },
    )


def _lengths(rows: pd.DataFrame, given: pd.Series | None, where: str) -> FloatArray | None:
    """(n_rows,) lengths, or None where there are none at all."""
    if given is not None:
        if not given.index.is_unique:
            raise UserError(
                f"{where}: response_length: expected one length per candidate_id, found a candidate_id twice"
            )
        values = given.reindex(rows["candidate_id"]).to_numpy(dtype=np.float64, na_value=np.nan)
    elif "response_length" in rows.columns:
        values = rows["response_length"].to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        return None
    missing = np.isnan(values)
    if len(values) and missing.all() and given is None:
        return None
    if missing.any():
        name = rows["candidate_id"].iloc[int(missing.argmax())]
        raise UserError(f"{where}: response_length: expected a length for each candidate, found none for {name!r}")
    return values


@dataclass(frozen=True)
class ClusterSums:
    """Sums per unit, a unit being one cluster inside one cell (a group, or a group crossed with an attribute).

    Attributes:
        cell, cluster: (n_units,) codes, sorted by cell and then cluster.
        correct, pairs: (n_units, n_columns) numbers of right and of all pairs, one column per subset of the pairs.
    """

    cell: IntArray
    cluster: IntArray
    correct: FloatArray
    pairs: FloatArray


def cluster_sums(cell: IntArray, cluster: IntArray, correct: npt.ArrayLike, member: npt.ArrayLike) -> ClusterSums:
    """Sum pairs per (cell, cluster).

    Args:
        cell, cluster: (n_pairs,) codes >= 0.
        correct: (n_pairs, n_columns) whether the pair is right, by column.
        member: (n_pairs, n_columns) whether the pair belongs to the column's subset.
    """
    member_ = np.asarray(member, dtype=np.float64)
    right = np.asarray(correct, dtype=np.float64) * member_
    width = int(cluster.max()) + 1 if len(cluster) else 1
    keys, inverse = np.unique(cell * width + cluster, return_inverse=True)

    def total(values: FloatArray) -> FloatArray:
        columns = [np.bincount(inverse, weights=values[:, c], minlength=len(keys)) for c in range(values.shape[1])]
        return np.stack(columns, axis=1) if columns else np.zeros((len(keys), 0))

    return ClusterSums(keys // width, keys % width, total(right), total(member_))


def cell_totals(sums: ClusterSums, num_cells: int) -> dict[str, Any]:
    """(num_cells, n_columns) arrays `correct`, `pairs` and `clusters` (those with a pair of the column)."""
    return {
        "correct": group_sums(sums.correct, sums.cell, num_cells),
        "pairs": group_sums(sums.pairs, sums.cell, num_cells),
        "clusters": group_sums((sums.pairs > 0).astype(np.float64), sums.cell, num_cells),
    }
