"""What a row of a preference table says: the prompt, what went before it, and the responses with their scores.

Strings and lists of {role, content} are both understood, as is a prompt that stands only inside chosen and rejected
(the column layouts of TRL's preference datasets).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from scpo.errors import UserError
from scpo.io import shorten, shown

Message = dict[str, str]


class Exchange(NamedTuple):
    """One comparison: `responses` and `scores` of equal length (>= 2); `repeated` = a prompt taken out of responses."""

    prompt: str
    history: list[Message]
    responses: list[str]
    scores: list[float]
    repeated: bool = False


MAX_SCORE = 1e15
"""Largest magnitude of a score: up to here float64 tells whole numbers and their eighths apart."""

Outcome = tuple[Exchange | None, str]
"""The exchange, or null and the reason for dropping the row."""


def exchanges(values: Mapping[str, Any], paired: bool, place: str, names: Mapping[str, str]) -> Outcome:
    """Read one row.

    Args:
        values: cells by the columns' own names (prompt, chosen, rejected, responses, scores, history).
        paired: chosen and rejected, rather than responses and scores.
        place: file and row, for errors.
        names: the file's names of the columns, for errors.

    Raises:
        UserError: a value of the wrong type.
    """
    prompt = values.get("prompt")
    if paired:
        answers = [values.get("chosen"), values.get("rejected")]
        parts = ["chosen", "rejected"]
        scores: list[float] = [1.0, 0.0]
    else:
        answers, parts, found = listed(values, place, names)
        if len(answers) != len(found):
            return None, "responses and scores of different length"
        if any(score is None for score in found):
            return None, "no score"
        scores = [float(score) for score in found if score is not None]
    if len(answers) < 2:
        return None, "one candidate"
    before = (
        [] if values.get("history") is None else messages(values["history"], place, names.get("history", "history"))
    )
    bodies = [body(answer, place, names.get(part, part)) for answer, part in zip(answers, parts, strict=True)]
    head = None if prompt is None else body(prompt, place, names.get("prompt", "prompt"))
    if head is None and "prompt" in names:
        return None, "empty prompt"
    if all(isinstance(b, str) for b in bodies):
        head, responses, repeated = from_texts(head, [str(b) for b in bodies])
    else:
        head, tails, repeated = from_messages(head, [as_messages(b) for b in bodies])
        if any(not tail or tail[-1]["role"] != "assistant" for tail in tails):
            raise UserError(
                f"{place}: columns {', '.join(dict.fromkeys(names.get(p, p) for p in parts))}: expected messages that end "
                f"with the assistant's and differ there, found the roles "
                + " / ".join(shorten(" ".join(m["role"] for m in tail)) or "none" for tail in tails)
            )
        if any(len(tail) > 1 for tail in tails):
            return None, "chosen and rejected differ before the last message"
        responses = [tail[-1]["content"] for tail in tails]
    asked = as_prompt(head, place, names.get("prompt", "prompt"))
    if not asked[-1]["content"].strip():
        return None, "empty prompt"
    if len(set(responses)) == 1:
        return None, "identical responses"
    return Exchange(asked[-1]["content"], before + asked[:-1], responses, scores, repeated), ""


def listed(
    values: Mapping[str, Any], place: str, names: Mapping[str, str]
) -> tuple[list[Any], list[str], list[float | None]]:
    """Responses, the column of each, and scores (finite numbers up to :data:`MAX_SCORE`, or null)."""
    for part in ("responses", "scores"):
        if not isinstance(values.get(part), list):
            raise UserError(f"{place}: column {names[part]}: expected a list, found {shown(values.get(part))}")
    for score in values["scores"]:
        number = isinstance(score, int | float) and not isinstance(score, bool)
        # Beyond the bound differences of scores lose their units; NaN fails the comparison too.
        if score is not None and not (number and -MAX_SCORE <= score <= MAX_SCORE):
            raise UserError(
                f"{place}: column {names['scores']}: expected finite numbers within +-{MAX_SCORE:g}, found {shown(score)}"
            )
    return values["responses"], ["responses"] * len(values["responses"]), values["scores"]


def body(value: Any, place: str, column: str) -> str | list[Message]:
    """Text, or a list of messages."""
    return value if isinstance(value, str) else messages(value, place, column)


def messages(value: Any, place: str, column: str) -> list[Message]:
    """A checked list of {role, content}; other keys of a message are left out."""
    if not isinstance(value, list):
        raise UserError(f"{place}: column {column}: expected text or a list of {{role, content}}, found {shown(value)}")
    for item in value:
        if not isinstance(item, Mapping) or not all(isinstance(item.get(key), str) for key in ("role", "content")):
            raise UserError(f"{place}: column {column}: expected messages with role and content, found {shown(item)}")
    return [{"role": item["role"], "content": item["content"]} for item in value]


def as_messages(value: str | list[Message]) -> list[Message]:
    """Text beside lists of messages is what the assistant said."""
    return [{"role": "assistant", "content": value}] if isinstance(value, str) else value


def from_texts(head: str | list[Message] | None, texts: Sequence[str]) -> tuple[str | list[Message], list[str], bool]:
    """Prompt and responses of strings; a prompt that stands before all of them is taken out."""
    if head is None:
        pairs = takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
        shared = "".join(letters[0] for letters in pairs)
        # Back to a word's border, lest the prompt take the first letters of both responses.
        cut = max((i + 1 for i, letter in enumerate(shared) if letter.isspace()), default=0)
        return texts[0][:cut].rstrip(), [text[cut:] for text in texts], False
    if isinstance(head, str) and head.strip() and all(text.startswith(head) and text != head for text in texts):
        return head, [text[len(head) :].lstrip() for text in texts], True
    return head, list(texts), False


def from_messages(
    head: str | list[Message] | None, lists: Sequence[list[Message]]
) -> tuple[str | list[Message], list[list[Message]], bool]:
    """Prompt and what follows it in each list; without a prompt, it is the messages that all lists begin with."""
    given = [{"role": "user", "content": head}] if isinstance(head, str) else head
    if given is None:
        n = 0
        while all(len(turns) > n + 1 and turns[n] == lists[0][n] for turns in lists):
            n += 1
        return lists[0][:n], [turns[n:] for turns in lists], False
    if given and all(turns[: len(given)] == given for turns in lists):
        return given, [turns[len(given) :] for turns in lists], True
    if isinstance(head, str):
        # A prompt given as text may be the last user message of a longer conversation that the lists hold in full.
        shared, tails, _ = from_messages(None, lists)
        if isinstance(shared, list) and shared and shared[-1] == given[0]:
            return shared, tails, True
    return given, list(lists), False


def as_prompt(head: str | list[Message], place: str, column: str) -> list[Message]:
    """The prompt as messages of which the last is the user's."""
    if isinstance(head, str):
        return [{"role": "user", "content": head}]
    if not head or head[-1]["role"] != "user":
        roles = " ".join(message["role"] for message in head) or "none"
        raise UserError(
            f"{place}: column {column}: expected messages that end with the user's, found the roles {shorten(roles)}"
        )
    return head
