"""GlobalOpinionQA: renormalised shares by hand, samples, duplicates, and every real question accounted for."""

from __future__ import annotations

import ast
import json
import math
import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.data.goqa import answers_of, read_goqa
from scpo.data.schema import COMPARISONS, read_comparisons, write_comparisons
from scpo.errors import UserError

SHARED = Path(os.environ.get("SCPO_SHARED_DATA", Path(__file__).parents[2] / ".." / "shared" / "data"))
CSV = SHARED / "goqa" / "global_opinions_dev.csv"


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


def dropped(prepared: Any, group: str) -> dict[str, int]:
    return dict(prepared.ledger.dropped[group])


def scores(prepared: Any, group: str) -> dict[str, float]:
    part = prepared.frame[prepared.frame["group"] == group]
    return dict(zip(part["response"], part["score"], strict=True))


def test_non_answers_are_dropped_and_the_rest_renormalised() -> None:
    prepared = read_goqa(frame(row()))
    # 0.5 and 0.3 of 0.8
    assert scores(prepared, "Chile") == pytest.approx({"Yes": 0.625, "No": 0.375}, abs=1e-15)
    assert dropped(prepared, "Chile") == {"non-answer options left out": 1}
    assert prepared.ledger.kinds["non-answer options left out"] == "note"
    assert prepared.ledger.kept == {"Chile": 1}


def test_non_answers_are_kept_by_option() -> None:
    prepared = read_goqa(frame(row()), non_answers="keep")
    assert scores(prepared, "Chile") == pytest.approx({"Yes": 0.5, "No": 0.3, "DK/Refused": 0.2}, abs=1e-15)
    assert dropped(prepared, "Chile") == {}


def test_rows_of_the_table() -> None:
    prepared = read_goqa(
        frame(row({"S. Africa": [0.2, 0.1, 0.7]}, ["DK", "No", 2.0], "  Is it “so”? ")),
        template="In {group}: {question}",
    )
    assert prepared.frame.to_dict("records") == [
        {
            "dataset": "goqa",
            "comparison_id": 'is it "so"/South Africa',
            "candidate_id": f'is it "so"/South Africa/{place}',
            "prompt": "In South Africa: Is it “so”?",
            "history": [],
            "response": text,
            "score": pytest.approx(score, abs=1e-15),
            "group": "South Africa",
            "annotator_id": None,
            "cluster_id": 'is it "so"',
            "attributes": {"sample": "national", "source": "GAS"},
        }
        for place, text, score in [(1, "No", 0.125), (2, "2", 0.875)]
    ]
    assert prepared.options == {"samples": "national", "non_answers": "drop", "template": "In {group}: {question}"}
    assert prepared.extra["questions"] == {"rows": 1, "kept": 1, "clusters": 1, "lost": {}}
    json.dumps([prepared.source, prepared.options, prepared.extra, prepared.ledger.as_dict()], allow_nan=False)


def test_the_frame_is_written_and_read_as_comparisons(tmp_path: Path) -> None:
    prepared = read_goqa(frame(row(), row({"Côte d'Ivoire": [0.1, 0.9, 0.0]}, question="Où “ça” ?")))
    assert [*prepared.frame.columns] == [name for name in COMPARISONS.names if name != "split"]
    write_comparisons(prepared.frame.assign(split="train"), tmp_path / "comparisons.parquet")
    again = read_comparisons(tmp_path)
    assert again["score"].tolist() == prepared.frame["score"].tolist()
    assert again["attributes"].tolist() == prepared.frame["attributes"].tolist()
    assert set(again["group"]) == {"Chile", "Ivory Coast"}


@pytest.mark.parametrize("factor", [0.98, 0.99, 1.01, 1.02])
def test_sums_from_098_to_102_are_rounding(factor: float) -> None:
    prepared = read_goqa(frame(row({"Chile": [0.5 * factor, 0.25 * factor, 0.25 * factor]})))
    assert scores(prepared, "Chile") == pytest.approx({"Yes": 2 / 3, "No": 1 / 3}, abs=1e-15)
    assert dropped(prepared, "Chile")["shares renormalised"] == 1


def test_the_end_of_the_range_belongs_to_it_in_floats_too() -> None:
    shares = [0.692, 0.285, 0.003]
    assert math.fsum(shares) < 0.98
    assert dropped(read_goqa(frame(row({"Chile": shares}))), "Chile")["shares renormalised"] == 1


@pytest.mark.parametrize("error", [5e-7, -5e-7, 0.0])
def test_tiny_differences_are_not_noted(error: float) -> None:
    prepared = read_goqa(frame(row({"Chile": [0.5 + error, 0.5, 0.0]})))
    assert "shares renormalised" not in dropped(prepared, "Chile")


@pytest.mark.parametrize(
    ("shares", "reason"),
    [
        ([0.5, 0.47, 0.0], "shares far from summing to 1"),
        ([0.5, 0.53, 0.0], "shares far from summing to 1"),
        ([50, 30, 20], "shares far from summing to 1"),
        ([0.0, 0.0, 0.0], "all shares zero"),
        ([0, 0, 0], "all shares zero"),
        ([1.1, -0.1, 0.0], "negative share"),
        ([0.5, 0.5], "another length than the options"),
        ([0.5, 0.5, 0.0, 0.0], "another length than the options"),
        ([], "another length than the options"),
    ],
)
def test_faults_of_a_distribution_are_dropped_and_counted(shares: list[float], reason: str) -> None:
    prepared = read_goqa(frame(row({"S. Korea": shares, "Chile": [0.5, 0.3, 0.2]})))
    assert dropped(prepared, "South Korea") == {reason: 1}
    assert prepared.ledger.kinds[reason] == "fault"
    assert prepared.ledger.fault_share("South Korea") == 1.0
    assert set(prepared.frame["group"]) == {"Chile"}


def test_only_non_answers_is_a_choice_and_one_candidate_a_fault_unless_non_answers_made_it() -> None:
    good = row({"Peru": [0.5, 0.3, 0.2]})
    only = row({"Chile": [0.0, 0.0, 1.0]}, question="B?")
    single = row({"Chile": [1.0]}, ["Yes"], "C?")
    made_single = row({"Chile": [0.9, 0.1]}, ["Yes", "No answer"], "D?")
    prepared = read_goqa(frame(good, only, single, made_single))
    assert dropped(prepared, "Chile") == {
        "only non-answers": 1,
        "one candidate": 1,
        "one candidate besides non-answers": 1,
    }
    kinds = prepared.ledger.kinds
    assert (kinds["only non-answers"], kinds["one candidate"]) == ("choice", "fault")
    assert kinds["one candidate besides non-answers"] == "choice"
    assert prepared.extra["questions"]["lost"] == {
        "one candidate": 1,
        "one candidate besides non-answers": 1,
        "only non-answers": 1,
    }
    kept = read_goqa(frame(good, only, single, made_single), non_answers="keep")
    assert dropped(kept, "Chile") == {"one candidate": 1}


def test_empty_questions_and_countries_are_counted() -> None:
    prepared = read_goqa(
        frame(
            row({"Chile": [0.5, 0.3, 0.2], " ": [0.5, 0.3, 0.2]}),
            *(row({"Chile": [0.5, 0.3, 0.2]}, question=text) for text in (" ", "?", None, float("nan"), pd.NA)),
            row({}, question="E?"),
        )
    )
    assert dropped(prepared, "Chile")["empty question"] == 5
    assert dropped(prepared, "(no group)") == {"empty country name": 1, "no country": 1}
    assert {prepared.ledger.kinds[r] for r in ("empty question", "empty country name", "no country")} == {"fault"}
    assert prepared.extra["questions"]["lost"] == {"empty question": 5, "no country": 1}


def test_equal_option_texts_become_one_candidate_with_the_sum() -> None:
    prepared = read_goqa(frame(row({"Chile": [0.1, 0.2, 0.3, 0.4]}, ["Yes", "No", " Yes", "No  "])))
    assert scores(prepared, "Chile") == pytest.approx({"Yes": 0.4, "No": 0.6}, abs=1e-15)
    assert dropped(prepared, "Chile") == {"options with the same text merged": 2}
    assert prepared.frame["candidate_id"].tolist() == ["is it so/Chile/0", "is it so/Chile/1"]
    number = read_goqa(frame(row({"Chile": [0.1, 0.2, 0.7]}, [2.0, "2", 3])))
    assert scores(number, "Chile") == pytest.approx({"2": 0.3, "3": 0.7}, abs=1e-15)


def test_the_total_of_a_table_is_no_answer() -> None:
    options = ["Yes", "No", "DK/Refused", "Total                  N="]
    prepared = read_goqa(
        frame(
            row({"Chile": [0.3, 0.15, 0.05, 0.5], "Peru": [0.6, 0.3, 0.1, 1.0], "Mali": [0.0, 0.0, 0.0, 1.0]}, options)
        ),
        non_answers="keep",
    )
    for group in ("Chile", "Peru"):
        assert scores(prepared, group) == pytest.approx({"Yes": 0.6, "No": 0.3, "DK/Refused": 0.1}, abs=1e-15)
        assert dropped(prepared, group)["total left out of the options"] == 1
    assert dropped(prepared, "Mali") == {"all shares zero": 1}


def test_an_empty_option_is_a_fault() -> None:
    prepared = read_goqa(frame(row(), row({"Chile": [0.5, 0.5]}, ["Yes", " "], "B?")))
    assert dropped(prepared, "Chile")["empty option"] == 1


@given(
    st.lists(st.sampled_from(["Yes", "No", " No", "DK", "Missing; x", "Total N=", "3"]), min_size=1, max_size=7),
    st.data(),
    st.sampled_from(["drop", "keep"]),
)
def test_scores_are_a_distribution_that_keeps_ratios(options: list[str], data: st.DataObject, non_answers: Any) -> None:
    parts = data.draw(st.lists(st.integers(0, 50), min_size=len(options), max_size=len(options)))
    shares = [part / (sum(parts) or 1) for part in parts]
    found = answers_of(options, shares, non_answers)
    if isinstance(found, tuple):
        assert found[0] in {"all shares zero", "one candidate", "only non-answers", "one candidate besides non-answers"}
        return
    assert math.fsum(score for _, _, score in found.kept) == pytest.approx(1, abs=1e-12)
    # Independent: exact sums of the integers behind the shares.
    weight = Counter[str]()
    for option, part in zip(options, parts, strict=True):
        if option != "Total N=" and (non_answers == "keep" or option in ("Yes", "No", " No", "3")):
            weight[option.strip()] += part
    assert {text.strip(): score for _, text, score in found.kept} == pytest.approx(
        {text: part / weight.total() for text, part in weight.items()}
    )


INDIA = {
    "India (Current national sample)": [0.5, 0.3, 0.2],
    "India (Old national sample)": [0.2, 0.6, 0.2],
    "India (Non-national sample)": [0.1, 0.7, 0.2],
    "Chile": [0.4, 0.4, 0.2],
}


def test_the_current_national_sample_is_national_and_others_are_left_out_by_choice() -> None:
    prepared = read_goqa(frame(row(INDIA)))
    assert scores(prepared, "India") == pytest.approx({"Yes": 0.625, "No": 0.375}, abs=1e-15)
    reasons = dropped(prepared, "India")
    assert (reasons["old national sample"], reasons["non-national sample"]) == (1, 1)
    assert prepared.ledger.kinds["old national sample"] == prepared.ledger.kinds["non-national sample"] == "choice"
    assert prepared.ledger.fault_share("India") == 0.0
    samples = {a["sample"] for a in prepared.frame["attributes"]}
    assert samples == {"current national", "national"}


def test_all_samples_are_comparisons_of_their_own() -> None:
    prepared = read_goqa(frame(row(INDIA)), samples="all")
    assert prepared.ledger.kept == {"India": 3, "Chile": 1}
    assert prepared.frame["comparison_id"].unique().tolist() == [
        "is it so/India/current national",
        "is it so/India/old national",
        "is it so/India/non-national",
        "is it so/Chile/national",
    ]
    assert prepared.frame["cluster_id"].unique().tolist() == ["is it so"]
    assert prepared.frame["candidate_id"].is_unique


def test_rows_of_one_question_are_one_cluster() -> None:
    prepared = read_goqa(
        frame(
            row({"Chile": [0.5, 0.3, 0.2]}), row({"Peru": [0.5, 0.5]}, ["Yes", "No"], "IS  it\nso"), row(question="Or?")
        )
    )
    assert prepared.frame.groupby("cluster_id")["group"].unique().map(list).to_dict() == {
        "is it so": ["Chile", "Peru"],
        "or": ["Chile"],
    }
    assert prepared.extra["questions"] == {"rows": 3, "kept": 3, "clusters": 2, "lost": {}}


def test_the_first_of_two_different_duplicates_stays() -> None:
    prepared = read_goqa(
        frame(
            row({"S. Korea": [0.5, 0.3, 0.2]}),
            row({"South Korea": [0.1, 0.9, 0.0], "Peru": [0.5, 0.5, 0.0]}),
            row({"South Korea": [0.5, 0.3, 0.2]}),
        )
    )
    assert scores(prepared, "South Korea") == pytest.approx({"Yes": 0.625, "No": 0.375}, abs=1e-15)
    reasons = dropped(prepared, "South Korea")
    assert (reasons["duplicate"], reasons["repeated with the same shares"]) == (1, 1)
    assert prepared.ledger.kinds["duplicate"] == "fault"
    assert prepared.ledger.kinds["repeated with the same shares"] == "note"
    assert prepared.ledger.kept["South Korea"] == 1
    assert prepared.extra["questions"]["lost"] == {"repeated with the same shares": 1}


def test_a_country_twice_in_one_dictionary_is_not_lost_silently() -> None:
    text = "defaultdict(<class 'list'>, {'Chile': [0.5, 0.3, 0.2], 'Chile': [0.3, 0.5, 0.2]})"
    prepared = read_goqa(frame(row(text)))
    assert scores(prepared, "Chile") == pytest.approx({"Yes": 0.625, "No": 0.375}, abs=1e-15)
    assert dropped(prepared, "Chile")["duplicate"] == 1


def test_braces_in_a_question_are_text() -> None:
    prepared = read_goqa(frame(row(question="Is {group} {x} so?")), template="{{{question}}} {group}")
    assert set(prepared.frame["prompt"]) == {"{Is {group} {x} so?} Chile"}


def test_settings_are_checked() -> None:
    with pytest.raises(UserError, match="samples: expected national or all, found 'both'"):
        read_goqa(frame(row()), samples="both")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="non_answers: expected drop or keep, found True"):
        read_goqa(frame(row()), non_answers=True)  # type: ignore[arg-type]


def independent_counts() -> dict[str, Counter[str]]:
    """Kept and lost per kind of sample by another way: regular expressions and json instead of a Python parser."""
    counts: dict[str, Counter[str]] = {"kept": Counter(), "options": Counter(), "rounded": Counter(), "rows": Counter()}
    non_answers = re.compile(
        r"(DK/Refused|Don't know(/Refused)?|Don't -9:-2|No answer(/refused)?|(Other )?[Mm]issing;.*|Can't rate.*|INAP.*)"
    )
    seen = set()
    for text in pd.read_csv(CSV).itertuples():
        options = ast.literal_eval(text.options)
        national = False
        for name, shares in re.findall(r"""['"]([^'"\[\]]+)['"]: (\[[^\]]*\])""", text.selections):
            kind = "other" if name.endswith("(Non-national sample)") or "(Old " in name else "national"
            national |= kind == "national"
            key = (text.question.strip().lower(), name)
            if key in seen:
                counts["rows"]["duplicate"] += 1
                continue
            seen.add(key)
            numbers = json.loads(shares)
            counts["kept"][kind] += 1
            counts["rounded"][kind] += abs(sum(numbers) - 1) > 1e-6
            assert len(numbers) == len(options)
            left = [o for o in options if not non_answers.fullmatch(str(o)) and not str(o).startswith("Total ")]
            counts["options"][kind] += len(left)
            counts["options"][f"{kind} total"] += sum(str(o).startswith("Total ") for o in options)
            counts["options"][f"{kind} all"] += len(options)
        counts["rows"]["national" if national else "other"] += 1
    return counts


@pytest.mark.shared
@pytest.mark.skipif(not CSV.is_file(), reason="the real questions of GlobalOpinionQA are absent (SCPO_SHARED_DATA)")
def test_every_real_question_is_accounted_for() -> None:
    other = independent_counts()
    start = time.perf_counter()
    prepared = read_goqa(CSV)
    assert time.perf_counter() - start < 30  # a hang, not a benchmark: it takes under a second
    reasons = sum((Counter(found) for found in prepared.ledger.dropped.values()), Counter[str]())
    assert prepared.ledger.kept.total() == other["kept"]["national"] == 5474
    assert reasons["non-national sample"] + reasons["old national sample"] == other["kept"]["other"] == 539
    assert reasons["duplicate"] == other["rows"]["duplicate"] == 1
    assert dropped(prepared, "Indonesia")["duplicate"] == 1
    assert reasons["shares renormalised"] == other["rounded"]["national"] == 480
    assert len(prepared.frame) == other["options"]["national"] == 20795
    assert reasons["total left out of the options"] == other["options"]["national total"] == 15
    assert reasons["non-answer options left out"] == 6034
    assert other["options"]["national all"] == 20795 + 15 + 6034
    assert {reason for reason, kind in prepared.ledger.kinds.items() if kind == "fault"} == {"duplicate"}
    assert prepared.extra["questions"] == {
        "rows": 1057,
        "kept": other["rows"]["national"],
        "clusters": 1036,
        "lost": {"non-national sample": 18, "old national sample": 1},
    }
    assert other["rows"]["national"] == 1057 - 19
    sums = prepared.frame.groupby("comparison_id")["score"].sum()
    assert ((sums - 1).abs() < 1e-12).all()
    assert prepared.frame["group"].nunique() == 104
    assert prepared.frame.loc[prepared.frame["group"] == "New Zealand", "comparison_id"].nunique() == 17


@pytest.mark.shared
@pytest.mark.skipif(not CSV.is_file(), reason="the real questions of GlobalOpinionQA are absent (SCPO_SHARED_DATA)")
def test_all_samples_of_the_real_questions() -> None:
    prepared = read_goqa(CSV, samples="all", non_answers="keep")
    assert prepared.extra["questions"] == {"rows": 1057, "kept": 1057, "clusters": 1055, "lost": {}}
    assert prepared.ledger.kept.total() == 5474 + 539
    assert prepared.frame["candidate_id"].is_unique
    samples = Counter(a["sample"] for a in prepared.frame.drop_duplicates("comparison_id")["attributes"])
    assert samples == {"national": 5474 - 65, "non-national": 523, "current national": 65, "old national": 16}
