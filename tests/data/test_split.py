"""Splits: fractions and minimums by hand, the paper's against `datasets` itself, independence of the order of rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from scpo.data.split import assign_split, check_split, paper_test_rows, repair
from scpo.errors import UserError


def corpus(sizes: dict[str, int], rows: int = 2) -> pd.DataFrame:
    """Groups with this many clusters of their own, each with ``rows`` comparisons of two candidates."""
    records = [
        {"group": g, "cluster_id": f"{g}{c}", "comparison_id": f"{g}{c}/{r}"}
        for g, n in sizes.items()
        for c in range(n)
        for r in range(rows)
        for _ in range(2)
    ]
    return pd.DataFrame(records)


def shared_corpus(owners: list[list[str]]) -> pd.DataFrame:
    """Cluster number i is in the groups ``owners[i]``: one comparison each."""
    records = [
        {"group": g, "cluster_id": f"q{i}", "comparison_id": f"q{i}/{g}"} for i, gs in enumerate(owners) for g in gs
    ]
    return pd.DataFrame(records, columns=["group", "cluster_id", "comparison_id"])


def sizes(frame: pd.DataFrame, group: str) -> dict[str, int]:
    """Clusters of a group in each part."""
    rows = frame[frame["group"] == group]
    return {part: rows.loc[rows["split"] == part, "cluster_id"].nunique() for part in ("train", "val", "test")}


def with_split(frame: pd.DataFrame, method: str, **options: object) -> pd.DataFrame:
    return frame.assign(split=assign_split(frame, method, **options))  # type: ignore[arg-type]


def test_stratified_sizes_by_hand() -> None:
    frame = with_split(corpus({"A": 100, "B": 20, "C": 3, "D": 2, "E": 1}), "stratified")
    assert sizes(frame, "A") == {"train": 75, "val": 10, "test": 15}
    assert sizes(frame, "B") == {"train": 15, "val": 2, "test": 3}
    assert sizes(frame, "C") == {"train": 1, "val": 1, "test": 1}
    assert sizes(frame, "D") == {"train": 2, "val": 0, "test": 0}
    assert sizes(frame, "E") == {"train": 1, "val": 0, "test": 0}
    check_split(frame)


def test_no_validation_set_when_none_is_asked_for() -> None:
    frame = with_split(corpus({"A": 20}), "stratified", fractions=(0.8, 0.0, 0.2))
    assert sizes(frame, "A") == {"train": 16, "val": 0, "test": 4}


def test_seed_and_method_change_the_assignment() -> None:
    frame = corpus({"A": 60})
    first, second = (assign_split(frame, "stratified", seed=seed) for seed in (0, 1))
    assert list(first) == list(assign_split(frame, "stratified", seed=0))
    assert list(first) != list(second)


def test_shared_clusters_are_assigned_once_and_close_to_the_fractions() -> None:
    rng = np.random.default_rng(3)
    owners = [[g for g in "ABCDEF" if rng.random() < 0.4] or ["A"] for _ in range(400)]
    frame = with_split(shared_corpus(owners), "stratified")
    check_split(frame)
    for group in "ABCDEF":
        found = sizes(frame, group)
        assert found["test"] / sum(found.values()) == pytest.approx(0.15, abs=0.04)
        assert found["val"] / sum(found.values()) == pytest.approx(0.10, abs=0.04)


def test_a_group_whose_shared_clusters_all_went_elsewhere_is_repaired() -> None:
    # Nine groups of two clusters each (all train) own every cluster of the large group.
    owners = [[f"s{i // 2}", "large"] for i in range(18)]
    frame = with_split(shared_corpus(owners), "stratified")
    found = sizes(frame, "large")
    assert found["test"] >= 1
    assert found["val"] >= 1
    assert found["train"] >= 1


@pytest.mark.parametrize("seed", range(6))
def test_repair_spares_the_last_training_cluster_of_another_group(seed: int) -> None:
    groups = {"g": ["a", "b", "c"], "h": ["a", "x", "y"]}
    parts = {"a": "train", "b": "train", "c": "train", "x": "test", "y": "val"}
    repair(groups, "g", "test", parts, seed)
    assert parts["a"] == "train"
    assert sorted((parts["b"], parts["c"])) == ["test", "train"]


owners_strategy = st.lists(st.lists(st.sampled_from("ABCD"), unique=True, min_size=1), min_size=1, max_size=25)


@given(owners_strategy, st.integers(0, 5), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_order_of_rows_does_not_matter_and_groups_of_three_reach_the_test_set(owners, seed, random) -> None:  # type: ignore[no-untyped-def]
    frame = shared_corpus(owners)
    order = list(range(len(frame)))
    random.shuffle(order)
    for method in ("stratified", "question", "row"):
        straight = with_split(frame, method, seed=seed)
        shuffled = with_split(frame.iloc[order], method, seed=seed)
        assert straight["split"].to_dict() == shuffled["split"].to_dict()
        check_split(straight, by_cluster=method != "row")
    for group in set(frame["group"]):
        found = sizes(with_split(frame, "stratified", seed=seed, fractions=(0.8, 0.0, 0.2)), group)
        if sum(found.values()) >= 3:
            assert found["test"] >= 1


@pytest.mark.parametrize("n", [10, 100, 1500])
def test_paper_split_is_that_of_datasets(n: int) -> None:
    users = [f"user{i}" for i in range(n)]
    expected = set(Dataset.from_dict({"user_id": users}).train_test_split(test_size=0.15, seed=0)["test"]["user_id"])
    # Only every third annotator left comparisons in this table: the split must not depend on that.
    frame = pd.DataFrame({"group": "A", "cluster_id": users[::3], "comparison_id": users[::3]})
    split = assign_split(frame, "paper", survey_users=users, seed=7)
    assert set(frame.loc[split == "test", "cluster_id"]) == expected & set(users[::3])
    assert set(split) <= {"train", "test"}
    assert len(paper_test_rows(n)) == -(-n * 15 // 100)


def test_paper_validation_is_carved_from_train() -> None:
    users = [f"user{i}" for i in range(200)]
    frame = pd.DataFrame({"group": ["A", "B"] * 100, "cluster_id": users, "comparison_id": users})
    plain = assign_split(frame, "paper", survey_users=users)
    carved = assign_split(frame, "paper", survey_users=users, val_fraction=0.2)
    assert ((plain == "test") == (carved == "test")).all()
    for group in ("A", "B"):
        mine = frame["group"] == group
        assert (carved[mine] == "val").sum() == round(0.2 * (plain[mine] == "train").sum())


def test_question_takes_whole_clusters_and_row_single_comparisons() -> None:
    frame = corpus({"A": 10, "B": 10}, rows=10)
    check_split(with_split(frame, "question"))
    assert (assign_split(frame, "question") == "test").sum() == 3 * 20
    rows = with_split(frame, "row")
    check_split(rows, by_cluster=False)
    assert (rows["split"] == "test").sum() == 30 * 2
    with pytest.raises(UserError, match="expected each cluster_id in one part"):
        check_split(rows)


def test_check_split_finds_a_torn_comparison() -> None:
    frame = corpus({"A": 1}, rows=1).assign(split=["train", "test"])
    with pytest.raises(UserError, match="expected each comparison_id in one part, found 'A0/0' in test and train"):
        check_split(frame, by_cluster=False)


@pytest.mark.parametrize(
    ("method", "options", "says"),
    [
        ("stratifed", {}, "Did you mean 'stratified'"),
        ("stratified", {"fractions": (0.5, 0.1, 0.1)}, "sum 1"),
        ("stratified", {"fractions": (1.0, 0.0, 0.0)}, "test > 0"),
        ("question", {"fractions": (0.95, -0.1, 0.15)}, "val >= 0"),
        ("question", {"fractions": (float("nan"), 0.1, 0.15)}, "found nan"),
        ("paper", {}, "corpus with a survey"),
        ("paper", {"survey_users": ["x", "y"]}, "found 'A0'"),
        ("paper", {"survey_users": ["A0"]}, "at least two annotators, found 1"),
        ("paper", {"survey_users": ["A0", "y"], "val_fraction": 1.0}, "0 <= fraction < 1"),
    ],
)
def test_wrong_settings(method: str, options: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=says):
        assign_split(corpus({"A": 1}), method, **options)  # type: ignore[arg-type]
