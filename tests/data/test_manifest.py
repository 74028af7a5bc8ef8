"""The last step: counts by hand, both files or neither, nobody else's files touched, the same bytes twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scpo.data import manifest as module
from scpo.data.ledger import Ledger
from scpo.data.manifest import check_content, check_out, content_hash, finish, read_manifest
from scpo.data.prepared import Prepared
from scpo.data.schema import COMPARISONS, read_comparisons, write_table
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


OTHER: dict[str, Any] = {
    **dict.fromkeys(("dataset", "comparison_id", "candidate_id", "prompt", "response"), "other"),
    **dict.fromkeys(("group", "annotator_id", "cluster_id", "split"), "other"),
    "score": 2.0,
    "attributes": {"age": "young"},
    "history": [{"role": "user", "content": "hi"}],
}


@pytest.mark.parametrize("column", [field.name for field in COMPARISONS])
def test_the_content_hash_sees_every_column(column: str) -> None:
    frame = prepared({"A": 2}).frame.assign(split="train")
    other = OTHER[column]
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


def test_the_content_hash_tells_borders_nulls_and_order_apart() -> None:
    frame = prepared({"A": 2}).frame.assign(split="train")

    def with_texts(column: str, *values: Any) -> str:
        changed = frame.copy()
        changed[column] = pd.Series([*values, *frame[column][len(values) :]], dtype=object)
        return content_hash(changed)

    hashes = [with_texts("response", "ab", "c"), with_texts("response", "a", "bc"), with_texts("response", "abc", "")]
    hashes += [with_texts("annotator_id", None), with_texts("annotator_id", ""), with_texts("annotator_id", "None")]
    hashes += [with_texts("score", None), with_texts("score", 0.0), content_hash(frame.iloc[::-1]), content_hash(frame)]
    assert len(set(hashes)) == len(hashes)
    assert with_texts("score", None) == with_texts("score", float("nan"))
    assert with_texts("score", 0.0) == with_texts("score", -0.0) == with_texts("score", 0)


def test_a_table_changed_after_preparing_is_found(tmp_path: Path) -> None:
    finish(prepared({"A": 20}), tmp_path / "data")
    frame, manifest = read_comparisons(tmp_path / "data"), read_manifest(tmp_path / "data")
    check_content(frame, manifest, "here")
    frame.loc[3, "score"] = 99.0
    write_table(frame, tmp_path / "data" / "comparisons.parquet", COMPARISONS)
    frame = read_comparisons(tmp_path / "data")
    with pytest.raises(UserError, match=r"^here: the table was changed since 'scpo prepare' wrote it") as error:
        check_content(frame, manifest, "here")
    assert "\n" not in str(error.value)


WRONG: list[tuple[str, Any]] = [
    ("groups", {"A": 3}),
    *[("counts", value) for value in (None, [], {"kinds": {}}, {"kinds": {}, "by_group": []})],
    *[
        ("counts", {"kinds": {}, "by_group": {"A": value}})
        for value in (None, {"kept": 1}, {"kept": "1", "dropped": {}})
    ],
    ("counts", {"kinds": {}, "by_group": {"A": {"kept": 1, "dropped": {"x": -1}}}}),
    ("counts", {"kinds": {"x": 1}, "by_group": {}}),
    *[("extra", value) for value in (None, [], {"survey_users": "u1"}, {"survey_users": [1]}, {"simulate": 3})],
    *[("content_hash", value) for value in (None, 3, "", "0" * 63, "g" * 64)],
]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_key_of_another_type_is_named(tmp_path: Path, key: str, value: Any) -> None:
    path = tmp_path / "data" / "manifest.json"
    manifest = finish(prepared({"A": 20}), tmp_path / "data")
    path.write_text(json.dumps({**manifest, key: value}), encoding="utf-8")
    with pytest.raises(UserError, match=rf"manifest\.json: key {key}: expected what 'scpo prepare' writes"):
        read_manifest(tmp_path / "data")
    path.write_text(json.dumps({k: v for k, v in manifest.items() if k != key}), encoding="utf-8")
    with pytest.raises(UserError, match=rf"expected a manifest|key {key}: .* found nothing"):
        read_manifest(tmp_path / "data")


def _no_manifest(out: Path) -> None:
    (out / "manifest.json").unlink()


def _other_manifest(out: Path) -> None:
    (out / "manifest.json").write_text('{"name": "an extension", "manifest_version": 3}', encoding="utf-8")


def _damaged_manifest(out: Path) -> None:
    (out / "manifest.json").write_text("{", encoding="utf-8")


def _only_manifest(out: Path) -> None:
    (out / "comparisons.parquet").unlink()
    _other_manifest(out)


@pytest.mark.parametrize("change", [_no_manifest, _other_manifest, _damaged_manifest, _only_manifest])
def test_files_of_our_names_that_are_not_ours_are_refused(tmp_path: Path, change: Callable[[Path], None]) -> None:
    out = tmp_path / "data"
    finish(prepared({"A": 20}), out)
    check_out(out)
    change(out)
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    with pytest.raises(
        UserError, match=r"expected an empty folder or an earlier result, found (comparisons|manifest)\."
    ):
        finish(prepared({"B": 20}), out)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before


@pytest.mark.parametrize("name", ["micro", "Macro", " MICRO"])
def test_a_group_called_like_an_average_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=rf"which are the averages over groups, found the group '{name}'; rename it"):
        finish(prepared({"A": 20, name: 20}), tmp_path / "data")
    assert not list(tmp_path.iterdir())
    finish(prepared({"A": 20, f"{name.strip()} group": 20}), tmp_path / "data")
