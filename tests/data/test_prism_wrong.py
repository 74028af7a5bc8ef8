"""PRISM: wrong rows and damaged files stop with the file, line and field that they name."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from prism_rows import TWO, dump, person, read, said

from scpo.data.prism import read_prism
from scpo.errors import UserError


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("score", 0, "line 2: field score: expected a number from 1 to 100"),
        ("score", 100.5, "field score"),
        ("score", math.nan, "field score.*found nan"),
        ("score", True, "field score.*found True"),
        ("score", "50", "field score.*found '50'"),
        ("if_chosen", 1, "field if_chosen: expected true, false or null"),
        ("turn", -1, "field turn"),
        ("turn", 1.5, "field turn"),
        ("within_turn_id", None, "field within_turn_id"),
        ("model_response", None, "field model_response: expected a string"),
        ("user_prompt", 3, "field user_prompt"),
        ("utterance_id", "ut0-0-0", "field utterance_id: expected unique ids, found 'ut0-0-0' also in line 1"),
        ("user_id", "u9", "field user_id: expected an annotator of the survey, found 'u9'"),
        ("user_prompt", "other", "field user_prompt: expected one user_prompt per interaction"),
    ],
)
def test_wrong_values_name_file_line_and_field(tmp_path: Path, field: str, value: Any, says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        read_prism(dump(tmp_path, [person("u1")], [TWO[0], TWO[1] | {field: value}]))
    assert "utterances.jsonl: line 2" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", sorted(set(TWO[0]) - {"score", "if_chosen"}))
def test_a_renamed_column_is_named(tmp_path: Path, field: str) -> None:
    rows = [{(f"{field}x" if k == field else k): v for k, v in row.items()} for row in TWO]
    with pytest.raises(
        UserError, match=f"field {field}: expected this column, found the columns .*Did you mean .*'{field}x'"
    ):
        read_prism(dump(tmp_path, [person("u1")], rows))


def test_a_renamed_score_is_no_file_without_scores() -> None:
    rows = [
        {("Scores" if k == "score" else k): v for k, v in row.items()} | {"if_chosen": row["score"] > 50} for row in TWO
    ]
    with pytest.raises(UserError, match=r"field score: expected this column.*Did you mean 'Scores'"):
        read([person("u1")], rows)
    neither = [{k: v for k, v in row.items() if k not in ("score", "if_chosen")} for row in TWO]
    with pytest.raises(UserError, match="field score: expected this column"):
        read([person("u1")], neither)


@pytest.mark.parametrize(
    ("survey", "says"),
    [
        ([person("u1"), person("u1")], "line 2: field user_id: expected unique ids, found 'u1' also in line 1"),
        ([{"user_id": "u1"}], "field location: expected this column, found the columns user_id"),
        ([{"userid": "u1", "location": {}}], "field user_id: .*Did you mean 'userid'"),
        ([{"user_id": "u1", "location": "Chile"}], "field location: expected an object"),
        ([person("u1", 5)], "field location.reside_country: expected a string or null, found 5"),
        ([person("u1", age=30)], "field age: expected a string or null"),
        ([person("u1", religion="Jewish")], "field religion: expected an object"),
        ([person("u1", None), person("u2", "Prefer not to say")], "reside_country for at least one.*missing in all 2"),
    ],
)  # fmt: skip
def test_wrong_surveys(tmp_path: Path, survey: list[Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_prism(dump(tmp_path, survey, TWO))


def test_users_missing_everywhere_and_shared_conversations() -> None:
    with pytest.raises(UserError, match="field user_id: expected the annotator's id, found it missing in all 2 rows"):
        read([person("u1")], [row | {"user_id": None} for row in TWO])
    other = [said("u2", 0, 1, k, k + 1) for k in range(2)]
    with pytest.raises(UserError, match="line 3: field user_id: expected one user per conversation"):
        read([person("u1"), person("u2")], TWO + other)
    again = [row | {"interaction_id": "x", "utterance_id": "x" + row["utterance_id"]} for row in TWO]
    with pytest.raises(UserError, match="field turn: expected one interaction per turn"):
        read([person("u1")], TWO + again)


def test_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected a folder with survey.jsonl"):
        read_prism(tmp_path / "absent")
    with pytest.raises(UserError, match=r"survey.jsonl: no such file"):
        read_prism(tmp_path)
    (tmp_path / "survey.jsonl").write_text(json.dumps(person("u1")), encoding="utf-8")
    with pytest.raises(UserError, match=r"expected utterances.jsonl or conversations.jsonl, found survey.jsonl"):
        read_prism(tmp_path)
    texts = tmp_path / "utterances.jsonl"
    texts.write_text(json.dumps(TWO[0]) + "\n" + json.dumps(TWO[1])[:-9], encoding="utf-8")
    with pytest.raises(UserError, match=r"line 2: expected a JSON object.*truncated"):
        read_prism(tmp_path)
    texts.write_bytes(b"\x1f\x8b\x08\x00\xff\xfe")
    with pytest.raises(UserError, match="line 1: expected UTF-8 text, found binary data"):
        read_prism(tmp_path)
    texts.write_text("", encoding="utf-8")
    with pytest.raises(UserError, match="expected one row per candidate, found none"):
        read_prism(tmp_path)


def test_no_country_at_all_names_the_survey(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"survey\.jsonl: expected reside_country for at least one annotator"):
        read_prism(dump(tmp_path, [person("u1", None)], TWO))
    with pytest.raises(UserError, match=r"^the Hub survey: expected age for at least one"):
        read([person("u1")], TWO, name="the Hub", group_by="age")


@pytest.mark.parametrize("value", [10**400, -(10**400), math.inf, math.nan, 100.5, 0])
def test_a_score_out_of_range_is_one_line_whatever_its_size(value: float) -> None:
    with pytest.raises(UserError, match=r"line 1: field score: expected a number from 1 to 100 or null") as error:
        read([person("u1")], [said("u1", 0, 0, 0, value)])
    assert len(str(error.value)) < 200
