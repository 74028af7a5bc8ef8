"""Cells of GlobalOpinionQA: dictionaries, lists, non-answers, questions, templates."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.data.goqa_parse import (
    check_template,
    is_non_answer,
    is_total,
    normalise_question,
    parse_options,
    parse_selections,
)
from scpo.errors import UserError


@pytest.mark.parametrize(
    "text",
    [
        "defaultdict(<class 'list'>, {'Chile': [0.25, 0.75]})",
        "  defaultdict( <class 'list'> ,{ 'Chile' : [0.25,0.75] } ) ",
        'collections.defaultdict(<class "list">, {"Chile": (0.25, 75e-2)})\n',
        "{'Chile': [0.25, 0.75]}",
        "defaultdict(<class 'list'>,\n {'Chile':\n [0.25, 0.75]})",
    ],
)
def test_selections_are_tolerant_to_spacing(text: str) -> None:
    assert parse_selections(text, "x") == [("Chile", [0.25, 0.75])]


@given(
    st.lists(st.tuples(st.text(), st.lists(st.floats(0, 1) | st.integers(0, 1), max_size=4)), max_size=4),
    st.sampled_from(["defaultdict(<class 'list'>, {})", "{}"]),
)
def test_selections_round_trip(items: list[tuple[str, list[float]]], wrapper: str) -> None:
    inner = "{" + ", ".join(f"{name!r}: {shares!r}" for name, shares in items) + "}"
    assert parse_selections(wrapper.replace("{}", inner), "x") == items


@given(st.lists(st.text().map(str.strip) | st.integers(-99, 99), max_size=6))
def test_options_round_trip(items: list[str | int]) -> None:
    assert parse_options(repr(items), "x") == [str(item) for item in items]


@given(st.text(max_size=60) | st.text(alphabet="{}[]()'\",: 0a-<>defaultdict", max_size=60))
def test_any_text_parses_or_is_a_user_error_of_one_line(text: str) -> None:
    for parse in (parse_selections, parse_options):
        message = ""
        try:
            parse(text, "f.csv: row 2, column x")
        except UserError as error:
            message = str(error)
        assert re.fullmatch(r"(f\.csv: row 2, column x: expected [^\n]+)?", message)


def test_quotes_both_ways_unicode_and_numbers_in_options() -> None:
    text = """["Saddam's rule", 'He said "no"', 'it\\'s', 'm’s “x”', 1.0, 2, 2.5, 10.0, -1, '3.0', 'Türkei']"""
    assert parse_options(text, "x") == [
        *("Saddam's rule", 'He said "no"', "it's", "m’s “x”", "1", "2", "2.5", "10", "-1", "3.0", "Türkei")
    ]


@pytest.mark.parametrize(
    "option",
    [
        *(
            "DK/Refused",
            "Don't know",
            "DON’T KNOW",
            "No answer",
            "Refused",
            "Missing; Unknown",
            "Missing; Not available",
        ),
        *("Missing; Not applicable for other reasons", "Not asked", "Not asked in survey", "Not applicable", "missing"),
        *("Other missing; Multiple answers Mail (EVS)", "No answer/refused", "Don't know/Refused", "Don't know (VOL)"),
        *("DK", "dk / refused", "Don't know or refused", "Don't -9:-2", "INAP: has no telephone"),
        *("Can't rate (VOL)", "Refused (DO NOT READ)", "Don't know, no answer", "Do not know."),
    ],
)
def test_non_answers(option: str) -> None:
    assert is_non_answer(option)


@pytest.mark.parametrize(
    "option",
    [
        *(
            "No",
            "None",
            "Don't agree",
            "Don't mind",
            "Don't believe that",
            "Doesn't matter",
            "Not at all",
            "Not mentioned",
        ),
        *(
            "Hard to say",
            "Depends",
            "Never heard of (VOL)",
            "Neither (VOL)",
            "Other (VOL)",
            "Others",
            "Both (DO NOT READ)",
        ),
        *("I do not know any such case", "No, I know nobody", "Yes, I know one", "Have not heard"),
        *(
            "No apology necessary",
            "Refused to fight",
            "Missing people",
            "Not a problem",
            "2",
            "-1",
            "10",
            "",
            "/",
            "Total",
        ),
        *(
            "Yes/Don't know",
            "Haven't heard enough (VOL)",
            "No opinion should be banned",
            "None / No such country (VOL)",
        ),
    ],
)
def test_answers_that_look_like_non_answers(option: str) -> None:
    assert not is_non_answer(option)


def test_totals() -> None:
    assert is_total("Total                  N=")
    assert is_total("total N=1,000")
    assert not is_total("Total")
    assert not is_total("Total nonsense")


def test_normalised_questions() -> None:
    assert normalise_question("  It’s  “SO”…\n— yes?  ") == 'it\'s "so"... - yes'
    assert normalise_question("A (b).") == "a (b)"
    assert normalise_question("How about X?") != normalise_question("How about Y?")


@given(st.text(max_size=80))
def test_normalised_questions_do_not_depend_on_space_and_end_marks(text: str) -> None:
    once = normalise_question(text)
    assert once == normalise_question(f" \t{text} ?! ")
    assert once == " ".join(once.split())


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{group}", "found no {question}"),
        ("", "found no {question}"),
        ("{question} {country}", "found the field {country}"),
        ("{questoin}", r"found the field {questoin}\. Did you mean 'question'\?"),
        ("{question!r}", "found the field {question!r}"),
        ("{question:>9}", "found the field {question:>9}"),
        ("{question.__class__}", "found the field {question.__class__}"),
        ("{question} {}", "found the field {}"),
        ("{question", "write {{ for a brace"),
        ("{question} }", "write {{ for a brace"),
        (None, "found None"),
    ],
)
def test_templates_are_checked(template: Any, message: str) -> None:
    with pytest.raises(UserError, match=f"^template: expected text with {{question}}.*{message}"):
        check_template(template)


@pytest.mark.parametrize("number", ["0x" + "f" * 9000, "1" * 5000, "-0x" + "f" * 9000])
def test_bombs_of_digits_are_one_clear_line(number: str) -> None:
    """Python reads a hexadecimal number of any length and refuses to spell it."""
    for parse, cell in ((parse_options, f"[{number}]"), (parse_selections, f"{{'Chile': [{number}]}}")):
        with pytest.raises(UserError, match=r"^at: expected") as error:
            parse(cell, "at")
        assert len(str(error.value)) < 300
