from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from prediction_worlds import following_world, random_swaps, row, table, told

from scpo.errors import UserError
from scpo.evaluation.steering import steering_check
from scpo.evaluation.summary import summarise


def check(frame: pd.DataFrame, **more: Any) -> dict[str, Any]:
    result = steering_check(frame, **({"resamples": 200, "min_clusters": 1, "min_pairs": 1} | more))
    assert result is not None
    json.dumps(result, allow_nan=False)
    return result


def test_a_model_that_follows_by_hand() -> None:
    result = check(following_world(), resamples=2000)
    accuracy = {g: {h: cell["accuracy"] for h, cell in line.items()} for g, line in result["matrix"].items()}
    assert accuracy == {"A": {"A": 1.0, "B": 0.5}, "B": {"A": 0.0, "B": 1.0}}
    assert result["matrix"]["A"]["B"] == {"accuracy": 0.5, "n_pairs": 2, "n_clusters": 2, "insufficient": False}
    assert result["default_row"]["default"]["A"]["accuracy"] == 0.0  # a tie is wrong
    advantage = result["advantage"]
    assert advantage["value"] == 0.75  # the mean of 1 - 0 and 1 - 0.5
    assert advantage["ci"] == [0.5, 1.0]  # B's clusters, drawn twice: 0, 0.5 or 1
    assert (advantage["own"], advantage["other"]) == (1.0, 0.25)
    assert {k: advantage[k] for k in ("n_groups", "n_pairs", "n_clusters", "n_comparisons")} == {
        "n_groups": 2,
        "n_pairs": 4,
        "n_clusters": 4,
        "n_comparisons": 4,
    }
    assert result["advantage_over_default"]["value"] == 1.0
    assert result["best_changes"]["value"] == 0.75
    # A: rewards 1, 0 become 0, 1: squares 1 + 1 over 0.25 + 0.25, root 2. B: half of the comparisons do: root of 2.
    assert result["by_group"]["A"]["reward_shift"]["value"] == pytest.approx(2.0)
    assert result["by_group"]["B"]["reward_shift"]["value"] == pytest.approx(math.sqrt(2))
    assert result["reward_shift"]["value"] == pytest.approx(1 + math.sqrt(0.5))
    assert result["level_shift"]["value"] == 0.0
    assert result["by_group"]["B"]["advantage"] == {"value": 0.5, "ci": [0.0, 1.0]}
    assert result["by_group"]["B"]["others"] == 0.5
    assert result["verdict"] == "follows"
    assert result["sentence"].startswith("The model follows its group: told the right group it ranks 100.0 %")


def ignoring(level: float) -> pd.DataFrame:
    """Rewards of three groups that do not depend on the group told, but for a constant of the comparison."""
    rows = []
    for g, group in enumerate("ABC"):
        for i in range(4):
            rewards = [3.0, 1.0, 2.0]
            other = [r + level * (i + 1) for r in rewards]
            by = {told_: rewards if told_ == group else other for told_ in "ABC"}
            rows += told(group, f"{group}{i}", f"{group}{i}", [3, 2, 1 + g], by)
    return table(rows)


def test_a_model_that_ignores_its_group() -> None:
    result = check(ignoring(0.0))
    for name in ("advantage", "best_changes", "reward_shift", "level_shift"):
        assert (result[name]["value"], result[name]["ci"]) == (0.0, [0.0, 0.0])
    assert result["verdict"] == "ignores"
    assert "best candidate changes in 0.0 % of 12 comparisons" in result["sentence"]
    assert result["default_row"] is None
    assert result["advantage_over_default"] is None


def test_a_constant_moves_the_level_and_nothing_else() -> None:
    result = check(ignoring(0.5))
    assert result["best_changes"]["value"] == 0.0
    assert result["reward_shift"]["value"] == 0.0
    assert result["level_shift"]["value"] == pytest.approx(0.5 * (1 + 2 + 3 + 4) / 4)
    assert result["verdict"] == "ignores"
    assert check(ignoring(-0.5))["level_shift"]["value"] == pytest.approx(1.25)  # absolute


def plain_loops(frame: pd.DataFrame, min_gap: float) -> dict[str, dict[str, Any]]:
    """An independent implementation, comparison by comparison."""
    conditions = sorted({c for c in frame["conditioned_on"] if isinstance(c, str)})
    out = {}
    for group, part in frame.groupby("group"):
        right: dict[Any, list[bool]] = {}
        changes, squares, spreads, levels = [], [], [], []
        for _, comparison in part.groupby("comparison_id"):
            scores = comparison.drop_duplicates("candidate_id").set_index("candidate_id")["score"]
            by = {
                c: comparison[comparison["conditioned_on"].eq(c) if c else comparison["conditioned_on"].isna()]
                .set_index("candidate_id")["reward"]
                .reindex(scores.index)
                for c in [*conditions, None]
            }
            for a, b in itertools.permutations(scores.index, 2):
                if scores[a] - scores[b] > min_gap:
                    for c, rewards in by.items():
                        right.setdefault(c, []).append(bool(rewards[a] > rewards[b]))
            own, others = by[group], [by[c] for c in conditions if c != group]
            if len(scores) > 1:
                best = set(own.index[own == own.max()])
                changes.append(np.mean([set(o.index[o == o.max()]) != best for o in others]))
                squares.append(np.mean([((o - own - (o - own).mean()) ** 2).sum() for o in others]))
                spreads.append(((own - own.mean()) ** 2).sum())
                levels.append(np.mean([abs((o - own).mean()) for o in others]))
        out[str(group)] = {
            "accuracy": {c: np.mean(values) for c, values in right.items()},
            "n_pairs": len(right[group]),
            "n_comparisons": len(changes),
            "best_changes": np.mean(changes),
            "reward_shift": np.sqrt(np.sum(squares) / np.sum(spreads)),
            "level_shift": np.mean(levels),
        }
    return out


@pytest.mark.parametrize(("seed", "min_gap"), [(0, 0.0), (1, 0.0), (2, 1.0), (3, 0.0)])
def test_against_plain_loops(seed: int, min_gap: float) -> None:
    frame = random_swaps(seed)
    result, expected = check(frame, min_gap=min_gap), plain_loops(frame, min_gap)
    advantages, over_default = [], []
    for group, numbers in expected.items():
        found, accuracy = result["by_group"][group], numbers["accuracy"]
        for condition in ("G0", "G1", "G2"):
            assert result["matrix"][condition][group]["accuracy"] == pytest.approx(accuracy[condition])
        assert result["default_row"]["default"][group]["accuracy"] == pytest.approx(accuracy[None])
        others = np.mean([accuracy[c] for c in ("G0", "G1", "G2") if c != group])
        advantages.append(accuracy[group] - others)
        over_default.append(accuracy[group] - accuracy[None])
        assert found["advantage"]["value"] == pytest.approx(advantages[-1])
        assert found["n_pairs"] == numbers["n_pairs"]
        assert found["n_comparisons"] == numbers["n_comparisons"]
        for name in ("best_changes", "reward_shift", "level_shift"):
            assert found[name]["value"] == pytest.approx(numbers[name])
            assert result[name]["value"] == pytest.approx(np.mean([e[name] for e in expected.values()]))
    assert result["advantage"]["value"] == pytest.approx(np.mean(advantages))
    assert result["advantage_over_default"]["value"] == pytest.approx(np.mean(over_default))


def test_intervals_are_deterministic_and_do_not_depend_on_rows_or_other_groups() -> None:
    frame = random_swaps(0)
    first = check(frame, seed=3)
    shuffled = check(frame.sample(frac=1, random_state=1).reset_index(drop=True), seed=3)
    assert shuffled["advantage"] == first["advantage"]
    assert shuffled["matrix"] == first["matrix"]
    for name, group in first["by_group"].items():
        assert shuffled["by_group"][name]["reward_shift"]["ci"] == pytest.approx(group["reward_shift"]["ci"])
    # Other names of the candidates, sorted across comparisons: rewards must stay with their comparison.
    renamed = check(frame.assign(candidate_id=frame["candidate_id"].str[::-1]), seed=3)
    assert renamed["matrix"] == first["matrix"]
    assert renamed["best_changes"] == first["best_changes"]
    assert check(frame, seed=4)["advantage"]["ci"] != first["advantage"]["ci"]
    fewer = check(frame[frame["group"] != "G0"], seed=3)  # still told G0
    assert fewer["by_group"]["G1"] == first["by_group"]["G1"]


def test_equal_accuracies_differ_by_exactly_nothing() -> None:
    """Own 1 of 6 right, each of the six others 1 of 6: a mean of sixths must not come out above or below."""
    names = "ABCDEFG"
    rows = []
    for cluster in "uv":
        for i, name in enumerate(names[1:]):
            by = {told_: [1.0, 0.0] if told_ == name or (told_ == "A" and i == 0) else [0.0, 1.0] for told_ in names}
            rows += told("A", cluster, f"{cluster}{i}", [2, 1], by)
    result = check(table(rows))
    assert result["advantage"]["value"] == 0.0
    assert result["advantage"]["ci"] == [0.0, 0.0]
    assert result["verdict"] == "undecided"


def test_sets_of_best_candidates_decide_ties() -> None:
    def changes(own: list[float], other: list[float]) -> float:
        return check(table(told("A", "u", "q", [2, 1], {"A": own, "B": other})))["best_changes"]["value"]

    assert changes([1, 1], [1, 0]) == 1.0  # two best ones, then one
    assert changes([1, 1], [5, 5]) == 0.0
    assert changes([1, 0], [9, 8]) == 0.0


def test_a_comparison_of_one_candidate_has_no_best_one() -> None:
    alone = told("A", "z", "alone", [1], {"A": [1.0], "B": [9.0], None: [0.0]})
    result = check(pd.concat([following_world(), table(alone)], ignore_index=True))
    assert result["counts"]["comparisons_used"] == 5
    assert result["by_group"]["A"]["n_comparisons"] == 2
    assert result["by_group"]["A"]["best_changes"]["value"] == 1.0
    assert result["by_group"]["A"]["level_shift"]["value"] == 0.0


def test_comparisons_without_a_row_for_every_condition_are_counted_and_not_used() -> None:
    frame = following_world()
    missing = (frame["candidate_id"] == "q4/1") & (frame["conditioned_on"] == "A")
    result, without = check(frame[~missing]), check(frame[frame["comparison_id"] != "q4"])
    assert result["counts"]["comparisons_with_missing_rows"] == 1
    assert result["counts"]["comparisons_sampled"] == 4
    assert result["counts"]["comparisons_used"] == without["counts"]["comparisons_used"] == 3
    assert result["matrix"] == without["matrix"]
    assert result["best_changes"] == without["best_changes"]


def test_what_was_not_sampled_does_not_count() -> None:
    more = told("A", "y", "q9", [2, 1], {"A": [0.0, 1.0]})
    result = check(pd.concat([following_world(), table(more)], ignore_index=True))
    assert result == check(following_world())


def test_a_group_that_the_model_was_not_told() -> None:
    stranger = told("C", "y", "q9", [2, 1], {None: [0.0, 1.0], "A": [1.0, 0.0], "B": [1.0, 0.0]})
    result = check(pd.concat([following_world(), table(stranger)], ignore_index=True), groups=["B", "C", "A"])
    assert result["counts"]["comparisons_without_own_group"] == 1
    assert result["conditions"] == ["B", "A"]
    assert result["by_group"]["C"]["advantage"] == {"value": None, "ci": None}
    assert result["matrix"]["A"]["C"] == {"accuracy": None, "n_pairs": 0, "n_clusters": 0, "insufficient": True}
    assert result["advantage"]["n_groups"] == 2
    assert result["advantage"]["value"] == 0.75


def test_conditions_beyond_the_groups_of_the_data() -> None:
    result = check(following_world()[lambda f: f["group"] == "A"], groups=["A"])
    assert result["conditions"] == ["A", "B"]
    assert result["advantage"]["value"] == 1.0
    with pytest.raises(UserError, match="found 'B'"):
        steering_check(following_world(), groups=["A"])


def test_a_group_of_one_cluster_has_no_interval() -> None:
    frame = following_world()
    frame.loc[frame["group"] == "B", "cluster_id"] = "w"
    result = check(frame, min_clusters=2)
    assert result["by_group"]["B"]["advantage"] == {"value": 0.5, "ci": None}
    assert result["by_group"]["B"]["insufficient"]
    assert (result["advantage"]["value"], result["advantage"]["ci"]) == (0.75, None)
    assert result["sufficient_only"]["advantage"]["value"] == 1.0  # A alone
    assert result["sufficient_only"]["advantage"]["ci"] == [1.0, 1.0]
    assert result["insufficient_groups"] == ["B"]
    assert result["verdict"] == "follows"
    assert "(1 group, 2 pairs, 2 clusters)" in result["sentence"]


def test_a_question_asked_in_two_groups_is_one_cluster_of_the_average() -> None:
    frame = following_world()
    frame["cluster_id"] = frame["comparison_id"].map({"q1": "u", "q2": "v", "q3": "u", "q4": "v"})
    assert check(frame)["advantage"]["n_clusters"] == 2
    assert check(frame)["advantage"]["n_groups"] == 2


def test_equal_rewards_have_no_spread_to_compare_with() -> None:
    rows = [r for c in "uv" for r in told("A", c, c, [2, 1], {"A": [1.0, 1.0], "B": [1.0, 0.0 if c == "u" else 1.0]})]
    result = check(table(rows))
    assert result["reward_shift"] | {"n_clusters": 0} == {
        "value": None,
        "ci": None,
        "n_groups": 0,
        "n_comparisons": 0,
        "n_pairs": 0,
        "n_clusters": 0,
    }
    assert result["best_changes"]["value"] == 0.5


def test_nothing_to_check() -> None:
    assert steering_check(table([row("A", "u", "q", "a", 1, 1), row("A", "u", "q", "b", 2, 1)])) is None
    plain = table([row("A", "u", "q", "a", 1, 1, conditioned_on=None)])
    assert steering_check(plain) is None
    with pytest.raises(UserError, match="min_gap"):
        steering_check(following_world(), min_gap=-1)
    one = check(table(told("A", "u", "q", [2, 1], {"A": [1, 0], None: [0, 1]})))
    assert one["advantage"]["value"] is None
    assert one["advantage_over_default"]["value"] == 1.0
    assert one["verdict"] == "undecided"
    assert "told one group only" in one["sentence"]


@pytest.mark.parametrize("seed", range(3))
def test_every_other_number_of_the_evaluation_is_that_of_the_own_rows(seed: int) -> None:
    frame = random_swaps(seed)
    own = frame[frame["conditioned_on"] == frame["group"]]
    options: dict[str, Any] = {"resamples": 50, "tau": 0.7, "beta": 1.0}
    swapped = summarise(pd.concat([frame.drop(own.index), own], ignore_index=True), **options)
    alone = summarise(own, **options)
    assert swapped["counts"]["rows_other_condition"] == len(frame) - len(own) > 0
    assert swapped["counts"]["rows"] == len(frame)
    for metrics in (swapped, alone):
        for name in ("rows", "rows_other_condition"):
            del metrics["counts"][name]
    assert json.dumps(swapped, sort_keys=True) == json.dumps(alone, sort_keys=True)
