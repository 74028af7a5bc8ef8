"""PRISM: hand-made rows with known counts, any value in any field, and the real rows where they are at hand."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prism_rows import TWO, counts, dump, person, read, said

from scpo.data.ledger import NO_GROUP
from scpo.data.prism import read_prism
from scpo.data.prism_parse import Place, parse_utterances, score_of
from scpo.errors import UserError

SHARED = Path(os.environ.get("SCPO_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data")) / "prism"


def test_a_turn_becomes_one_comparison(tmp_path: Path) -> None:
    prepared = read_prism(dump(tmp_path, [person("u1")], TWO))
    assert prepared.frame.to_dict("records") == [
        {
            "dataset": "prism",
            "comparison_id": "int0-0",
            "candidate_id": f"ut0-0-{k}",
            "prompt": "question 0",
            "history": [],
            "response": f"answer 0 {k}",
            "score": score,
            "group": "Chile",
            "annotator_id": "u1",
            "cluster_id": "u1",
            "attributes": {},
        }
        for k, score in ((0, 90.0), (1, 10.0))
    ]
    assert set(prepared.source["files"]) == {"survey.jsonl", "utterances.jsonl"}


def test_ties_are_kept_and_noted() -> None:
    first = [said("u1", 0, 0, k, s) for k, s in enumerate((90, 40, 40, 10))]
    later = [said("u1", 0, 1, k, 50) for k in range(2)]
    prepared = read([person("u1")], first + later)
    assert counts(prepared)["Chile"] == {"kept": 2, "dropped": {"tied pairs": 2, "no pair: all scores equal": 1}}
    assert len(prepared.frame) == 6


def test_candidates_stand_in_the_order_of_the_turn() -> None:
    frame = read([person("u1")], TWO[::-1]).frame
    assert list(frame["candidate_id"]) == ["ut0-0-0", "ut0-0-1"]


def test_dropped_and_counted() -> None:
    alone, blank = [said("u1", 1, 0, 0, 5)], [said("u1", 2, 0, k, k + 1) | {"user_prompt": " \n"} for k in range(2)]
    unjudged = [said("u1", 3, 0, 0, 5), said("u1", 3, 0, 1, None)]
    all_chosen = [said("u1", 4, 0, k, None, chosen=True) for k in range(2)]
    nobody = [said("u1", 5, 0, k, k + 1) | {"user_id": None} for k in range(2)]
    away, silent = ([said(u, t, 0, k, k + 1) for k in range(2)] for u, t in (("u2", 6), ("u3", 7)))
    survey = [
        person("u1"),
        person("u2", None),
        person("u3", "Prefer not to say"),
        person("u4"),
        {"user_id": "u5", "location": None},
    ]
    prepared = read(survey, TWO + alone + blank + unjudged + all_chosen + nobody + away + silent)
    assert counts(prepared) == {
        NO_GROUP: {
            "kept": 0,
            "dropped": {"no country": 1, "country: prefer not to say": 1, "no user id": 1, "survey-only annotators": 1},
        },
        "Chile": {
            "kept": 1,
            "dropped": {"one candidate": 1, "empty prompt": 1, "no score": 2, "survey-only annotators": 1},
        },
    }
    talks = prepared.extra["conversations"]["by_group"]
    assert talks["Chile"] == {"kept": 1, "dropped": {"no comparison left": 4}}
    assert sum(talks[NO_GROUP]["dropped"].values()) == 3
    assert prepared.extra["survey_users"] == ["u1", "u2", "u3", "u4", "u5"]
    assert list(prepared.frame["candidate_id"]) == ["ut0-0-0", "ut0-0-1"]


def test_without_scores_the_chosen_stands_against_the_rest() -> None:
    rows = [said("u1", 0, 0, k, 99 if k == 0 else None, chosen=k > 0) for k in range(3)]
    prepared = read([person("u1")], rows)
    assert list(prepared.frame["score"]) == [0.0, 1.0, 1.0]
    assert counts(prepared)["Chile"]["dropped"] == {"chosen only": 1, "tied pairs": 1}
    for row in rows:
        del row["score"]
    assert list(read([person("u1")], rows).frame["score"]) == [0.0, 1.0, 1.0]


def test_empty_responses_are_kept_or_dropped() -> None:
    rows = [said("u1", 0, 0, k, 10 * k + 1, text="EMPTY STRING" if k == 1 else None) for k in range(3)]
    rows += [said("u1", 1, 0, k, 10 * k + 1, text="EMPTY STRING" if k == 1 else None) for k in range(2)]
    kept = read([person("u1")], rows)
    assert list(kept.frame["response"]) == ["answer 0 0", "", "answer 0 2", "answer 0 0", ""]
    assert counts(kept)["Chile"] == {"kept": 2, "dropped": {"empty responses kept": 2}}
    dropped = read([person("u1")], rows, empty_responses="drop")
    assert list(dropped.frame["response"]) == ["answer 0 0", "answer 0 2"]
    assert counts(dropped)["Chile"] == {
        "kept": 1,
        "dropped": {"empty responses dropped": 2, "one candidate once empty responses are dropped": 1},
    }
    assert dropped.ledger.fault_share("Chile") == 0


def history_rows() -> list[dict[str, Any]]:
    first = [
        said("u1", 0, 0, k, s, chosen=c) for k, (s, c) in enumerate([(30, False), (80, True), (80, True), (99, False)])
    ]
    second = [said("u1", 0, 1, k, s, chosen=False) for k, s in enumerate((20, 60))]
    third = [said("u1", 0, 2, k, None, chosen=None) for k in range(2)]
    return first + second + third + [said("u1", 0, 3, k, 10 + k) for k in range(2)]


def test_history_holds_the_chosen_responses_of_earlier_turns() -> None:
    prepared = read([person("u1")], history_rows()[::-1], history=True)
    histories = prepared.frame.drop_duplicates("comparison_id").set_index("comparison_id")["history"]
    one = [{"role": "user", "content": "question 0"}, {"role": "assistant", "content": "answer 0 1"}]
    two = [*one, {"role": "user", "content": "question 1"}, {"role": "assistant", "content": "answer 1 1"}]
    assert histories.to_dict() == {"int0-0": [], "int0-1": one, "int0-3": two}
    notes = counts(prepared)["Chile"]["dropped"]
    assert notes["history: several chosen responses"] == 1
    assert notes["history: no chosen response"] == 1
    assert notes["history: turn without a chosen response left out"] == 1
    assert not any(read([person("u1")], history_rows()).frame["history"])


def test_attributes_are_categories_and_never_free_text() -> None:
    secret = "in my own words"
    row = person(
        "u1",
        age="18-24 years old",
        gender="Prefer not to say",
        education=None,
        religion={"self_described": secret, "categorised": "Jewish", "simplified": "Jewish"},
        ethnicity={"self_described": secret, "simplified": "Prefer not to say"},
        self_description=secret,
        system_string=secret,
    )
    row["location"] |= {"birth_country": "Korea, Republic of", "special_region": secret}
    frame = read([row], TWO).frame
    assert frame["attributes"][0] == {"age": "18-24 years old", "religion": "Jewish", "birth_country": "South Korea"}
    assert secret not in frame.to_json()


def test_any_attribute_can_be_the_group() -> None:
    survey = [
        person("u1", gender="Male"),
        person("u2", "Israel", gender="Female"),
        person("u3", None, gender="Male"),
        person("u4"),
    ]
    names = ("user_id", "conversation_id", "interaction_id")
    rows = [
        row | dict.fromkeys(names, u) | {"utterance_id": f"{u}-{k}"}
        for u in ("u1", "u2", "u3", "u4")
        for k, row in enumerate(TWO)
    ]
    prepared = read(survey, rows, group_by="gender")
    assert list(prepared.frame["group"][::2]) == ["Male", "Female", "Male"]
    assert [a.get("country") for a in prepared.frame["attributes"][::2]] == ["Chile", "Israel", None]
    assert counts(prepared)[NO_GROUP]["dropped"] == {"no gender": 1}
    with pytest.raises(UserError, match="Did you mean 'gender'"):
        read(survey, TWO, group_by="gendre")


def test_country_by_code() -> None:
    survey = [{"user_id": "u1", "location": {"reside_countryISO": "NZL"}}]
    assert set(read(survey, TWO).frame["group"]) == {"New Zealand"}


def talk(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"conversation_id": "c0", "user_id": "u1", "conversation_history": list(messages)}


USER = {"turn": 0, "role": "user", "content": "hello"}
MODEL = {"turn": 0, "role": "model", "content": "hi", "score": 7, "if_chosen": True, "within_turn_id": 0}


def test_conversations_give_built_ids(tmp_path: Path) -> None:
    (tmp_path / "survey.jsonl").write_text(json.dumps(person("u1")), encoding="utf-8")
    path = tmp_path / "conversations.jsonl"
    path.write_text(
        json.dumps(talk(USER, MODEL, MODEL | {"within_turn_id": 1, "content": "ho", "score": 3})), encoding="utf-8"
    )
    frame = read_prism(tmp_path).frame
    assert list(frame["candidate_id"]) == ["c0/0/0", "c0/0/1"]
    assert set(frame["comparison_id"]) == {"c0/0"}
    assert list(frame["score"]) == [7.0, 3.0]
    for messages, says in (
        ((USER, MODEL | {"score": 101}), r"line 1: field conversation_history\[1\].score"),
        ((USER, MODEL, MODEL), "expected unique ids, found 'c0/0/0'"),
        ((USER, USER, MODEL), "one user message per turn"),
        ((MODEL,), "a turn that has a user message"),
        ((USER, MODEL | {"role": "system"}), "expected 'user' or 'model', found 'system'"),
    ):
        path.write_text(json.dumps(talk(*messages)), encoding="utf-8")
        with pytest.raises(UserError, match=says):
            read_prism(tmp_path)


@given(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 200), st.floats(), st.text(max_size=3), st.lists(st.integers()))
)
def test_a_score_is_a_number_in_range_or_an_error(value: Any) -> None:
    fine = value is None or (type(value) in (int, float) and 1 <= value <= 100)
    if fine:
        assert score_of({"score": value}, Place("f", 1)) == value
    else:
        with pytest.raises(UserError, match="f: line 1: field score"):
            score_of({"score": value}, Place("f", 1))


@given(
    st.sampled_from(sorted(TWO[0])),
    st.one_of(st.none(), st.integers(), st.text(), st.booleans(), st.floats(), st.lists(st.none()), st.just(...)),
)
def test_any_value_parses_or_is_an_error_that_names_its_field(field: str, value: Any) -> None:
    row = {name: kept for name, kept in (TWO[0] | {field: value}).items() if kept is not ...}
    message = ""
    try:
        parsed = list(parse_utterances([(1, row)], "f"))
    except UserError as error:
        message = str(error)
    assert (
        message.startswith(f"f: line 1: field {field}: expected ")
        if message
        else parsed[0].prompt == row["user_prompt"]
    )


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="no real PRISM rows (SCPO_SHARED_DATA)")
@pytest.mark.parametrize("history", [False, True])
def test_real_conversations(tmp_path: Path, history: bool) -> None:
    shutil.copy(SHARED / "real_conversations.jsonl", tmp_path / "conversations.jsonl")
    shutil.copy(SHARED / "real_survey_partial.jsonl", tmp_path / "survey.jsonl")
    prepared = read_prism(tmp_path, history=history)
    talks = prepared.extra["conversations"]["by_group"]
    assert talks == {NO_GROUP: {"kept": 0, "dropped": {"no country": 45}}, "Canada": {"kept": 7, "dropped": {}}}
    # Counted without the library: model messages per (conversation, turn) of user0 and user1, and of the others.
    candidates, turns, elsewhere = 0, set(), set()
    for line in (tmp_path / "conversations.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        spoken = [m for m in row["conversation_history"] if m["role"] == "model"]
        where = turns if row["user_id"] in ("user0", "user1") else elsewhere
        where.update((row["conversation_id"], m["turn"]) for m in spoken)
        candidates += len(spoken) if where is turns else 0
    assert len(prepared.frame) == candidates == 64
    assert prepared.ledger.kept["Canada"] == len(turns) == 27
    assert prepared.ledger.dropped[NO_GROUP] == {"no country": len(elsewhere)}
    scores = prepared.frame.groupby("comparison_id")["score"].agg(list)
    assert scores.pop("c0/0") == [17.0, 92.0]
    assert all(sorted(set(values)) == [0.0, 1.0] for values in scores)
    assert prepared.frame["history"].map(len).gt(0).any() == history


def test_a_candidate_without_a_score_beside_two_scored_ones_is_left_out() -> None:
    """Whether or not the rows say which was chosen: two sliders order more than a choice does."""
    for chosen in ([None] * 4, [False, True, False, False], [True, False, False, False]):
        rows = [
            said("u1", 0, 0, k, s, chosen=c) for k, (s, c) in enumerate(zip((30, None, 80, None), chosen, strict=True))
        ]
        prepared = read([person("u1")], rows)
        assert prepared.frame[["candidate_id", "score"]].values.tolist() == [["ut0-0-0", 30.0], ["ut0-0-2", 80.0]]
        assert counts(prepared) == {"Chile": {"kept": 1, "dropped": {"candidates without a score left out": 2}}}


def test_a_single_score_orders_nothing_and_the_choice_decides() -> None:
    rows = [said("u1", 0, 0, k, s, chosen=c) for k, (s, c) in enumerate(((30, False), (None, True), (None, False)))]
    prepared = read([person("u1")], rows)
    assert list(prepared.frame["score"]) == [0.0, 1.0, 0.0]
    assert counts(prepared) == {"Chile": {"kept": 1, "dropped": {"chosen only": 1, "tied pairs": 1}}}
    unchosen = [row | {"if_chosen": None} for row in rows]
    more = [said("u1", 1, 0, k, k + 1) for k in range(2)]
    assert counts(read([person("u1")], unchosen + more)) == {"Chile": {"kept": 1, "dropped": {"no score": 1}}}


def test_left_out_candidates_do_not_count_as_ties_or_equal_texts() -> None:
    rows = [said("u1", 0, 0, k, s, text="same") for k, s in enumerate((50, 50, None))]
    assert counts(read([person("u1")], rows))["Chile"]["dropped"] == {
        "candidates without a score left out": 1,
        "tied pairs": 1,
        "no pair: all scores equal": 1,
        "identical responses in a comparison": 1,
    }
