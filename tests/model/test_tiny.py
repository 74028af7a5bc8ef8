"""`model=tiny`: a model from scratch that is the same every time, and a tokenizer that knows any text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_backbones import PROMPTS, RESPONSES
from tiny_models import SENTENCES
from transformers import AutoConfig

from scpo.data.encode import input_kind
from scpo.errors import UserError
from scpo.model.files import model_fingerprint, resolve_model, reward_head
from scpo.model.reward import ModelOptions, load_model
from scpo.model.score import score_texts
from scpo.model.tiny import build, train_tokenizer

SIZE = {"vocab_size": 300, "hidden_size": 32, "layers": 2, "heads": 2, "max_length": 64}


def test_the_folder_is_a_reward_model(tmp_path: Path) -> None:
    """It loads without notes, with one label, and tells texts apart."""
    build(tmp_path / "m", SENTENCES, **SIZE)
    assert resolve_model(tmp_path / "m") == tmp_path / "m"
    assert reward_head(tmp_path / "m")
    model, notes = load_model(tmp_path / "m", ModelOptions(max_length=64))
    assert notes == []
    rewards = score_texts(model, PROMPTS, RESPONSES)
    assert len(set(rewards.tolist())) == len(rewards)
    config = AutoConfig.from_pretrained(tmp_path / "m")
    assert (config.num_labels, config.classifier_pooling, config.max_position_embeddings) == (1, "mean", 64)
    assert config.vocab_size == len(model.formatter.tokenizer) <= 300


def test_the_same_texts_and_seed_give_the_same_folder(tmp_path: Path) -> None:
    """In any order, however often each text stands there; another seed gives other weights."""
    build(tmp_path / "a", SENTENCES, seed=0, **SIZE)
    build(tmp_path / "b", [*reversed(SENTENCES), SENTENCES[0]], seed=0, **SIZE)
    build(tmp_path / "c", SENTENCES, seed=1, **SIZE)
    assert model_fingerprint(tmp_path / "a") == model_fingerprint(tmp_path / "b")
    assert model_fingerprint(tmp_path / "a") != model_fingerprint(tmp_path / "c")


def test_any_text_is_read_without_unknown_tokens() -> None:
    """Bytes are the alphabet; case and compatibility forms are folded."""
    tokenizer = train_tokenizer(SENTENCES, 300)
    ids = tokenizer("Ünïcode ≠ ascii 日本語 \U0001f600", add_special_tokens=False)["input_ids"]
    assert tokenizer.unk_token_id not in ids
    assert tokenizer("The LAKE")["input_ids"] == tokenizer("the lake")["input_ids"]
    assert tokenizer("ﬁne")["input_ids"] == tokenizer("fine")["input_ids"]
    assert tokenizer.decode(tokenizer("the lake", add_special_tokens=False)["input_ids"]).strip() == "the lake"


def test_two_texts_are_joined_by_separators() -> None:
    """`[CLS] a [SEP] b [SEP]`, without type ids, padded with [PAD]."""
    tokenizer = train_tokenizer(SENTENCES, 300)
    assert input_kind(tokenizer) == "pair"
    out = tokenizer("lake", "bread")
    assert list(out) == ["input_ids", "attention_mask"]
    a, b = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("lake", "bread"))
    assert out["input_ids"] == [2, *a, 3, *b, 3]
    assert [tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id] == [
        0,
        1,
        2,
        3,
    ]


def test_heads_must_divide_the_width(tmp_path: Path) -> None:
    """Said in one line, with both numbers; nothing is written."""
    with pytest.raises(UserError, match="hidden_size divisible by heads, found 32 and 3"):
        build(tmp_path / "m", SENTENCES, hidden_size=32, heads=3)
    assert not (tmp_path / "m").exists()


def test_the_vocabulary_leaves_room_for_bytes(tmp_path: Path) -> None:
    """A size below the alphabet still gives a working model, whose embeddings fit its tokenizer."""
    build(tmp_path / "m", SENTENCES, **{**SIZE, "vocab_size": 10})
    model, notes = load_model(tmp_path / "m", ModelOptions(max_length=64))
    assert notes == []
    assert len(model.formatter.tokenizer) >= 260
    assert np.isfinite(score_texts(model, PROMPTS, RESPONSES)).all()
