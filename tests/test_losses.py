"""The weighted pairwise loss by hand, in float32 whatever comes in, finite at any reward."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_expit

from scpo.losses import bradley_terry, gap_margin

CHOSEN = torch.tensor([1.0, 0.1])
REJECTED = torch.tensor([0.2, 0.9])
WEIGHT = torch.tensor([1.0, 0.5])


def test_right_values() -> None:
    """(1.0, 0.2), (0.1, 0.9), W (1, 0.5): 0.3711007 and 0.5 * 1.1711007, in the mean 0.4783255."""
    losses = bradley_terry(CHOSEN, REJECTED, WEIGHT)
    assert losses.tolist() == pytest.approx([0.3711007, 0.5 * 1.1711007], abs=1e-7)
    assert losses.mean().item() == pytest.approx(0.4783255, abs=1e-7)
    assert bradley_terry(CHOSEN, REJECTED).tolist() == pytest.approx([0.3711007, 1.1711007], abs=1e-7)


def test_margin_and_centering_by_hand() -> None:
    margin = gap_margin(torch.tensor([50.0, 10.0], dtype=torch.float64), 0.01)  # 0.5 and 0.1
    assert margin.dtype == torch.float32
    assert margin.tolist() == pytest.approx([0.5, 0.1])
    # -log sigmoid(0.8 - 0.5) = log(1 + exp(-0.3)); -log sigmoid(-0.8 - 0.1) = log(1 + exp(0.9)).
    expected = [math.log1p(math.exp(-0.3)), math.log1p(math.exp(0.9))]
    assert bradley_terry(CHOSEN, REJECTED, margin=margin).tolist() == pytest.approx(expected)
    # The sums of rewards are 1.2 and 1.0; the weight multiplies the centering term too.
    expected = [0.3711007 + 0.1 * 1.44, 0.5 * (1.1711007 + 0.1)]
    assert bradley_terry(CHOSEN, REJECTED, WEIGHT, centering=0.1).tolist() == pytest.approx(expected)


def test_rewards_of_a_thousand_are_finite_and_teach() -> None:
    chosen = torch.tensor([1000.0, -1000.0], requires_grad=True)
    losses = bradley_terry(chosen, torch.tensor([-1000.0, 1000.0]))
    assert losses.tolist() == [0.0, 2000.0]
    losses.sum().backward()
    assert chosen.grad is not None
    assert chosen.grad.tolist() == [0.0, -1.0]
    assert torch.sigmoid(torch.tensor([2000.0, -2000.0])).tolist() == [1.0, 0.0]
    centred = bradley_terry(chosen, torch.tensor([1000.0, -1000.0]), centering=0.01)
    assert torch.isfinite(centred).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_rewards_are_subtracted_in_float32(dtype: torch.dtype) -> None:
    """PITFALLS T2, 31, 35: 5 - 0.03125 is no number of bfloat16; the loss must see it all the same."""
    chosen, rejected = torch.tensor([5.0], dtype=dtype), torch.tensor([0.0078125], dtype=dtype)
    losses = bradley_terry(chosen, rejected, torch.ones(1, dtype=dtype))
    assert losses.dtype == torch.float32
    assert losses.item() == pytest.approx(math.log1p(math.exp(-4.9921875)), rel=1e-6)
    assert losses.item() != pytest.approx(math.log1p(math.exp(-5.0)), rel=1e-4)


def test_weight_scales_the_gradient_and_zero_silences_a_pair() -> None:
    chosen = torch.zeros(3, requires_grad=True)
    bradley_terry(chosen, torch.zeros(3), torch.tensor([2.0, 1.0, 0.0])).sum().backward()
    assert chosen.grad is not None
    assert chosen.grad.tolist() == [-1.0, -0.5, 0.0]


@given(st.lists(st.tuples(*[st.floats(-1e4, 1e4, width=32)] * 2, st.floats(0, 100, width=32)), min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_against_scipy(rows: list[tuple[float, float, float]]) -> None:
    chosen, rejected, weight = torch.tensor(rows, dtype=torch.float32).unbind(1)
    losses = bradley_terry(chosen, rejected, weight)
    difference = (chosen - rejected).double().numpy()
    np.testing.assert_allclose(losses.numpy(), -log_expit(difference) * weight.double().numpy(), rtol=1e-4, atol=1e-30)
    # Both orders of a pair: -log p - (-log(1 - p)) is the difference itself.
    both = bradley_terry(rejected, chosen) - bradley_terry(chosen, rejected)
    np.testing.assert_allclose(both.numpy(), difference, rtol=1e-4, atol=1e-5)
