"""One's own preference data: every layout by hand, and errors that show the columns and the first row."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scpo.data.ledger import NO_GROUP
from scpo.data.table import read_table_file
from scpo.data.turns import exchanges
from scpo.errors import UserError

PAIR = {"prompt": "Why?", "chosen": "Because.", "rejected": "No idea.", "group": "Chile"}
SCORED = {"prompt": "Why?", "responses": ["a", "b", "c"], "scores": [3, 1.5, 3], "group": "S. Korea"}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def bot(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def write(folder: Path, rows: list[Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def dropped(prepared: Any, group: str = "Chile") -> dict[str, int]:
    return prepared.ledger.as_dict()["by_group"][group]["dropped"]


def test_a_pair(tmp_path: Path) -> None:
    prepared = read_table_file(
        write(tmp_path, [PAIR | {"annotator": 7, "attributes": {"age": "18-24", "x": None}, "note": 1}])
    )
    assert prepared.frame.to_dict("records") == [
        {
            "dataset": "table",
            "comparison_id": "row1",
            "candidate_id": f"row1/{k}",
            "prompt": "Why?",
            "history": [],
            "response": response,
            "score": 1.0 - k,
            "group": "Chile",
            "annotator_id": "7",
            "cluster_id": "7",
            "attributes": {"age": "18-24"},
        }
        for k, response in enumerate(("Because.", "No idea."))
    ]
    assert prepared.extra["ignored_columns"] == ["note"]
    assert list(prepared.source["files"]) == ["rows.jsonl"]


def test_scored_responses(tmp_path: Path) -> None:
    prepared = read_table_file(write(tmp_path, [SCORED, SCORED | {"scores": [1, 1, 1]}]))
    assert list(prepared.frame["score"]) == [3, 1.5, 3, 1, 1, 1]
    assert set(prepared.frame["group"]) == {"South Korea"}
    assert dropped(prepared, "South Korea") == {"tied pairs": 4, "no pair: all scores equal": 1}
    assert prepared.frame["annotator_id"].isna().all()


CHAT = [user("hi"), bot("hello"), user("Why?")]
LAYOUTS = {
    "explicit, strings": ("Why?", "A", "B", []),
    "explicit, messages": (CHAT, [bot("A")], [bot("B")], CHAT[:2]),
    "explicit, text and messages": ("Why?", [bot("A")], [bot("B")], []),
    "explicit, messages and text": (CHAT, "A", "B", CHAT[:2]),
    "explicit, prompt repeated as messages": (CHAT, [*CHAT, bot("A")], [*CHAT, bot("B")], CHAT[:2]),
    "explicit text, whole conversation in the responses": ("Why?", [*CHAT, bot("A")], [*CHAT, bot("B")], CHAT[:2]),
    "explicit, prompt repeated as text": ("Why?", "Why? A", "Why? B", []),
    "implicit, messages": (None, [*CHAT, bot("A")], [*CHAT, bot("B")], CHAT[:2]),
    "implicit, strings": (None, "Why? A", "Why? B", []),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_preference_data(tmp_path: Path, layout: str) -> None:
    prompt, chosen, rejected, history = LAYOUTS[layout]
    row = {"chosen": chosen, "rejected": rejected, "group": "Chile"} | ({} if prompt is None else {"prompt": prompt})
    prepared = read_table_file(write(tmp_path, [row]))
    frame = prepared.frame
    assert list(zip(frame["prompt"], frame["response"], frame["score"], strict=True)) == [
        ("Why?", "A", 1.0),
        ("Why?", "B", 0.0),
    ]
    assert list(frame["history"]) == [history, history]
    repeated = "repeated" in layout or "whole" in layout
    assert dropped(prepared) == ({"prompt repeated in the responses: taken out": 1} if repeated else {})


def test_a_system_message_and_a_history_column_come_before_the_prompt(tmp_path: Path) -> None:
    system = {"role": "system", "content": "Be brief."}
    row = PAIR | {"history": [user("hi"), bot("hello")], "prompt": [system, user("Why?")]}
    frame = read_table_file(write(tmp_path, [row])).frame
    assert frame["history"][0] == [user("hi"), bot("hello"), system]


def test_the_shared_start_of_two_strings_ends_at_a_word(tmp_path: Path) -> None:
    row = {"chosen": "The sky is blue.", "rejected": "The sky is bright green.", "group": "Chile"}
    frame = read_table_file(write(tmp_path, [row])).frame
    assert (frame["prompt"][0], *frame["response"]) == ("The sky is", "blue.", "bright green.")


def test_dropped_and_counted(tmp_path: Path) -> None:
    rows = [
        PAIR,
        PAIR | {"rejected": "Because."},
        PAIR | {"prompt": " "},
        PAIR | {"prompt": None},
        PAIR | {"group": None},
        PAIR | {"group": ""},
        {"chosen": "left", "rejected": "right", "group": "Chile", "prompt": ""},
        PAIR | {"prompt": [user("Why?")], "chosen": [user("x"), bot("A")], "rejected": [user("y"), bot("B")]},
    ]
    prepared = read_table_file(write(tmp_path, rows))
    assert prepared.ledger.as_dict()["by_group"] == {
        NO_GROUP: {"kept": 0, "dropped": {"no group": 2}},
        "Chile": {
            "kept": 1,
            "dropped": {
                "identical responses": 1,
                "empty prompt": 3,
                "chosen and rejected differ before the last message": 1,
            },
        },
    }
    assert set(prepared.frame["comparison_id"]) == {"row1"}


def test_equal_conversations_are_identical_responses(tmp_path: Path) -> None:
    rows = [{"chosen": [*CHAT, bot("A")], "rejected": [*CHAT, bot(text)], "group": "Chile"} for text in "AB"]
    prepared = read_table_file(write(tmp_path, rows))
    assert dropped(prepared) == {"identical responses": 1}
    assert list(prepared.frame["response"]) == ["A", "B"]


def test_scored_rows_dropped_and_counted(tmp_path: Path) -> None:
    rows = [
        SCORED,
        SCORED | {"scores": [1, 2]},
        SCORED | {"scores": [1, None, 2]},
        SCORED | {"responses": ["a"], "scores": [1]},
        SCORED | {"responses": ["a", "a", "b"]},
    ]
    prepared = read_table_file(write(tmp_path, rows))
    assert dropped(prepared, "South Korea") == {
        "responses and scores of different length": 1,
        "no score": 1,
        "one candidate": 1,
        "identical responses in a comparison": 1,
        "tied pairs": 2,
    }


def test_clusters_and_ids(tmp_path: Path) -> None:
    rows = [
        PAIR,
        PAIR | {"prompt": " why? ", "group": "Israel"},
        PAIR | {"prompt": "How?"},
        PAIR | {"annotator": "ann"},
    ]
    rows += [PAIR | {"annotator": "ann", "cluster": "c1", "id": "mine"}]
    frame = read_table_file(write(tmp_path, rows)).frame[::2]
    clusters = list(frame["cluster_id"])
    assert clusters[0] == clusters[1] != clusters[2]
    assert clusters[3:] == ["ann", "c1"]
    assert list(frame["comparison_id"]) == ["row1", "row2", "row3", "row4", "mine"]
    with pytest.raises(UserError, match="row 2: column id: 'x' was already used in row 1"):
        read_table_file(write(tmp_path, [PAIR | {"id": "x"}] * 2))


def test_other_column_names(tmp_path: Path) -> None:
    row = {"question": "Why?", "response_j": "A", "response_k": "B", "country": "Britain", "age": 30, "gender": None}
    path = write(tmp_path, [row])
    columns = {"prompt": "question", "chosen": "response_j", "rejected": "response_k", "group": "country"}
    frame = read_table_file(path, columns=columns, attribute_columns=["age", "gender"]).frame
    assert frame["group"][0] == "United Kingdom"
    assert frame["attributes"][0] == {"age": "30"}
    with pytest.raises(
        UserError, match=r"expected a column 'contry' for group, found the columns question.*Did you mean 'country'"
    ):
        read_table_file(path, columns={"group": "contry"})
    with pytest.raises(UserError, match="expected a column 'aeg'"):
        read_table_file(path, columns=columns, attribute_columns=["aeg"])


def test_wrong_columns_show_expected_found_and_the_first_row(tmp_path: Path) -> None:
    path = write(tmp_path, [{"prompt": "Why?", "response_j": "A", "response_k": "B", "group": "Chile"}])
    with pytest.raises(UserError) as caught:
        read_table_file(path)
    message = str(caught.value)
    for part in (
        "chosen, rejected",
        "responses, scores missing",
        "found the columns prompt, response_j, response_k, group",
        "'Why?'",
    ):
        assert part in message
    with pytest.raises(
        UserError, match=r"group missing, found the columns prompt, chosen, rejected, grup.*Did you mean 'grup'"
    ):
        read_table_file(write(tmp_path, [{("grup" if k == "group" else k): v for k, v in PAIR.items()}]))
    with pytest.raises(UserError, match="--rejected-column NAME"):
        read_table_file(write(tmp_path, [{"chosen": "A", "group": "Chile"}]))


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (PAIR | {"chosen": 5}, "row 2: column chosen: expected text or a list of .*found 5"),
        (PAIR | {"chosen": None}, "row 2: column chosen"),
        (PAIR | {"prompt": [{"role": "user"}]}, "column prompt: expected messages with role and content"),
        (
            PAIR | {"prompt": [bot("x")], "chosen": [bot("A")], "rejected": [bot("B")]},
            "column prompt: .*end with the user's",
        ),
        (PAIR | {"chosen": [user("A")], "rejected": [bot("B")]}, "end with the assistant's"),
        (PAIR | {"chosen": [], "rejected": [bot("B")]}, "end with the assistant's"),
        (PAIR | {"group": 1.5}, "column group: expected text or a whole number, found 1.5"),
        (PAIR | {"group": True}, "column group"),
        (PAIR | {"attributes": "old"}, "column attributes: expected an object"),
        (PAIR | {"attributes": {"age": [1]}}, "attribute age: expected text or a number"),
        (PAIR | {"history": "hi"}, "column history: expected text or a list|column history"),
    ],
)
def test_wrong_types_name_row_and_column(tmp_path: Path, row: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        read_table_file(write(tmp_path, [PAIR, row]))
    assert "row 2" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("scores", [[1, 2, float("nan")], [1, 2, "3"], [1, 2, True], 5, None])
def test_wrong_scores(tmp_path: Path, scores: Any) -> None:
    with pytest.raises(UserError, match="row 1: column scores: expected"):
        read_table_file(write(tmp_path, [SCORED | {"scores": scores}]))


def test_faults_of_all_rows_stop(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="column group: expected a group, found it missing in all 2 rows"):
        read_table_file(write(tmp_path, [PAIR | {"group": None}] * 2))
    with pytest.raises(UserError, match="different lengths in all 2 rows"):
        read_table_file(write(tmp_path, [SCORED | {"scores": [1]}] * 2))
    with pytest.raises(UserError, match="found an empty file"):
        read_table_file(write(tmp_path, []))


def test_parquet_csv_and_json_lines_give_the_same(tmp_path: Path) -> None:
    rows = [PAIR | {"attributes": {"age": "18-24"}, "annotator": "ann"}, PAIR | {"attributes": {}, "annotator": None}]
    expected = read_table_file(write(tmp_path, rows)).frame
    kinds = pa.schema([(k, pa.map_(pa.string(), pa.string()) if k == "attributes" else pa.string()) for k in rows[0]])
    pq.write_table(
        pa.Table.from_pylist([r | {"attributes": list(r["attributes"].items())} for r in rows], schema=kinds),
        tmp_path / "r.parquet",
    )
    pd.testing.assert_frame_equal(read_table_file(tmp_path / "r.parquet").frame, expected)
    with open(tmp_path / "r.csv", "w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows([r | {"attributes": json.dumps(r["attributes"])} for r in rows])
    pd.testing.assert_frame_equal(read_table_file(tmp_path / "r.csv").frame, expected)


def test_damaged_files(tmp_path: Path) -> None:
    for name, content, says in (
        ("x.parquet", b"PAR1 nonsense", "expected a parquet file"),
        ("x.csv", b"\xff\xfe\x00", "expected UTF-8 text, found binary data"),
        ("y.csv", b"prompt,chosen,rejected,group\na,b,c\n", "row 1: expected 4 cells"),
        ("z.csv", b'prompt,chosen,rejected,group\na,b,c,"d', "expected csv, found a damaged row"),
        ("x.txt", b"", "found the suffix '.txt'"),
        ("x.jsonl", b"[1]\n", "line 1: expected a JSON object"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=says):
            read_table_file(tmp_path / name)
    with pytest.raises(UserError, match="no such file"):
        read_table_file(tmp_path / "absent.jsonl")


message = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system"]), "content": st.text(max_size=3)}
)
cell = st.one_of(st.none(), st.text(max_size=6), st.lists(message, max_size=3))


@given(cell, cell, cell)
@settings(deadline=None)
def test_any_row_is_an_exchange_a_reason_or_a_user_error(prompt: Any, chosen: Any, rejected: Any) -> None:
    names = {"prompt": "prompt", "chosen": "chosen", "rejected": "rejected"}
    try:
        exchange, reason = exchanges(
            {"prompt": prompt, "chosen": chosen, "rejected": rejected}, True, "f: row 1", names
        )
    except UserError as error:
        exchange, reason = None, str(error)
    assert (exchange is None) == bool(reason)
    if exchange is not None:
        assert exchange.prompt.strip()
        assert exchange.responses[0] != exchange.responses[1]
        given_text = json.dumps([prompt, chosen, rejected])
        assert all(json.dumps(text)[1:-1] in given_text for text in (exchange.prompt, *exchange.responses))


def _csv(folder: Path, text: str) -> Path:
    path = folder / "rows.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("score", "found"),
    [
        ("1e400", "inf"),
        ("-1e400", "-inf"),
        ("NaN", "nan"),
        ("1e16", "1e\\+16"),
        ("-1000000000000001", "-1000000000000001"),
        ("1" + "0" * 400, "1000"),
        ("true", "True"),
    ],
)
@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_scores_are_finite_and_within_the_bound(tmp_path: Path, score: str, found: str, form: str) -> None:
    if form == "jsonl":
        path = tmp_path / "rows.jsonl"
        rows = [
            f'{{"prompt": "p", "responses": ["a", "b"], "scores": [1, {s}], "group": "Chile"}}' for s in ("1e15", score)
        ]
        path.write_text("\n".join(rows), encoding="utf-8")
    else:
        cells = "".join(f'p,"[""a"", ""b""]","[1, {s}]",Chile\n' for s in ("-1000000000000000", score))
        path = _csv(tmp_path, f"prompt,responses,scores,group\n{cells}")
    with pytest.raises(
        UserError, match=rf": row 2: column scores: expected finite numbers within \+-1e\+15, found {found}"
    ):
        read_table_file(path)


def test_bombs_of_digits_are_one_clear_line(tmp_path: Path) -> None:
    digits = "9" * 5000
    (tmp_path / "x.jsonl").write_text(f'{{"prompt": "p", "scores": [{digits}]}}\n', encoding="utf-8")
    bomb = _csv(tmp_path, f'prompt,responses,scores,group\np,"[""a"", ""b""]","[1, {digits}]",Chile\n')
    for path, says in (
        (tmp_path / "x.jsonl", "line 1: expected a JSON object"),
        (bomb, "row 1: column scores: expected a list"),
    ):
        with pytest.raises(UserError, match=says) as error:
            read_table_file(path)
        assert len(str(error.value)) < 400
        assert "\n" not in str(error.value)


def test_a_column_that_stands_twice_is_refused_by_name(tmp_path: Path) -> None:
    path = _csv(tmp_path, "prompt,chosen,rejected,group,chosen\np,a,b,Chile,c\n")
    with pytest.raises(UserError, match=r"rows\.csv: expected each column once, found 2 columns 'chosen'"):
        read_table_file(path)
    columns = [pa.array([text]) for text in ("p", "a", "b", "Chile", "c")]
    pq.write_table(pa.table(columns, names=["prompt", "chosen", "rejected", "group", "group"]), tmp_path / "x.parquet")
    with pytest.raises(UserError, match=r"x\.parquet: expected each column once, found 2 columns 'group'"):
        read_table_file(tmp_path / "x.parquet")
