"""Cells of GlobalOpinionQA: stringified dictionaries and lists, non-answers, question texts, prompt templates."""

from __future__ import annotations

import ast
import math
import re
import string
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scpo.errors import UserError, did_you_mean
from scpo.io import shorten, shown

MAX_CELL = 100_000
"""Longest cell that is parsed, in characters; the longest of the published data has a few thousand."""

TEMPLATE_FIELDS = ("question", "group")

_DEFAULTDICT = re.compile(
    r"\s*(?:collections\s*\.\s*)?defaultdict\s*\(\s*<\s*class\s+['\"]list['\"]\s*>\s*,(.*)\)\s*", re.DOTALL
)
_NAN = re.compile(r"(?<![\w'\"])[-+]?(nan|inf|infinity|NaN|Infinity)(?![\w'\"])")
_QUOTES = str.maketrans({"‘": "'", "’": "'", "ʼ": "'", "`": "'", "“": '"', "”": '"', "–": "-", "—": "-"})
_ASIDE = re.compile(r"\((?:vol\.?|volunteered|do not read|dnr|spontaneous)\)")
_NON_ANSWERS = frozenset(
    {"dk", "na", "n/a", "don't know", "dont know", "do not know", "doesn't know", "does not know"}
    | {"refused", "refusal", "refuse", "refused to answer", "declined to answer", "prefer not to say"}
    | {"prefer not to answer", "no answer", "no response", "no opinion", "not ascertained", "missing"}
    | {"unsure", "not sure", "can't choose", "cannot choose", "can't say", "cannot say", "can't rate", "cannot rate"}
)
# "Missing; Unknown", "Other missing; Multiple answers", "Not asked in survey", "INAP: no telephone".
_NON_ANSWER_START = re.compile(r"(?:other missing|missing\s*[;:,-]|not asked\b|not applicable\b|inap\b)")
# A label overwritten by its range of negative codes: "Don't -9:-2".
_MISSING_CODES = re.compile(r"(?:don't )?(?:know )?-\d+\s*:\s*-\d+")
_TOTAL = re.compile(r"total\s+n\s*=[\s\d,.]*")


def parse_selections(value: object, where: str) -> list[tuple[str, list[float]]]:
    """Countries and shares of one question, in the order of the cell; a country that stands twice is there twice.

    Args:
        value: ``"defaultdict(<class 'list'>, {'Chile': [0.2, 0.8]})"``, the same without the wrapper, or a mapping.
        where: file, row and column, for errors.

    Raises:
        UserError: no such dictionary, a name that is no string, or shares that are not lists of finite numbers.
    """
    items: list[tuple[Any, Any]]
    if isinstance(value, Mapping):
        items = list(value.items())
    else:
        text = _cell(value, where, "a dictionary of countries and shares")
        match = _DEFAULTDICT.fullmatch(text)
        node = _expression(match[1] if match else text, where, "a dictionary of countries and shares")
        if not isinstance(node, ast.Dict) or any(key is None for key in node.keys):
            raise _wrong(where, "a dictionary of countries and shares", value)
        # Key by key: a dictionary built at once would lose a country that stands twice.
        literal = [
            (_literal(k, where, value), _literal(v, where, value)) for k, v in zip(node.keys, node.values, strict=True)
        ]
        items = literal
    return [(_name(name, where), _shares(name, shares, where)) for name, shares in items]


def parse_options(value: object, where: str) -> list[str]:
    """Texts of the options. Whole numbers lose the ``.0`` that spreadsheets gave them: 1.0 is "1".

    Raises:
        UserError: no list, or an item that is neither text nor a finite number.
    """
    if isinstance(value, (list, tuple, np.ndarray)):
        items: Sequence[Any] = list(value)
    else:
        node = _expression(_cell(value, where, "a list of options"), where, "a list of options")
        if not isinstance(node, (ast.List, ast.Tuple)):
            raise _wrong(where, "a list of options", value)
        items = [_literal(item, where, value) for item in node.elts]
    return [_option(item, position, where) for position, item in enumerate(items)]


def is_non_answer(option: str) -> bool:
    """Whether an option says that no answer was given: "DK/Refused", "No answer", "Missing; Unknown", "Not asked", ...

    Real answers that look alike are not: "No", "Not at all", "Don't mind", "Hard to say" (the middle of a scale),
    "Depends", "Never heard of", "Neither (VOL)", "Other (VOL)".
    """
    text = _plain(_ASIDE.sub(" ", _plain(option))).strip(" .")
    if text in _NON_ANSWERS or _NON_ANSWER_START.match(text) or _MISSING_CODES.fullmatch(text):
        return True
    parts = [part.strip(" .") for part in re.split(r"[/;,|]| or ", text) if part.strip(" .")]
    return bool(parts) and all(part in _NON_ANSWERS for part in parts)


def is_total(option: str) -> bool:
    """Whether an "option" is the total of a table: "Total          N=" (its share is that of all the others together)."""
    return _TOTAL.fullmatch(_plain(option)) is not None


def normalise_question(text: str) -> str:
    """The cluster id of a question: Unicode NFKC, straight quotes and dashes, single spaces, lower case, no end mark.

    Two rows with the same id are the same question; it is not cut down further, since items of a battery differ by a word.
    """
    return _plain(text).rstrip(" .?!:;,")


def check_template(template: str) -> str:
    """The template if it is plain text with ``{question}`` and at most ``{group}`` besides.

    Raises:
        UserError: unbalanced braces, another field, a conversion or format, or no ``{question}``.
    """
    expected = "template: expected text with {question} and optionally {group}"
    if not isinstance(template, str):
        raise UserError(f"{expected}, found {template!r}")
    try:
        fields = [(name, spec, conv) for _, name, spec, conv in string.Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise UserError(f"{expected}, found {shorten(template)!r} ({error}); write {{{{ for a brace") from error
    for name, spec, conversion in fields:
        if name not in TEMPLATE_FIELDS or spec or conversion:
            found = name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
            raise UserError(f"{expected}, found the field {{{found}}}.{did_you_mean(name, TEMPLATE_FIELDS)}")
    if "question" not in [name for name, _, _ in fields]:
        raise UserError(f"{expected}, found no {{question}} in {shorten(template)!r}")
    return template


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).translate(_QUOTES).split()).casefold()


def _cell(value: object, where: str, what: str) -> str:
    if not isinstance(value, str):
        raise _wrong(where, what, value)
    if len(value) > MAX_CELL:
        raise UserError(
            f"{where}: expected {what} of at most {MAX_CELL} characters, found {len(value)}; is the file damaged?"
        )
    return value


def _expression(text: str, where: str, what: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise _wrong(where, what, text) from error


def _literal(node: ast.expr | None, where: str, cell: object) -> Any:
    try:
        return ast.literal_eval(node)  # type: ignore[arg-type]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        bad = _NAN.search(str(cell))
        if bad:
            raise UserError(
                f"{where}: expected finite numbers, found {bad[0].strip()}; repair or remove the row"
            ) from error
        raise _wrong(where, "plain texts and numbers", cell) from error


def _name(name: object, where: str) -> str:
    if not isinstance(name, str):
        raise UserError(f"{where}: expected countries as text, found {shown(name)} ({type(name).__name__})")
    return name


def _shares(name: object, shares: object, where: str) -> list[float]:
    if not isinstance(shares, (list, tuple, np.ndarray)):
        raise UserError(f"{where}: expected a list of shares for {name!r}, found {shown(shares)}; repair the row")
    numbers = []
    for share in shares:
        number = _number(share)
        if number is None or not math.isfinite(number):
            found = f"{shown(share)} ({type(share).__name__})"
            raise UserError(
                f"{where}: expected finite numbers as shares of {name!r}, found {found}; repair or remove the row"
            )
        numbers.append(number)
    return numbers


def _option(item: object, position: int, where: str) -> str:
    if isinstance(item, str):
        return item.strip()
    number = _number(item)
    if number is None or not math.isfinite(number):
        raise UserError(
            f"{where}: expected texts or numbers as options, found {shown(item)} ({type(item).__name__}) "
            f"at place {position}; repair or remove the row"
        )
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else str(item)


def _number(value: object) -> float | None:
    """The value as a float (infinite where it is too large), or None where it is no number; a bool is none."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _wrong(where: str, what: str, found: object) -> UserError:
    kind = "" if isinstance(found, str) else f" ({type(found).__name__})"
    text = (shorten(found) if isinstance(found, str) else shown(found)) or "an empty cell"
    return UserError(f"{where}: expected {what}, found {text}{kind}; repair or remove the row")
