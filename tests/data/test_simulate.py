"""The planted world in the raw layouts of PRISM and GlobalOpinionQA: fields, structure, people, dirt."""

from __future__ import annotations

import ast
import csv
import json
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.data.simulate import simulate
from scpo.data.simulate.goqa import Question, group_of, printed, with_faults
from scpo.data.simulate.people import resident_counts
from scpo.data.simulate.places import PLACES
from scpo.groups import PRISM7, canonical


def names(text: str) -> list[str]:
    return text.split()


SURVEY_KEYS = names(
    "user_id survey_only num_completed_conversations timing_duration_s timing_duration_mins generated_datetime consent "
    "consent_age lm_familiarity lm_indirect_use lm_direct_use lm_frequency_use self_description system_string age gender "
    "employment_status education marital_status english_proficiency study_id study_locale religion ethnicity location "
    "lm_usecases stated_prefs order_lm_usecases order_stated_prefs included_in_US_REP included_in_UK_REP "
    "included_in_balanced_subset"
)
UTTERANCE_KEYS = names(
    "utterance_id interaction_id conversation_id user_id turn within_turn_id included_in_balanced_subset conversation_type "
    "user_prompt model_response model_name model_provider score if_chosen"
)
CONVERSATION_KEYS = names(
    "conversation_id user_id included_in_balanced_subset generated_datetime timing_duration_s timing_duration_mins "
    "conversation_type opening_prompt conversation_turns conversation_history performance_attributes choice_attributes "
    "open_feedback"
)
LOCATION_KEYS = names(
    "birth_country birth_countryISO birth_subregion reside_country reside_countryISO reside_subregion "
    "same_birth_reside_country special_region"
)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default world."""
    out = tmp_path_factory.mktemp("world") / "raw"
    simulate(out)
    return out


@pytest.fixture(scope="module")
def survey(raw: Path) -> list[dict[str, Any]]:
    return lines(raw / "prism/survey.jsonl")


@pytest.fixture(scope="module")
def utterances(raw: Path, survey: list[dict[str, Any]]) -> pd.DataFrame:
    """utterances.jsonl beside its truth; ``truth_*`` is spelled as in the parquet file."""
    frame = pd.DataFrame(lines(raw / "prism/utterances.jsonl"))
    truth = pd.read_parquet(raw / "truth/utterances.parquet")
    assert truth["utterance_id"].tolist() == frame["utterance_id"].tolist()
    return pd.concat([frame, truth.drop(columns=["utterance_id", "interaction_id"])], axis=1)


def test_survey_has_prisms_fields_types_and_vocabularies(survey: list[dict[str, Any]]) -> None:
    ages = {"18-24", "25-34", "35-44", "45-54", "55-64", "65+"}
    for row in survey:
        assert list(row) == SURVEY_KEYS
        assert list(row["location"]) == LOCATION_KEYS
        assert list(row["religion"]) == list(row["ethnicity"]) == ["self_described", "categorised", "simplified"]
        assert row["age"] == "Prefer not to say" or row["age"].removesuffix(" years old") in ages
        assert row["survey_only"] == (row["num_completed_conversations"] == 0)
        assert len(row["lm_usecases"]) == 20
        assert len(row["stated_prefs"]) == 10
        shown = "Yes" in (row["lm_direct_use"], row["lm_indirect_use"])
        assert (row["lm_frequency_use"] is not None) == shown
        assert {v is not None for k, v in row["lm_usecases"].items() if k != "other_text"} == {shown}
        orders = [v for k, v in row["order_stated_prefs"].items() if k != "other"]
        assert sorted(orders) == list(range(1, 9))
        assert row["order_stated_prefs"]["other"] == 9
        assert all(0 <= v <= 100 for k, v in row["stated_prefs"].items() if k != "other_text")
        location = row["location"]
        if "Prefer not to say" not in (location["birth_country"], location["reside_country"]):
            same = location["birth_countryISO"] == location["reside_countryISO"]
            assert location["same_birth_reside_country"] == ("Yes" if same else "No")
    assert [row["user_id"] for row in survey] == [f"user{i}" for i in range(300)]
    assert sum(row["survey_only"] for row in survey) == round(300 * 104 / 1500)
    assert any(row["location"]["reside_country"] == "Prefer not to say" for row in survey)


def test_utterances_have_prisms_fields_and_structure(utterances: pd.DataFrame, survey: list[dict[str, Any]]) -> None:
    assert list(utterances.columns[: len(UTTERANCE_KEYS)]) == UTTERANCE_KEYS
    assert utterances["utterance_id"].tolist() == [f"ut{n}" for n in range(len(utterances))]
    assert utterances["score"].between(1, 100).all()
    assert utterances["score"].map(type).eq(int).all()
    assert set(utterances["user_id"]) == {row["user_id"] for row in survey if not row["survey_only"]}
    sizes = utterances.groupby(["interaction_id", "turn"]).size().reset_index(name="size")
    assert set(sizes.loc[sizes["turn"] == 0, "size"]) == {2, 3, 4}
    assert set(sizes.loc[sizes["turn"] > 0, "size"]) == {2}
    first = utterances[utterances["turn"] == 0]
    assert not first.duplicated(["interaction_id", "model_name"]).any()
    for _, rows in utterances.groupby("conversation_id"):
        chosen = rows.loc[(rows["turn"] == 0) & rows["if_chosen"], "model_name"]
        assert set(rows.loc[rows["turn"] > 0, "model_name"]) == {chosen.iloc[0]}
    assert (utterances["model_response"] == "EMPTY STRING").any()
    assert (utterances["model_response"] != "").all()


def test_the_chosen_one_has_the_top_score_and_sometimes_there_are_several(utterances: pd.DataFrame) -> None:
    by = utterances.groupby("interaction_id")
    top = by["score"].transform("max")
    assert (utterances.loc[utterances["if_chosen"], "score"] == top[utterances["if_chosen"]]).all()
    counts = by["if_chosen"].sum()
    assert counts.min() == 1
    assert counts.max() > 1
    tied_tops = utterances[utterances["score"] == top].groupby("interaction_id").size()
    assert ((tied_tops > 1) & (counts[tied_tops.index] == 1)).any()


def test_conversations_hold_the_same_candidates_as_utterances(raw: Path, utterances: pd.DataFrame) -> None:
    rows = lines(raw / "prism/conversations.jsonl")
    fields = ["turn", "within_turn_id", "model_response", "model_name", "model_provider", "score", "if_chosen"]
    expected = {c: g[fields].to_numpy().tolist() for c, g in utterances.groupby("conversation_id")}
    prompts = {c: g.drop_duplicates("turn")["user_prompt"].tolist() for c, g in utterances.groupby("conversation_id")}
    assert [row["conversation_id"] for row in rows] == [f"c{i}" for i in range(len(expected))]
    kinds = ["turn", "within_turn_id", "content", "model_name", "model_provider", "score", "if_chosen"]
    for row in rows:
        assert list(row) == CONVERSATION_KEYS
        history = row["conversation_history"]
        model = [[m[k] for k in kinds] for m in history if m["role"] == "model"]
        assert model == expected[row["conversation_id"]]
        assert [m["content"] for m in history if m["role"] == "user"] == prompts[row["conversation_id"]]
        assert row["conversation_turns"] == len(prompts[row["conversation_id"]]) >= 2
        assert row["opening_prompt"] == history[0]["content"]
        sliders = [*row["performance_attributes"].values(), *row["choice_attributes"].values()]
        assert len(sliders) == 14
        assert all(v is None or 1 <= v <= 100 for v in sliders)


# People


def test_at_prisms_size_the_countries_are_prisms() -> None:
    counts = dict(zip([p.name for p in PLACES], resident_counts(1500), strict=True))
    assert counts["United States"] == 386
    assert counts["United Kingdom"] == 340
    assert [counts[name] for name in PRISM7] == [65, 86, 77, 72, 67, 61, 54]
    assert counts["Korea, Republic of"] == 7
    assert counts["Prefer not to say"] == 1


@given(st.integers(20, 1500))
def test_every_size_keeps_the_seven_countries(annotators: int) -> None:
    counts = resident_counts(annotators)
    assert sum(counts) == annotators
    assert min(counts) >= 0
    by_name = dict(zip([p.name for p in PLACES], counts, strict=True))
    assert min(by_name[name] for name in PRISM7) >= min(12, annotators // 20)
    assert by_name["Prefer not to say"] >= 1
    assert by_name["United States"] == max(counts)


def test_the_seven_countries_have_twelve_annotators_who_talk(utterances: pd.DataFrame) -> None:
    talkers = utterances.groupby("group")["user_id"].nunique()
    assert min(talkers[name] for name in PRISM7) >= 12


def test_group_columns_are_canonical_names(utterances: pd.DataFrame) -> None:
    assert "South Korea" in utterances.columns
    assert "Prefer not to say" not in utterances.columns
    groups = [p for p in PLACES if p.reside and p.name != "Prefer not to say"]
    assert all(canonical(p.name) in utterances.columns for p in groups)


# GlobalOpinionQA


@pytest.fixture(scope="module")
def opinions(raw: Path) -> list[dict[str, Any]]:
    with open(raw / "goqa/global_opinions.csv", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["question", "selections", "options", "source"]
    for row in rows:
        head, tail = "defaultdict(<class 'list'>, ", ")"
        assert row["selections"].startswith(head)
        assert row["selections"].endswith(tail)
        row["raw"] = row["selections"] + row["options"]
        row["selections"] = ast.literal_eval(row["selections"][len(head) : -len(tail)])
        row["options"] = ast.literal_eval(row["options"])
    return rows


def test_opinions_have_the_corpus_dirt(opinions: list[dict[str, Any]]) -> None:
    names = {name for row in opinions for name in row["selections"]}
    assert {"S. Africa", "South Africa", "Britain", "Great Britain", "S. Korea", "Czech Rep."} <= names
    assert {"India (Current national sample)", "China (Non-national sample)", "India (Old national sample)"} <= names
    options = [option for row in opinions for option in row["options"]]
    assert {"DK/Refused", "Don't know", "No answer", "Other missing; Multiple answers Mail (EVS)"} <= set(options)
    assert 3 in options
    assert any('"' in row["question"] for row in opinions)
    assert any("'" in row["question"] for row in opinions)
    assert any(r"\'" in row["raw"] for row in opinions)
    assert any('"I' in row["raw"] for row in opinions)
    questions = Counter(row["question"] for row in opinions)
    assert len(questions) == 200
    assert max(questions.values()) == 2
    for question in (q for q, n in questions.items() if n == 2):
        one, two = (set(row["selections"]) for row in opinions if row["question"] == question)
        assert one
        assert two
        assert not one & two
    assert {row["source"] for row in opinions} == {"GAS", "WVS"}


def test_broken_distributions_exist_and_are_few_in_every_country(opinions: list[dict[str, Any]]) -> None:
    asked: Counter[str] = Counter()
    broken: dict[str, Counter[str]] = defaultdict(Counter)
    sums = set()
    for row in opinions:
        for name, shares in row["selections"].items():
            asked[group_of(name)] += 1
            if len(shares) != len(row["options"]):
                broken["length"][group_of(name)] += 1
            elif not any(shares):
                broken["zero"][group_of(name)] += 1
            else:
                assert min(shares) >= 0
                sums.add(round(sum(shares), 6))
    assert min(sums) >= 0.98
    assert max(sums) <= 1.02
    assert {0.99, 1.0, 1.01} <= sums
    assert broken["length"].total() > 5
    assert broken["zero"].total() > 5
    for group, n in asked.items():
        assert broken["length"][group] + broken["zero"][group] <= 0.1 * n


def test_a_country_asked_once_is_never_broken() -> None:
    levels = np.zeros((2, 10))
    rows = [Question(f"q{i}", "GAS", ("Yes", "No"), 2, levels, {f"Land {i}": [0.4, 0.6]}) for i in range(200)]
    assert with_faults(rows, np.random.default_rng(0)) == rows
    often = [replace(row, selections={"Land": [0.4, 0.6]}) for row in rows]
    shares = [row.selections["Land"] for row in with_faults(often, np.random.default_rng(0))]
    assert Counter(map(tuple, shares)) == {(0.4, 0.6): 196, (0.0, 0.0): 2, (0.4,): 1, (0.4, 0.6, 0.0): 1}


def test_printed_shares_round_one_by_one() -> None:
    assert printed([0.333, 0.333, 0.334]) == [0.33, 0.33, 0.33]
    up = [0.106] * 9 + [0.046]  # as percentages these sum to 104
    assert printed(up) == up


def test_shares_follow_the_true_utilities(raw: Path, opinions: list[dict[str, Any]]) -> None:
    truth = pd.read_parquet(raw / "truth/options.parquet")
    assert len(truth) == sum(len(row["options"]) for row in opinions)
    right = total = 0
    for number, rows in truth.groupby("row"):
        row = opinions[int(str(number))]
        assert rows["option"].tolist() == [str(option) for option in row["options"]]
        assert set(rows["question"]) == {row["question"]}
        answers = rows[~rows["non_answer"]]
        for name, shares in row["selections"].items():
            if len(shares) == len(rows) and any(shares):
                total += 1
                best = int(np.argmax(np.array(shares)[: len(answers)]))
                right += best == int(answers[group_of(name)].to_numpy().argmax())
    assert right / total > 0.85
    assert truth.loc[truth["non_answer"], "Chile"].isna().all()
    assert truth.loc[~truth["non_answer"], "Chile"].notna().all()
