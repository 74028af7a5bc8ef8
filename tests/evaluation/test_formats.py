from __future__ import annotations

import csv
import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.evaluation.formats import (
    clean,
    csv_text,
    estimate,
    html_text,
    json_text,
    latex_table,
    latex_text,
    markdown_table,
    markdown_text,
    percent,
    plain_table,
    points,
    size,
    size_words,
)


def test_numbers_as_text() -> None:
    assert percent(0.62724, 2) == "62.72"
    assert percent(None) == "–"
    assert (points(0.041), points(-0.041)) == ("+4.1", "-4.1")
    cell = {"accuracy": 0.5, "ci": [0.4, 0.6], "n_pairs": 1234, "n_clusters": 1, "insufficient": False}
    assert estimate(cell) == "50.0 [40.0, 60.0]"
    assert estimate(cell | {"ci": None}) == "50.0"
    assert estimate(cell | {"insufficient": True}) == "insufficient data"
    assert estimate(cell | {"accuracy": None, "insufficient": True}) == "–"
    assert size(cell) == "1,234 / 1"
    assert size_words(cell) == "1,234 pairs, 1 cluster"


def test_csv_cells_cannot_be_formulas_and_numbers_stay_numbers() -> None:
    for text in ("=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", " =1", "-"):
        assert csv_text(text) == "'" + text
    for text in ("Chile", "-0.5", "+3e-2", "", "a=b"):
        assert csv_text(text) == text
    assert csv_text("\t=1\r\n\x1b[0m\u202e") == r"\t=1\r\n\x1b[0m\u202e"
    assert (csv_text(-0.25), csv_text(3), csv_text(None)) == ("-0.25", "3", "")


@given(st.text())
def test_csv_text_never_starts_a_formula(text: str) -> None:
    cell = next(csv.reader(io.StringIO(_csv_line(csv_text(text)), newline="")))[0]
    if cell.lstrip()[:1] in {"=", "+", "-", "@"}:
        float(cell)  # only a number may start so


def _csv_line(cell: str) -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream).writerow([cell, "x"])
    return stream.getvalue()


def test_latex_is_escaped_once() -> None:
    assert latex_text(r"a_b & 50% \x{y} $1 #~^") == (
        r"a\_b \& 50\% \textbackslash{}x\{y\} \$1 \#\textasciitilde{}\textasciicircum{}"
    )
    table = latex_table(["a", "b"], [["x & y", "1 ± 2"]], caption="100 %")
    assert r"x \& y & 1 $\pm$ 2 \\" in table
    assert r"\caption{100 \%}" in table
    assert r"\begin{tabular}{lr}" in table
    assert table.index(r"\toprule") < table.index(r"\midrule") < table.index(r"\bottomrule")


def test_markdown_pipes_links_markup_and_headings_are_text() -> None:
    assert markdown_text("a|b") == r"a\|b"
    assert markdown_text("<b> & [x](y) *z* `c`") == r"&lt;b&gt; &amp; \[x\](y) \*z\* \`c\`"
    assert markdown_text("# no heading") == r"\# no heading"
    table = markdown_table(["g|h", "n"], [["a\nb", "1"]])
    assert table.splitlines() == [r"| g\|h | n |", "| :-- | --: |", "| a b | 1 |"]


@given(st.text())
def test_a_markdown_cell_stays_one_cell_and_html_stays_text(text: str) -> None:
    line = markdown_table(["a", "b"], [[text, "x"]]).splitlines()[2]
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3
    assert not set('<>"') & set(html_text(text))


def test_names_cannot_steer_the_terminal() -> None:
    assert clean("a\x1b[31mb\nc\u202ed") == r"a\x1b[31mb c\u202ed"
    lines = plain_table(["group", "n"], [["long name", "1"], ["\x1b]0;x\x07", "1,000"]]).splitlines()
    assert all(line.isprintable() for line in lines)


def test_plain_table_is_aligned() -> None:
    assert plain_table(["group", "n"], [["Chile", "1,000"], ["New Zealand", "5"]]).splitlines() == [
        "group            n",
        "-----------  -----",
        "Chile        1,000",
        "New Zealand      5",
    ]


@pytest.mark.parametrize("row", [["a"], ["a", "b", "c"]])
def test_a_row_of_another_length_is_an_error(row: list[str]) -> None:
    with pytest.raises((ValueError, IndexError)):
        plain_table(["x", "y"], [row])


STEERING = [chr(c) for c in (*range(0x20), 0x7F, 0x85, 0x9B, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200F)]


@pytest.mark.parametrize("char", STEERING)
def test_no_output_holds_a_control_or_override_character(char: str) -> None:
    """As an escape or as a space; two names that differ in one do not look the same where it is no white space."""
    name = f"a{char}b"
    outputs = [html_text(name), markdown_table([name], [[name]]), latex_table([name], [[name]], name)]
    outputs += [plain_table([name], [[name]]), csv_text(name), json_text({name: [name]})]
    for text in outputs:
        assert char not in text.replace("\n", "")
    assert char.isspace() or clean(name) not in ("ab", "a b")
    assert json.loads(outputs[-1]) == {name: [name]}


def test_joiners_that_shape_letters_stay() -> None:
    persian = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    assert clean(persian) == csv_text(persian) == persian


@given(st.recursive(st.text() | st.integers() | st.none(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_json_text_reads_back(value: object) -> None:
    text = json_text(value)
    assert json.loads(text) == value
    assert text.replace("\n", "").isprintable()
