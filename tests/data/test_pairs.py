"""Pairs from scores: by hand, against a plain double loop, and in any order of rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scpo.data.pairs import Pairs, all_pairs, make_pairs

NAN = float("nan")


def triples(pairs: Pairs) -> list[tuple[int, int, float]]:
    return list(zip(pairs.chosen.tolist(), pairs.rejected.tolist(), pairs.gap.tolist(), strict=True))


def plain_pairs(comparison: list[int], scores: list[float], min_gap: float) -> list[tuple[int, int, float]]:
    """An independent implementation: every two rows in turn."""
    found = []
    for i, j in itertools.combinations(range(len(scores)), 2):
        if comparison[i] == comparison[j] and abs(scores[i] - scores[j]) > min_gap:
            found.append((i, j, scores[i] - scores[j]) if scores[i] > scores[j] else (j, i, scores[j] - scores[i]))
    return found


def test_a_first_turn_and_a_tied_later_turn() -> None:
    """90, 40, 40, 10 give five pairs and a tie; two later candidates with equal scores give none."""
    comparison, scores = np.array([0, 0, 0, 0, 1, 1]), np.array([90.0, 40.0, 40.0, 10.0, 55.0, 55.0])
    assert triples(make_pairs(comparison, scores)) == [(0, 1, 50), (0, 2, 50), (0, 3, 80), (1, 3, 30), (2, 3, 30)]
    everything = all_pairs(comparison, scores)
    assert len(everything) == 7
    assert (everything.gap == 0).sum() == 2


def test_the_gap_must_be_above_the_minimum() -> None:
    comparison, scores = np.zeros(3, np.int64), np.array([30.0, 20.0, 10.0])
    assert triples(make_pairs(comparison, scores, min_gap=10.0)) == [(0, 2, 20.0)]
    assert len(make_pairs(comparison, scores, min_gap=20.0)) == 0


def test_rows_without_a_score_take_part_in_no_pair() -> None:
    comparison, scores = np.array([0, 0, 0, 1, 1]), np.array([NAN, 1.0, 2.0, NAN, 5.0])
    assert triples(make_pairs(comparison, scores)) == triples(all_pairs(comparison, scores)) == [(2, 1, 1.0)]


@pytest.mark.parametrize("scores", [[], [1.0], [NAN, NAN]])
def test_no_two_scores_no_pair(scores: list[float]) -> None:
    pairs = make_pairs(np.zeros(len(scores), np.int64), np.array(scores))
    assert len(pairs) == 0
    assert (pairs.chosen.dtype, pairs.rejected.dtype, pairs.gap.dtype) == (np.int64, np.int64, np.float64)


rows = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([NAN, 0.0, 1.0, 2.5, 40.0, 90.0])), max_size=25)


@given(rows, st.sampled_from([0.0, 1.0, 30.0]))
@settings(max_examples=150, deadline=None)
def test_against_a_double_loop(rows: list[tuple[int, float]], min_gap: float) -> None:
    comparison, scores = [c for c, _ in rows], [s for _, s in rows]
    pairs = make_pairs(np.array(comparison, dtype=np.int64), np.array(scores, dtype=np.float64), min_gap)
    assert triples(pairs) == plain_pairs(comparison, scores, min_gap)


def test_comparisons_that_do_not_stand_together_are_found() -> None:
    assert triples(make_pairs(np.array([7, 3, 7, 3]), np.array([1.0, 5.0, 2.0, 4.0]))) == [(2, 0, 1.0), (1, 3, 1.0)]


def test_picking_pairs_keeps_the_three_columns_together() -> None:
    pairs = make_pairs(np.zeros(3, np.int64), np.array([3.0, 1.0, 2.0]))
    assert triples(pairs) == [(0, 1, 2.0), (0, 2, 1.0), (2, 1, 1.0)]
    assert triples(pairs[np.array([False, True, True])]) == [(0, 2, 1.0), (2, 1, 1.0)]
    assert triples(pairs[np.array([2, 0])]) == [(2, 1, 1.0), (0, 1, 2.0)]
