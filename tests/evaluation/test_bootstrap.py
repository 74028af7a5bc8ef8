from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scpo.errors import UserError
from scpo.evaluation import bootstrap
from scpo.evaluation.bootstrap import aggregate, interval, resample


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


def test_every_group_draws_as_many_of_its_own_clusters_as_it_has() -> None:
    group = np.array([0, 2, 0, 0, 2])  # group 1 is absent
    pairs = column(1, 100, 10, 7, 300)
    draws = resample(pairs, pairs, group, 3, resamples=300)
    assert draws.pairs.shape == (300, 3, 1)
    possible0 = {a + b + c for a in (1, 10, 7) for b in (1, 10, 7) for c in (1, 10, 7)}
    assert set(draws.pairs[:, 0, 0]) == possible0
    assert set(draws.pairs[:, 2, 0]) == {200.0, 400.0, 600.0}
    assert not draws.pairs[:, 1].any()
    assert np.isnan(draws.accuracy[:, 1]).all()


def test_against_a_plain_loop_over_clusters() -> None:
    """An independent implementation with other random numbers agrees within the error of the simulation."""
    rng = np.random.default_rng(5)
    pairs = rng.integers(1, 12, size=40).astype(float)
    correct = rng.binomial(pairs.astype(int), 0.6).astype(float)
    slow = []
    for _ in range(4000):
        chosen = [int(rng.random() * 40) for _ in range(40)]
        slow.append(sum(correct[i] for i in chosen) / sum(pairs[i] for i in chosen))
    draws = resample(correct[:, None], pairs[:, None], np.zeros(40, dtype=int), 1, resamples=4000).accuracy[:, 0, 0]
    # Standard error of a 2.5 % quantile of 4000 draws is about 0.04 standard deviations.
    sd = np.std(slow)
    assert abs(draws.mean() - np.mean(slow)) < 0.15 * sd
    assert draws.std() == pytest.approx(sd, rel=0.06)
    for q in (2.5, 97.5):
        assert abs(np.percentile(draws, q) - np.percentile(slow, q)) < 0.25 * sd


def test_whole_clusters_are_drawn_not_pairs() -> None:
    """Ten clusters of 100 equal pairs vary like ten draws; single pairs would vary ten times less."""
    correct, pairs = column(*([100] * 5 + [0] * 5)), column(*[100] * 10)
    draws = resample(correct, pairs, np.zeros(10, dtype=int), 1, resamples=4000).accuracy[:, 0, 0]
    assert draws.std() == pytest.approx(np.sqrt(0.25 / 10), rel=0.05)


def test_seed_and_key_give_the_same_draws_whatever_other_groups_there_are() -> None:
    pairs = column(1, 2, 3, 4, 5, 6)
    both = resample(pairs, pairs, np.array([0, 0, 0, 1, 1, 1]), 2, resamples=50, keys=[11, 22])
    alone = resample(pairs[3:], pairs[3:], np.array([0, 0, 0]), 1, resamples=50, keys=[22])
    assert np.array_equal(both.pairs[:, 1], alone.pairs[:, 0])
    other = resample(pairs[3:], pairs[3:], np.array([0, 0, 0]), 1, resamples=50, keys=[22], seed=1)
    assert not np.array_equal(other.pairs, alone.pairs)


def test_small_chunks_draw_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "CHUNK", 10)
    draws = resample(column(1, 0, 0, 1), column(1, 1, 1, 1), np.zeros(4, dtype=int), 1, resamples=501)
    assert (draws.pairs == 4).all()
    assert len(draws.pairs) == 501
    assert 0.4 < draws.accuracy.mean() < 0.6


def test_aggregate_by_hand() -> None:
    correct, pairs = column(8, 1, 0), column(10, 4, 0)
    include = pairs > 0
    a = aggregate(correct, pairs, include)
    assert a.macro[0] == pytest.approx((0.8 + 0.25) / 2)
    assert a.micro[0] == pytest.approx(9 / 14)
    assert (a.worst[0], a.best[0]) == (0.25, 0.8)
    assert a.gap[0] == pytest.approx(0.55)


def test_a_group_that_vanishes_from_a_resample_leaves_it_undefined_and_never_counts_as_zero() -> None:
    """PITFALLS T11."""
    correct = np.array([[[8.0], [0.0]], [[8.0], [1.0]]])  # (2 resamples, 2 groups, 1 column)
    pairs = np.array([[[10.0], [0.0]], [[10.0], [2.0]]])
    a = aggregate(correct, pairs, np.array([[True], [True]]))
    assert np.isnan([a.macro[0, 0], a.worst[0, 0], a.best[0, 0], a.gap[0, 0]]).all()
    assert a.gap[1, 0] == pytest.approx(0.3)


def test_one_group_has_no_gap_and_none_has_nothing() -> None:
    one = aggregate(column(1, 5), column(2, 6), np.array([[True], [False]]))
    assert (one.macro[0], one.worst[0]) == (0.5, 0.5)
    assert np.isnan(one.gap[0])
    none = aggregate(column(1, 5), column(2, 6), np.array([[False], [False]]))
    assert all(np.isnan(getattr(none, f)[0]) for f in ("macro", "micro", "worst", "best", "gap"))


def test_interval_is_the_percentiles_and_needs_defined_draws() -> None:
    draws = np.arange(1001) / 1000
    assert interval(draws) == pytest.approx([0.025, 0.975])
    assert interval(draws, level=0.5) == pytest.approx([0.25, 0.75])
    some = draws.copy()
    some[:200] = np.nan
    assert interval(some) is None
    some[:150] = 0.5
    assert interval(some) is not None
    assert interval(np.full(10, np.nan)) is None
    with pytest.raises(UserError, match="resamples"):
        resample(column(1), column(1), np.array([0]), 1, resamples=0)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=20),
    st.integers(0, 99),
)
def test_draws_stay_between_the_worst_and_the_best_cluster(units: list[tuple[int, int, int]], seed: int) -> None:
    group = np.array([g for g, _, _ in units])
    pairs = column(*[n for _, n, _ in units])
    correct = np.minimum(column(*[k for _, _, k in units]), pairs)
    accuracy = resample(correct, pairs, group, 4, resamples=20, seed=seed).accuracy
    for g in range(4):
        own = (correct / pairs)[group == g]
        if len(own) == 0:
            assert np.isnan(accuracy[:, g]).all()
        else:
            assert (accuracy[:, g] >= own.min() - 1e-12).all()
            assert (accuracy[:, g] <= own.max() + 1e-12).all()
