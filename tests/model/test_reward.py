"""Rewards of every kind of backbone: what they may not depend on, and that they are transformers' own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from tiny_backbones import BACKBONES, DECODERS, PROMPTS, RESPONSES, TEXTS, build_backbone
from tiny_models import plain_tokenizer
from transformers import AutoModelForSequenceClassification

from scpo.data.batching import collate
from scpo.model.head import head_modules
from scpo.model.reward import ModelOptions, RewardNetwork, load_model
from scpo.model.score import score_texts

OPTIONS = ModelOptions(max_length=64)


@pytest.fixture(scope="module", params=list(BACKBONES))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder per kind."""
    return build_backbone(request.param, tmp_path_factory.mktemp("models") / request.param)


def plain(folder: Path, model: RewardNetwork, **kwargs: Any) -> npt.NDArray[np.float32]:
    """Rewards by transformers alone, one unpadded text at a time, of the ids that the formatter makes."""
    network = AutoModelForSequenceClassification.from_pretrained(folder, **kwargs).eval()
    encoded = model.formatter.encode(PROMPTS, RESPONSES)
    with torch.no_grad():
        out = [network(**collate(encoded, np.array([i]), model.pad_id)).logits for i in range(len(encoded))]
    assert all(logits.shape == (1, 1) for logits in out)
    return torch.cat(out).squeeze(1).float().numpy()


def one_at_a_time(model: RewardNetwork) -> npt.NDArray[np.float32]:
    """Rewards of texts that never meet in a batch."""
    return np.concatenate([score_texts(model, [p], [r]) for p, r in TEXTS])


def test_rewards_are_those_of_transformers_alone(folder: Path) -> None:
    """Single texts without padding leave nothing to disagree on."""
    model = load_model(folder, OPTIONS)[0]
    rewards = score_texts(model, PROMPTS, RESPONSES)
    assert rewards.dtype == np.float32
    assert np.ptp(rewards) > 0.1  # texts are told apart at all
    np.testing.assert_allclose(rewards, plain(folder, model), rtol=1e-5, atol=1e-5)


def test_rewards_do_not_depend_on_the_batch(folder: Path) -> None:
    """T4, 7, 11, 12: batch size, batch mates and the tokenizer's padding side change nothing."""
    model = load_model(folder, OPTIONS)[0]
    alone = one_at_a_time(model)
    for tokens in (8192, 60):
        np.testing.assert_allclose(
            score_texts(model, PROMPTS, RESPONSES, batch_tokens=tokens), alone, rtol=1e-5, atol=1e-5
        )
    mates = score_texts(model, [*PROMPTS, "tea"], [*RESPONSES, " ".join(RESPONSES)])[:-1]
    np.testing.assert_allclose(mates, alone, rtol=1e-5, atol=1e-5)
    for side in ("left", "right"):
        model.formatter.tokenizer.padding_side = side
        np.testing.assert_allclose(score_texts(model, PROMPTS, RESPONSES), alone, rtol=1e-5, atol=1e-5)


def test_the_pad_token_never_reaches_a_reward(folder: Path) -> None:
    """Whatever token fills a batch; also the end-of-text token."""
    model = load_model(folder, OPTIONS)[0]
    encoded = model.formatter.encode(PROMPTS, RESPONSES)
    rows = np.arange(len(encoded))
    with torch.no_grad():
        rewards = [model(**collate(encoded, rows, pad)) for pad in (model.pad_id, 2, 7)]
    for other in rewards[1:]:
        torch.testing.assert_close(other, rewards[0], rtol=1e-5, atol=1e-5)


def with_tokenizer(folder: Path, to: Path, pad_token: str | None) -> Path:
    """A copy of a decoder's folder, with the same weights, whose pad token is another or none."""
    shutil.copytree(folder, to)
    tokenizer = plain_tokenizer()
    tokenizer.pad_token = pad_token
    tokenizer.save_pretrained(to)
    config = json.loads((to / "config.json").read_text(encoding="utf-8"))
    config["pad_token_id"] = tokenizer.pad_token_id
    (to / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return to


@pytest.mark.parametrize("kind", DECODERS)
def test_pad_equal_to_eos_is_read_at_the_true_last_token(kind: str, tmp_path: Path) -> None:
    """T3, 4: transformers alone reads the token before the end; we do not, and what we save no longer lets it."""
    original = build_backbone(kind, tmp_path / "original")
    expected = score_texts(load_model(original, OPTIONS)[0], PROMPTS, RESPONSES)
    folder = with_tokenizer(original, tmp_path / "same", "</s>")
    model, notes = load_model(folder, OPTIONS)
    assert notes == [f"{folder}: its pad token is its end-of-text token; added '<|scpo_pad|>' with id {model.pad_id}"]
    np.testing.assert_allclose(score_texts(model, PROMPTS, RESPONSES), expected, rtol=1e-5, atol=1e-5)
    assert abs(plain(folder, model) - expected).max() > 1e-2
    model.save(tmp_path / "saved")
    np.testing.assert_allclose(plain(tmp_path / "saved", model), expected, rtol=1e-5, atol=1e-5)
    again, said = load_model(tmp_path / "saved", OPTIONS, require_head=True)
    assert said == []
    np.testing.assert_array_equal(score_texts(again, PROMPTS, RESPONSES), score_texts(model, PROMPTS, RESPONSES))


@pytest.mark.parametrize("kind", DECODERS)
def test_a_tokenizer_without_pad_token_gets_one_of_its_own(kind: str, tmp_path: Path) -> None:
    """T4, 1, 2, 3: in tokenizer and config together, kept on saving; other rewards stay as they are."""
    original = build_backbone(kind, tmp_path / "original")
    expected = score_texts(load_model(original, OPTIONS)[0], PROMPTS, RESPONSES)
    folder = with_tokenizer(original, tmp_path / "without", None)
    with pytest.raises(ValueError, match="pad"):
        AutoModelForSequenceClassification.from_pretrained(folder)(torch.ones(2, 3, dtype=torch.long))
    model, notes = load_model(folder, OPTIONS)
    assert notes == [f"{folder}: no pad token; added '<|scpo_pad|>' with id {model.pad_id}"]
    assert model.network.config.pad_token_id == model.pad_id != model.formatter.tokenizer.eos_token_id
    assert model.network.get_input_embeddings().weight[model.pad_id].abs().sum() == 0
    batched = score_texts(model, PROMPTS, RESPONSES)
    np.testing.assert_allclose(batched, one_at_a_time(model), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(batched, expected, rtol=1e-5, atol=1e-5)
    model.save(tmp_path / "saved")
    np.testing.assert_allclose(plain(tmp_path / "saved", model), batched, rtol=1e-5, atol=1e-5)


def test_the_head_stays_float32_over_a_bfloat16_backbone(folder: Path) -> None:
    """T2: its weights, what it computes, and the rewards."""
    model = load_model(folder, ModelOptions(max_length=64, dtype="bfloat16"))[0]
    heads = head_modules(model.classifier).values()
    backbone = list(model.classifier.base_model.parameters())
    assert {p.dtype for m in heads for p in m.parameters()} == {torch.float32}
    assert {p.dtype for p in backbone} == {torch.bfloat16}
    encoded = model.formatter.encode(PROMPTS, RESPONSES)
    with torch.no_grad():
        rewards = model(**collate(encoded, np.arange(len(encoded)), model.pad_id))
    assert rewards.dtype == torch.float32
    # At least one reward has bits that bfloat16 does not.
    assert not torch.equal(rewards, rewards.bfloat16().float())


@pytest.mark.parametrize("kind", ["llama", "modernbert", "deberta"])
def test_a_new_head_over_bfloat16_is_float32_too(kind: str, tmp_path: Path) -> None:
    """T2: it is not read from anywhere."""
    folder = build_backbone(kind, tmp_path / "bare", head=False)
    model = load_model(folder, ModelOptions(max_length=64, dtype="bfloat16"))[0]
    heads = head_modules(model.classifier).values()
    assert {p.dtype for m in heads for p in m.parameters()} == {torch.float32}
    assert np.isfinite(score_texts(model, PROMPTS, RESPONSES)).all()


@pytest.mark.parametrize("kind", ["llama", "modernbert"])
def test_autocast_leaves_the_head_in_float32(kind: str, tmp_path: Path) -> None:
    """T2 under mixed precision: the reward is the float32 head of what the backbone gives, not rounded once more."""
    model = load_model(build_backbone(kind, tmp_path / "m"), OPTIONS)[0]
    encoded = model.formatter.encode(PROMPTS, RESPONSES)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        rewards = model(**collate(encoded, np.arange(len(encoded)), model.pad_id))
    assert rewards.dtype == torch.float32
    assert not torch.equal(rewards, rewards.bfloat16().float())


def test_a_float32_head_makes_fewer_ties_than_a_bfloat16_head(tmp_path: Path) -> None:
    """T2: 150 texts by one bfloat16 backbone; transformers alone rounds its rewards to 8 bits of precision."""
    folder = build_backbone("llama", tmp_path / "m")
    model = load_model(folder, ModelOptions(max_length=64, dtype="bfloat16"))[0]
    responses = [
        f"{a} {b} {c}" for a in RESPONSES for b in ("lake", "is", "cold", "in", "the", "morning") for c in PROMPTS
    ]
    rewards = score_texts(model, ["how"] * len(responses), responses)
    network = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.bfloat16).eval()
    encoded = model.formatter.encode(["how"] * len(responses), responses)
    with torch.no_grad():
        rounded = network(**collate(encoded, np.arange(len(encoded)), model.pad_id)).logits.squeeze(1).float().numpy()
    np.testing.assert_allclose(rounded, rewards, atol=0.05)
    assert ties(rewards) <= 1
    assert ties(rounded) >= 5


def ties(rewards: npt.NDArray[np.float32]) -> int:
    """Pairs of texts with equal rewards."""
    _, counts = np.unique(rewards, return_counts=True)
    return int((counts * (counts - 1) // 2).sum())
