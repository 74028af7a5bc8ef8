"""The comparisons table: what is written comes back, and any other file is refused in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scpo.data.schema import (
    COMPARISONS,
    check_comparisons,
    read_comparisons,
    read_table,
    to_arrow,
    write_comparisons,
    write_table,
)
from scpo.errors import UserError

FILE = "comparisons.parquet"


def table() -> pd.DataFrame:
    """Two comparisons of two candidates; the second has a history, attributes and no scores."""
    history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello\nthere"}]
    return pd.DataFrame(
        {
            "dataset": "toy",
            "comparison_id": ["c/0", "c/0", "c/1", "c/1"],
            "candidate_id": ["c/0/a", "c/0/b", "c/1/a", "c/1/b"],
            "prompt": ["¿qué?", "¿qué?", "why", "why"],
            "history": [[], [], history, history],
            "response": ["", "b", "c \U0001f600", "d"],
            "score": [90.0, 10.0, np.nan, np.nan],
            "group": ["Chile", "Chile", "Israel", "Israel"],
            "annotator_id": ["u1", "u1", None, None],
            "cluster_id": ["u1", "u1", "q", "q"],
            "split": ["train", "train", "test", "test"],
            "attributes": [{"age": "18-24", "gender": "Male"}, {"age": "18-24", "gender": "Male"}, {}, {}],
        }
    )


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    write_comparisons(table(), tmp_path / FILE)
    found = read_comparisons(tmp_path)
    assert list(found.columns) == COMPARISONS.names
    assert found["history"].tolist() == table()["history"].tolist()
    assert found["attributes"].tolist() == table()["attributes"].tolist()
    assert all(type(turns) is list for turns in found["history"])
    np.testing.assert_array_equal(found["score"], table()["score"])
    assert found["annotator_id"].isna().tolist() == [False, False, True, True]
    for column in ("comparison_id", "candidate_id", "prompt", "response", "group", "cluster_id", "split", "dataset"):
        assert found[column].tolist() == table()[column].tolist()
    assert pq.read_schema(tmp_path / FILE).field("score").type == pa.float64()


def test_the_same_frame_gives_the_same_bytes(tmp_path: Path) -> None:
    """Attributes in another order are the same attributes."""
    other = table()
    other["attributes"] = [dict(reversed(list(a.items()))) for a in other["attributes"]]
    write_comparisons(table(), tmp_path / "a")
    write_comparisons(other, tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"candidate_id": ["a", "b", "a", "c"]}, "expected unique candidate ids, found 'a' more than once"),
        ({"split": ["train", "train", "dev", "dev"]}, "column split: expected train, val or test, found 'dev'"),
        ({"group": ["Chile", "Chile", "", ""]}, "row 2: expected the name of a group, found an empty string"),
        ({"split": ["train", "test", "test", "test"]}, "comparison in one split and one group, found 'c/0' in two"),
        ({"group": ["Chile", "Chile", "Chile", "Israel"]}, "comparison in one split and one group, found 'c/1' in two"),
    ],
)
def test_a_bad_table_is_neither_written_nor_read(tmp_path: Path, changes: dict[str, list[str]], says: str) -> None:
    bad = table().assign(**changes)
    with pytest.raises(UserError, match=says):
        write_comparisons(bad, tmp_path / FILE)
    assert list(tmp_path.iterdir()) == []
    pq.write_table(to_arrow(bad, COMPARISONS), tmp_path / FILE)
    with pytest.raises(UserError, match=rf"{FILE}: .*{says}|{FILE}: {says}"):
        read_comparisons(tmp_path)


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(UserError, match="at least one comparison"):
        check_comparisons(table().iloc[:0], "x")


def test_a_missing_column_and_a_missing_value_are_refused(tmp_path: Path) -> None:
    whole = to_arrow(table(), COMPARISONS)
    pq.write_table(whole.rename_columns([{"prompt": "promt"}.get(n, n) for n in whole.column_names]), tmp_path / FILE)
    with pytest.raises(UserError, match=r"with a column 'prompt', found the columns .* Did you mean 'promt'"):
        read_comparisons(tmp_path)
    nulls = whole.set_column(3, pa.field("prompt", pa.string()), pa.array(["a", None, "b", "c"]))
    pq.write_table(nulls, tmp_path / FILE)
    with pytest.raises(UserError, match=r"as a parquet file .*'prompt' with null values"):
        read_comparisons(tmp_path)


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    whole = to_arrow(table(), COMPARISONS)
    words = whole.set_column(6, pa.field("score", pa.string()), pa.array(["high", "low", "1", "2"]))
    pq.write_table(words, tmp_path / FILE)
    with pytest.raises(UserError, match="as a parquet file"):
        read_comparisons(tmp_path)


def test_one_attribute_twice_is_refused(tmp_path: Path) -> None:
    """Arrow's maps may repeat a key; a dict would keep one of the values without a word."""
    twice = pa.array([[("age", "1"), ("age", "2")], [], [], []], type=pa.map_(pa.string(), pa.string()))
    whole = to_arrow(table(), COMPARISONS)
    pq.write_table(whole.set_column(11, COMPARISONS.field("attributes"), twice), tmp_path / FILE)
    with pytest.raises(UserError, match="as a parquet file"):
        read_comparisons(tmp_path)


def test_extra_columns_and_wider_types_of_other_writers_are_read(tmp_path: Path) -> None:
    whole = to_arrow(table(), COMPARISONS)
    whole = whole.set_column(3, pa.field("prompt", pa.large_string()), whole["prompt"].cast(pa.large_string()))
    pq.write_table(whole.append_column("mine", pa.array([1, 2, 3, 4])), tmp_path / FILE)
    assert list(read_comparisons(tmp_path).columns) == COMPARISONS.names


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    write_comparisons(table(), tmp_path / FILE)
    content = (tmp_path / FILE).read_bytes()
    for damaged in (b"", b"prompt,response\n", content[: len(content) // 2], content[:-1]):
        (tmp_path / FILE).write_bytes(damaged)
        with pytest.raises(UserError, match=rf"{FILE}: expected a comparisons table .*as a parquet file") as error:
            read_comparisons(tmp_path)
        assert len(str(error.value).splitlines()) == 1


def test_a_flipped_bit_in_a_page_is_found(tmp_path: Path) -> None:
    write_comparisons(table(), tmp_path / FILE)
    content = bytearray((tmp_path / FILE).read_bytes())
    content[content.index(b"hello") + 1] ^= 4  # "hallo" would be read without a word
    (tmp_path / FILE).write_bytes(bytes(content))
    with pytest.raises(UserError, match="as a parquet file"):
        read_comparisons(tmp_path)


def test_missing_folder_and_file_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no such data folder; make one with 'scpo prepare"):
        read_comparisons(tmp_path / "nowhere")
    (tmp_path / "manifest.json").touch()
    with pytest.raises(UserError, match=rf"{FILE}: no such file; .* holds: manifest\.json"):
        read_comparisons(tmp_path)


def test_any_schema_can_be_read(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.string()), pa.field("reward", pa.float32())])
    pq.write_table(pa.table({"id": ["a"], "reward": [0.5]}), tmp_path / "x")
    found = read_table(tmp_path / "x", schema, "rewards")
    assert found["reward"].dtype == np.float32
    assert found.to_dict("list") == {"id": ["a"], "reward": [0.5]}


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
def test_an_infinite_score_is_refused_with_its_row(value: float, tmp_path: Path) -> None:
    good = table()
    bad = good.copy()
    bad.loc[1, "score"] = value

    write_table(bad, tmp_path / "comparisons.parquet", COMPARISONS)
    with pytest.raises(
        UserError, match=rf"comparisons\.parquet: row 1: column score: expected a finite .* found {value}"
    ):
        read_comparisons(tmp_path)
    bad.loc[1, "score"] = float("nan")
    write_table(bad, tmp_path / "comparisons.parquet", COMPARISONS)
    found = read_comparisons(tmp_path)
    assert found["score"].isna().tolist() == bad["score"].isna().tolist()
