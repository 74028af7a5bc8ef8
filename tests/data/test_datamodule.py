"""The data module: what each process sees, where a resumed epoch starts, and how many steps a training has."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pair_sets import PAD, encoded_texts, pair_set, texts_of

from scpo.data.datamodule import PairSet, PreferenceData

TRAIN = pair_set([4, 2, 3, 2, 2, 4, 1, 2, 2, 3] * 4, seed=1)
VAL = pair_set([2, 3, 2, 4, 2, 2, 2], seed=2)


def module(train: PairSet = TRAIN, val: PairSet | None = VAL, **settings: Any) -> PreferenceData:
    return PreferenceData(train, val, pad_id=PAD, **{"pairs_per_step": 8, "batch_tokens": 200, **settings})


def on(data: PreferenceData, rank: int = 0, world: int = 1, epoch: int = 0, step: int = 0) -> PreferenceData:
    """The module as a trainer of that process would hold it."""
    data.trainer = SimpleNamespace(current_epoch=epoch, global_step=step, global_rank=rank, world_size=world)  # type: ignore[assignment]
    return data


def pairs_of(loader: Any) -> list[list[int]]:
    """Per step, the pairs of all its chunks."""
    return [[p for chunk in step for p in chunk["pair"].tolist()] for step in loader]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_training_pair_once_per_epoch_over_all_ranks(world: int) -> None:
    ranks = [pairs_of(on(module(), rank, world).train_dataloader()) for rank in range(world)]
    assert len({len(steps) for steps in ranks}) == 1  # PITFALLS 57: no rank waits for another
    assert sorted(p for steps in ranks for step in steps for p in step) == list(range(len(TRAIN.pairs)))
    # A step holds the same pairs however many processes share it.
    alone = pairs_of(on(module()).train_dataloader())
    for i, step in enumerate(alone):
        assert sorted(step) == sorted(p for steps in ranks for p in steps[i])


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_every_validation_pair_once_over_all_ranks_in_equal_numbers_of_batches(world: int) -> None:
    """PITFALLS 56, 57."""
    ranks = [pairs_of(on(module(batch_tokens=100), rank, world).val_dataloader()) for rank in range(world)]
    assert sorted(p for steps in ranks for step in steps for p in step) == list(range(len(VAL.pairs)))
    assert len({len(steps) for steps in ranks}) == 1


def test_without_validation_data_there_is_no_loader() -> None:
    assert on(module(val=None)).val_dataloader() == []
    # Without a trainer (library use) all pairs are this process's.
    assert sorted(p for s in pairs_of(module().val_dataloader()) for p in s) == list(range(len(VAL.pairs)))


def test_an_epoch_has_its_own_plan_and_always_the_same() -> None:
    starts = (0, len(module().steps_of_epoch(0)))
    first, again, second = (pairs_of(on(module(), epoch=e, step=starts[e]).train_dataloader()) for e in (0, 0, 1))
    assert first == again
    assert {frozenset(step) for step in first} != {frozenset(step) for step in second}
    assert sorted(p for step in second for p in step) == list(range(len(TRAIN.pairs)))
    assert first != pairs_of(on(module(seed=1)).train_dataloader())


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_resumed_epoch_goes_on_where_it_stopped(epoch: int) -> None:
    """PITFALLS 66: no step is repeated or left out, and the loader still counts the whole epoch."""
    before = sum(len(module().steps_of_epoch(e)) for e in range(epoch))
    whole = pairs_of(on(module(), epoch=epoch, step=before).train_dataloader())
    loader = on(module(), epoch=epoch, step=before + 5).train_dataloader()
    assert pairs_of(loader) == whole[5:]
    assert len(loader) == len(whole)
    assert pairs_of(on(module(), epoch=epoch, step=before + len(whole)).train_dataloader()) == []


def test_workers_change_nothing() -> None:
    alone = pairs_of(on(module()).train_dataloader())
    assert pairs_of(on(module(num_workers=1)).train_dataloader()) == alone


def test_a_step_encodes_a_candidate_once() -> None:
    for step in on(module()).train_dataloader():
        rows = Counter(text for chunk in step for text in texts_of(chunk["inputs"]))
        pairs = [p for chunk in step for p in chunk["pair"].tolist()]
        assert max(rows.values()) == 1
        assert set(rows) == set(TRAIN.pairs.chosen[pairs].tolist()) | set(TRAIN.pairs.rejected[pairs].tolist())
        assert all(chunk["inputs"]["input_ids"].numel() <= 200 for chunk in step)


def test_the_fixed_number_and_the_number_of_steps() -> None:
    data = module()
    lengths = [len(data.steps_of_epoch(e)) for e in range(4)]
    assert data.mean_pairs_per_step() == pytest.approx(len(TRAIN.pairs) / lengths[0])
    assert data.mean_pairs_per_step() >= 8 * (lengths[0] - 1) / lengths[0]
    assert data.total_steps(max_epochs=4, max_steps=-1) == sum(lengths)
    assert data.total_steps(max_epochs=4, max_steps=10**6) == sum(lengths)
    assert data.total_steps(max_epochs=4, max_steps=5) == 5
    assert data.total_steps(max_epochs=-1, max_steps=17) == 17
    assert data.total_steps(max_epochs=0, max_steps=17) == 0


def test_a_pair_is_named_by_its_candidates() -> None:
    pair = 3
    expected = f"c{TRAIN.pairs.chosen[pair]} over c{TRAIN.pairs.rejected[pair]}"
    assert TRAIN.describe(pair) == expected
    assert np.unique(TRAIN.candidate_id).size == len(TRAIN.encoded)


# ---- group dropout

STEERED = replace(pair_set([2] * 1000, seed=3, longest=5), steer=np.arange(2000) // 2 % 3)


def told(loader: Any) -> dict[int, int]:
    """Each text's group, as all steps tell it."""
    found: dict[int, int] = {}
    for step in loader:
        for chunk in step:
            found.update(zip(texts_of(chunk["inputs"]), chunk["inputs"]["group"].tolist(), strict=True))
    return found


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_a_share_of_the_comparisons_is_trained_without_its_group(p: float) -> None:
    """Near p (five deviations), whole comparisons, and another share of them in each epoch."""
    n = len(STEERED.grouped())
    data = module(STEERED, None, group_dropout=p)
    first, second = data.unnamed(0), data.unnamed(1)
    assert first is not None
    assert second is not None
    assert abs(first.mean() - p) < 5 * (p * (1 - p) / n) ** 0.5
    assert 0 < (first != second).mean() < 1
    groups = told(on(data).train_dataloader())
    comparisons = STEERED.grouped()
    assert STEERED.steer is not None
    for position, candidates in enumerate(comparisons.candidates):
        expected = [-1] * len(candidates) if first[position] else STEERED.steer[candidates].tolist()
        assert [groups[int(c)] for c in candidates] == expected


def test_dropout_is_the_same_after_a_resume_on_any_process_and_differs_by_seed() -> None:
    data = module(STEERED, None, group_dropout=0.3)
    whole = told(on(data).train_dataloader())
    again = told(on(module(STEERED, None, group_dropout=0.3), step=100).train_dataloader())
    assert 0 < len(again) < len(whole)
    assert again.items() <= whole.items()
    ranks = [told(on(module(STEERED, None, group_dropout=0.3), rank, 3).train_dataloader()) for rank in range(3)]
    assert {text: group for rank in ranks for text, group in rank.items()} == whole
    other = told(on(module(STEERED, None, group_dropout=0.3, seed=1)).train_dataloader())
    assert other != whole
    # The draw is no part of the plan: dropout changes neither order nor steps.
    assert pairs_of(on(data).train_dataloader()) == pairs_of(on(module(STEERED, None)).train_dataloader())
    # Which comparisons are dropped does not follow from where they stand in the plan.
    first_steps = data.steps_of_epoch(0)[: len(data.steps_of_epoch(0)) // 2]
    silent = data.unnamed(0)
    assert silent is not None
    assert abs(silent[np.concatenate(first_steps)].mean() - 0.3) < 0.12


def test_without_dropout_the_batches_are_those_of_before() -> None:
    """And a training set that knows no groups is never changed."""
    assert module(STEERED, None).unnamed(0) is None
    assert module(group_dropout=0.5).unnamed(0) is None
    assert STEERED.steer is not None
    assert all(
        group == STEERED.steer[text] for text, group in told(on(module(STEERED, None)).train_dataloader()).items()
    )
    for step in on(module(group_dropout=0.5)).train_dataloader():
        assert all("group" not in chunk["inputs"] for chunk in step)
        assert all(text < len(TRAIN.encoded) for chunk in step for text in texts_of(chunk["inputs"]))


def test_validation_never_drops_a_group() -> None:
    data = on(module(TRAIN, STEERED, group_dropout=0.9))
    groups = told(data.val_dataloader())
    assert STEERED.steer is not None
    assert groups == {text: STEERED.steer[text] for text in groups}
    assert groups


def test_a_text_that_names_its_group_is_taken_without_the_name() -> None:
    """From the second half of the texts, for whole comparisons; in a validation never."""
    double = replace(TRAIN, encoded=TRAIN.encoded.joined(encoded_texts([1] * len(TRAIN.encoded))), has_unnamed=True)
    data = on(module(double, double, group_dropout=0.5))
    silent = data.unnamed(0)
    assert silent is not None
    comparisons = double.grouped().candidates

    def lengths(loader: Any) -> dict[int, int]:
        inputs = [chunk["inputs"] for step in loader for chunk in step]
        return {t: int(n) for i in inputs for t, n in zip(texts_of(i), i["attention_mask"].sum(dim=1), strict=True)}

    short = {int(c) for candidates, drop in zip(comparisons, silent, strict=True) if drop for c in candidates}
    used = {int(c) for candidates in comparisons for c in candidates}
    assert 0 < len(short) < len(used)
    whole = {text: int(TRAIN.encoded.lengths[text]) for text in used}
    assert lengths(data.train_dataloader()) == {text: 1 if text in short else n for text, n in whole.items()}
    assert lengths(data.val_dataloader()) == whole
