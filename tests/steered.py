"""Tiny networks with something learned for each group, in every mode, moved off its start as by training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from tiny_backbones import PROMPTS, RESPONSES, make_pair_set

from scpo.conditioning import write_steering
from scpo.data.datamodule import PairSet
from scpo.data.encode import Encoded
from scpo.model.reward import ModelOptions, RewardNetwork, load_model
from scpo.model.score import FloatArray, score_encoded
from scpo.model.steering import Steering, SteeringOptions
from scpo.model.steering_files import describe, save_steering

GROUPS = ["Chile", "Israel", "South Africa"]
PLAIN = ModelOptions(max_length=64)
MODES = {
    "embedding": SteeringOptions(embedding=True),
    "head": SteeringOptions(head_rank=0),
    "low-rank": SteeringOptions(head_rank=2),
    "adapter": SteeringOptions(adapter_rank=2, adapter_alpha=4.0),
    "all": SteeringOptions(embedding=True, head_rank=2, adapter_rank=2, adapter_alpha=4.0),
}


def steered(folder: Path, mode: str, options: ModelOptions = PLAIN, *, moved: bool = True) -> RewardNetwork:
    """A model with what `mode` learns for three groups; with `moved` as if it had been learned."""
    model = load_model(folder, options)[0]
    model.add_steering(GROUPS, MODES[mode])
    if moved:
        move(steering_of(model))
    return model


def save_steered(model: RewardNetwork, folder: Path, mode: str) -> Path:
    """Write a model folder as a run does; returns it."""
    config = {
        "conditioning": {"template": "The reader lives in {group}.", "group_dropout": 0.1},
        "model": {"max_length": 64, "overlong": "truncate", "dtype": "float32"},
        "trainer": {"precision": "32-true"},
    }
    model.save(folder)
    save_steering(model, folder)
    of_run = {"low-rank": "head", "all": "adapter"}.get(mode, mode)
    write_steering(folder, config, steering_of(model).groups, of_run, learned=describe(model))
    return folder


def steering_of(model: RewardNetwork) -> Steering:
    """It has one."""
    assert model.steering is not None
    return model.steering


def move(steering: Steering, seed: int = 3) -> None:
    """Random weights, so large that every group gets clearly other rewards."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in steering.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)


def texts(model: RewardNetwork) -> Encoded:
    """Five texts of unequal length."""
    return model.formatter.encode(PROMPTS, RESPONSES)


def rewards(model: RewardNetwork, row: int | list[int] | None, tokens: int = 8192) -> FloatArray:
    """Rewards of the five texts, under one group or each under its own."""
    encoded = texts(model)
    group = None if row is None else np.broadcast_to(np.array(row, dtype=np.int64), len(encoded)).copy()
    return score_encoded(model, encoded, group=group, batch_tokens=tokens)


def steered_pairs(model: RewardNetwork, *, comparisons: int = 12, seed: int = 0) -> PairSet:
    """Random comparisons whose groups are told to the steering: the comparisons take the three groups in turn."""
    pairs = make_pair_set(model, comparisons=comparisons, seed=seed, groups=len(GROUPS))
    return replace(pairs, steer=pairs.comparison % len(GROUPS))
