"""What conditioning costs: training throughput of each mode against `none`, on the same steps, in one process.

    python experiments/steering/speed.py MODEL DATA [--steps 12] [--rounds 5] [--threads 2]

MODEL is a starting model, DATA a table of comparisons. The modes take turns, round after round, since machines are noisy; the
ratio of a round is that of neighbours in time, and the median over the rounds is printed. `adapter, one group per chunk` is
the alternative to mixed batches: every forward pass holds the comparisons of one group only.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scpo.cli.hydra_app import conf_dir, sweep_dir
from scpo.data.batching import chunk_step
from scpo.data.datamodule import PairSet, PreferenceData
from scpo.losses import bradley_terry
from scpo.model.reward import RewardNetwork, load_model
from scpo.run.inputs import load_data
from scpo.run.parts import model_options, pair_set, prepare_inputs, steering_options

MODES = {
    "none": ("none",),
    "embedding": ("embedding",),
    "head": ("head",),
    "head, rank 8": ("head", "conditioning.head_rank=8"),
    "adapter": ("adapter",),
    "adapter, one group per chunk": ("adapter",),
}


def compose(*overrides: str) -> dict[str, Any]:
    """The resolved config of `scpo train` with these overrides."""
    import hydra
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("scpo_sweep_dir", sweep_dir, replace=True)
    with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
        config: Any = OmegaConf.to_container(hydra.compose("train", list(overrides)), resolve=True)
    return dict(config)


def prepared(model: Path, data: Path, mode: str, more: tuple[str, ...]) -> tuple[RewardNetwork, PairSet]:
    """A model of a mode and its training pairs."""
    config = compose(f"data.dir={data}", f"model.name_or_path={model}", "selection=full", f"conditioning={mode}", *more)
    inputs = prepare_inputs(config, load_data(config), model, None)
    network, _ = load_model(model, model_options(config))
    if mode != "none":
        network.add_steering(inputs.data.groups, steering_options(config))
    return network, pair_set(config, inputs.data, network, inputs.pairs, inputs.weight)[0]


def chunks_of(pairs: PairSet, network: RewardNetwork, steps: int, apart: bool) -> list[list[dict[str, Any]]]:
    """The first steps of training as chunks of tensors."""
    data = PreferenceData(pairs, None, pad_id=network.pad_id)
    comparisons = pairs.grouped()
    group = np.array([pairs.group[p[0]] for p in comparisons.pairs])
    plan = data.steps_of_epoch(0)[:steps]
    parts = [[step[group[step] == g] for g in np.unique(group[step])] if apart else [step] for step in plan]
    return [
        [pairs.chunk(c, comparisons, network.pad_id) for part in step for c in chunk_step(part, comparisons, 8192)]
        for step in parts
    ]


def seconds(network: RewardNetwork, steps: list[list[dict[str, Any]]]) -> float:
    """Time of the optimiser steps."""
    optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], lr=1e-6, fused=True)
    network.train()
    start = time.perf_counter()
    for chunks in steps:
        optimizer.zero_grad()
        for chunk in chunks:
            rewards = network(**chunk["inputs"])
            bradley_terry(rewards[chunk["chosen"]], rewards[chunk["rejected"]], chunk["weight"]).sum().backward()
        optimizer.step()
    return time.perf_counter() - start


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    ready = {}
    for name, (mode, *more) in MODES.items():
        network, pairs = prepared(args.model, args.data, mode, tuple(more))
        # The same work for all: as `none`, every candidate is encoded once per comparison.
        pairs = replace(pairs, late=False)
        ready[name] = (network, chunks_of(pairs, network, args.steps, apart="one group" in name))
    candidates = sum(len(c["inputs"]["input_ids"]) for step in ready["none"][1] for c in step)
    for network, steps in ready.values():
        seconds(network, steps[:2])
    rounds: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(args.rounds):
        for name, (network, steps) in ready.items():
            rounds[name].append(seconds(network, steps))
    print("| conditioning | candidates per second | cost against none |")
    print("|---|--:|--:|")
    for name, took in rounds.items():
        cost = statistics.median(t / base for t, base in zip(took, rounds["none"], strict=True)) - 1
        print(f"| {name} | {candidates / statistics.median(took):.0f} | {100 * cost:+.1f} % |")


if __name__ == "__main__":
    main()
