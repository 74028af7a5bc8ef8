"""Files of GlobalOpinionQA: csv, folder and frame agree; damage stops with file, row and column on one line."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scpo.data.goqa import read_goqa
from scpo.data.goqa_parse import MAX_CELL
from scpo.data.goqa_read import read_question, read_source
from scpo.errors import UserError


def row(
    selections: Any = None, options: Any = None, question: Any = "Is it so?", source: Any = "GAS"
) -> dict[str, Any]:
    chosen = {"Chile": [0.5, 0.3, 0.2]} if selections is None else selections
    listed = ["Yes", "No", "DK/Refused"] if options is None else options
    return {
        "question": question,
        "selections": f"defaultdict(<class 'list'>, {chosen!r})" if isinstance(chosen, dict) else chosen,
        "options": repr(listed) if isinstance(listed, list) else listed,
        "source": source,
    }


def frame(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=["question", "selections", "options", "source"])


def test_cells_that_are_already_parsed_are_taken() -> None:
    prepared = read_goqa(frame({**row(), "selections": {"Chile": [0.5, 0.3, 0.2]}, "options": ["Yes", "No", "DK"]}))
    assert prepared.frame["score"].tolist() == pytest.approx([0.625, 0.375], abs=1e-15)


@pytest.mark.parametrize(
    ("selections", "options", "message"),
    [
        ("['Chile']", None, "column selections: expected a dictionary of countries and shares, found"),
        ("defaultdict(<class 'int'>, {'Chile': [0.5, 0.5]})", None, "column selections: expected a dictionary"),
        ("defaultdict(<class 'list'>, {'Chile': [0.5, 0.5", None, "column selections: expected a dictionary"),
        ("", None, "column selections: expected a dictionary .* found an empty cell"),
        (None, "", "column options: expected a list of options, found an empty cell"),
        (None, "{'a': 1}", "column options: expected a list of options"),
        (None, "'abc'", "column options: expected a list of options"),
        (None, "[['a'], 'b']", r"column options: .* found \['a'\] \(list\) at place 0"),
        (None, "[True, 'b']", r"column options: .* found True \(bool\) at place 0"),
        (None, "['a', None]", r"column options: .* found None \(NoneType\) at place 1"),
        (None, "['a', nan]", "column options: expected finite numbers, found nan"),
        (None, "['a', f(1)]", "column options: expected plain texts and numbers"),
        ("{'Chile': [nan, 0.5, 0.5]}", None, "column selections: expected finite numbers, found nan"),
        ("{'Chile': [1e999, 0.5, 0.5]}", None, r"shares of 'Chile', found inf \(float\)"),
        ("{'Chile': [" + "9" * 400 + ", 0.5, 0.5]}", None, r"shares of 'Chile', found 9+"),
        ("{'Chile': ['0.5', 0.5, 0]}", None, r"shares of 'Chile', found '0\.5' \(str\)"),
        ("{'Chile': [True, 0.5, 0]}", None, r"shares of 'Chile', found True \(bool\)"),
        ("{'Chile': [None, 0.5, 0.5]}", None, r"shares of 'Chile', found None \(NoneType\)"),
        ("{'Chile': 0.5}", None, "expected a list of shares for 'Chile', found 0.5"),
        ("{3: [0.5, 0.3, 0.2]}", None, r"expected countries as text, found 3 \(int\)"),
        ("{**{'Chile': [0.5, 0.3, 0.2]}}", None, "column selections: expected a dictionary"),
        ("{'Chile': [__import__('os').getpid()]}", None, "column selections: expected plain texts and numbers"),
        ("(" * 400 + ")" * 400, None, "column selections: expected a dictionary"),
        ("-" * 50_000 + "1", None, "column selections: expected a dictionary"),
        ("{'Chile': [" + "1+" * 20_000 + "1]}", None, "column selections: expected a dictionary"),
        ("{'Chile': [0.5]" + " " * MAX_CELL + "}", None, f"at most {MAX_CELL} characters"),
    ],
)
def test_cells_of_the_wrong_kind_stop_with_row_and_column(selections: Any, options: Any, message: str) -> None:
    with pytest.raises(UserError, match=f"^data frame: row 1, .*{message}") as caught:
        read_goqa(frame(row(), row(selections, options, "B?")))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_missing_questions_are_empty_and_sources_in_any_case() -> None:
    assert [read_question(value, "x") for value in (None, float("nan"), pd.NA, " a ")] == ["", "", "", "a"]
    assert [read_source(value, "x") for value in ("gas", " WVS ")] == ["GAS", "WVS"]


def test_wrong_types_of_other_cells_stop_too() -> None:
    with pytest.raises(UserError, match=r"row 0, column question: expected the text of a question, found 3 \(int\)"):
        read_goqa(frame(row(question=3)))
    with pytest.raises(UserError, match="row 0, column source: expected GAS or WVS, found 'GA'"):
        read_goqa(frame(row(source="GA")))
    with pytest.raises(UserError, match=r"row 0, column selections: .* found None \(NoneType\)"):
        read_goqa(frame({**row(), "selections": None}))


def to_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, ["question", "selections", "options", "source"])
    writer.writeheader()
    writer.writerows(rows)
    path.write_bytes(stream.getvalue().encode("utf-8"))
    return path


def test_csv_folder_and_frame_give_the_same(tmp_path: Path) -> None:
    rows = [
        row({"Peru": [0.5, 0.3, 0.2], "India (Old national sample)": [1, 0, 0]}),
        row(question='Line\nbreak, "quotes" and ’'),
        row({"Côte d’Ivoire": [1.0, 0.0, 0.0]}),
    ]
    path = to_csv(tmp_path / "goqa" / "any.csv", rows)
    expected = read_goqa(frame(*rows))
    for raw in (path, path.parent, tmp_path, str(path)):
        found = read_goqa(raw)  # type: ignore[arg-type]
        pd.testing.assert_frame_equal(found.frame, expected.frame)
        assert found.ledger.as_dict() == expected.ledger.as_dict()
        assert list(found.source["files"]) == ["any.csv"]
        assert len(found.source["files"]["any.csv"]) == 64
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"GAS\r\n", b"gas\r\n\r\n"))
    pd.testing.assert_frame_equal(read_goqa(path).frame, expected.frame)


def test_a_folder_must_hold_exactly_one_such_csv(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected exactly one csv of GlobalOpinionQA, found 0"):
        read_goqa(tmp_path)
    first = to_csv(tmp_path / "a.csv", [row()])
    (tmp_path / "other.csv").write_text("x,y\n1,2\n")
    assert list(read_goqa(tmp_path).source["files"]) == ["a.csv"]
    (tmp_path / "b.csv").write_bytes(first.read_bytes())
    with pytest.raises(UserError, match=r"found 2 \(in the folder: a\.csv, b\.csv\); name the file"):
        read_goqa(tmp_path)
    with pytest.raises(UserError, match=r"c\.csv: no such file"):
        read_goqa(tmp_path / "c.csv")


def test_damaged_files_stop_with_one_line(tmp_path: Path) -> None:
    whole = to_csv(tmp_path / "f.csv", [row(), row(question="B?")]).read_bytes()
    selections = whole.rindex(b"defaultdict")
    cases = {
        whole[: selections + 20]: "after row 2: expected a csv, found damage .*truncated",
        whole[: whole.rindex(b",GAS")]: "row 3: expected 4 cells, found 3; is the file truncated",
        whole[: whole.rindex(b"S")]: "row 3, column source: expected GAS or WVS, found 'GA'; is the file truncated",
        b"": "expected a csv with the columns question, selections, options, source, found an empty file",
        b"PK\x03\x04\xff\xfe\x00" * 50: "expected UTF-8 text, found binary data",
        b"\x00\x01" * 50: "row 1: expected text, found a zero byte",
        whole.replace(b"B?", b"B\x00"): "row 3: expected text, found a zero byte",
        whole.replace(b"\xe2", b"\xff").replace(b"B?", b"\xff"): "found binary data after row",
        whole.replace(b"B?", b"B" * 200_000): "after row 2: expected a csv, found damage",
        whole.replace(
            b"selections", b"selection", 1
        ): "expected one column 'selections', found none.*Did you mean 'selection'",
        whole.replace(b"source", b"options", 1): "expected one column 'options', found 2",
        whole[: whole.index(b"\n") + 1]: r"found none \(the source has no rows\)",
    }
    for number, (content, message) in enumerate(cases.items()):
        path = tmp_path / f"{number}.csv"
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"^{re.escape(str(path))}: .*{message}") as caught:
            read_goqa(path)
        assert "\n" not in str(caught.value)


def test_columns_that_never_fit_stop_and_a_file_of_faults_stops() -> None:
    bad = {"Chile": [0.5, 0.5], "Peru": [0.5, 0.5]}
    with pytest.raises(
        UserError, match=r"as many shares as options, found other numbers in all 4 .*row 0, Chile: 2 and 3"
    ):
        read_goqa(frame(row(bad), row(bad, question="B?")))
    with pytest.raises(UserError, match=r"found none \(all shares zero 1, another length than the options 1\)"):
        read_goqa(frame(row({"Chile": [0.0, 0.0, 0.0], "Peru": [1.0]})))
