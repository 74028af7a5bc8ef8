"""Writers of PRISM's raw layout: survey.jsonl, conversations.jsonl and utterances.jsonl, all fields in their order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from scpo.data.simulate.draw import CONVERSATION_TYPES, MODELS, Corpus, spans
from scpo.data.simulate.survey import completed_at, minutes, sliders, survey_rows
from scpo.data.simulate.world import Bools

EMPTY = "EMPTY STRING"
"""How PRISM writes an empty response."""

PERFORMANCE: tuple[tuple[str, float, float], ...] = (
    *(("values", 74.1, 22.2), ("fluency", 84.3, 18.3), ("factuality", 79.2, 21.5), ("safety", 85.1, 19.3)),
    *(("diversity", 68.7, 25.3), ("creativity", 63.7, 26.1), ("helpfulness", 81.5, 21.9)),
)
CHOICE: tuple[tuple[str, float, float], ...] = (
    *(("values", 66.9, 27.2), ("fluency", 82.5, 18.5), ("factuality", 79.3, 21.0), ("safety", 72.1, 27.8)),
    *(("diversity", 66.0, 26.5), ("creativity", 62.1, 27.1), ("helpfulness", 82.5, 20.0)),
)
FEEDBACK = (
    *("The first answer", "My favourite answer", "Most of the answers", "The longer answer"),
    *("One of the answers", "The second part"),
)
VERDICTS = ("was what I hoped for", "could be shorter", "was useful", "surprised me", "missed my point", "was fine")


def balanced_subset(corpus: Corpus) -> tuple[list[bool], Bools]:
    """Who has at least one conversation of each type, (n_people,), and which conversations are kept, (c,).

    Of a kept person, each type keeps as many conversations as the rarest type has.
    """
    kept = np.zeros(len(corpus.person), dtype=np.bool_)
    people = [False] * len(corpus.people)
    for p in range(len(corpus.people)):
        mine = np.flatnonzero(corpus.person == p)
        by_type = [mine[corpus.kind[mine] == k] for k in range(len(CONVERSATION_TYPES))]
        least = min(len(rows) for rows in by_type)
        people[p] = least > 0
        for rows in by_type:
            kept[rows[:least]] = True
    return people, kept


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """JSON lines into a folder that is itself moved into place at the end."""
    with open(path, "w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)


def write_prism(corpus: Corpus, folder: Path, rng: np.random.Generator) -> None:
    """Write the three files into an existing folder."""
    people, kept = balanced_subset(corpus)
    write_lines(folder / "survey.jsonl", survey_rows(corpus.people, people, rng))
    write_lines(folder / "utterances.jsonl", utterance_rows(corpus, kept))
    write_lines(folder / "conversations.jsonl", conversation_rows(corpus, kept, rng))


def utterance_rows(corpus: Corpus, kept: Bools) -> Iterator[dict[str, Any]]:
    """The rows of utterances.jsonl: 14 fields."""
    for n, i in enumerate(corpus.interaction.tolist()):
        c = int(corpus.conversation[i])
        name, provider, _ = MODELS[corpus.model[n]]
        yield {
            "utterance_id": f"ut{n}",
            "interaction_id": f"int{i}",
            "conversation_id": f"c{c}",
            "user_id": corpus.people[corpus.person[c]].user_id,
            "turn": int(corpus.turn[i]),
            "within_turn_id": int(corpus.within[n]),
            "included_in_balanced_subset": bool(kept[c]),
            "conversation_type": CONVERSATION_TYPES[corpus.kind[c]],
            "user_prompt": corpus.prompts[i],
            "model_response": corpus.responses[n] or EMPTY,
            "model_name": name,
            "model_provider": provider,
            "score": int(corpus.scores[n]),
            "if_chosen": bool(corpus.chosen[n]),
        }


def history(corpus: Corpus, interactions: range, starts: list[int], ends: list[int]) -> list[dict[str, Any]]:
    """``conversation_history``: each turn's message, then its candidates."""
    messages: list[dict[str, Any]] = []
    for i in interactions:
        turn = int(corpus.turn[i])
        messages.append({"turn": turn, "role": "user", "content": corpus.prompts[i]})
        for n in range(starts[i], ends[i]):
            name, provider, _ = MODELS[corpus.model[n]]
            messages.append(
                {
                    "turn": turn,
                    "role": "model",
                    "content": corpus.responses[n] or EMPTY,
                    "model_provider": provider,
                    "model_name": name,
                    "score": int(corpus.scores[n]),
                    "if_chosen": bool(corpus.chosen[n]),
                    "within_turn_id": int(corpus.within[n]),
                }
            )
    return messages


def conversation_rows(corpus: Corpus, kept: Bools, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """The rows of conversations.jsonl: 13 fields."""
    starts, ends = (edge.tolist() for edge in spans(corpus.interaction))
    first, last = (edge.tolist() for edge in spans(corpus.conversation))
    clock = None
    previous = -1
    for c, p in enumerate(corpus.person.tolist()):
        if p != previous or clock is None:
            clock, previous = completed_at(p, len(corpus.people)), p
        seconds = round(float(np.clip(rng.lognormal(6.15, 0.55), 73.5, 17145.8)), 2)
        clock += timedelta(seconds=int(seconds) + 5)
        yield {
            "conversation_id": f"c{c}",
            "user_id": corpus.people[p].user_id,
            "included_in_balanced_subset": bool(kept[c]),
            "generated_datetime": str(clock),
            "timing_duration_s": seconds,
            "timing_duration_mins": minutes(seconds),
            "conversation_type": CONVERSATION_TYPES[corpus.kind[c]],
            "opening_prompt": corpus.prompts[first[c]],
            "conversation_turns": last[c] - first[c],
            "conversation_history": history(corpus, range(first[c], last[c]), starts, ends),
            "performance_attributes": with_gaps(PERFORMANCE, rng),
            "choice_attributes": with_gaps(CHOICE, rng),
            "open_feedback": f"{FEEDBACK[rng.integers(len(FEEDBACK))]} {VERDICTS[rng.integers(len(VERDICTS))]}.",
        }


def with_gaps(means: tuple[tuple[str, float, float], ...], rng: np.random.Generator) -> dict[str, int | None]:
    """Sliders 1 to 100 of which about one conversation in four leaves some out (null)."""
    missing = rng.random(len(means)) < 0.035
    values = sliders(means, 1, rng)
    return {name: None if gap else value for (name, value), gap in zip(values.items(), missing, strict=True)}
