"""Scoring: order, batches, equal texts, dropped texts, rewards that are not finite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_backbones import PROMPTS, RESPONSES, build_backbone
from torch import Tensor

from scpo.errors import UserError
from scpo.model.reward import ModelOptions, RewardNetwork, load_model
from scpo.model.score import score_encoded, score_texts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small decoder."""
    return build_backbone("llama", tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture
def model(folder: Path) -> RewardNetwork:
    """A fresh copy of it."""
    return load_model(folder, ModelOptions(max_length=64))[0]


class Counting(RewardNetwork):
    """Counts forward passes and the texts in them; the reward is the number of tokens."""

    def __init__(self, like: RewardNetwork) -> None:
        super().__init__(like.network, like.formatter, "counting")
        self.sizes: list[int] = []
        self.grad: list[bool] = []

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        group: Tensor | None = None,
        text: Tensor | None = None,
    ) -> Tensor:
        """Tokens of each text."""
        self.sizes.append(len(input_ids))
        self.grad.append(torch.is_grad_enabled() or self.training)
        lengths = attention_mask.sum(dim=1).float()
        return lengths if text is None else lengths[text]


def test_rewards_come_in_the_order_of_the_texts(model: RewardNetwork) -> None:
    """Though batches are sorted by length."""
    counting = Counting(model)
    lengths = counting.formatter.encode(PROMPTS, RESPONSES).lengths
    assert len(set(lengths)) > 3
    for tokens in (8192, 50, 1):
        np.testing.assert_array_equal(score_texts(counting, PROMPTS, RESPONSES, batch_tokens=tokens), lengths)


def test_batches_keep_to_the_token_budget(model: RewardNetwork) -> None:
    """Padded tokens of a pass; a text over the budget goes alone."""
    counting = Counting(model)
    encoded = counting.formatter.encode(PROMPTS, RESPONSES)
    score_encoded(counting, encoded, batch_tokens=8192)
    assert counting.sizes == [len(PROMPTS)]
    counting.sizes.clear()
    score_encoded(counting, encoded, batch_tokens=1)
    assert counting.sizes == [1] * len(PROMPTS)


def test_equal_texts_are_scored_once(model: RewardNetwork) -> None:
    """Equal means prompt, response, history and group."""
    counting = Counting(model)
    score_texts(counting, ["a"] * 5, ["x", "x", "y", "x", "x"], None, [None, None, None, "Chile", "Israel"])
    assert sum(counting.sizes) == 4
    counting.sizes.clear()
    turns = [{"role": "user", "content": "hello"}]
    score_texts(counting, ["a"] * 3, ["x"] * 3, [(), turns, list(turns)])
    assert sum(counting.sizes) == 2


def test_scoring_is_in_eval_mode_without_gradients_and_restores_the_mode(model: RewardNetwork) -> None:
    """The released code scored with dropout on."""
    for training in (True, False):
        counting = Counting(model).train(training)
        score_texts(counting, PROMPTS, RESPONSES)
        assert not any(counting.grad)
        assert counting.training is training


def test_no_texts_give_no_rewards(model: RewardNetwork) -> None:
    """Shape (0,), float32."""
    rewards = score_texts(model, [], [])
    assert rewards.shape == (0,)
    assert rewards.dtype == np.float32


def test_dropped_texts_are_not_a_number(folder: Path) -> None:
    """Under the policy `drop` a text over the limit has no reward, and the others keep theirs."""
    model = load_model(folder, ModelOptions(max_length=48, overlong="drop"))[0]
    long = " ".join(["lake"] * 100)
    rewards = score_texts(model, [*PROMPTS, long], [*RESPONSES, long])
    kept = score_texts(model, PROMPTS, RESPONSES)
    assert np.isnan(rewards[-1])
    np.testing.assert_allclose(rewards[:-1], kept, rtol=1e-5, atol=1e-5)
    assert np.isnan(score_texts(model, [long], [long])).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_rewards_that_are_not_finite_stop(model: RewardNetwork, value: float) -> None:
    """32: not averaged in, and never confused with dropped texts."""
    with torch.no_grad():
        model.network.score.weight.fill_(value)
    with pytest.raises(
        UserError, match=r"5 of 5 rewards are not finite \(first: text 0\); load it in float32 or bfloat16"
    ):
        score_texts(model, PROMPTS, RESPONSES)


def test_progress_counts_texts_up_to_all(model: RewardNetwork) -> None:
    """Once per batch."""
    seen: list[tuple[int, int]] = []
    score_texts(model, PROMPTS, RESPONSES, batch_tokens=1, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, 5) for i in range(1, 6)]


def test_a_group_in_the_input_changes_the_reward(model: RewardNetwork) -> None:
    """And only there."""
    none, chile, israel = (score_texts(model, PROMPTS, RESPONSES, None, [g] * 5) for g in (None, "Chile", "Israel"))
    assert (none != chile).all()
    assert (chile != israel).all()
