from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from prediction_worlds import pair, row, table, told

from scpo.errors import UserError
from scpo.evaluation.accuracy import cell_totals, cluster_sums, score_pairs


def test_pairs_margins_and_counts_by_hand() -> None:
    """Scores 90, 40, 40, 10 give five pairs; the tie of 40 and 40 is counted."""
    rewards = {"a": 0.5, "b": 0.5, "c": 0.25, "d": 1.0}
    scores = {"a": 90.0, "b": 40.0, "c": 40.0, "d": 10.0}
    frame = table(
        [row("A", "u", "q", k, scores[k], rewards[k]) for k in "abcd"] + [row("A", "u", "q2", "e", np.nan, 0.0)]
    )
    pairs = score_pairs(frame)
    assert sorted(pairs.margin.tolist()) == [-0.75, -0.5, -0.5, 0.0, 0.25]
    assert pairs.correct.sum() == 1
    assert pairs.counts["pairs"] == 5
    assert pairs.counts["pairs_tied_or_below_min_gap"] == 1
    assert pairs.counts["candidates_without_score"] == 1
    wide = score_pairs(frame, min_gap=50)
    assert wide.margin.tolist() == [-0.5]  # 90 against 10: only a gap above 50 counts, 90 against 40 is 50
    assert wide.counts["pairs_tied_or_below_min_gap"] == 5


def test_margins_are_subtracted_in_float32() -> None:
    """100000.001 and 100000 are one float32 number: a tie, not a right pair."""
    frame = table([row("A", "u", "q", "c", 2.0, 100000.001), row("A", "u", "q", "r", 1.0, 100000.0)])
    pairs = score_pairs(frame)
    assert pairs.margin.dtype == np.float32
    assert pairs.margin.tolist() == [0.0]
    assert not pairs.correct.any()
    big = table([row("A", "u", "q", "c", 2.0, 3e38), row("A", "u", "q", "r", 1.0, -3e38)])
    assert score_pairs(big).correct.tolist() == [True]


def test_only_the_own_condition_counts_and_none_stands_in_where_it_is_absent() -> None:
    steered = pair("A", "u", "q", 1.0)
    other = [r | {"conditioned_on": "B", "reward": -r["reward"]} for r in steered]
    plain = [r | {"conditioned_on": None, "reward": -r["reward"]} for r in steered]
    alone = pair("B", "v", "p", 2.0, conditioned_on=None)
    pairs = score_pairs(table([*plain, *other, *steered, *alone]))
    assert dict(zip(pairs.group.tolist(), pairs.margin.tolist(), strict=True)) == {0: 1.0, 1: 2.0}
    assert pairs.counts["rows_other_condition"] == 4
    with pytest.raises(UserError, match="'q/r' without a condition"):
        score_pairs(table([plain[1], steered[0]]))


def test_a_default_beside_the_own_condition_is_not_used() -> None:
    """Three candidates, each with an own row and a null row, one without its own: it is counted, not compared."""
    rewards = {"A": [3.0, 1.0, 2.0], None: [0.0, 5.0, 9.0], "B": [0.0, 5.0, 9.0]}
    frame = table(told("A", "u", "q", [3, 2, 1], rewards))
    pairs = score_pairs(frame)
    assert sorted(pairs.margin.tolist()) == [-1.0, 1.0, 2.0]
    assert pairs.counts["rows_other_condition"] == 6
    assert pairs.counts["candidates"] == 3
    assert pairs.counts["candidates_other_condition_only"] == 0
    shorter = score_pairs(frame[~((frame["candidate_id"] == "q/2") & (frame["conditioned_on"] == "A"))])
    assert shorter.margin.tolist() == [2.0]
    assert shorter.counts["candidates_other_condition_only"] == 1


def test_groups_asked_for_keep_their_order_and_unknown_ones_stop() -> None:
    frame = table([*pair("Chile", "u", "q", 1.0), *pair("Mexico", "v", "p", 1.0)])
    pairs = score_pairs(frame, groups=["Mexico", "Israel", "Chile"])
    assert [pairs.groups[g] for g in pairs.group] == ["Chile", "Mexico"]
    with pytest.raises(UserError, match=r"found 'Chile'.*Did you mean 'Chil'"):
        score_pairs(frame, groups=["Mexico", "Chil"])
    with pytest.raises(UserError, match="min_gap"):
        score_pairs(frame, min_gap=-1)


def test_longer_response_from_a_column_or_by_candidate() -> None:
    frame = table([*pair("A", "u", "q", 1.0), *pair("A", "u", "p", 1.0), *pair("A", "u", "o", 1.0)])
    assert score_pairs(frame).longer is None
    lengths = pd.Series({"q/c": 5, "q/r": 4, "p/c": 3, "p/r": 3, "o/c": 1, "o/r": 2, "unused": 9})
    by_candidate = score_pairs(frame, response_length=lengths)
    assert by_candidate.longer is not None
    assert by_candidate.longer.tolist() == [True, False, False]  # a tie of lengths is wrong
    column = score_pairs(frame.assign(response_length=frame["candidate_id"].map(lengths)))
    assert column.longer is not None
    assert column.longer.tolist() == [True, False, False]
    with pytest.raises(UserError, match="found none for 'p/r'"):
        score_pairs(frame, response_length=lengths.drop("p/r"))


def test_cluster_sums_by_hand() -> None:
    cell, cluster = np.array([1, 0, 1, 1]), np.array([5, 5, 0, 5])
    correct = np.array([[True, True], [True, False], [False, True], [False, True]])
    member = np.array([[True, True], [True, True], [True, False], [True, False]])
    sums = cluster_sums(cell, cluster, correct, member)
    assert list(zip(sums.cell.tolist(), sums.cluster.tolist(), strict=True)) == [(0, 5), (1, 0), (1, 5)]
    assert sums.correct.tolist() == [[1, 0], [0, 0], [1, 1]]
    assert sums.pairs.tolist() == [[1, 1], [1, 0], [2, 1]]
    totals = cell_totals(sums, 3)
    assert totals["clusters"].tolist() == [[1, 1], [2, 1], [0, 0]]
    assert totals["pairs"].tolist() == [[1, 1], [3, 1], [0, 0]]
