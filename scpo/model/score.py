"""Scoring: rewards of many texts in eval mode, batched by length under a token budget, on one process or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from scpo.conditioning import group_rows
from scpo.data.batching import collate, scoring_batches
from scpo.data.encode import Encoded, Turn
from scpo.errors import UserError
from scpo.model.reward import RewardNetwork

FloatArray = npt.NDArray[np.float32]
Progress = Callable[[int, int], None]


def score_encoded(
    model: RewardNetwork,
    encoded: Encoded,
    *,
    group: npt.NDArray[np.int64] | None = None,
    batch_tokens: int = 8192,
    progress: Progress | None = None,
    names: Sequence[str] | None = None,
    share: bool = True,
) -> FloatArray:
    """Rewards (n,) float32 of encoded texts; NaN for texts that the length policy dropped.

    Each process of a torch.distributed group takes every world-th batch and all end with all rewards. The model's mode is
    restored afterwards.

    Args:
        group: (n,) each text's row in the model's steering, -1 for no group; None: no text has a group.
        batch_tokens: most padded tokens of one forward pass.
        progress: called with (texts done, texts in all) on this process.
        names: of the texts, for messages.
        share: divide the texts among the processes of torch.distributed, which all have the same; False: each process scores
            its own.

    Raises:
        UserError: a reward that is not finite.
    """
    rank, world = _rank_and_world() if share else (0, 1)
    late = model.steering is not None and model.steering.options.late
    codes = encoded.codes()
    # Equal texts (of a model that is told the group before its features: with equal groups) are encoded once.
    key = codes if group is None or late else codes * (int(group.max(initial=-1)) + 2) + group + 1
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    batches = scoring_batches(encoded.lengths[first], batch_tokens)[rank::world]
    members = np.split(np.argsort(place, kind="stable"), np.cumsum(np.bincount(place))[:-1])
    rewards = torch.zeros(len(encoded), dtype=torch.float64)
    done, total = 0, sum(map(len, batches))
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for texts in batches:
                rows = np.concatenate([members[t] for t in texts])
                told = None if group is None else group[rows if late else first[texts]]
                inputs = collate(encoded, first[texts], model.pad_id, told)
                if len(rows) > len(texts):
                    repeats = [len(members[t]) for t in texts]
                    inputs["text"] = torch.from_numpy(np.repeat(np.arange(len(texts)), repeats))
                inputs = {k: v.to(model.device) for k, v in inputs.items()}
                rewards[torch.from_numpy(rows)] = model(**inputs).cpu().double()
                done += len(texts)
                if progress is not None:
                    progress(done, total)
    finally:
        model.train(training)
        if model.steering is not None:
            model.steering.steer(None)  # what calls the network itself next is steered by no batch of ours
    if world > 1:
        # Every entry is written by exactly one process, so the sum is exact.
        on_device = rewards.to(model.device) if torch.distributed.get_backend() == "nccl" else rewards
        torch.distributed.all_reduce(on_device)
        rewards = on_device.cpu()
    out = rewards.numpy().astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(out))
    if len(bad):
        first = names[bad[0]] if names is not None else f"text {bad[0]}"
        raise UserError(
            f"{model.origin or 'the model'}: {len(bad)} of {len(out)} rewards are not finite (first: {first}); "
            "load it in float32 or bfloat16 and check its weights"
        )
    out[encoded.lengths == 0] = np.nan
    return out


def score_texts(
    model: RewardNetwork,
    prompts: Sequence[str],
    responses: Sequence[str],
    histories: Sequence[Sequence[Turn]] | None = None,
    groups: Sequence[str | None] | None = None,
    *,
    batch_tokens: int = 8192,
    progress: Progress | None = None,
    share: bool = True,
) -> FloatArray:
    """Rewards (n,) float32 of n texts; equal texts with equal groups are scored once. See :func:`score_encoded`.

    Args:
        groups: each text's group or None; read in the text, or looked up in the model's steering where it has one.
    """
    n = len(prompts)
    histories = histories if histories is not None else [()] * n
    groups = groups if groups is not None else [None] * n
    places: dict[Any, int] = {}
    inverse = np.empty(n, dtype=np.int64)
    for i, (prompt, response, history, group) in enumerate(zip(prompts, responses, histories, groups, strict=True)):
        key = (prompt, response, tuple((t["role"], t["content"]) for t in history), group)
        inverse[i] = places.setdefault(key, len(places))
    firsts = np.unique(inverse, return_index=True)[1]
    told = [groups[i] for i in firsts]
    rows = None if model.steering is None else group_rows(model.steering.groups, told)
    encoded = model.formatter.encode(
        [prompts[i] for i in firsts],
        [responses[i] for i in firsts],
        [histories[i] for i in firsts],
        told if rows is None else None,
    )
    return score_encoded(model, encoded, group=rows, batch_tokens=batch_tokens, progress=progress, share=share)[inverse]


def _rank_and_world() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
