"""Batches: optimiser steps of whole comparisons, bucketed by length; token-bounded chunks; batches for scoring.

A comparison's candidates are encoded once however many pairs they form: a batch holds sequences, and pairs point into it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from scpo.data.encode import Encoded
from scpo.data.pairs import Pairs

IntArray = npt.NDArray[np.int64]

BUCKET_STEPS = 50
"""Steps whose comparisons are sorted by length together: wide enough for little padding, narrow enough to stay shuffled."""


@dataclass(frozen=True)
class Comparisons:
    """Training comparisons as index arrays over encoded texts.

    Attributes:
        candidates: per comparison the positions of its encoded candidates.
        pairs: per comparison the positions of its pairs in `Pairs`.
        length: (n,) tokens of the longest candidate.
        n_pairs: (n,) pairs of each comparison, at least 1.
    """

    candidates: list[IntArray]
    pairs: list[IntArray]
    length: IntArray
    n_pairs: IntArray

    def __len__(self) -> int:
        return len(self.candidates)


def group_pairs(pairs: Pairs, comparison: IntArray, lengths: IntArray) -> Comparisons:
    """Collect pairs into comparisons; candidates that form no pair are not encoded.

    Args:
        pairs: positions into the n encoded texts.
        comparison: (n,) code of each text's comparison.
        lengths: (n,) tokens of each text.
    """
    if not len(pairs):
        empty = np.zeros(0, dtype=np.int64)
        return Comparisons([], [], empty, empty)
    code = comparison[pairs.chosen]
    order = np.argsort(code, kind="stable").astype(np.int64)
    _, starts = np.unique(code[order], return_index=True)
    members = np.split(order, starts[1:])
    candidates = [np.unique(np.concatenate([pairs.chosen[m], pairs.rejected[m]])) for m in members]
    longest = np.array([lengths[c].max() for c in candidates], dtype=np.int64)
    return Comparisons(candidates, members, longest, np.array([len(m) for m in members], dtype=np.int64))


def plan_epoch(
    comparisons: Comparisons, pairs_per_step: int, seed: int, epoch: int, block: IntArray | None = None
) -> list[IntArray]:
    """The optimiser steps of one epoch: arrays of comparison positions; every comparison stands in exactly one.

    Comparisons are shuffled, sorted by length inside buckets of about `BUCKET_STEPS` steps, and added to a step until it
    holds at least `pairs_per_step` pairs; then the steps are shuffled. The same seed and epoch give the same plan.

    Args:
        block: (n_comparisons,) codes; comparisons of one code are shuffled as one, so that they stand together and the
            texts that they share are encoded once.
    """
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(comparisons))
    if block is not None and len(order):
        order = order[np.argsort(rng.permutation(int(block.max()) + 1)[block[order]], kind="stable")]
    filled = np.cumsum(comparisons.n_pairs[order])
    bucket = (filled - 1) // (pairs_per_step * BUCKET_STEPS)
    # Ties of length keep their random order, since lexsort is stable; so do the comparisons of a block.
    order = order[np.lexsort((comparisons.length[order], bucket))]
    steps: list[IntArray] = []
    start, held = 0, 0
    for i, size in enumerate(comparisons.n_pairs[order], start=1):
        held += int(size)
        if held >= pairs_per_step or i == len(order):
            steps.append(order[start:i])
            start, held = i, 0
    return [steps[i] for i in rng.permutation(len(steps))]


def rank_share(step: IntArray, comparisons: Comparisons, rank: int, world: int) -> IntArray:
    """The comparisons of a step that one of `world` processes takes; longest first and dealt in turn, may be empty."""
    if world == 1:
        return step
    order = np.argsort(-comparisons.length[step], kind="stable")
    return step[order[rank::world]]


def chunk_step(step: IntArray, comparisons: Comparisons, tokens: int, code: IntArray | None = None) -> list[IntArray]:
    """Split a step into chunks of whole comparisons of at most `tokens` padded tokens (one comparison may exceed it).

    Args:
        code: (n_candidates,) equal for candidates that are encoded once; None: each is encoded.
    """
    order = step[np.argsort(comparisons.length[step], kind="stable")]
    chunks: list[list[int]] = []
    held: set[int] = set()
    for position in order:
        candidates = comparisons.candidates[position]
        size = set((candidates if code is None else code[candidates]).tolist())
        if chunks and len(held | size) * int(comparisons.length[position]) <= tokens:
            chunks[-1].append(int(position))
            held |= size
        else:
            chunks.append([int(position)])
            held = size
    return [np.array(chunk, dtype=np.int64) for chunk in chunks]


def scoring_batches(lengths: IntArray, tokens: int) -> list[IntArray]:
    """Positions of texts in batches of at most `tokens` padded tokens, longest first; texts without tokens are left out."""
    order = np.argsort(-lengths, kind="stable")
    order = order[lengths[order] > 0]
    batches: list[IntArray] = []
    start = 0
    while start < len(order):
        rows = max(1, tokens // int(lengths[order[start]]))
        batches.append(order[start : start + rows])
        start += rows
    return batches


def collate(encoded: Encoded, rows: IntArray, pad_id: int, group: IntArray | None = None) -> dict[str, torch.Tensor]:
    """Texts as one right-padded batch: input_ids, attention_mask[, token_type_ids], each (len(rows), longest).

    With `group`, (len(rows),) rows of the texts' groups in the model's steering, these are added as `group`.

    Padding is on the right whatever the tokenizer's setting, so that absolute positions and pooling cannot differ.
    """
    lengths = encoded.lengths[rows]
    width = int(lengths.max()) if len(rows) else 0
    mask = np.arange(width) < lengths[:, None]
    source = (encoded.offsets[rows][:, None] + np.arange(width))[mask]
    ids = np.full((len(rows), width), pad_id, dtype=np.int64)
    ids[mask] = encoded.ids[source]
    batch = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask.astype(np.int64))}
    if encoded.types is not None:
        types = np.zeros((len(rows), width), dtype=np.int64)
        types[mask] = encoded.types[source]
        batch["token_type_ids"] = torch.from_numpy(types)
    if group is not None:
        batch["group"] = torch.from_numpy(group)
    return batch


def collate_once(
    encoded: Encoded, rows: IntArray, pad_id: int, group: IntArray | None, codes: IntArray | None, late: bool
) -> dict[str, torch.Tensor]:
    """As :func:`collate`, but texts with equal `codes` (and, unless `late`, equal groups) stand in the batch once.

    Where some do, `text` (len(rows),) gives each row's place in the batch; `group` is then per row if `late`, else per place.
    """
    if codes is None:
        return collate(encoded, rows, pad_id, group)
    key = codes[rows] if group is None or late else codes[rows] * (int(group.max()) + 2) + group + 1
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    if len(first) == len(rows):
        return collate(encoded, rows, pad_id, group)
    told = group if group is None or late else group[first]
    batch = collate(encoded, rows[first], pad_id, told)
    return {**batch, "text": torch.from_numpy(place.astype(np.int64))}


def pair_batch(
    encoded: Encoded,
    chunk: IntArray,
    comparisons: Comparisons,
    pairs: Pairs,
    weight: npt.NDArray[np.float64],
    group: IntArray,
    pad_id: int,
    steer: IntArray | None = None,
    unnamed: npt.NDArray[np.bool_] | None = None,
    codes: IntArray | None = None,
    late: bool = False,
) -> dict[str, Any]:
    """One chunk as tensors.

    Args:
        weight: (n_pairs,) weight of every pair: selection times balance.
        group: (n_pairs,) group code of every pair.
        steer: (n_candidates,) row of each candidate's group in the model's steering, for a model that learns groups.
        unnamed: (n_comparisons,) True for the comparisons whose group is not named this time: their rows become -1, or,
            for a model that reads the group in the text, their texts are taken from the second half of `encoded`.
        codes: (n_texts,) equal for equal texts of `encoded`: such texts stand in the batch once.
        late: the group enters only after the network's features, so equal texts of different groups are one, too.

    Returns:
        `inputs` (see :func:`collate`), `chosen` and `rejected` (rows of the batch), `weight`, `gap` (float32), `group`, and
        `pair` (positions in `pairs`, for messages), each (n_pairs_of_chunk,).
    """
    rows = np.concatenate([comparisons.candidates[c] for c in chunk])
    inside = np.concatenate([comparisons.pairs[c] for c in chunk])
    order = np.argsort(rows)
    where = order[np.searchsorted(rows[order], np.stack([pairs.chosen[inside], pairs.rejected[inside]]))]
    texts, told = rows, None if steer is None else steer[rows]
    if unnamed is not None:
        silent = np.concatenate([np.full(len(comparisons.candidates[c]), unnamed[c]) for c in chunk])
        if told is not None:
            told = np.where(silent, -1, told)
        else:
            texts = rows + np.where(silent, len(encoded) // 2, 0)
    return {
        "inputs": collate_once(encoded, texts, pad_id, told, codes, late),
        "chosen": torch.from_numpy(where[0].astype(np.int64)),
        "rejected": torch.from_numpy(where[1].astype(np.int64)),
        "weight": torch.from_numpy(weight[inside].astype(np.float32)),
        "gap": torch.from_numpy(pairs.gap[inside].astype(np.float32)),
        "group": torch.from_numpy(group[inside].astype(np.int64)),
        "pair": torch.from_numpy(inside),
    }
