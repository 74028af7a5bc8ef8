"""Names of groups: every spelling of a country becomes one name, and any community keeps a usable one."""

from __future__ import annotations

import ast
import csv
import os
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scpo import countries
from scpo.errors import UserError
from scpo.groups import (
    GOQA14,
    MAJORITY,
    MAX_NAME,
    PRISM7,
    _key,
    canonical,
    check_names,
    resolve,
    slug,
    split_sample,
    tidy,
)

SHARED = Path(os.environ.get("SCPO_SHARED_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))
CSV = SHARED / "goqa" / "global_opinions_dev.csv"
SAFE = re.compile(r"[A-Za-z0-9 _.+%@-]*")

NAMES = st.one_of(
    st.text(max_size=80),
    st.text(alphabet="AZaz .,-()'’[]/&<>éß中$+", max_size=70),
    st.sampled_from([spelling for _, _, name, aliases in countries.rows() for spelling in (name, *aliases)]),
)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("S. Africa", "South Africa"),
        ("S. Korea", "South Korea"),
        ("Korea, Republic of", "South Korea"),
        ("Korea, Democratic People's Republic of", "North Korea"),
        ("Britain", "United Kingdom"),
        ("Great Britain", "United Kingdom"),
        ("UK", "United Kingdom"),
        ("U.S.", "United States"),
        ("USA", "United States"),
        ("the United States of America", "United States"),
        ("Russian Federation", "Russia"),
        ("Türkiye", "Turkey"),
        ("Turkiye", "Turkey"),
        ("Côte d'Ivoire", "Ivory Coast"),
        ("CÔTE D’IVOIRE", "Ivory Coast"),
        ("Venezuela, Bolivarian Republic of", "Venezuela"),
        ("Venezuela (Bolivarian Republic of)", "Venezuela"),
        ("Viet Nam", "Vietnam"),
        ("Czech Rep.", "Czechia"),
        ("Czech Republic", "Czechia"),
        ("Tanzania, United Republic of", "Tanzania"),
        ("Hong Kong SAR", "Hong Kong"),
        ("Palest. ter.", "Palestine"),
        ("Bosnia Herzegovina", "Bosnia and Herzegovina"),
        ("Bosnia & Herzegovina", "Bosnia and Herzegovina"),
        ("Dem. Rep. Congo", "DR Congo"),
        ("Congo, The Democratic Republic of the", "DR Congo"),
        ("Macao", "Macau"),
        ("Macau SAR", "Macau"),
        ("Taiwan ROC", "Taiwan"),
        ("  new   zealand ", "New Zealand"),
        ("CAN", "Canada"),
        ("ZA", "South Africa"),
        ("Northern Ireland", "Northern Ireland"),
    ],
)
def test_spellings_of_countries(spelling: str, name: str) -> None:
    assert canonical(spelling) == name


def test_every_code_and_alias_of_the_table_gives_its_canonical_name() -> None:
    codes: set[str] = set()
    owner: dict[str, str] = {}
    for two, three, name, aliases in countries.rows():
        assert SAFE.fullmatch(name), name
        assert tidy(name) == name
        for spelling in (name, *aliases, *filter(None, (two, three))):
            assert canonical(spelling) == name
        for spelling in (name, *aliases):
            assert canonical(spelling.upper()) == canonical(spelling.lower()) == name
            assert owner.setdefault(_key(tidy(spelling)), name) == name
        assert not codes & {two, three} - {""}
        codes |= {two, three} - {""}
    # 249 countries of ISO 3166-1 and Kosovo's user-assigned code, two codes each.
    assert len(codes) == 500


def test_codes_of_the_papers_groups() -> None:
    three = "CHL ZAF NZL AUS MEX ISR CAN USA GBR NGA EGY IND CHN JPN DEU FRA ESP USA CAN BRA ARG AUS NZL"
    two = "CL ZA NZ AU MX IL CA US GB NG EG IN CN JP DE FR ES US CA BR AR AU NZ"
    for codes in (three, two):
        assert [canonical(code) for code in codes.split()] == [*PRISM7, *MAJORITY, *GOQA14]
    # Codes that are easily taken for another country's.
    confused = {"AUT": "Austria", "SVN": "Slovenia", "SVK": "Slovakia", "CHE": "Switzerland", "PRK": "North Korea"}
    confused |= {
        "KOR": "South Korea",
        "COD": "DR Congo",
        "COG": "Congo",
        "NER": "Niger",
        "LVA": "Latvia",
        "LBY": "Libya",
    }
    assert {code: canonical(code) for code in confused} == confused


def test_lists_of_the_papers_are_canonical_and_of_the_stated_size() -> None:
    assert len(PRISM7) == 7
    assert len(MAJORITY) == 2
    assert len(set(GOQA14)) == 14
    assert [canonical(name) for name in (*PRISM7, *MAJORITY, *GOQA14)] == [*PRISM7, *MAJORITY, *GOQA14]


def test_communities_that_are_no_country_keep_their_name() -> None:
    assert canonical("No") == "No"  # not Norway: codes count in capitals only
    assert canonical("No Affiliation") == "No Affiliation"
    assert canonical("65+") == "65+"
    assert canonical("Indigenous / First Peoples") == "Indigenous - First Peoples"
    assert canonical("Jews, Muslims (all) & 'others'") == "Jews Muslims all and others"
    assert canonical("Dalarna Ö") == "Dalarna O"
    assert canonical("Straße Ærø") == "Strasse Aero"
    assert tidy("NO") == "NO"


@pytest.mark.parametrize(
    ("one", "other"),
    [("<50k", ">50k"), ("≤50k", "≥50k"), ("中文", "日本語"), ("$50", "50"), ("a" * 70, "a" * 71), ("C", "C#")],
)
def test_communities_stay_apart(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


@given(NAMES)
@example("ẞ≥½" * 30)
@example("U,S")
@example("()")
@example("a" * (MAX_NAME + 1))
@example("中" + "a" * MAX_NAME)
def test_canonical_is_idempotent_short_and_safe(name: str) -> None:
    once = canonical(name)
    assert canonical(once) == once
    assert tidy(tidy(name)) == tidy(name)
    assert SAFE.fullmatch(once)
    assert len(once) <= MAX_NAME
    assert once == " ".join(once.split())
    assert (once == "") == (name.split() == [])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("India (Current national sample)", ("India", "current national")),
        ("India (Old national sample)", ("India", "old national")),
        ("China (Non-national sample)", ("China", "non-national")),
        ("China(Non-National  Sample )", ("China", "non-national")),
        ("Chile", ("Chile", "national")),
        (" Chile ", ("Chile", "national")),
        ("Iran (Islamic Republic of)", ("Iran (Islamic Republic of)", "national")),
        ("Peru (sample)", ("Peru", "unnamed")),
        ("Subsample (x)", ("Subsample (x)", "national")),
    ],
)
def test_split_sample(name: str, expected: tuple[str, str]) -> None:
    assert split_sample(name) == expected


def test_resolve_takes_aliases_codes_and_any_case() -> None:
    known = ["South Korea", "Chile", "India", "Norway", "No Affiliation"]
    names = ["S. Korea", "chl", "India (Current national sample)", "no", "no affiliation"]
    assert resolve(names, known) == ["South Korea", "Chile", "India", "Norway", "No Affiliation"]
    assert resolve([], known) == []


def test_resolve_prefers_the_exact_name() -> None:
    assert resolve(["No", "NO"], ["No", "Norway"]) == ["No", "Norway"]
    assert resolve(["white", "White"], ["white", "White"]) == ["white", "White"]
    assert resolve(["CA", "Canada"], ["CA", "Canada"]) == ["CA", "Canada"]


def test_resolve_says_did_you_mean() -> None:
    with pytest.raises(UserError, match=r"found 'Chlie'\. Did you mean 'Chile'\?"):
        resolve(["Chlie"], ["Chile", "Canada"])
    with pytest.raises(UserError, match="found 'India \\(Non-national sample\\)'"):
        resolve(["India (Non-national sample)"], ["India"])
    with pytest.raises(UserError, match="'WHITE'"):  # two groups fit: none is guessed
        resolve(["WHITE"], ["white", "White"])
    with pytest.raises(UserError, match="no groups in the data"):
        resolve(["Chile"], [])


def test_resolve_refuses_duplicates_and_single_strings() -> None:
    with pytest.raises(UserError, match="'Chile' and 'CHL' are both Chile"):
        resolve(["Chile", "CHL"], ["Chile"])
    with pytest.raises(UserError, match="expected a list of names, found 'Chile'"):
        resolve("Chile", ["Chile"])
    with pytest.raises(UserError, match="found 18 \\(int\\)"):
        resolve([18], ["18"])  # type: ignore[list-item]


def test_slugs_are_folder_names() -> None:
    assert slug("South Africa") == "South_Africa"
    assert slug("Guinea-Bissau") == "Guinea-Bissau"
    assert slug("65+").startswith("65-")
    for risky in ("", ".", "..", "con", "NUL.txt", "a.", "a/b", "../x", "-x", "a_b", "a  b", "x" * 200, "=1,2"):
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*-[0-9a-f]{10}", slug(risky)), risky


@given(NAMES, NAMES)
@example("a b", "a_b")
@example("65+", "65")
@example("a b", "a  b")
def test_slugs_differ_where_groups_differ(one: str, other: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,80}", slug(one))
    assert (slug(one) == slug(other)) == (one == other)


@pytest.mark.shared
@pytest.mark.skipif(not CSV.is_file(), reason="the real questions of GlobalOpinionQA are absent (SCPO_SHARED_DATA)")
def test_every_country_of_the_real_questions_is_in_the_table() -> None:
    known = {name for _, _, name, _ in countries.rows()}
    with open(CSV, encoding="utf-8", newline="") as stream:
        texts = [row["selections"] for row in csv.DictReader(stream)]
    spellings = {name for text in texts for name in ast.literal_eval(text[text.index("{") : text.rindex("}") + 1])}
    assert len(spellings) == 130
    without_suffix = {re.sub(r" \(.* sample\)$", "", spelling) for spelling in spellings}
    groups = {canonical(split_sample(spelling)[0]) for spelling in spellings}
    assert groups <= known
    # Two spellings each of South Korea, the United Kingdom, Czechia and Taiwan.
    assert len(groups) == len(without_suffix) - 4 == 107


@given(st.text())
def test_only_names_of_averages_are_reserved(name: str) -> None:
    if name.strip().casefold() in ("micro", "macro"):
        with pytest.raises(UserError, match="rename it"):
            check_names([name], "x")
    else:
        check_names([name, "Chile"], "x")


@pytest.mark.parametrize("name", ["micro", "Micro", "MACRO", " macro\n"])
def test_a_reserved_name_is_refused_in_any_case(name: str) -> None:
    with pytest.raises(UserError, match=r"^the file: .*found the group"):
        check_names(["Chile", name], "the file")
