"""The steering check in one word and one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scpo.evaluation.formats import percent, plural, points, size_words, span

FOLLOWS, IGNORES, UNDECIDED = "follows", "ignores", "undecided"

STILL = 0.01
"""Below this share of changed best candidates, or this share of the spread of rewards, a model does not react."""


def verdict(check: Mapping[str, Any]) -> tuple[str, str]:
    """The word and the sentence, from a check's numbers over the groups with enough data.

    `follows`: the interval of the advantage is above 0. `ignores`: it is not, and hardly a best candidate changes or hardly
    a reward moves when the group is swapped. `undecided`: everything else. Without a group with enough data only rewards
    that do not move say something: a few comparisons show that they stand still, not how often the best one changes.
    """
    firm = check["sufficient_only"]
    enough = firm["advantage"]["n_groups"] > 0
    used = firm if enough else check
    advantage, changes, shift = used["advantage"], used["best_changes"], used["reward_shift"]
    low, high = advantage["ci"] or (None, None)
    if enough and low is not None and low > 0:
        return FOLLOWS, f"The model follows its group: {_better(advantage)}."
    still = shift["value"] is not None and shift["value"] < STILL
    if still or (enough and changes["value"] is not None and changes["value"] < STILL):
        return IGNORES, f"The model ignores its group: {_moves(changes, shift)}."
    if len(check["conditions"]) < 2:
        return UNDECIDED, "It cannot be said whether the model follows its group: it was told one group only."
    if not enough:
        n = {key: check["advantage"][key] for key in ("n_pairs", "n_clusters")}
        return UNDECIDED, (
            "It cannot be said whether the model follows its group: no group has enough data that was scored under every "
            f"group ({size_words(n)} in all)."
        )
    if high is not None and high < 0:
        return UNDECIDED, (
            f"The model moves with its group, but the wrong way: {_better(advantage)}; {_moves(changes, shift)}."
        )
    return UNDECIDED, (
        f"The model moves with its group, but it is not clear that it serves the group better: {_better(advantage)}, not "
        f"distinguishable from noise; {_moves(changes, shift)}."
    )


def _better(advantage: Mapping[str, Any]) -> str:
    ci = f", 95 % interval {span(advantage['ci'])}" if advantage["ci"] else ", too little data for an interval"
    return (
        f"told the right group it ranks {percent(advantage['own'])} % of that group's pairs as the annotators did, told "
        f"another group {percent(advantage['other'])} %, a difference of {points(advantage['value'])} points{ci} "
        f"({plural(advantage['n_groups'], 'group')}, {size_words(advantage)})"
    )


def _moves(changes: Mapping[str, Any], shift: Mapping[str, Any]) -> str:
    moved = "–" if shift["value"] is None else f"{100 * shift['value']:.1f} %"
    return (
        f"when only the group is swapped, the best candidate changes in {percent(changes['value'])} % of "
        f"{plural(changes['n_comparisons'], 'comparison')} and rewards move by {moved} of their spread inside a comparison "
        f"({plural(changes['n_clusters'], 'cluster')})"
    )
