"""Group DRO: the update by hand and against the formula in numpy, and what the weights do to the loss of a data set."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scpo.balance import group_weights
from scpo.dro import GroupDRO, dro_update


def test_an_update_by_hand() -> None:
    """q (1/2, 1/4, 1/4), losses (0, ln 2, 0) and eta 1: 1/2, 1/2, 1/4 over 5/4. A group without pairs stays out."""
    q = dro_update(torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.0, math.log(2), 0.0]), 1.0)
    assert q.tolist() == pytest.approx([0.4, 0.4, 0.2])
    q = dro_update(torch.tensor([0.5, 0.0, 0.5]), torch.tensor([0.0, 50.0, math.log(3)]), 1.0)
    assert q.tolist() == pytest.approx([0.25, 0.0, 0.75])


def test_losses_that_would_overflow_an_exponential() -> None:
    """exp(1000) is infinite; the ratio is not."""
    q = dro_update(torch.tensor([0.5, 0.5]), torch.tensor([1000.0, 1001.0]), 1.0)
    assert q.tolist() == pytest.approx([1 / (1 + math.e), math.e / (1 + math.e)], rel=1e-4)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(0, 5)), min_size=2, max_size=6),
    st.floats(0.001, 1.0),
)
@settings(max_examples=50, deadline=None)
def test_weights_stay_a_distribution_and_move_to_the_higher_loss(groups: list[tuple[int, float]], eta: float) -> None:
    q = torch.tensor([n for n, _ in groups], dtype=torch.float32)
    q = q / q.sum()
    losses = torch.tensor([loss for _, loss in groups])
    new = dro_update(q, losses, eta)
    assert float(new.sum()) == pytest.approx(1.0, abs=1e-5)
    growth = (new / q).tolist()
    worst, best = int(losses.argmax()), int(losses.argmin())
    assert growth[worst] >= 1 - 1e-4
    assert growth[best] <= 1 + 1e-4


class Numpy:
    """Algorithm 1 of arXiv 1911.08731 with a loss per group and step, written without the library: q * exp(eta * loss)."""

    def __init__(self, n: list[int], pairs_per_step: float, eta: float, adjustment: float) -> None:
        self.n, self.eta, self.adjustment = np.array(n, float), eta, adjustment
        self.pairs_per_step = pairs_per_step
        self.q = (self.n > 0) / (self.n > 0).sum()

    def step(self, losses: np.ndarray, group: np.ndarray) -> float:
        """The step's loss under q as it was, then the update."""
        share = self.n / self.n.sum()
        total = 0.0
        for loss, g in zip(losses, group, strict=True):
            total += self.q[g] / share[g] * loss
        q = self.q.copy()
        for g in range(len(self.n)):
            if self.n[g] > 0:
                mean = losses[group == g].sum() / (share[g] * self.pairs_per_step)
                q[g] = q[g] * math.exp(self.eta * (mean + self.adjustment / math.sqrt(self.n[g])))
        self.q = q / q.sum()
        return total / self.pairs_per_step


@pytest.mark.parametrize("adjustment", [0.0, 2.0])
@pytest.mark.parametrize("cut", [[0, 12], [0, 5, 12], [0, 1, 2, 3, 12]])
def test_several_steps_against_the_formula_however_they_are_cut(adjustment: float, cut: list[int]) -> None:
    """Groups of 30, 6, 0 and 4 pairs; steps in which one is absent; one chunk, two, or many."""
    rng = np.random.default_rng(0)
    counts = [30, 6, 0, 4]
    dro = GroupDRO(counts, pairs_per_step=12.0, eta=0.3, adjustment=adjustment)
    reference = Numpy(counts, 12.0, 0.3, adjustment)
    for step in range(6):
        group = rng.choice([0, 1, 3] if step != 2 else [0, 1], size=12, p=[0.7, 0.2, 0.1] if step != 2 else None)
        losses = rng.uniform(0, 2, size=12)
        total = 0.0
        for start, end in itertools.pairwise(cut):
            own, rows = torch.tensor(losses[start:end], dtype=torch.float32), torch.tensor(group[start:end])
            dro.add(own, rows)
            total += float((own * dro.weights(rows)).sum()) / 12.0
        assert total == pytest.approx(reference.step(losses, group), rel=1e-5)
        dro.step(dro.sums.clone())
        np.testing.assert_allclose(dro.q.numpy(), reference.q, rtol=1e-5)
        assert not dro.sums.any()
    assert dro.q[2] == 0
    assert np.abs(reference.q - reference.q[0]).max() > 0.1  # it did move


def test_weights_have_mean_one_over_the_training_set() -> None:
    """For any q: the learning rate does not change with the balance."""
    counts = [30, 6, 0, 4]
    dro = GroupDRO(counts, pairs_per_step=8.0)
    group = torch.repeat_interleave(torch.arange(4), torch.tensor(counts))
    assert dro.q.tolist() == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3])
    for q in (dro.q.clone(), torch.tensor([0.9, 0.05, 0.0, 0.05])):
        dro.q.copy_(q)
        assert float(dro.weights(group).mean()) == pytest.approx(1.0, rel=1e-5)
    dro.q.copy_(torch.tensor(counts) / 40)
    assert dro.weights(group).tolist() == pytest.approx([1.0] * 40)
    # The weighted mean over the data is the sum of q times the groups' means: the loss of the formula.
    dro.q.copy_(torch.tensor([0.2, 0.5, 0.0, 0.3]))
    losses = torch.linspace(0, 3, 40)
    means = [float(losses[group == g].mean()) if counts[g] else 0.0 for g in range(4)]
    expected = 0.2 * means[0] + 0.5 * means[1] + 0.3 * means[3]
    assert float((losses * dro.weights(group)).mean()) == pytest.approx(expected, rel=1e-5)


def test_the_adjustment_favours_small_groups() -> None:
    """C / sqrt(n): 4 / 2 against 4 / 4 where the losses are equal."""
    dro = GroupDRO([4, 16], pairs_per_step=20.0, eta=1.0, adjustment=4.0)
    dro.step(torch.tensor([4.0, 16.0]))
    assert dro.q.tolist() == pytest.approx([math.e / (1 + math.e), 1 / (1 + math.e)], rel=1e-5)


def test_no_gradient_flows_into_the_weights() -> None:
    """They are data to the step: a loss can not be lowered through them."""
    dro = GroupDRO([3, 3], pairs_per_step=2.0)
    losses = torch.tensor([1.0, 2.0], requires_grad=True)
    group = torch.tensor([0, 1])
    dro.add(losses, group)
    assert not dro.sums.requires_grad
    assert not dro.weights(group).requires_grad
    assert dro.sums.tolist() == [1.0, 2.0]


def test_only_q_is_in_the_checkpoint() -> None:
    """The rest follows from the training pairs."""
    assert list(GroupDRO([3, 3], pairs_per_step=2.0).state_dict()) == ["q"]


def test_the_pairs_themselves_are_not_reweighted() -> None:
    """The balance before training is 1 for all: what moves is q, and only where one model holds several groups."""
    assert group_weights([30, 6, 0, 4], "dro").tolist() == [1.0, 1.0, 0.0, 1.0]
