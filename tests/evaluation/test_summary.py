from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prediction_worlds import pair, random_world, row, table

from scpo.errors import UserError
from scpo.evaluation.summary import summarise


def plain_accuracies(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """An independent implementation: loops over comparisons and candidates, nothing shared with the library."""
    out: dict[str, dict[str, Any]] = {}
    for group, part in frame.groupby("group"):
        right: dict[str, list[bool]] = {"all": [], "distinctive": [], "shared": [], "reference": [], "length": []}
        ties = 0
        for _, comparison in part.groupby("comparison_id"):
            for (_, a), (_, b) in itertools.combinations(comparison.iterrows(), 2):
                if a["score"] == b["score"]:
                    continue
                plus, minus = (a, b) if a["score"] > b["score"] else (b, a)
                correct = np.float32(plus["reward"]) > np.float32(minus["reward"])
                ties += np.float32(plus["reward"]) == np.float32(minus["reward"])
                wrong_way = plus["reference_reward"] < minus["reference_reward"]
                right["all"].append(correct)
                right["distinctive" if wrong_way else "shared"].append(correct)
                right["reference"].append(plus["reference_reward"] > minus["reference_reward"])
                right["length"].append(plus["response_length"] > minus["response_length"])
        out[str(group)] = {k: (float(np.mean(v)) if v else None, len(v)) for k, v in right.items()} | {"ties": ties}
    return out


@pytest.mark.parametrize("seed", range(4))
def test_against_plain_loops(seed: int) -> None:
    frame = random_world(seed)
    metrics, expected = summarise(frame, resamples=50), plain_accuracies(frame)
    assert set(metrics["by_group"]) == set(expected)
    for name, group in metrics["by_group"].items():
        for subset in ("all", "distinctive", "shared"):
            accuracy, n = expected[name][subset]
            assert group[subset]["n_pairs"] == n
            assert group[subset]["accuracy"] == pytest.approx(accuracy)
        assert group["n_pairs"] == expected[name]["all"][1]
        assert group["n_clusters"] == frame[frame["group"] == name]["cluster_id"].nunique()
        assert group["tie_rate"] == pytest.approx(expected[name]["ties"] / expected[name]["all"][1])
        assert group["reference"]["all"] == pytest.approx(expected[name]["reference"][0])
        assert group["reference"]["distinctive"] == 0.0
        assert group["baselines"]["length"] == pytest.approx(expected[name]["length"][0])
    values = [expected[g]["all"][0] for g in expected]
    assert metrics["macro"]["accuracy"] == pytest.approx(np.mean(values))
    assert metrics["gap"]["max_min"] == pytest.approx(max(values) - min(values))
    assert metrics["worst_group"]["accuracy"] == pytest.approx(min(values))
    reference = np.mean([expected[g]["reference"][0] for g in expected])
    assert metrics["baselines"]["reference"] == pytest.approx(reference)
    assert metrics["gap"]["to_reference"] == pytest.approx(np.mean(values) - reference)
    assert metrics["baselines"]["length"] == pytest.approx(np.mean([expected[g]["length"][0] for g in expected]))
    n = sum(expected[g]["all"][1] for g in expected)
    assert metrics["micro"]["accuracy"] == pytest.approx(
        sum(expected[g]["all"][0] * expected[g]["all"][1] for g in expected) / n
    )
    assert metrics["n_pairs"] == metrics["micro"]["n_pairs"] == n


def test_the_document_of_the_contract() -> None:
    metrics = summarise(
        random_world(0),
        resamples=20,
        kept_ratio={"G0": 0.5, "G1": math.nan},
        train={"pairs": 7, "seconds": 1.5, "other": 1},
    )
    json.dumps(metrics, allow_nan=False)
    assert metrics["schema"] == 1
    top = {"macro", "micro", "worst_group", "gap", "by_group", "by_subcommunity", "baselines", "train"}
    assert top <= set(metrics)
    group = metrics["by_group"]["G0"]
    wanted = {
        "n_pairs",
        "n_clusters",
        "tie_rate",
        "all",
        "distinctive",
        "shared",
        "reference",
        "kept_ratio",
        "insufficient",
    }
    assert wanted <= set(group)
    assert set(group["reference"]) == {"all", "distinctive", "shared"}
    assert {"accuracy", "ci", "n_pairs", "n_clusters"} <= set(group["all"])
    assert {"accuracy", "ci", "n_pairs", "n_clusters"} <= set(metrics["macro"])
    assert {"max_min", "ci", "to_reference"} <= set(metrics["gap"])
    assert {"group", "attribute", "value", "n_pairs", "n_clusters", "accuracy", "ci", "insufficient"} <= set(
        metrics["by_subcommunity"][0]
    )
    assert (group["kept_ratio"], metrics["by_group"]["G1"]["kept_ratio"], metrics["by_group"]["G2"]["kept_ratio"]) == (
        0.5,
        None,
        None,
    )
    assert metrics["train"] == {"pairs": 7, "candidates_encoded": None, "seconds": 1.5}
    assert metrics["baselines"]["chance"] == 0.5


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(seed: int, random: Any) -> None:
    frame = random_world(seed, groups=2, clusters=3)
    order = list(range(len(frame)))
    random.shuffle(order)
    shuffled = frame.iloc[order].reset_index(drop=True)
    one, two = (summarise(f, resamples=20, min_pairs=1, min_clusters=1) for f in (frame, shuffled))
    assert one == two


def test_one_pair_and_one_cluster() -> None:
    metrics = summarise(table(pair("A", "u", "q", 1.0, -0.5)), resamples=20)
    group = metrics["by_group"]["A"]
    assert group["all"] == {"accuracy": 1.0, "ci": None, "n_pairs": 1, "n_clusters": 1, "insufficient": True}
    assert (group["distinctive"]["accuracy"], group["shared"]["accuracy"], group["shared"]["n_pairs"]) == (1.0, None, 0)
    assert metrics["macro"]["accuracy"] == 1.0
    assert metrics["macro"]["ci"] is None
    assert metrics["gap"]["max_min"] is None
    assert metrics["gap"]["to_reference"] == 1.0
    assert metrics["sufficient_only"]["macro"]["accuracy"] is None
    assert metrics["sufficient_only"]["worst_group"]["name"] is None


def test_a_single_cluster_has_no_interval_nor_has_an_average_over_it() -> None:
    rows = [r for i in range(40) for r in pair("A", "u", f"q{i}", 1.0 if i % 2 else -1.0)]
    rows += [r for i in range(40) for r in pair("B", f"v{i}", f"p{i}", 1.0 if i % 4 else -1.0)]
    metrics = summarise(table(rows), resamples=100)
    assert metrics["by_group"]["A"]["all"]["ci"] is None
    assert metrics["by_group"]["A"]["insufficient"]
    low, high = metrics["by_group"]["B"]["all"]["ci"]
    assert 0.5 < low < 0.75 < high < 1
    assert metrics["macro"]["accuracy"] == pytest.approx((0.5 + 0.75) / 2)
    assert metrics["macro"]["n_groups_insufficient"] == 1
    assert metrics["macro"]["ci"] is metrics["gap"]["ci"] is None
    firm = metrics["sufficient_only"]
    assert firm["macro"]["accuracy"] == 0.75
    assert firm["macro"]["ci"] == metrics["by_group"]["B"]["all"]["ci"]
    assert firm["worst_group"]["name"] == "B"
    assert metrics["worst_group"]["name"] == "A"
    assert metrics["worst_group"]["insufficient"]
    assert metrics["insufficient_groups"] == ["A"]


@pytest.mark.parametrize(("clusters", "n", "insufficient"), [(5, 30, False), (4, 30, True), (5, 29, True)])
def test_the_minimum_is_five_clusters_and_thirty_pairs(clusters: int, n: int, insufficient: bool) -> None:
    rows = [r for i in range(n) for r in pair("A", f"u{i % clusters}", f"q{i}", 1.0)]
    assert summarise(table(rows), resamples=10)["by_group"]["A"]["insufficient"] is insufficient


def test_all_tied() -> None:
    metrics = summarise(table([r for i in range(6) for r in pair("A", f"u{i}", f"q{i}", 0.0, 0.0)]), resamples=20)
    group = metrics["by_group"]["A"]
    assert (group["all"]["accuracy"], group["tie_rate"], metrics["tie_rate"]) == (0.0, 1.0, 1.0)
    assert group["reference"] == {
        "all": 0.0,
        "distinctive": None,
        "shared": 0.0,
    }  # a tied reference is wrong, the pair shared
    assert group["shared"]["n_pairs"] == 6


def test_no_pairs_at_all_and_a_group_without_rows() -> None:
    frame = table([row("A", "u", "q", "c", 1.0, 0.0), row("A", "u", "q", "d", 1.0, 2.0)])
    metrics = summarise(frame, groups=["B", "A"], resamples=20, tau=0.7, beta=1.0)
    json.dumps(metrics, allow_nan=False)
    assert list(metrics["by_group"]) == ["B", "A"]
    for group in metrics["by_group"].values():
        assert group["all"] == {"accuracy": None, "ci": None, "n_pairs": 0, "n_clusters": 0, "insufficient": True}
        assert group["tie_rate"] is group["reference"]["all"] is group["baselines"]["reference"] is None
    assert metrics["macro"]["accuracy"] is metrics["worst_group"]["name"] is metrics["gap"]["max_min"] is None
    assert metrics["n_groups_insufficient"] == 2


def test_a_missing_group_leaves_the_others_as_they_are() -> None:
    frame = random_world(3)
    with_missing = summarise(frame, groups=["Z", "G2", "G0", "G1"], resamples=30)
    plain = summarise(frame, resamples=30)
    for name in ("G0", "G1", "G2"):
        assert with_missing["by_group"][name] == plain["by_group"][name]
    assert with_missing["macro"]["accuracy"] == pytest.approx(plain["macro"]["accuracy"])
    assert with_missing["macro"]["ci"] == pytest.approx(plain["macro"]["ci"])
    assert with_missing["gap"]["max_min"] == plain["gap"]["max_min"]


def test_without_a_reference_what_needs_it_is_null() -> None:
    metrics = summarise(random_world(1, reference=False), resamples=20, tau=0.7)
    for group in metrics["by_group"].values():
        assert group["all"]["accuracy"] is not None
        for subset in ("distinctive", "shared", "selected"):
            assert group[subset]["accuracy"] is group[subset]["ci"] is None
        assert set(group["reference"].values()) == {None}
    assert (
        metrics["baselines"]["reference"] is metrics["gap"]["to_reference"] is metrics["gap"]["to_reference_ci"] is None
    )
    assert metrics["macro"]["distinctive"]["accuracy"] is None


def test_selected_pairs_and_weights_by_hand() -> None:
    """Margins of issue and method: -1, 0, 0.84 are kept at tau 0.7, 0.86 and 2 are not; W = 0.4028903, 1, 1 at beta 1.1."""
    margins = [-1.0, 0.0, 0.84, 0.86, 2.0]
    right = [1.0, -1.0, 1.0, 1.0, 1.0]
    rows = [r for i, (m, s) in enumerate(zip(margins, right, strict=True)) for r in pair("A", f"u{i}", f"q{i}", s, m)]
    selected = summarise(table(rows), resamples=20, tau=0.7, beta=1.1)["by_group"]["A"]["selected"]
    assert selected["n_pairs"] == 3
    assert selected["accuracy"] == pytest.approx(2 / 3)
    assert selected["weighted_accuracy"] == pytest.approx((0.4028903 + 1) / 2.4028903)
    everything = summarise(table(rows), resamples=20, tau=1.0)["by_group"]["A"]["selected"]
    assert (everything["n_pairs"], everything["accuracy"]) == (5, 0.8)
    with pytest.raises(UserError, match="tau"):
        summarise(table(rows), tau=0.0)
    with pytest.raises(UserError, match="beta"):
        summarise(table(rows), beta=-1.0)


def test_subcommunities_by_hand() -> None:
    rows = []
    for i in range(40):
        old = {"age": "old" if i < 30 else "young", "gender": "x"} if i != 39 else {"gender": "x"}
        rows += pair("A", f"u{i % 10}", f"q{i}", 1.0 if i < 15 else -1.0, attributes=old)
    cells = {(c["attribute"], c["value"]): c for c in summarise(table(rows), resamples=20)["by_subcommunity"]}
    assert set(cells) == {("age", "old"), ("age", "young"), ("gender", "x")}
    assert (cells["age", "old"]["accuracy"], cells["age", "old"]["n_pairs"], cells["age", "old"]["insufficient"]) == (
        0.5,
        30,
        False,
    )
    assert (
        cells["age", "young"]["accuracy"],
        cells["age", "young"]["n_pairs"],
        cells["age", "young"]["insufficient"],
    ) == (0.0, 9, True)
    assert cells["gender", "x"]["n_clusters"] == 10


def test_a_question_in_two_groups_is_resampled_in_each_and_counted_once() -> None:
    rows = [
        r
        for g in "AB"
        for i in range(8)
        for r in pair(g, f"question {i}", f"{g}{i}", 1.0 if (i + (g == "B")) % 2 else -1.0)
    ]
    metrics = summarise(table(rows), resamples=200)
    assert metrics["by_group"]["A"]["n_clusters"] == metrics["by_group"]["B"]["n_clusters"] == 8
    assert metrics["macro"]["n_clusters"] == metrics["n_clusters"] == 8
    assert metrics["by_group"]["A"]["all"]["ci"] is not None


def test_nan_rewards_stop_with_the_rows() -> None:
    frame = table(pair("A", "u", "q", 1.0))
    frame.loc[1, "reward"] = np.nan
    with pytest.raises(UserError, match=r"run/predictions: column reward.*row 1 \(candidate_id 'q/r'\)"):
        summarise(frame, where="run/predictions")


def test_seeds_repeat_and_differ() -> None:
    frame = random_world(2)
    one, two, other = (summarise(frame, resamples=50, seed=s) for s in (0, 0, 1))
    assert one == two
    assert one["macro"]["ci"] != other["macro"]["ci"]
    assert one["macro"]["accuracy"] == other["macro"]["accuracy"]
