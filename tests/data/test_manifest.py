"""The last step: counts by hand, both files or neither, nobody else's files touched, the same bytes twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scpo.data import manifest as module
from scpo.data.ledger import Ledger
from scpo.data.manifest import content_hash, finish, read_manifest
from scpo.data.prepared import Prepared
from scpo.data.schema import read_comparisons
from scpo.errors import UserError


def prepared(groups: dict[str, int], scores: tuple[float, ...] = (3.0, 1.0, 1.0), faults: int = 0) -> Prepared:
    ledger, records = Ledger(), []
    for group, clusters in groups.items():
        ledger.keep(group, clusters)
        ledger.drop(group, "one candidate", n=faults)
        for c in range(clusters):
            name = f"{group}{c}"
            for k, score in enumerate(scores):
                records.append(
                    {
                        "dataset": "toy",
                        "comparison_id": name,
                        "candidate_id": f"{name}/{k}",
                        "prompt": "Why?",
                        "history": [],
                        "response": f"r{k}",
                        "score": score,
                        "group": group,
                        "annotator_id": name,
                        "cluster_id": name,
                        "attributes": {"age": "old"},
                    }
                )
    return Prepared(pd.DataFrame(records), ledger, {"files": {"x": "0"}}, {"option": 1})


def test_counts_by_hand(tmp_path: Path) -> None:
    manifest = finish(prepared({"A": 20, "B": 3}), tmp_path / "data", seed=4)
    a = manifest["groups"]["A"]
    assert {
        k: a[k] for k in ("comparisons", "candidates", "clusters", "annotators", "pairs", "tied_pairs", "small")
    } == {
        "comparisons": 20,
        "candidates": 60,
        "clusters": 20,
        "annotators": 20,
        "pairs": 40,
        "tied_pairs": 20,
        "small": False,
    }
    assert [a["splits"][part]["pairs"] for part in ("train", "val", "test")] == [30, 4, 6]
    assert manifest["groups"]["B"]["small"]
    assert manifest["totals"]["pairs"] == 46
    assert manifest["split"] == {
        "method": "stratified",
        "seed": 4,
        "fractions": [0.75, 0.1, 0.15],
        "missing": {"train": [], "val": [], "test": []},
    }
    assert manifest == read_manifest(tmp_path / "data")
    frame = read_comparisons(tmp_path / "data")
    assert content_hash(frame) == manifest["content_hash"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data"]


def test_groups_without_test_pairs_are_listed(tmp_path: Path) -> None:
    manifest = finish(prepared({"A": 20, "B": 2}), tmp_path / "data", fractions=(0.85, 0.0, 0.15))
    assert manifest["split"]["missing"] == {"train": [], "test": ["B"]}


def test_the_same_input_gives_the_same_bytes_and_another_seed_other_rows(tmp_path: Path) -> None:
    hashes = [
        finish(prepared({"A": 20}), tmp_path / name, seed=seed)["content_hash"]
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert hashes[0] == hashes[1] != hashes[2]
    for name in ("comparisons.parquet", "manifest.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("column", ["prompt", "score", "attributes", "annotator_id"])
def test_the_content_hash_sees_every_column(column: str) -> None:
    frame = prepared({"A": 2}).frame.assign(split="train")
    other: Any = {"prompt": "How?", "score": 2.0, "attributes": {"age": "young"}, "annotator_id": None}[column]
    changed = frame.copy()
    changed[column] = pd.Series([other, *frame[column][1:]], dtype=object)
    assert content_hash(changed) != content_hash(frame)


def test_an_earlier_result_is_replaced_and_rewards_beside_it_stay(tmp_path: Path) -> None:
    out = tmp_path / "data"
    finish(prepared({"A": 20}), out)
    (out / "reference-abc.parquet").write_bytes(b"rewards")
    manifest = finish(prepared({"B": 20}), out)
    assert list(manifest["groups"]) == ["B"]
    assert set(read_comparisons(out)["group"]) == {"B"}
    assert (out / "reference-abc.parquet").read_bytes() == b"rewards"


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious", encoding="utf-8")
    with pytest.raises(UserError, match=r"found thesis.txt; choose another --out"):
        finish(prepared({"A": 20}), tmp_path)
    with pytest.raises(UserError, match="expected a folder to write to, found a file"):
        finish(prepared({"A": 20}), tmp_path / "thesis.txt")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("before", [False, True])
def test_a_failure_between_the_two_files_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    out = tmp_path / "data"
    old = finish(prepared({"A": 20}), out) if before else None

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "write_json", fail)
    with pytest.raises(KeyboardInterrupt):
        finish(prepared({"B": 20}), out)
    assert [p.name for p in tmp_path.iterdir()] == (["data"] if before else [])
    if before:
        assert read_manifest(out) == old
        assert set(read_comparisons(out)["group"]) == {"A"}


def test_too_many_faults_stop_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"A 23% \(one candidate 6\)"):
        finish(prepared({"A": 20}, faults=6), tmp_path / "data")
    assert not list(tmp_path.iterdir())
    assert (
        finish(prepared({"A": 20}, faults=6), tmp_path / "data", max_fault_share=0.3)["groups"]["A"]["comparisons"]
        == 20
    )
    assert finish(prepared({"A": 20}, faults=5), tmp_path / "data")["counts"]["by_group"]["A"]["dropped"] == {
        "one candidate": 5
    }
    with pytest.raises(UserError, match="max fault share: expected 0 to 1, found 2"):
        finish(prepared({"A": 20}), tmp_path / "data", max_fault_share=2)


def test_nothing_left_says_why(tmp_path: Path) -> None:
    empty = prepared({"A": 1})
    empty.frame, empty.ledger = empty.frame.iloc[:0], Ledger()
    empty.ledger.drop(None, "no country", n=3)
    with pytest.raises(UserError, match=r"found none \(\(no group\): no country 3\)"):
        finish(empty, tmp_path / "data")


def test_another_document_is_no_manifest(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"schema": 2}), encoding="utf-8")
    with pytest.raises(UserError, match="expected a manifest of 'scpo prepare'"):
        read_manifest(tmp_path)
