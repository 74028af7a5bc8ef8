"""UserError is one exception for one line; `did_you_mean` suggests, lists or stays silent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.errors import UserError, did_you_mean


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("Chili", ["Chile", "Israel"], " Did you mean 'Chile'?"),
        ("CHILE", ["Chile", "Israel"], " Did you mean 'Chile'?"),
        ("isreal", ["Chile", "Israel"], " Did you mean 'Israel'?"),
        ("South Afrika", ["South Korea", "South Africa"], " Did you mean 'South Africa' or 'South Korea'?"),
        ("zzz", ["b", "a"], " Known: a, b."),
        ("", ["b", "a", "a"], " Known: a, b."),
        ("anything", [], ""),
    ],
)
def test_suggestions(name: str, known: list[str], expected: str) -> None:
    assert did_you_mean(name, known) == expected


def test_at_most_three_suggestions_closest_first() -> None:
    assert did_you_mean("filter", ["filter4", "filters", "filter22", "filterxx", "weight"], limit=2).count("'") == 4
    assert did_you_mean("aaaa", ["aaaa1", "aaaa22", "aaaa333"]).index("aaaa1") < did_you_mean(
        "aaaa", ["aaaa1", "aaaa22", "aaaa333"]
    ).index("aaaa22")


def test_a_long_list_of_names_is_cut_and_counted() -> None:
    hint = did_you_mean("?", [f"group{i:02d}" for i in range(25)])
    assert hint.endswith("group19, ... (25 in all).")
    assert "group20" not in hint


@given(st.text(max_size=20), st.lists(st.text(min_size=1, max_size=20), max_size=30))
def test_any_name_and_any_known_names_give_a_hint_about_the_known_ones(name: str, known: list[str]) -> None:
    hint = did_you_mean(name, known)
    assert bool(hint) == bool(known)
    # A name that differs only in case is always found (unless several names share its letters).
    if known and len({k.casefold() for k in known}) == len(set(known)):
        assert f"{known[0]!r}" in did_you_mean(known[0].swapcase().swapcase(), known)


def test_a_user_error_is_no_value_error() -> None:
    """A caller that catches ValueError of a library must not swallow a message for the user."""
    assert not issubclass(UserError, ValueError)
    with pytest.raises(UserError, match="what to do"):
        raise UserError("what to do")
