"""Tiny model folders for tests: every kind of backbone from its config, two layers, random weights, with a tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tiny_models import SENTENCES, pair_tokenizer, plain_tokenizer
from transformers import PreTrainedTokenizerFast

from scpo.data.datamodule import PairSet
from scpo.data.pairs import make_pairs
from scpo.model.reward import RewardNetwork

WIDTH = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
GROUPED = {**WIDTH, "num_key_value_heads": 1, "head_dim": 8}


@dataclass(frozen=True)
class Backbone:
    """How one kind is built.

    Attributes:
        stem: of the names of its transformers classes.
        settings: its size; no dropout.
        encoder: True where it reads a pair of texts.
        scale: of all weight matrices over their usual start of 0.02, so that texts get clearly different rewards.
    """

    stem: str
    settings: dict[str, Any]
    encoder: bool = False
    scale: float = 20.0


BACKBONES = {
    "modernbert": Backbone(
        "ModernBert",
        {
            **WIDTH,
            "classifier_pooling": "mean",
            "attention_dropout": 0.0,
            "mlp_dropout": 0.0,
            "cls_token_id": 2,
            "sep_token_id": 3,
        },
        encoder=True,
        scale=5.0,
    ),
    "bert": Backbone("Bert", {**WIDTH, **NO_DROPOUT}, encoder=True),
    "roberta": Backbone("Roberta", {**WIDTH, **NO_DROPOUT, "max_position_embeddings": 66}, encoder=True),
    "deberta": Backbone(
        "DebertaV2",
        {
            **WIDTH,
            **NO_DROPOUT,
            "pooler_hidden_size": 16,
            "pooler_dropout": 0.0,
            "relative_attention": True,
            "position_buckets": 8,
            "pos_att_type": ["p2c", "c2p"],
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "position_biased_input": False,
            "type_vocab_size": 0,
        },
        encoder=True,
    ),
    "llama": Backbone("Llama", GROUPED),
    "gpt2": Backbone(
        "GPT2",
        {
            "n_embd": 16,
            "n_layer": 2,
            "n_head": 2,
            "n_inner": 32,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        },
    ),
    "qwen2": Backbone("Qwen2", {k: v for k, v in GROUPED.items() if k != "head_dim"}),
    "qwen3": Backbone("Qwen3", GROUPED),
    "gemma": Backbone("Gemma", GROUPED),
    "mistral": Backbone("Mistral", {**GROUPED, "sliding_window": None}),
}
ENCODERS = [name for name, b in BACKBONES.items() if b.encoder]
DECODERS = [name for name, b in BACKBONES.items() if not b.encoder]


def build_backbone(
    kind: str,
    folder: Path,
    *,
    head: bool = True,
    seed: int = 0,
    num_labels: int = 1,
    tokenizer: PreTrainedTokenizerFast | None = None,
    dtype: torch.dtype = torch.float32,
    **overrides: Any,
) -> Path:
    """Write a model folder and return it.

    Args:
        kind: a key of `BACKBONES`.
        head: False for the bare backbone, without a classifier.
        tokenizer: another one than the pair tokenizer (encoders) or the plain one (decoders).
        overrides: settings of the config.
    """
    backbone = BACKBONES[kind]
    if tokenizer is None:
        tokenizer = pair_tokenizer() if backbone.encoder else plain_tokenizer()
    settings = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.cls_token_id,
        "eos_token_id": tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id,
        "max_position_embeddings": 64,
        "num_labels": num_labels,
        **backbone.settings,
        **overrides,
    }
    config = getattr(transformers, f"{backbone.stem}Config")(**settings)
    suffix = "ForSequenceClassification" if head else "Model"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers, f"{backbone.stem}{suffix}")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(backbone.scale)
    model.to(dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


TEXTS: list[tuple[str, str]] = [
    ("should the town build a bridge?", "yes"),
    (
        "how are old trees counted and why",
        "no one agrees on the best way; the rings say how old the trees are, and more",
    ),
    ("is the lake cold", "the lake is cold in the morning and warm in the evening"),
    ("x", "bread, salt and olives are enough for a long walk"),
    ("please tell me how to cook rice", "first one, then the other"),
]
PROMPTS = [prompt for prompt, _ in TEXTS]
RESPONSES = [response for _, response in TEXTS]


def make_pair_set(model: RewardNetwork, *, comparisons: int = 12, seed: int = 0, groups: int = 2) -> PairSet:
    """Random comparisons of 2 to 4 candidates with scores, as pairs for a model; weights from 0.3 to 1."""
    rng = np.random.default_rng(seed)
    words = " ".join(SENTENCES).split()

    def text(most: int) -> str:
        return " ".join(rng.choice(words, size=rng.integers(1, most)))

    prompts: list[str] = []
    responses: list[str] = []
    codes: list[int] = []
    for comparison in range(comparisons):
        prompt = text(8)
        for _ in range(int(rng.integers(2, 5))):
            prompts.append(prompt)
            responses.append(text(16))
            codes.append(comparison)
    comparison = np.array(codes, dtype=np.int64)
    pairs = make_pairs(comparison, rng.integers(1, 100, size=len(codes)).astype(np.float64))
    return PairSet(
        encoded=model.formatter.encode(prompts, responses),
        candidate_id=np.array([f"c{i}" for i in range(len(codes))], dtype=object),
        comparison=comparison,
        pairs=pairs,
        weight=rng.uniform(0.3, 1.0, size=len(pairs)),
        group=comparison[pairs.chosen] % groups,
    )
