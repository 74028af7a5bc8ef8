"""Rows in PRISM's layout for tests, with the fields that reading needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scpo.data.prism import read_prism_rows


def person(user: str, country: str | None = "Chile", **fields: Any) -> dict[str, Any]:
    return {"user_id": user, "location": {"reside_country": country}} | fields


def said(
    user: str, talk: int, turn: int, k: int, score: Any, *, chosen: Any = None, text: str | None = None
) -> dict[str, Any]:
    return {
        "utterance_id": f"ut{talk}-{turn}-{k}",
        "interaction_id": f"int{talk}-{turn}",
        "conversation_id": f"c{talk}",
        "user_id": user,
        "turn": turn,
        "within_turn_id": k,
        "user_prompt": f"question {turn}",
        "model_response": f"answer {turn} {k}" if text is None else text,
        "score": score,
        "if_chosen": chosen,
    }


def read(survey: list[Any], utterances: list[Any], **options: Any) -> Any:
    return read_prism_rows(survey, utterances, source={}, **options)


def counts(prepared: Any) -> dict[str, Any]:
    return prepared.ledger.as_dict()["by_group"]


def dump(folder: Path, survey: list[Any], utterances: list[Any]) -> Path:
    for name, rows in (("survey", survey), ("utterances", utterances)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


TWO = [said("u1", 0, 0, 0, 90), said("u1", 0, 0, 1, 10)]
