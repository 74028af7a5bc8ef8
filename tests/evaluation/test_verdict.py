from __future__ import annotations

from typing import Any

import pytest

from scpo.evaluation.verdict import verdict


def check(
    ci: list[float] | None, changes: float | None, shift: float | None, *, enough: int = 3, conditions: int = 3
) -> dict[str, Any]:
    """A check whose numbers over all groups are those over the groups with enough data."""
    size = {"n_groups": enough, "n_pairs": 1234, "n_clusters": 56, "n_comparisons": 1}
    value = None if ci is None else (ci[0] + ci[1]) / 2
    numbers = {
        "advantage": {"value": value, "ci": ci, "own": 0.64, "other": 0.6, **size},
        "best_changes": {"value": changes, "ci": None, **size},
        "reward_shift": {"value": shift, "ci": None, **size},
    }
    return {"conditions": list("ABC"[:conditions]), "sufficient_only": numbers, **numbers}


@pytest.mark.parametrize(
    ("ci", "changes", "shift", "word"),
    [
        ([0.01, 0.07], 0.2, 0.2, "follows"),
        ([0.01, 0.07], 0.0, 0.0, "follows"),  # serves the group better, however little moves
        ([0.0, 0.07], 0.2, 0.2, "undecided"),  # touches 0
        ([-0.01, 0.07], 0.2, 0.2, "undecided"),
        ([-0.01, 0.07], 0.009, 0.2, "ignores"),
        ([-0.01, 0.07], 0.2, 0.009, "ignores"),
        ([-0.01, 0.07], 0.01, 0.01, "undecided"),
        ([-0.07, -0.01], 0.2, 0.2, "undecided"),
        (None, 0.2, 0.2, "undecided"),
        (None, 0.0, None, "ignores"),
        (None, None, None, "undecided"),
    ],
)
def test_the_word(ci: list[float] | None, changes: float | None, shift: float | None, word: str) -> None:
    assert verdict(check(ci, changes, shift))[0] == word


def test_the_sentences() -> None:
    follows = verdict(check([0.01, 0.07], 0.2, 0.2))[1]
    assert follows == (
        "The model follows its group: told the right group it ranks 64.0 % of that group's pairs as the annotators did, told "
        "another group 60.0 %, a difference of +4.0 points, 95 % interval [1.0, 7.0] (3 groups, 1,234 pairs, 56 clusters)."
    )
    assert verdict(check([-0.01, 0.01], 0.005, 0.002))[1] == (
        "The model ignores its group: when only the group is swapped, the best candidate changes in 0.5 % of 1 comparison and "
        "rewards move by 0.2 % of their spread inside a comparison (56 clusters)."
    )
    assert "not distinguishable from noise" in verdict(check([-0.01, 0.07], 0.2, 0.2))[1]
    assert "the wrong way" in verdict(check([-0.07, -0.01], 0.2, 0.2))[1]
    assert "too little data for an interval" in verdict(check(None, 0.2, 0.2))[1]


def test_without_a_group_with_enough_data_only_rewards_that_stand_still_speak() -> None:
    assert verdict(check([0.01, 0.07], 0.0, 0.5, enough=0))[0] == "undecided"
    assert "no group has enough data" in verdict(check([0.01, 0.07], 0.0, 0.5, enough=0))[1]
    assert verdict(check([0.01, 0.07], 0.0, 0.0, enough=0))[0] == "ignores"
    assert "one group only" in verdict(check(None, None, None, conditions=1))[1]
