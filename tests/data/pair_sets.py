"""Pair sets without a tokenizer: text i is ``1000 * (i + 1) + position``, so that a batch shows whose tokens it holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from scpo.data.datamodule import PairSet
from scpo.data.encode import Encoded
from scpo.data.pairs import make_pairs

PAD = 7


def encoded_texts(lengths: Sequence[int], types: bool = False) -> Encoded:
    """Texts of these lengths; with ``types`` the second half of each is of type 1."""
    offsets = np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64))]).astype(np.int64)
    ids = [1000 * (i + 1) + p for i, n in enumerate(lengths) for p in range(n)]
    kinds = np.array([int(p >= n // 2) for n in lengths for p in range(n)], dtype=np.uint8) if types else None
    none = np.zeros(len(lengths), dtype=bool)
    return Encoded(np.array(ids, dtype=np.int32), kinds, offsets, none, none)


def pair_set(sizes: Sequence[int], seed: int = 0, longest: int = 40, ties: float = 0.1) -> PairSet:
    """Comparisons of these numbers of candidates, with random scores, lengths, weights and groups; some are ties."""
    rng = np.random.default_rng(seed)
    comparison = np.repeat(np.arange(len(sizes)), sizes).astype(np.int64)
    scores = rng.integers(0, 100, len(comparison)).astype(float)
    scores[rng.random(len(comparison)) < ties] = 50.0
    pairs = make_pairs(comparison, scores)
    group = rng.integers(0, 3, len(sizes))[comparison[pairs.chosen]]
    return PairSet(
        encoded=encoded_texts(rng.integers(1, longest + 1, len(comparison)).tolist()),
        candidate_id=np.array([f"c{i}" for i in range(len(comparison))], dtype=object),
        comparison=comparison,
        pairs=pairs,
        weight=rng.uniform(0.1, 3.0, len(pairs)),
        group=group.astype(np.int64),
    )


def texts_of(inputs: dict[str, torch.Tensor]) -> list[int]:
    """Which text each row of a batch is."""
    return (inputs["input_ids"][:, 0] // 1000 - 1).tolist()
