"""PRISM's raw rows, one at a time: every field checked where it stands, every error with file, line and field.

Rows of files, of `conversations.jsonl` and of the Hub go through the same checks: a row is a dict in which a field may be null.
Source of the layout: PRISM's code book (Kirk et al. 2024).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from scpo.errors import UserError, did_you_mean
from scpo.io import shown

Row = Mapping[str, Any]

EMPTY_RESPONSE = "EMPTY STRING"
"""PRISM's word for a response without text."""

PLAIN_ATTRIBUTES = ("age", "gender", "education", "english_proficiency", "marital_status", "employment_status")
NESTED_ATTRIBUTES = ("ethnicity", "religion")
ATTRIBUTES = (*PLAIN_ATTRIBUTES, *NESTED_ATTRIBUTES, "birth_country")
"""Categories only: what people wrote about themselves in their own words is never read."""

COUNTRY = "reside_country"
UTTERANCE_FIELDS = frozenset(
    (
        *("utterance_id", "interaction_id", "conversation_id", "user_id", "turn", "within_turn_id"),
        *("included_in_balanced_subset", "conversation_type", "user_prompt", "model_response", "model_name"),
        *("model_provider", "score", "if_chosen", "role", "content"),
    )
)


class Place(NamedTuple):
    """Where a value stands: the file (or Hub table), its line or row from 1, and the item of a conversation's history."""

    source: str
    line: int
    item: int | None = None

    def field(self, name: str) -> str:
        inside = name if self.item is None else f"conversation_history[{self.item}].{name}"
        return f"{self.source}: line {self.line}: field {inside}"


class Utterance(NamedTuple):
    """One candidate as the source gives it; `score` is 1..100 or null, `chosen` true, false or null."""

    place: Place
    candidate_id: str
    comparison_id: str
    conversation_id: str
    user_id: str | None
    turn: int
    position: int
    prompt: str
    response: str
    score: float | None
    chosen: bool | None


class Annotator(NamedTuple):
    """One row of the survey: residence country (canonical, or null with the reason) and attributes."""

    user_id: str
    country: str | None
    no_country: str
    attributes: dict[str, str]


def get(row: Row, name: str, place: Place) -> Any:
    """The field's value; UserError with the fields that were found when the row has no such field."""
    try:
        return row[name]
    except KeyError:
        raise UserError(
            f"{place.field(name)}: expected this column, found the columns {', '.join(map(str, row))}."
            + did_you_mean(name, [str(key) for key in row])
        ) from None


def bad(place: Place, name: str, expected: str, value: Any) -> UserError:
    """The error for a value of another kind."""
    return UserError(f"{place.field(name)}: expected {expected}, found {shown(value)}")


def get_text(row: Row, name: str, place: Place) -> str:
    """A string field."""
    value = get(row, name, place)
    if not isinstance(value, str):
        raise bad(place, name, "a string", value)
    return value


def get_id(row: Row, name: str, place: Place) -> str:
    """A string field that is not empty."""
    value = get_text(row, name, place)
    if not value.strip():
        raise bad(place, name, "an id", value)
    return value


def get_int(row: Row, name: str, place: Place) -> int:
    """A whole number from 0; 2.0 counts as one, since tables with nulls hold whole numbers as floats."""
    value = get(row, name, place)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value < 0 or value % 1:
        raise bad(place, name, "a whole number from 0", value)
    return int(value)


def get_user(row: Row, place: Place) -> str | None:
    """The annotator's id, or null."""
    value = get(row, "user_id", place)
    return None if value is None or value == "" else get_id(row, "user_id", place)


def score_of(row: Row, place: Place) -> float | None:
    """A slider score 1..100, or null."""
    value = row.get("score")
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 1 <= value <= 100  # false for NaN and infinities too, and exact for whole numbers of any size
    ):
        raise bad(place, "score", "a number from 1 to 100 or null", value)
    return float(value)


def chosen_of(row: Row, place: Place) -> bool | None:
    """Whether the annotator went on with this response, or null."""
    value = row.get("if_chosen")
    if value is not None and not isinstance(value, bool):
        raise bad(place, "if_chosen", "true, false or null", value)
    return value


def check_judged(row: Row, place: Place) -> None:
    """A row needs `score` or `if_chosen`; a score under another name is a mistake, not a file without scores."""
    if "score" in row:
        return
    strangers = [str(key) for key in row if key not in UTTERANCE_FIELDS]
    if "if_chosen" not in row or difflib.get_close_matches("score", [s.casefold() for s in strangers], cutoff=0.6):
        get(row, "score", place)


def parse_utterances(rows: Iterable[tuple[int, Row]], source: str) -> Iterator[Utterance]:
    """Candidates from numbered rows of `utterances.jsonl` or the Hub's `utterances` table.

    Raises:
        UserError: a missing or renamed column, a value of the wrong type, or a score outside 1..100.
    """
    for line, row in rows:
        place = Place(source, line)
        check_judged(row, place)
        yield Utterance(
            place,
            get_id(row, "utterance_id", place),
            get_id(row, "interaction_id", place),
            get_id(row, "conversation_id", place),
            get_user(row, place),
            get_int(row, "turn", place),
            get_int(row, "within_turn_id", place),
            get_text(row, "user_prompt", place),
            get_text(row, "model_response", place),
            score_of(row, place),
            chosen_of(row, place),
        )


def parse_conversations(rows: Iterable[tuple[int, Row]], source: str) -> Iterator[Utterance]:
    """Candidates from numbered rows of `conversations.jsonl`; ids are built as conversation/turn/within_turn_id.

    Raises:
        UserError: as :func:`parse_utterances`; also an unknown role, or a turn without exactly one user message.
    """
    for line, row in rows:
        place = Place(source, line)
        conversation, user = get_id(row, "conversation_id", place), get_user(row, place)
        history = get(row, "conversation_history", place)
        if not isinstance(history, list):
            raise bad(place, "conversation_history", "a list of messages", history)
        prompts: dict[int, str] = {}
        answers: list[tuple[Place, Row]] = []
        for item, message in enumerate(history):
            if not isinstance(message, Mapping):
                raise bad(place, f"conversation_history[{item}]", "an object", message)
            here = Place(source, line, item)
            role, turn = get_text(message, "role", here), get_int(message, "turn", here)
            if role == "model":
                answers.append((here, message))
            elif role != "user":
                raise bad(here, "role", "'user' or 'model'", role)
            elif turn in prompts:
                raise bad(here, "turn", "one user message per turn", turn)
            else:
                prompts[turn] = get_text(message, "content", here)
        for here, message in answers:
            check_judged(message, here)
            turn, position = get_int(message, "turn", here), get_int(message, "within_turn_id", here)
            if turn not in prompts:
                raise bad(here, "turn", "a turn that has a user message", turn)
            comparison = f"{conversation}/{turn}"
            yield Utterance(
                here,
                f"{comparison}/{position}",
                comparison,
                conversation,
                user,
                turn,
                position,
                prompts[turn],
                get_text(message, "content", here),
                score_of(message, here),
                chosen_of(message, here),
            )


def said(value: Any, name: str, place: Place) -> str | None:
    """A category that the annotator gave, or null where it is absent or "Prefer not to say"."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise bad(place, name, "a string or null", value)
    text = " ".join(value.split())
    return None if not text or text.casefold() == "prefer not to say" else text


def country_of(location: Row, prefix: str, place: Place) -> tuple[str | None, str]:
    """Canonical country by name, else by ISO code; else null and the reason that the ledger shows."""
    from scpo.groups import canonical

    for key in (f"{prefix}_country", f"{prefix}_countryISO"):
        value = said(location.get(key), f"location.{key}", place)
        if value is not None:
            return canonical(value), ""
        if location.get(key):
            return None, "country: prefer not to say"
    return None, "no country"


def parse_survey(rows: Iterable[tuple[int, Row]], source: str) -> dict[str, Annotator]:
    """Annotators by id, in the order of the survey. Only `user_id` and `location` are required columns.

    Raises:
        UserError: no rows, a missing column, a value of the wrong type, or a user id twice.
    """
    users: dict[str, Annotator] = {}
    lines: dict[str, int] = {}
    for line, row in rows:
        place = Place(source, line)
        get(row, "location", place)
        user = get_id(row, "user_id", place)
        if user in users:
            raise UserError(f"{place.field('user_id')}: expected unique ids, found {user!r} also in line {lines[user]}")
        lines[user] = line
        location = nested(row, "location", place)
        country, why = country_of(location, "reside", place)
        found = {name: said(row.get(name), name, place) for name in PLAIN_ATTRIBUTES}
        for name in NESTED_ATTRIBUTES:
            found[name] = said(nested(row, name, place).get("simplified"), f"{name}.simplified", place)
        found["birth_country"] = country_of(location, "birth", place)[0]
        users[user] = Annotator(user, country, why, {k: v for k, v in found.items() if v is not None})
    if not users:
        raise UserError(f"{source}: expected one row per annotator, found no rows")
    return users


def nested(row: Row, name: str, place: Place) -> Row:
    """An object field; null and absent count as an empty one."""
    value = row.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise bad(place, name, "an object", value)
    return value
