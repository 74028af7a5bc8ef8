"""Equal texts are encoded once, in training and in scoring, and no number changes for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_backbones import PROMPTS, RESPONSES, build_backbone, make_pair_set

from scpo.data.batching import chunk_step, collate, group_pairs, plan_epoch
from scpo.data.datamodule import PairSet
from scpo.data.pairs import Pairs
from scpo.model.reward import ModelOptions, RewardNetwork, load_model
from scpo.model.score import score_encoded
from scpo.model.steering import SteeringOptions

LEARNED = {
    "embedding": SteeringOptions(embedding=True),
    "head": SteeringOptions(head_rank=0),
    "low rank": SteeringOptions(head_rank=2),
    "adapter": SteeringOptions(adapter_rank=2),
    "all": SteeringOptions(embedding=True, head_rank=2, adapter_rank=2),
    "none": None,
}


@pytest.fixture(params=LEARNED)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> RewardNetwork:
    """A decoder of each mode, with random weights where learning would begin at zero."""
    network, _ = load_model(build_backbone("llama", tmp_path / "llama"), ModelOptions(max_length=64))
    options = LEARNED[request.param]
    if options is not None:
        network.add_steering(["Chile", "Israel"], options)
        assert network.steering is not None
        torch.manual_seed(1)
        for parameter in network.steering.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    return network


def repeated(model: RewardNetwork) -> PairSet:
    """Every comparison of a pair set three times: under Chile, under Israel, and again under Chile."""
    data = make_pair_set(model, comparisons=5)
    n, encoded = len(data.encoded), data.encoded
    steer = np.repeat([0, 1, 0], n).astype(np.int64)
    return replace(
        data,
        encoded=encoded.joined(encoded).joined(encoded),
        candidate_id=np.arange(3 * n).astype(object),
        comparison=np.concatenate([data.comparison + 100 * i for i in range(3)]),
        pairs=Pairs(
            *(np.concatenate([x + s for s in (0, n, 2 * n)]) for x in (data.pairs.chosen, data.pairs.rejected)),
            np.tile(data.pairs.gap, 3),
        ),
        weight=np.tile(data.weight, 3),
        group=np.tile(data.group, 3),
        steer=None if model.steering is None else steer,
        late=model.steering is not None and model.steering.options.late,
    )


def gradient(model: RewardNetwork, inputs: dict[str, Any], factors: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    (model(**inputs) * factors).sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_a_batch_with_repeated_texts_has_the_rewards_and_the_gradient_of_one_without(model: RewardNetwork) -> None:
    data = repeated(model)
    comparisons = data.grouped()
    chunk = np.arange(len(comparisons))
    once = data.chunk(chunk, comparisons, model.pad_id)["inputs"]
    rows = np.concatenate([comparisons.candidates[c] for c in chunk])
    plain = collate(data.encoded, rows, model.pad_id, None if data.steer is None else data.steer[rows])
    distinct = len(np.unique(data.once()[rows]))
    assert len(once["input_ids"]) == distinct < len(plain["input_ids"])
    assert distinct == len(rows) // 3 * (1 if data.late or data.steer is None else 2)
    torch.testing.assert_close(model(**once), model(**plain), rtol=1e-5, atol=1e-5)
    factors = torch.linspace(-1, 1, len(rows))
    torch.testing.assert_close(gradient(model, once, factors), gradient(model, plain, factors), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("model", [mode for mode in LEARNED if mode != "none"], indirect=True)
def test_comparisons_without_their_group_are_not_mixed_with_the_others(model: RewardNetwork) -> None:
    data = repeated(model)
    comparisons = data.grouped()
    chunk, unnamed = np.arange(len(comparisons)), np.arange(len(comparisons)) % 2 == 0
    once = data.chunk(chunk, comparisons, model.pad_id, unnamed)["inputs"]
    assert data.steer is not None
    rows = np.concatenate([comparisons.candidates[c] for c in chunk])
    told = np.concatenate([np.where(unnamed[c], -1, data.steer[comparisons.candidates[c]]) for c in chunk])
    torch.testing.assert_close(
        model(**once), model(**collate(data.encoded, rows, model.pad_id, told)), rtol=1e-5, atol=1e-5
    )


def test_scoring_encodes_equal_texts_once(model: RewardNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = model.formatter.encode(PROMPTS * 3, RESPONSES * 3)
    n = len(PROMPTS)
    group = None if model.steering is None else np.repeat([0, -1, 0], n).astype(np.int64)
    sizes: list[int] = []
    inner = model._rewards
    monkeypatch.setattr(model, "_rewards", lambda ids, *more: (sizes.append(len(ids)), inner(ids, *more))[1])
    found = score_encoded(model, encoded, group=group, batch_tokens=200)
    late = model.steering is not None and model.steering.options.late
    assert sum(sizes) == (n if group is None or late else 2 * n)
    one = [
        score_encoded(model, model.formatter.encode([p], [r]), group=None if group is None else group[i : i + 1])[0]
        for i, (p, r) in enumerate(zip(PROMPTS * 3, RESPONSES * 3, strict=True))
    ]
    np.testing.assert_allclose(found, one, rtol=1e-5, atol=1e-5)
    if group is not None:
        assert np.abs(found[:n] - found[n : 2 * n]).max() > 1e-3


def test_comparisons_of_one_block_stand_together(model: RewardNetwork) -> None:
    lengths = np.full(40, 7, dtype=np.int64)
    comparison = np.repeat(np.arange(20), 2)
    pairs = Pairs(np.arange(0, 40, 2), np.arange(1, 40, 2), np.ones(20))
    comparisons = group_pairs(pairs, comparison, lengths)
    block = np.tile(np.arange(4), 5)
    for epoch in range(3):
        steps = plan_epoch(comparisons, 5, seed=0, epoch=epoch, block=block)
        assert sorted(np.concatenate(steps)) == list(range(20))
        assert [len(np.unique(block[step])) for step in steps] == [1, 1, 1, 1]
    assert any(len(np.unique(block[step])) > 1 for step in plan_epoch(comparisons, 5, seed=0, epoch=0))
    codes = np.tile([0, 1], 20)
    # Two texts of 7 tokens serve all 20 comparisons: one chunk within 14 tokens, where each by itself would need 20.
    assert len(chunk_step(np.arange(20), comparisons, 14, codes)) == 1
    assert len(chunk_step(np.arange(20), comparisons, 14)) == 20
