"""Group weights by hand: mean 1 over the training set, absent groups 0."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scpo.balance import METHODS, group_weights
from scpo.errors import UserError


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("none", [1.0, 1.0]),
        # 95 and 5 pairs: every group sums to half of 100.
        ("inverse", [50 / 95, 50 / 5]),
        # Group sums are in the ratio sqrt(81) : sqrt(1); here 81 and 1 pairs of 82.
        ("sqrt", None),
        ("effective", None),
    ],
)
def test_by_hand(method: str, expected: list[float] | None) -> None:
    if method == "sqrt":
        np.testing.assert_allclose(group_weights([81, 1], method), [82 * 0.9 / 81, 82 * 0.1])
    elif method == "effective":
        # b = 0.5: (1 - b) / (1 - b^n) is 1 for n = 1 and 2/3 for n = 2; 1 * 1 + 2 * 2/3 = 7/3, and 3 / (7/3) = 9/7.
        np.testing.assert_allclose(group_weights([1, 2], method, effective_beta=0.5), [9 / 7, 6 / 7])
    else:
        np.testing.assert_allclose(group_weights([95, 5], method), expected)


@given(
    st.lists(st.integers(0, 10_000), min_size=1, max_size=12),
    st.sampled_from(METHODS),
    st.sampled_from([0.0, 0.5, 0.9, 0.999, 0.9999]),
)
@settings(deadline=None)
def test_mean_one_over_the_training_set_and_absent_groups_weigh_nothing(
    counts: list[int], method: str, beta: float
) -> None:
    n = np.array(counts)
    weights = group_weights(n, method, effective_beta=beta)
    assert weights.shape == n.shape
    np.testing.assert_allclose((n * weights).sum(), n.sum())
    assert (weights[n == 0] == 0).all()
    assert (weights[n > 0] > 0).all()
    # A smaller group never weighs less per pair.
    order = np.argsort(n[n > 0], kind="stable")
    assert (np.diff(weights[n > 0][order]) <= 1e-9).all()


def test_absent_groups_do_not_change_the_others() -> None:
    for method in METHODS:
        with_absent = group_weights([95, 0, 5], method)
        np.testing.assert_allclose(with_absent[[0, 2]], group_weights([95, 5], method))


def test_effective_lies_between_none_and_inverse() -> None:
    counts = [300, 20, 3]
    np.testing.assert_allclose(group_weights(counts, "effective", effective_beta=0.0), group_weights(counts, "none"))
    np.testing.assert_allclose(
        group_weights(counts, "effective", effective_beta=1 - 1e-9), group_weights(counts, "inverse"), rtol=1e-5
    )


def test_no_pairs_at_all() -> None:
    for method in METHODS:
        np.testing.assert_array_equal(group_weights([0, 0], method), [0.0, 0.0])


def test_user_mistakes() -> None:
    with pytest.raises(UserError, match=r"balance: .*found 'invers'. Did you mean 'inverse'"):
        group_weights([1], "invers")
    for beta in (1.0, -0.1, float("nan")):
        with pytest.raises(UserError, match=r"balance\.effective_beta: expected a number in \[0, 1\)"):
            group_weights([1], "effective", effective_beta=beta)
