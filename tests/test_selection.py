"""The arms against the table of right values, the strict threshold, and rewards of any size."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scpo.errors import UserError
from scpo.selection import (
    ARMS,
    filter_mask,
    inverse_weight,
    margins,
    needs_reference,
    probability,
    random_mask,
    select,
    threshold,
    weight,
)

# r+ - r- = -1, 0, 0.84, 0.86, 2 at a level where float64 subtraction is exact enough; tau 0.7, beta 1.1.
MARGINS = np.array([-1.0, 0.0, 0.84, 0.86, 2.0])
PLUS, MINUS = MARGINS.copy(), np.zeros(5)
P = np.array([0.2689414, 0.5, 0.6984652, 0.7026606, 0.8807971])
KEPT = np.array([True, True, True, False, False])
W = np.array([0.4028903, 1.0, 1.0, 1.0, 1.0])
INVERSE = np.array([2.7182818, 1.0, 1.0, 1.0, 1.0])
ONE_GROUP = np.zeros(5, dtype=np.int64)

rewards = st.floats(-(2.0**100), 2.0**100, width=32)
pairs_of_rewards = st.lists(st.tuples(rewards, rewards), min_size=1, max_size=30)


def test_right_values() -> None:
    np.testing.assert_allclose(probability(PLUS, MINUS), P, atol=5e-8)
    np.testing.assert_array_equal(filter_mask(PLUS, MINUS, 0.7), KEPT)
    np.testing.assert_allclose(weight(PLUS, MINUS, 1.1), W, atol=5e-8)
    np.testing.assert_allclose(inverse_weight(PLUS, MINUS), INVERSE, atol=5e-8)


@pytest.mark.parametrize(
    ("arm", "keep", "w"),
    [
        ("full", np.ones(5, bool), np.ones(5)),
        ("filter", KEPT, KEPT.astype(float)),
        ("weight", np.ones(5, bool), W),
        ("inverse", np.ones(5, bool), INVERSE),
        ("scpo", KEPT, W * KEPT),
    ],
)
def test_arms(arm: str, keep: np.ndarray, w: np.ndarray) -> None:
    chosen = select(arm, PLUS, MINUS, ONE_GROUP, tau=0.7, beta=1.1)
    np.testing.assert_array_equal(chosen.keep, keep)
    np.testing.assert_allclose(chosen.weight, w, atol=5e-8)


def test_the_threshold_is_strict() -> None:
    """tau 0.5 drops a difference of exactly 0, at any level of the rewards."""
    level = np.array([0.0, 7.25, -1e30], dtype=np.float32)
    assert threshold(0.5) == 0.0
    assert not filter_mask(level, level, 0.5).any()
    assert filter_mask([-1e-12], [0.0], 0.5).all()
    assert not filter_mask([1e-12], [0.0], 0.5).any()


def test_tau_one_keeps_every_pair_even_where_the_probability_rounds_to_one() -> None:
    with np.errstate(all="raise"):
        assert threshold(1.0) == math.inf
    assert probability([1000.0], [-1000.0])[0] == 1.0
    assert filter_mask([1000.0, 40.0, 0.0], [-1000.0, 0.0, 0.0], 1.0).all()


def test_rewards_of_a_thousand_lose_no_pair() -> None:
    chosen, rejected = np.array([1000.0, -1000.0]), np.array([-1000.0, 1000.0])
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_array_equal(probability(chosen, rejected), [1.0, 0.0])
        for arm in ("full", "weight", "inverse"):
            picked = select(arm, chosen, rejected, np.zeros(2, np.int64))
            assert picked.keep.all()
            assert np.isfinite(picked.weight).all()
        np.testing.assert_array_equal(select("scpo", chosen, rejected, np.zeros(2, np.int64)).keep, [False, True])
    assert np.isfinite(inverse_weight(rejected, chosen).astype(np.float32) * np.float32(2000.0)).all()


def test_a_float32_difference_below_float32_resolution_of_the_level_is_not_lost() -> None:
    """Rewards near 5 that differ by one unit of float32 are strictly ordered (PITFALLS T2, 35)."""
    low = np.array([5.0], dtype=np.float32)
    high = np.nextafter(low, np.float32(6.0))
    assert filter_mask(low, high, 0.5).all()
    assert not filter_mask(high, low, 0.5).any()


@given(pairs_of_rewards, st.floats(0.01, 0.99), st.floats(0.05, 20.0))
@settings(max_examples=100, deadline=None)
def test_filter_and_weight_against_scalar_loops(rewards: list[tuple[float, float]], tau: float, beta: float) -> None:
    plus, minus = (np.array(side, dtype=np.float32) for side in zip(*rewards, strict=True))
    keep, w = filter_mask(plus, minus, tau), weight(plus, minus, beta)
    for i, (a, b) in enumerate(zip(plus.tolist(), minus.tolist(), strict=True)):
        odds = math.exp(min(a - b, 700.0)) if a - b > -700 else 0.0
        share = odds / (1.0 + odds)
        if abs(share - tau) > 1e-9:
            assert keep[i] == (share < tau)
        assert w[i] == pytest.approx(math.exp(max((a - b) / beta, -745.0)) if a < b else 1.0, rel=1e-9, abs=1e-300)
    assert ((w >= 0) & (w <= 1)).all()


@given(st.data(), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_random_keeps_as_many_as_filter_in_each_group(data: st.DataObject, seed: int) -> None:
    like = np.array(data.draw(st.lists(st.booleans(), max_size=60)), dtype=bool)
    groups = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(like), max_size=len(like))), dtype=np.int64)
    keep = random_mask(like, groups, seed)
    for group in range(4):
        assert keep[groups == group].sum() == like[groups == group].sum()
    np.testing.assert_array_equal(keep, random_mask(like, groups, seed))


def test_random_is_drawn_by_seed_and_not_from_the_margins() -> None:
    rng = np.random.default_rng(0)
    plus, groups = rng.normal(size=400), np.repeat([0, 1], 200)
    draws = [select("random", plus, np.zeros(400), groups, seed=seed) for seed in (0, 1)]
    assert (draws[0].keep != draws[1].keep).any()
    np.testing.assert_array_equal(draws[0].weight, draws[0].keep.astype(float))
    kept = filter_mask(plus, np.zeros(400), 0.7)
    # Among what filter drops, random keeps about filter's share: 281 of 400, with a standard deviation near 0.03.
    assert draws[0].keep[~kept].mean() == pytest.approx(kept.mean(), abs=0.15)


def test_another_group_never_changes_a_groups_random_draw() -> None:
    like, groups = np.tile([True, False], 50), np.repeat([0, 1], 50)
    alone = random_mask(like[:50], groups[:50], 3)
    np.testing.assert_array_equal(random_mask(like, groups, 3)[:50], alone)
    other = like.copy()
    other[50:] = True
    np.testing.assert_array_equal(random_mask(other, groups, 3)[:50], alone)


def test_groups_of_one_size_have_draws_of_their_own() -> None:
    keep = random_mask(np.tile([True, False], 100), np.repeat([0, 1], 100), 3)
    assert (keep[:100] != keep[100:]).any()


def test_full_needs_no_rewards_and_the_others_refuse_missing_ones() -> None:
    missing = np.array([np.nan, 1.0])
    assert select("full", missing, missing, np.zeros(2, np.int64)).keep.all()
    for arm in sorted(set(ARMS) - {"full"}):
        with pytest.raises(UserError, match=r"reference rewards: .*1 pairs have none \(first: pair 0\)"):
            select(arm, missing, np.ones(2), np.zeros(2, np.int64))
    with pytest.raises(UserError, match="finite"):
        margins([0.0], [np.inf])
    assert [arm for arm in ARMS if not needs_reference(arm)] == ["full"]


@pytest.mark.parametrize("arm", ARMS)
def test_no_pairs_give_no_pairs(arm: str) -> None:
    empty = select(arm, [], [], np.zeros(0, np.int64))
    assert empty.keep.shape == empty.weight.shape == (0,)


@pytest.mark.parametrize("tau", [0.0, -0.1, 1.0001, math.nan, math.inf])
def test_tau_out_of_range(tau: float) -> None:
    with pytest.raises(UserError, match=r"selection\.tau: expected a number above 0 and at most 1"):
        select("full", PLUS, MINUS, ONE_GROUP, tau=tau)


@pytest.mark.parametrize("beta", [0.0, -1.0, math.nan, math.inf])
def test_beta_out_of_range(beta: float) -> None:
    with pytest.raises(UserError, match=r"selection\.beta: expected a positive number"):
        select("full", PLUS, MINUS, ONE_GROUP, beta=beta)


def test_unknown_arm_and_shapes() -> None:
    with pytest.raises(UserError, match=r"found 'filtr'. Did you mean 'filter'"):
        select("filtr", PLUS, MINUS, ONE_GROUP)
    with pytest.raises(ValueError, match="one shape"):
        margins([1.0, 2.0], [1.0])
