"""The Lightning data module: planned optimiser steps for training, whole comparisons for validation, on any number of ranks.

It deals its own share to each process, so the trainer must run with ``use_distributed_sampler=False``; each epoch has a plan
of its own, so also with ``reload_dataloaders_every_n_epochs=1``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import lightning as L
import numpy as np
import numpy.typing as npt
from torch.utils.data import DataLoader, Dataset

from scpo.data.batching import Comparisons, IntArray, chunk_step, group_pairs, pair_batch, plan_epoch, rank_share
from scpo.data.encode import Encoded
from scpo.data.pairs import Pairs

Chunk = dict[str, Any]

DROPOUT_STREAM = 1
"""Tells the draws of group dropout from those of the plan, which has the same seed and epoch."""


@dataclass(frozen=True)
class PairSet:
    """Pairs ready for a model.

    Attributes:
        encoded: token ids of the candidates.
        candidate_id: (n_candidates,) ids for messages.
        comparison: (n_candidates,) codes.
        pairs: positions into `encoded`.
        weight: (n_pairs,) selection weight times balance.
        group: (n_pairs,) group codes.
        steer: (n_candidates,) rows of the candidates' groups in the model's steering; None for a model that learns none.
        has_unnamed: `encoded` holds every text twice, with its group named and, after all of those, without.
        late: the group enters the model only after the network's features.
        block: (n_candidates,) codes; comparisons of one code are planned together. None: each by itself.
    """

    encoded: Encoded
    candidate_id: npt.NDArray[np.object_]
    comparison: IntArray
    pairs: Pairs
    weight: npt.NDArray[np.float64]
    group: IntArray
    steer: IntArray | None = None
    has_unnamed: bool = False
    late: bool = False
    block: IntArray | None = None

    @functools.cached_property
    def codes(self) -> IntArray:
        """(n_texts,) equal for equal texts of `encoded`; see :meth:`scpo.data.encode.Encoded.codes`."""
        return self.encoded.codes()

    def blocks(self, comparisons: Comparisons) -> IntArray | None:
        """(n_comparisons,) the block of each comparison."""
        if self.block is None or not len(comparisons):
            return None
        return self.block[[candidates[0] for candidates in comparisons.candidates]]

    def once(self) -> IntArray:
        """(n_candidates,) equal for candidates that are encoded once when they stand in one batch."""
        codes = self.codes[: len(self.candidate_id)]
        return codes if self.steer is None or self.late else codes * (int(self.steer.max()) + 2) + self.steer + 1

    def grouped(self) -> Comparisons:
        """The pairs collected into comparisons."""
        return group_pairs(self.pairs, self.comparison, self.encoded.lengths)

    def chunk(
        self, chunk: IntArray, comparisons: Comparisons, pad_id: int, unnamed: npt.NDArray[np.bool_] | None = None
    ) -> Chunk:
        """One chunk of comparisons as tensors; see :func:`scpo.data.batching.pair_batch`."""
        return pair_batch(
            self.encoded,
            chunk,
            comparisons,
            self.pairs,
            self.weight,
            self.group,
            pad_id,
            self.steer,
            unnamed,
            self.codes,
            self.late,
        )

    def describe(self, pair: int) -> str:
        """``chosen over rejected`` by candidate ids."""
        return f"{self.candidate_id[self.pairs.chosen[pair]]} over {self.candidate_id[self.pairs.rejected[pair]]}"


class _Steps(Dataset[list[Chunk]]):
    """Item i is the list of chunks of step i on this rank; an empty list where the rank has nothing to do."""

    def __init__(
        self,
        pair_set: PairSet,
        comparisons: Comparisons,
        steps: list[list[IntArray]],
        pad_id: int,
        unnamed: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        self.pair_set, self.comparisons, self.steps, self.pad_id = pair_set, comparisons, steps, pad_id
        self.unnamed = unnamed

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, i: int) -> list[Chunk]:
        return [self.pair_set.chunk(chunk, self.comparisons, self.pad_id, self.unnamed) for chunk in self.steps[i]]


class _From:
    """A sampler over steps start..n-1 that says it has n: Lightning counts the steps of a resumed epoch from its beginning."""

    def __init__(self, start: int, n: int) -> None:
        self.start, self.n = start, n

    def __iter__(self) -> Any:
        return iter(range(self.start, self.n))

    def __len__(self) -> int:
        return self.n


class PreferenceData(L.LightningDataModule):
    """Training and validation pairs.

    Args:
        train, val: the pairs; `val` may be None.
        pad_id: token id that fills batches.
        pairs_per_step: whole comparisons are added to an optimiser step, over all processes, until it holds as many pairs.
        batch_tokens: most padded tokens of one forward pass.
        seed: of the order; epoch e always has the same plan.
        group_dropout: share of the comparisons that are trained without their group, drawn anew in each epoch; needs a
            `train` with `steer` or `has_unnamed`.
        num_workers: of the data loader; the order does not depend on it.
    """

    def __init__(
        self,
        train: PairSet,
        val: PairSet | None,
        *,
        pad_id: int,
        pairs_per_step: int = 8,
        batch_tokens: int = 8192,
        seed: int = 0,
        group_dropout: float = 0.0,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        self.train, self.val = train, val
        self.pad_id, self.pairs_per_step, self.batch_tokens = pad_id, pairs_per_step, batch_tokens
        self.seed, self.num_workers = seed, num_workers
        self.group_dropout = group_dropout
        self._train = train.grouped()
        self._val = val.grouped() if val is not None else None
        self._counted: dict[int, int] = {}

    def steps_of_epoch(self, epoch: int) -> list[IntArray]:
        """The plan of an epoch: one array of comparison positions per optimiser step."""
        return plan_epoch(self._train, self.pairs_per_step, self.seed, epoch, self.train.blocks(self._train))

    def unnamed(self, epoch: int) -> npt.NDArray[np.bool_] | None:
        """(n_comparisons,) the comparisons whose group is not named in an epoch; None without group dropout."""
        if self.group_dropout <= 0 or (self.train.steer is None and not self.train.has_unnamed):
            return None
        draws = np.random.default_rng([self.seed, epoch, DROPOUT_STREAM]).random(len(self._train))
        return np.asarray(draws < self.group_dropout)

    def _steps_in(self, epoch: int) -> int:
        if epoch not in self._counted:
            self._counted[epoch] = len(self.steps_of_epoch(epoch))
        return self._counted[epoch]

    def mean_pairs_per_step(self) -> float:
        """Pairs per optimiser step in the first epoch: the fixed number that a step's loss is divided by."""
        return len(self.train.pairs) / len(self.steps_of_epoch(0))

    def total_steps(self, max_epochs: int, max_steps: int) -> int:
        """Optimiser steps of a training, from its caps (-1 is no cap; one of them must be set)."""
        if max_epochs < 0:
            return max_steps
        steps = 0
        for epoch in range(max_epochs):
            if 0 <= max_steps <= steps:
                break
            steps += self._steps_in(epoch)
        return steps if max_steps < 0 else min(steps, max_steps)

    def train_dataloader(self) -> DataLoader[Any]:
        """The steps of the trainer's current epoch, from where a resumed training stands."""
        assert self.trainer is not None
        epoch = self.trainer.current_epoch
        before = sum(self._steps_in(e) for e in range(epoch))
        plan = self.steps_of_epoch(epoch)
        rank, world = self.trainer.global_rank, self.trainer.world_size
        shares = (rank_share(step, self._train, rank, world) for step in plan)
        once = self.train.once()
        steps = [chunk_step(share, self._train, self.batch_tokens, once) for share in shares]
        start = min(max(self.trainer.global_step - before, 0), len(steps))
        return self._loader(_Steps(self.train, self._train, steps, self.pad_id, self.unnamed(epoch)), start)

    def val_dataloader(self) -> DataLoader[Any] | list[Any]:
        """All validation pairs, each once over all ranks, in as many batches on every rank."""
        if self.val is None or self._val is None:
            return []
        rank, world = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        chunks = chunk_step(np.arange(len(self._val)), self._val, self.batch_tokens, self.val.once())
        mine = [[chunk] for chunk in chunks[rank::world]]
        empty: list[IntArray] = []
        mine += [empty] * (-(-len(chunks) // world) - len(mine))
        return self._loader(_Steps(self.val, self._val, mine, self.pad_id), 0)

    def _loader(self, steps: _Steps, start: int) -> DataLoader[Any]:
        return DataLoader(
            steps,
            batch_size=None,
            sampler=_From(start, len(steps)),
            num_workers=self.num_workers,  # type: ignore[arg-type]
        )
