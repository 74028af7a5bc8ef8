"""Plans, chunks and tensors: every comparison once, every candidate encoded once, and the loss of the data set at any size."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_sets import PAD, encoded_texts, pair_set, texts_of

from scpo.balance import group_weights
from scpo.data.batching import (
    Comparisons,
    chunk_step,
    collate,
    group_pairs,
    pair_batch,
    plan_epoch,
    rank_share,
    scoring_batches,
)
from scpo.data.datamodule import PairSet
from scpo.data.encode import Encoded
from scpo.data.pairs import make_pairs
from scpo.losses import bradley_terry

SIZES = (1, 4, 8, 64)
sizes_of_comparisons = st.lists(st.integers(1, 5), min_size=1, max_size=40)


def one_pair_each(lengths: np.ndarray, n_pairs: np.ndarray | None = None) -> Comparisons:
    """Comparisons that only a plan looks at."""
    n = len(lengths)
    counts = np.ones(n, np.int64) if n_pairs is None else n_pairs
    places = [np.array([2 * i, 2 * i + 1]) for i in range(n)]
    return Comparisons(places, [np.array([i]) for i in range(n)], lengths.astype(np.int64), counts)


# ---- comparisons


def test_four_candidates_are_four_sequences_and_a_tie_is_none() -> None:
    """90, 40, 40, 10: five pairs over four sequences, not ten or twelve; equal scores form no pair and are not encoded."""
    comparison = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2])
    pairs = make_pairs(comparison, np.array([90.0, 40, 40, 10, 5, 5, 30, 20, np.nan]))
    found = group_pairs(pairs, comparison, np.array([3, 9, 2, 4, 50, 50, 6, 7, 99]))
    assert [c.tolist() for c in found.candidates] == [[0, 1, 2, 3], [6, 7]]
    assert [p.tolist() for p in found.pairs] == [[0, 1, 2, 3, 4], [5]]
    assert found.n_pairs.tolist() == [5, 1]
    assert found.length.tolist() == [9, 7]  # the longest candidate that is encoded: PITFALLS 27


def test_no_pairs_no_steps() -> None:
    pairs = make_pairs(np.zeros(0, np.int64), np.zeros(0))
    comparisons = group_pairs(pairs, np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert len(comparisons) == 0
    assert plan_epoch(comparisons, 8, 0, 0) == []


@given(sizes_of_comparisons, st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_grouping_loses_no_pair(sizes: list[int], seed: int) -> None:
    data = pair_set(sizes, seed)
    found = data.grouped()
    assert sorted(np.concatenate([*found.pairs, []]).tolist()) == list(range(len(data.pairs)))
    for candidates, members in zip(found.candidates, found.pairs, strict=True):
        used = set(data.pairs.chosen[members]) | set(data.pairs.rejected[members])
        assert used == set(candidates.tolist())
        assert len(set(data.comparison[candidates])) == 1


# ---- the plan of an epoch


@given(
    st.lists(st.integers(1, 10), min_size=1, max_size=300), st.sampled_from(SIZES), st.integers(0, 3), st.integers(0, 3)
)
@settings(max_examples=60, deadline=None)
def test_every_comparison_once_and_steps_hold_enough_pairs(counts: list[int], size: int, seed: int, epoch: int) -> None:
    rng = np.random.default_rng(len(counts))
    comparisons = one_pair_each(rng.integers(1, 50, len(counts)), np.array(counts))
    plan = plan_epoch(comparisons, size, seed, epoch)
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(counts)))
    held = [int(comparisons.n_pairs[step].sum()) for step in plan]
    # All but the last made (which may stand anywhere after the shuffle) hold enough, and none holds a comparison too many.
    assert sum(h < size for h in held) <= 1
    assert all(h - comparisons.n_pairs[step].min() < size + 9 for h, step in zip(held, plan, strict=True))


def test_the_plan_follows_seed_and_epoch_only() -> None:
    comparisons = one_pair_each(np.random.default_rng(0).integers(1, 50, 100))

    def plan(seed: int, epoch: int) -> list[list[int]]:
        return [step.tolist() for step in plan_epoch(comparisons, 4, seed, epoch)]

    np.random.seed(1)
    first = plan(0, 0)
    np.random.seed(2)
    assert plan(0, 0) == first
    assert first != plan(0, 1)
    assert first != plan(1, 0)
    # Not only the order of steps: who stands together changes too.
    assert {frozenset(s) for s in first} != {frozenset(s) for s in plan(0, 1)}


def test_steps_hold_texts_of_like_length_and_come_in_random_order() -> None:
    """Bucketing pays: the spread of lengths in a step is far below that of random steps; steps are not sorted by length."""
    rng = np.random.default_rng(0)
    comparisons = one_pair_each(rng.integers(1, 500, 2000))
    plan = plan_epoch(comparisons, 8, 0, 0)
    spread = np.mean([np.ptp(comparisons.length[step]) for step in plan])
    random_spread = np.mean([np.ptp(rng.choice(comparisons.length, 8)) for _ in plan])
    assert spread < random_spread / 10
    means = np.array([comparisons.length[step].mean() for step in plan])
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.2


def test_comparisons_of_equal_length_are_still_shuffled() -> None:
    plan = plan_epoch(one_pair_each(np.full(60, 9)), 60, 0, 0)
    assert len(plan) == 1
    assert plan[0].tolist() != sorted(plan[0].tolist())


# ---- shares and chunks


@given(sizes_of_comparisons, st.sampled_from([1, 2, 3]), st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_the_shares_of_all_ranks_are_the_step(sizes: list[int], world: int, seed: int) -> None:
    comparisons = pair_set(sizes, seed, ties=0).grouped()
    for step in plan_epoch(comparisons, 8, 0, 0):
        shares = [rank_share(step, comparisons, rank, world).tolist() for rank in range(world)]
        assert sorted(c for share in shares for c in share) == sorted(step.tolist())
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(sizes_of_comparisons, st.integers(1, 400), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_chunks_hold_whole_comparisons_within_the_token_bound(sizes: list[int], tokens: int, seed: int) -> None:
    data = pair_set(sizes, seed)
    comparisons = data.grouped()
    everything = np.arange(len(comparisons))
    chunks = chunk_step(everything, comparisons, tokens)
    assert sorted(np.concatenate([*chunks, []]).tolist()) == everything.tolist()
    for chunk in chunks:
        shape = data.chunk(chunk, comparisons, PAD)["inputs"]["input_ids"].shape
        assert shape[0] * shape[1] <= tokens or len(chunk) == 1


def test_chunks_are_not_smaller_than_they_must_be() -> None:
    """Two texts of length 1, 2, 3, 4 each: 2*1, 4*2, 6*3 fit in 18 tokens, 8*4 does not."""
    comparisons = one_pair_each(np.array([4, 1, 3, 2]))
    assert [c.tolist() for c in chunk_step(np.arange(4), comparisons, 18)] == [[1, 3, 2], [0]]
    assert chunk_step(np.zeros(0, np.int64), comparisons, 18) == []


@given(st.lists(st.integers(0, 60), max_size=60), st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_scoring_batches_hold_every_text_once_within_the_bound(lengths: list[int], tokens: int) -> None:
    n = np.array(lengths, dtype=np.int64)
    batches = scoring_batches(n, tokens)
    assert sorted(np.concatenate([*batches, []]).tolist()) == np.flatnonzero(n).tolist()
    assert all(len(b) * n[b].max() <= tokens or len(b) == 1 for b in batches)
    longest = [n[b].max() for b in batches]
    assert longest == sorted(longest, reverse=True)  # too little memory shows at once


# ---- tensors


def test_padding_is_on_the_right() -> None:
    batch = collate(encoded_texts([2, 4, 1], types=True), np.array([2, 0, 1]), PAD)
    assert batch["input_ids"].tolist() == [
        [3000, PAD, PAD, PAD],
        [1000, 1001, PAD, PAD],
        [2000, 2001, 2002, 2003],
    ]
    assert batch["attention_mask"].tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
    assert batch["token_type_ids"].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]]
    assert {t.dtype for t in batch.values()} == {torch.int64}
    assert "token_type_ids" not in collate(encoded_texts([2]), np.array([0]), PAD)


def test_a_text_without_tokens_is_all_padding() -> None:
    batch = collate(encoded_texts([0, 2]), np.array([0, 1]), PAD)
    assert batch["attention_mask"].sum(1).tolist() == [0, 2]
    assert collate(encoded_texts([2]), np.zeros(0, np.int64), PAD)["input_ids"].shape == (0, 0)


@given(sizes_of_comparisons, st.integers(0, 9), st.data())
@settings(max_examples=60, deadline=None)
def test_positions_in_a_batch_mean_the_same_texts(sizes: list[int], seed: int, data: st.DataObject) -> None:
    """A table of rewards looked up through the batch equals the direct look-up; every other column goes with its pair."""
    pairs = pair_set(sizes, seed)
    comparisons = pairs.grouped()
    if not len(comparisons):
        return
    chunk = np.array(data.draw(st.permutations(range(len(comparisons)))))[: data.draw(st.integers(1, 40))]
    batch = pair_batch(pairs.encoded, chunk, comparisons, pairs.pairs, pairs.weight, pairs.group, PAD)
    inside = batch["pair"].numpy()
    assert sorted(inside.tolist()) == sorted(p for c in chunk for p in comparisons.pairs[c].tolist())
    table = torch.from_numpy(np.random.default_rng(seed).normal(size=len(pairs.encoded)))
    rewards = table[texts_of(batch["inputs"])]
    assert torch.equal(rewards[batch["chosen"]], table[pairs.pairs.chosen[inside]])
    assert torch.equal(rewards[batch["rejected"]], table[pairs.pairs.rejected[inside]])
    np.testing.assert_array_equal(batch["weight"], pairs.weight[inside].astype(np.float32))
    np.testing.assert_array_equal(batch["gap"], pairs.pairs.gap[inside].astype(np.float32))
    np.testing.assert_array_equal(batch["group"], pairs.group[inside])
    assert (batch["weight"].dtype, batch["gap"].dtype) == (torch.float32, torch.float32)
    assert max(Counter(texts_of(batch["inputs"])).values()) == 1


# ---- PITFALLS T1


def step_losses(data: PairSet, rewards: torch.Tensor, size: int) -> list[torch.Tensor]:
    """The pair losses of each step of an epoch, through the plan and the batches; rewards (n_candidates,)."""
    comparisons = data.grouped()
    losses = []
    for step in plan_epoch(comparisons, size, seed=0, epoch=0):
        chunks = [data.chunk(c, comparisons, PAD) for c in chunk_step(step, comparisons, tokens=100)]
        found = [(rewards[texts_of(c["inputs"])], c) for c in chunks]
        losses.append(torch.cat([bradley_terry(r[c["chosen"]], r[c["rejected"]], c["weight"]) for r, c in found]))
    return losses


@pytest.mark.parametrize("size", SIZES)
def test_the_mean_of_the_steps_losses_is_the_data_sets_weighted_loss(size: int) -> None:
    data = pair_set(np.random.default_rng(3).integers(2, 5, 60).tolist(), seed=3)
    rewards = torch.from_numpy(np.random.default_rng(4).normal(size=len(data.encoded))).double()
    margins = (rewards[data.pairs.chosen] - rewards[data.pairs.rejected]).numpy()
    expected = float((data.weight * np.log1p(np.exp(-margins))).mean())
    losses = step_losses(data, rewards, size)
    fixed = len(data.pairs) / len(losses)
    assert float(torch.stack([step.sum() / fixed for step in losses]).mean()) == pytest.approx(expected, rel=1e-5)


def five_percent_world() -> tuple[PairSet, torch.Tensor]:
    """2,000 comparisons of two, 5% of a group with loss 2.0 and the rest with 0.5: balanced, the data set's loss is 1.25."""
    n = 2000
    comparison, group = np.repeat(np.arange(n), 2), (np.arange(n) % 20 == 0).astype(np.int64)
    pairs = make_pairs(comparison, np.tile([2.0, 1.0], n))
    weight = group_weights(np.bincount(group), "inverse")[group]
    margin = np.where(group == 1, -math.log(math.exp(2.0) - 1), -math.log(math.exp(0.5) - 1))
    rewards = np.stack([margin, np.zeros(n)], axis=1).ravel()
    lengths = np.random.default_rng(0).integers(1, 9, 2 * n).tolist()
    names = np.array([str(i) for i in range(2 * n)], dtype=object)
    return PairSet(encoded_texts(lengths), names, comparison, pairs, weight, group), torch.from_numpy(rewards)


def test_weights_normalised_inside_the_batch_would_train_another_loss() -> None:
    """The measured numbers of T1: 1.250 at every size with fixed weights; normalised inside batches of 4 it is 0.745."""
    data, rewards = five_percent_world()
    for size in SIZES:
        losses = step_losses(data, rewards, size)
        assert sum(float(s.sum()) for s in losses) / (len(data.pairs) / len(losses)) / len(losses) == pytest.approx(
            1.25
        )
    # The same data with all weights 1 tell the weight of each pair by its loss, which is 0.5 or 2.0.
    plain = step_losses(replace(data, weight=np.ones(len(data.pairs))), rewards, 4)
    light, heavy = np.unique(data.weight)
    inside = [float((s * w).sum() / w.sum()) for s in plain for w in [torch.where(s > 1.0, heavy, light)]]
    assert np.mean(inside) == pytest.approx(0.745, abs=0.03)


# ---- the group of each text


def test_each_text_is_told_its_group() -> None:
    """Rows follow the texts into the batch, in its order; without steering there is no such input."""
    data = pair_set([3, 2, 4], seed=4, ties=0.0)
    steer = np.array([5, 5, 5, 1, 1, 0, 0, 0, 0])
    comparisons = data.grouped()
    chunk = np.array([2, 0, 1])
    batch = pair_batch(data.encoded, chunk, comparisons, data.pairs, data.weight, data.group, PAD, steer)
    texts = texts_of(batch["inputs"])
    assert sorted(texts) == list(range(9))
    assert batch["inputs"]["group"].tolist() == steer[texts].tolist()
    assert batch["inputs"]["group"].dtype == torch.int64
    plain = pair_batch(data.encoded, chunk, comparisons, data.pairs, data.weight, data.group, PAD)
    assert set(plain["inputs"]) == set(batch["inputs"]) - {"group"}


def test_unnamed_comparisons_are_told_no_group() -> None:
    """All of their texts, and nobody else's; positions of pairs, weights and codes of groups stay as they were."""
    data = pair_set([3, 2, 4], seed=4, ties=0.0)
    steer = np.array([5, 5, 5, 1, 1, 0, 0, 0, 0])
    comparisons = data.grouped()
    chunk = np.array([2, 0, 1])
    arguments = (data.encoded, chunk, comparisons, data.pairs, data.weight, data.group, PAD, steer)
    told, silent = pair_batch(*arguments), pair_batch(*arguments, np.array([True, False, True]))
    texts = texts_of(silent["inputs"])
    assert silent["inputs"]["group"].tolist() == [-1 if t in (0, 1, 2, 5, 6, 7, 8) else 1 for t in texts]
    for key in ("chosen", "rejected", "weight", "gap", "group", "pair"):
        assert torch.equal(silent[key], told[key])
    assert torch.equal(silent["inputs"]["input_ids"], told["inputs"]["input_ids"])
    everyone_named = pair_batch(*arguments, np.zeros(3, dtype=bool))
    assert torch.equal(everyone_named["inputs"]["group"], told["inputs"]["group"])
    assert steer.min() == 0  # the data are left as they are


def test_unnamed_texts_of_a_model_that_reads_the_group() -> None:
    """They stand after all of the named ones; the pairs point to the same places of the batch."""
    named = pair_set([3, 2], seed=4, ties=0.0)
    rest = encoded_texts([1] * 5 + [2, 3, 4, 5, 6])  # the last five of ten texts
    other = Encoded(rest.ids[5:], None, rest.offsets[5:] - rest.offsets[5], rest.truncated[5:], rest.dropped[5:])
    both = named.encoded.joined(other)
    assert texts_of(collate(both, np.arange(10), PAD)) == list(range(10))
    comparisons = named.grouped()
    chunk = np.array([1, 0])
    arguments = (both, chunk, comparisons, named.pairs, named.weight, named.group, PAD, None)
    told, silent = pair_batch(*arguments), pair_batch(*arguments, np.array([True, False]))
    assert sorted(texts_of(told["inputs"])) == [0, 1, 2, 3, 4]
    assert texts_of(silent["inputs"]) == [t + 5 if t < 3 else t for t in texts_of(told["inputs"])]
    assert torch.equal(silent["chosen"], told["chosen"])
    assert torch.equal(silent["rejected"], told["rejected"])
    lengths = silent["inputs"]["attention_mask"].sum(dim=1)
    assert lengths.tolist() == both.lengths[texts_of(silent["inputs"])].tolist()
