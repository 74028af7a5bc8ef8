"""Numbers and tables as text: percent, intervals, escaping for HTML, Markdown, LaTeX and spreadsheets, aligned plain text."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from scpo.io import visible

INSUFFICIENT = "insufficient data"
NONE = "–"


def percent(value: float | None, digits: int = 1) -> str:
    """``0.627`` as ``"62.7"``; None as a dash. The unit stands in the header."""
    return NONE if value is None else f"{100 * value:.{digits}f}"


def points(value: float | None, digits: int = 1) -> str:
    """A difference of fractions in signed percentage points."""
    return NONE if value is None else f"{100 * value:+.{digits}f}"


def span(ci: Sequence[float] | None, digits: int = 1) -> str:
    """An interval ``"[60.1, 65.3]"`` in percent, or nothing."""
    return "" if ci is None else f"[{100 * ci[0]:.{digits}f}, {100 * ci[1]:.{digits}f}]"


def estimate(cell: Mapping[str, Any] | None, key: str = "accuracy") -> str:
    """``"62.7 [60.1, 65.3]"`` of a cell, "insufficient data" below the minimum, a dash where undefined."""
    if cell is None or cell.get(key) is None:
        return NONE
    if cell.get("insufficient"):
        return INSUFFICIENT
    return f"{percent(cell[key])} {span(cell.get('ci'))}".rstrip()


def size(cell: Mapping[str, Any] | None) -> str:
    """``"1,234 / 56"``: pairs and clusters of a cell."""
    return NONE if cell is None else f"{cell.get('n_pairs') or 0:,} / {cell.get('n_clusters') or 0:,}"


def size_words(cell: Mapping[str, Any]) -> str:
    """``"1,234 pairs, 56 clusters"``."""
    return f"{plural(cell.get('n_pairs') or 0, 'pair')}, {plural(cell.get('n_clusters') or 0, 'cluster')}"


def plural(n: int, noun: str) -> str:
    """``"1 pair"``, ``"1,234 pairs"``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def clean(text: Any) -> str:
    """Text on one line with control and other invisible characters as escapes: a name cannot steer a terminal or a page."""
    return visible(" ".join(str(text).split()))


def html_text(text: Any) -> str:
    """Escaped for HTML text and for quoted attributes."""
    return html.escape(clean(text), quote=True)


def markdown_text(text: Any) -> str:
    """Escaped so that Markdown shows the characters as they are, also inside a table."""
    escaped = re.sub(r"([\\`*_\[\]|~$])", r"\\\1", clean(text))
    escaped = re.sub(r"^([#+=-])", r"\\\1", escaped)  # would start a heading or a list
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    "±": r"$\pm$",
}


def latex_text(text: Any) -> str:
    """Escaped for LaTeX text mode, one pass, so that escapes are not escaped again."""
    return "".join(LATEX.get(c, c) for c in clean(text))


def csv_text(value: Any) -> str:
    """A spreadsheet cell: text that would start a formula gets a leading apostrophe, numbers stay numbers.

    Control and bidirectional characters are escaped, so that a cell is one line and reads as it is.
    """
    if value is None:
        return ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    text = visible(str(value))
    if text.lstrip()[:1] in {"=", "+", "-", "@"}:
        try:
            float(text)
        except ValueError:
            return "'" + text
    return text


def json_text(value: Any) -> str:
    """A JSON document; invisible characters are JSON's own escapes, so it reads back as the same value."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    # Outside of strings JSON has only printable characters and the newlines of the indent.
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text) + "\n"


def is_number(text: str) -> bool:
    """True for a cell to be set flush right: a number, alone or with an interval, or n."""
    return bool(re.match(r"[+\-−]?[\d.,]+($|[ /%])", text)) or text == NONE


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned plain text: the first column flush left, the others flush right; two spaces between columns."""
    cells = [[clean(c) for c in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]

    def line(row: list[str]) -> str:
        first = row[0].ljust(widths[0])
        return "  ".join([first, *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()

    rule = "  ".join("-" * w for w in widths)
    return "\n".join([line(cells[0]), rule, *(line(row) for row in cells[1:])]) + "\n"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A pipe table: the first `left` columns flush left, the others flush right; every cell escaped."""

    def line(row: Sequence[str]) -> str:
        return "| " + " | ".join(markdown_text(c) for c in row) + " |"

    rule = "|" + "|".join([" :-- "] * left + [" --: "] * (len(header) - left)) + "|"
    return "\n".join([line(header), rule, *(line(row) for row in rows)]) + "\n"


def latex_table(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str, left: int = 1) -> str:
    """A booktabs table; needs ``\\usepackage{booktabs}``; every cell escaped."""

    def line(row: Sequence[str]) -> str:
        return "    " + " & ".join(latex_text(c) for c in row) + r" \\"

    return "\n".join(
        [
            r"\begin{table}[t]",
            r"  \centering",
            rf"  \caption{{{latex_text(caption)}}}",
            rf"  \begin{{tabular}}{{{'l' * left}{'r' * (len(header) - left)}}}",
            r"    \toprule",
            line(header),
            r"    \midrule",
            *(line(row) for row in rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )
