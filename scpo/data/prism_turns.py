"""PRISM's candidates put together: interactions, conversations, the judgement of a turn and the history of later ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Literal

from scpo.data.ledger import NO_GROUP, Ledger
from scpo.data.prism_parse import EMPTY_RESPONSE, Annotator, Utterance
from scpo.errors import UserError
from scpo.io import shorten

EmptyResponses = Literal["keep", "drop"]
Message = dict[str, str]

DROPPED_EMPTY = "one candidate once empty responses are dropped"


def by_interaction(
    utterances: Iterable[Utterance], users: dict[str, Annotator], where: str
) -> dict[str, list[Utterance]]:
    """Candidates per interaction, both in the order of the source, candidates by `within_turn_id`.

    Raises:
        UserError: no rows, a candidate id twice, an unknown user, users missing everywhere, or an interaction whose rows
            disagree about user, conversation, turn or prompt.
    """
    found: dict[str, list[Utterance]] = {}
    seen: dict[str, Utterance] = {}
    named = 0
    for row in utterances:
        if row.candidate_id in seen:
            raise UserError(
                f"{row.place.field('utterance_id')}: expected unique ids, found {row.candidate_id!r} "
                f"also in line {seen[row.candidate_id].place.line}"
            )
        seen[row.candidate_id] = row
        if row.user_id is not None:
            named += 1
            if row.user_id not in users:
                raise UserError(
                    f"{row.place.field('user_id')}: expected an annotator of the survey, found {shorten(row.user_id)!r}; "
                    "are survey and utterances of the same release?"
                )
        turn = found.setdefault(row.comparison_id, [])
        turn.append(row)
        first = turn[0]
        for field in ("user_id", "conversation_id", "turn", "prompt"):
            if getattr(row, field) != getattr(first, field):
                name = "user_prompt" if field == "prompt" else field
                raise UserError(
                    f"{row.place.field(name)}: expected one {name} per interaction, found "
                    f"{shorten(repr(getattr(row, field)))} and, in line {first.place.line}, "
                    f"{shorten(repr(getattr(first, field)))} for {row.comparison_id!r}"
                )
    if not found:
        raise UserError(f"{where}: expected one row per candidate, found none")
    if not named:
        raise UserError(
            f"{where}: field user_id: expected the annotator's id, found it missing in all {len(seen)} rows"
        )
    for turn in found.values():
        turn.sort(key=lambda row: row.position)
    return found


def by_conversation(comparisons: dict[str, list[Utterance]]) -> dict[str, list[list[Utterance]]]:
    """Turns per conversation, in order of turn; a conversation has one user, and one interaction per turn."""
    talks: dict[str, list[list[Utterance]]] = {}
    for turn in comparisons.values():
        talks.setdefault(turn[0].conversation_id, []).append(turn)
    for turns in talks.values():
        turns.sort(key=lambda turn: turn[0].turn)
        for before, after in itertools.pairwise(turns):
            old, new = before[0], after[0]
            if old.user_id != new.user_id:
                raise UserError(
                    f"{new.place.field('user_id')}: expected one user per conversation, found {new.user_id!r} and, "
                    f"in line {old.place.line}, {old.user_id!r} for {new.conversation_id!r}"
                )
            if old.turn == new.turn:
                raise UserError(
                    f"{new.place.field('turn')}: expected one interaction per turn, found {new.comparison_id!r} and, "
                    f"in line {old.place.line}, {old.comparison_id!r} for turn {new.turn} of {new.conversation_id!r}"
                )
    return talks


def judge(
    turn: Sequence[Utterance], group: str | None, reason: str, ledger: Ledger, empty_responses: EmptyResponses
) -> tuple[list[Utterance], list[str], list[float]] | None:
    """Candidates, responses and scores of a comparison that is kept, else null; the ledger counts either way."""
    if group is None:
        ledger.drop(NO_GROUP, reason)
        return None
    if not turn[0].prompt.strip():
        ledger.drop(group, "empty prompt")
        return None
    if len(turn) < 2:
        ledger.drop(group, "one candidate")
        return None
    full = [row for row in turn if row.response.strip() not in ("", EMPTY_RESPONSE)]
    empty = len(turn) - len(full)
    if empty:
        ledger.note(group, f"empty responses {'kept' if empty_responses == 'keep' else 'dropped'}", empty)
    rows = list(turn) if empty_responses == "keep" else full
    if len(rows) < 2:
        ledger.drop(group, DROPPED_EMPTY, "choice")
        return None
    scored = [row for row in rows if row.score is not None]
    if 2 <= len(scored) < len(rows):
        ledger.note(group, "candidates without a score left out", len(rows) - len(scored))
        rows = scored
    scores = scores_of(rows, group, ledger)
    if scores is None:
        return None
    ledger.keep(group)
    tied = tied_pairs(scores)
    if tied:
        ledger.note(group, "tied pairs", tied)
        if len(set(scores)) == 1:
            ledger.note(group, "no pair: all scores equal")
    responses = ["" if row.response.strip() in ("", EMPTY_RESPONSE) else row.response for row in rows]
    if len(set(responses)) < len(responses):
        ledger.note(group, "identical responses in a comparison")
    return rows, responses, scores


def scores_of(rows: Sequence[Utterance], group: str, ledger: Ledger) -> list[float] | None:
    """The slider scores; without them 1 and 0 for chosen and rest; null (and counted) where neither orders them."""
    scores = [row.score for row in rows if row.score is not None]
    if len(scores) == len(rows):
        return scores
    chosen = [row.chosen for row in rows]
    if None in chosen or len(set(chosen)) < 2:
        ledger.drop(group, "no score")
        return None
    ledger.note(group, "chosen only")
    return [1.0 if c else 0.0 for c in chosen]


def tied_pairs(scores: Sequence[float]) -> int:
    """Number of candidate pairs with equal scores."""
    return sum(a == b for i, a in enumerate(scores) for b in scores[i + 1 :])


def spoken(turn: Sequence[Utterance], group: str, ledger: Ledger) -> list[Message]:
    """An earlier turn as two messages: the prompt and the response that the conversation went on with.

    Several chosen, or none: the highest score, then the lowest `within_turn_id`. A turn that neither a choice nor a
    score decides is left out, so that roles keep alternating; all three cases are noted.
    """
    pool = [row for row in turn if row.chosen]
    if len(pool) > 1:
        ledger.note(group, "history: several chosen responses")
    elif not pool:
        pool = [row for row in turn if row.score is not None]
        ledger.note(
            group, "history: no chosen response" if pool else "history: turn without a chosen response left out"
        )
        if not pool:
            return []
    best = min(pool, key=lambda row: (-(row.score or 0.0), row.position))
    answer = "" if best.response.strip() == EMPTY_RESPONSE else best.response
    return [{"role": "user", "content": best.prompt}, {"role": "assistant", "content": answer}]
