"""PRISM: one comparison per interaction, grouped by the annotator's country of residence or another attribute.

Source: Kirk et al. 2024 (HannahRoseKirk/prism-alignment). Layout of the result: :data:`scpo.data.schema.COMPARISONS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scpo.data.ledger import Ledger
from scpo.data.prism_parse import (
    ATTRIBUTES,
    COUNTRY,
    Annotator,
    Row,
    Utterance,
    parse_conversations,
    parse_survey,
    parse_utterances,
)
from scpo.data.prism_turns import EmptyResponses, Message, by_conversation, by_interaction, judge, spoken
from scpo.errors import UserError, did_you_mean
from scpo.io import read_jsonl, require_dir, require_file, sha256_file

if TYPE_CHECKING:
    from scpo.data.prepared import Prepared


def read_prism(
    raw: Path,
    *,
    history: bool = False,
    group_by: str = COUNTRY,
    empty_responses: EmptyResponses = "keep",
) -> Prepared:
    """Read a folder with `survey.jsonl` and `utterances.jsonl` (preferred) or `conversations.jsonl`.

    Args:
        raw: the folder.
        history: fill `history` with each earlier turn's user message and chosen response.
        group_by: `reside_country`, or an attribute of :data:`scpo.data.prism_parse.ATTRIBUTES`; the country is then
            kept as the attribute `country`.
        empty_responses: keep "EMPTY STRING" responses as empty text, or drop those candidates.

    Raises:
        UserError: a file is missing or damaged, or a row is wrong; the message says file, line and field.
    """
    raw = require_dir(Path(raw), "a folder with survey.jsonl and utterances.jsonl or conversations.jsonl")
    survey_path, texts = raw / "survey.jsonl", raw / "utterances.jsonl"
    require_file(survey_path)
    if not texts.is_file():
        texts = raw / "conversations.jsonl"
        if not texts.is_file():
            found = ", ".join(sorted(p.name for p in raw.iterdir())[:10])
            raise UserError(f"{raw}: expected utterances.jsonl or conversations.jsonl, found {found}")
    users = parse_survey(read_jsonl(survey_path), str(survey_path))
    parse = parse_utterances if texts.name == "utterances.jsonl" else parse_conversations
    source = {"files": {p.name: sha256_file(p) for p in (survey_path, texts)}}
    utterances = parse(read_jsonl(texts), str(texts))
    return build(users, utterances, str(texts), str(survey_path), source, history, group_by, empty_responses)


def read_prism_rows(
    survey: Iterable[Row],
    utterances: Iterable[Row],
    *,
    source: dict[str, Any],
    name: str = "PRISM",
    history: bool = False,
    group_by: str = COUNTRY,
    empty_responses: EmptyResponses = "keep",
) -> Prepared:
    """As :func:`read_prism`, from rows of the Hub's configs `survey` and `utterances` (dicts; absent values null)."""
    users = parse_survey(enumerate(survey, start=1), f"{name} survey")
    where = f"{name} utterances"
    rows = parse_utterances(enumerate(utterances, start=1), where)
    return build(users, rows, where, f"{name} survey", source, history, group_by, empty_responses)


def build(
    users: dict[str, Annotator],
    utterances: Iterable[Utterance],
    where: str,
    survey: str,
    source: dict[str, Any],
    history: bool,
    group_by: str,
    empty_responses: EmptyResponses,
) -> Prepared:
    """Put candidates together into comparisons; drop, count and note (see :class:`scpo.data.ledger.Ledger`).

    `where` and `survey` name the sources of utterances and annotators in messages.
    """
    import pandas as pd

    from scpo.data.prepared import Prepared

    if group_by not in (COUNTRY, *ATTRIBUTES):
        raise UserError(
            f"group_by: expected {COUNTRY} or an attribute, found {group_by!r}."
            + did_you_mean(group_by, (COUNTRY, *ATTRIBUTES))
        )
    if empty_responses not in ("keep", "drop"):
        raise UserError(f"empty_responses: expected keep or drop, found {empty_responses!r}")
    groups = {user: group_of(annotator, group_by) for user, annotator in users.items()}
    if not any(group for group, _ in groups.values()):
        raise UserError(
            f"{survey}: expected {group_by} for at least one annotator, found it missing in all {len(users)} rows"
        )

    comparisons = by_interaction(utterances, users, where)
    conversations = by_conversation(comparisons)
    ledger, talks, columns = Ledger(), Ledger(), Columns()
    for turns in conversations.values():
        group, reason = group_of_user(turns[0][0].user_id, groups)
        kept, earlier = 0, list[Message]()
        for turn in turns:
            judged = judge(turn, group, reason, ledger, empty_responses)
            if judged is not None and group is not None:
                kept += 1
                columns.add(*judged, group, attributes_of(users[str(turn[0].user_id)], group_by), earlier)
            if history and group is not None and turn is not turns[-1]:
                earlier = [*earlier, *spoken(turn, group, ledger)]
        if kept:
            talks.keep(str(group))
        else:
            talks.drop(group, reason or "no comparison left")
    active = {turn[0].user_id for turn in comparisons.values()}
    for user, (group, _) in groups.items():
        if user not in active:
            ledger.note(group, "survey-only annotators")
    return Prepared(
        frame=pd.DataFrame(columns.data),
        ledger=ledger,
        source=source,
        options={"history": history, "group_by": group_by, "empty_responses": empty_responses},
        extra={"survey_users": list(users), "conversations": talks.as_dict()},
    )


def group_of(annotator: Annotator, group_by: str) -> tuple[str | None, str]:
    """The annotator's group, or null and the reason."""
    from scpo.groups import tidy

    if group_by == COUNTRY:
        return annotator.country, annotator.no_country
    value = annotator.attributes.get(group_by)
    return (tidy(value), "") if value is not None else (None, f"no {group_by}")


def group_of_user(user: str | None, groups: dict[str, tuple[str | None, str]]) -> tuple[str | None, str]:
    """As :func:`group_of`, also for rows without a user id."""
    return (None, "no user id") if user is None else groups[user]


def attributes_of(annotator: Annotator, group_by: str) -> dict[str, str]:
    """Attributes beside the group; the country is one of them when the group is something else."""
    if group_by == COUNTRY or annotator.country is None:
        return annotator.attributes
    return {**annotator.attributes, "country": annotator.country}


class Columns:
    """The columns of the frame, filled comparison by comparison."""

    def __init__(self) -> None:
        names = (
            "dataset comparison_id candidate_id prompt history response score group annotator_id cluster_id attributes"
        )
        self.data: dict[str, list[Any]] = {name: [] for name in names.split()}

    def add(
        self,
        rows: Sequence[Utterance],
        responses: Sequence[str],
        scores: Sequence[float],
        group: str,
        attributes: dict[str, str],
        history: list[Message],
    ) -> None:
        """Append the candidates of one comparison; history and attributes are shared, not copied."""
        data = self.data
        for row, response, score in zip(rows, responses, scores, strict=True):
            data["dataset"].append("prism")
            data["comparison_id"].append(row.comparison_id)
            data["candidate_id"].append(row.candidate_id)
            data["prompt"].append(row.prompt)
            data["history"].append(history)
            data["response"].append(response)
            data["score"].append(score)
            data["group"].append(group)
            data["annotator_id"].append(row.user_id)
            data["cluster_id"].append(row.user_id)
            data["attributes"].append(attributes)
