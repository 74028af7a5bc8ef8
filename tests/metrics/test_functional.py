from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score

from scpo.metrics.functional import group_accuracy, group_accuracy_sums, group_sums


def as_both(values: list, group: list[int]) -> list[tuple]:
    return [(np.array(values), np.array(group)), (torch.tensor(values), torch.tensor(group))]


def test_an_absent_group_does_not_relabel_the_others() -> None:
    """PITFALLS T6: only group 2 is in the batch."""
    for correct, group in as_both([True, False, True], [2, 2, 2]):
        right, total = group_accuracy_sums(correct, group, 4)
        assert right.tolist() == [0, 0, 2, 0]
        assert total.tolist() == [0, 0, 3, 0]
        accuracy = group_accuracy(correct, group, 4)
        assert [bool(np.isnan(float(a))) for a in accuracy] == [True, True, False, True]
        assert float(accuracy[2]) == pytest.approx(2 / 3)


@pytest.mark.parametrize("bad", [[0, 3], [-1, 0]])
def test_ids_outside_are_an_error(bad: list[int]) -> None:
    for correct, group in as_both([True, True], bad):
        with pytest.raises(ValueError, match="group ids from 0 to 2"):
            group_accuracy_sums(correct, group, 3)


def test_ids_must_be_integers_one_per_row() -> None:
    for correct, group in as_both([True, True], [0, 1]):
        with pytest.raises(ValueError, match="integer"):
            group_accuracy_sums(correct, group / 2, 3)
        with pytest.raises(ValueError, match="integer"):
            group_accuracy_sums(correct, group > 0, 3)
        with pytest.raises(ValueError, match="one group id per row"):
            group_accuracy_sums(correct, group[:1], 3)


def test_weights_by_hand_and_empty_batches() -> None:
    for correct, group in as_both([True, False, True], [0, 0, 1]):
        weight = [1.0, 3.0, 0.5]
        assert group_accuracy(correct, group, 3, weight).tolist()[:2] == [0.25, 1.0]
        right, total = group_accuracy_sums(correct[:0], group[:0], 2)
        assert right.tolist() == total.tolist() == [0, 0]


def test_rows_of_several_columns_are_summed_per_group() -> None:
    for values, group in as_both([[1, 2], [10, 20], [100, 200]], [1, 0, 1]):
        assert group_sums(values, group, 3).tolist() == [[10, 20], [101, 202], [0, 0]]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.floats(0.1, 5)), min_size=1, max_size=60))
def test_against_scikit_learn(rows: list[tuple[bool, int, float]]) -> None:
    correct, group, weight = (list(column) for column in zip(*rows, strict=True))
    for values, ids in as_both(correct, group):
        plain, weighted = group_accuracy(values, ids, 5), group_accuracy(values, ids, 5, weight)
        for g in range(5):
            own = [i for i in range(len(rows)) if group[i] == g]
            if not own:
                assert np.isnan(float(plain[g]))
                continue
            target, got = [True] * len(own), [correct[i] for i in own]
            assert float(plain[g]) == pytest.approx(accuracy_score(target, got), rel=1e-6)
            assert float(weighted[g]) == pytest.approx(
                accuracy_score(target, got, sample_weight=[weight[i] for i in own])
            )
