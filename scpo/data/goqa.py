"""GlobalOpinionQA: one comparison per question and country, the options as candidates, the shares as scores.

Source of the data: Durmus et al. 2023, "Towards Measuring the Representation of Subjective Global Opinions in Language
Models" (Hugging Face ``Anthropic/llm_global_opinions``, CC BY-NC-SA 4.0): a csv with the columns `question`,
`selections` (text of a dictionary: country -> list of shares), `options` (text of a list) and `source` (GAS or WVS).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import pandas as pd

from scpo.data.goqa_parse import (
    check_template,
    is_non_answer,
    is_total,
    normalise_question,
    parse_options,
    parse_selections,
)
from scpo.data.goqa_read import csv_rows, find_csv, frame_rows, read_question, read_source
from scpo.data.ledger import Kind, Ledger
from scpo.data.prepared import Prepared
from scpo.errors import UserError
from scpo.groups import NATIONAL, canonical, split_sample
from scpo.io import sha256_file

Samples = Literal["national", "all"]
NonAnswers = Literal["drop", "keep"]

SUM_RANGE = (0.98, 1.02)
"""Shares whose sum lies in here (ends included) are rounded and are renormalised; others are a fault."""

# Decimal shares sum to 0.98 only up to the rounding of floats; the ends of the range belong to it.
_SUM_SLACK = 1e-9
_ROUNDING_NOTE = 1e-6


def read_goqa(
    raw: Path | pd.DataFrame,
    *,
    samples: Samples = "national",
    non_answers: NonAnswers = "drop",
    template: str = "{question}",
) -> Prepared:
    """Comparisons of GlobalOpinionQA.

    Args:
        raw: the csv, a folder with exactly one such csv (see :func:`scpo.data.goqa_read.find_csv`), or a frame with the
            four columns.
        samples: `national` leaves out every sample with another suffix than "(Current national sample)"; `all` keeps
            them as comparisons of their own, told apart by the attribute `sample`.
        non_answers: `drop` leaves out "DK/Refused", "No answer", "Missing; ..." and the like and renormalises the rest.
        template: the prompt, with ``{question}`` and optionally ``{group}``.

    Returns:
        Prepared, without the column `split`. `score` is the share among the options that are left: positive or zero,
        summing to 1 within a comparison. `cluster_id` is :func:`scpo.data.goqa_parse.normalise_question`,
        `comparison_id` is ``cluster/group`` (``cluster/group/sample`` with samples=all), `candidate_id` adds ``/n``
        with the option's place in the source's own list, from 0. ``extra["questions"]`` accounts for every row.

    Options with the same text are one candidate with the sum of their shares. An option "Total N=" (a total of the
    published tables) is no answer and is left out always. The same question, country and sample a second time is dropped.

    Raises:
        UserError: a wrong option, an unreadable file, a cell of the wrong kind, or nothing left.
    """
    if samples not in get_args(Samples):
        raise UserError(f"samples: expected national or all, found {samples!r}")
    if non_answers not in get_args(NonAnswers):
        raise UserError(f"non_answers: expected drop or keep, found {non_answers!r}")
    reader = _Reader(samples, non_answers, check_template(template))
    source: dict[str, Any]
    if isinstance(raw, pd.DataFrame):
        where, source = "data frame", {"rows": len(raw)}
        rows = frame_rows(raw, where)
    else:
        path = find_csv(Path(raw))
        where, source = str(path), {"files": {path.name: sha256_file(path)}}
        rows = csv_rows(path)
    for number, row in rows:
        reader.add_row(number, row, where)
    reader.check(where)
    return Prepared(
        frame=pd.DataFrame(reader.columns),
        ledger=reader.ledger,
        source=source,
        options={"samples": samples, "non_answers": non_answers, "template": template},
        extra={"questions": reader.questions()},
    )


@dataclass(frozen=True)
class Answers:
    """What is left of a distribution: (place in the options, text, score), and what was done to it."""

    kept: list[tuple[int, str, float]]
    left_out: int
    merged: int
    totals: int
    rounded: bool


def check_shares(shares: list[float], options: list[str]) -> str | None:
    """The fault of a distribution, or None: another length than the options, negative, all zero, sum far from 1."""
    if len(shares) != len(options):
        return "another length than the options"
    if any(share < 0 for share in shares):
        return "negative share"
    if not all(options):
        return "empty option"
    # A table's total may stand beside shares that sum to 1 without it, or be one of the shares that do.
    without = math.fsum(share for share, option in zip(shares, options, strict=True) if not is_total(option))
    if without == 0:
        return "all shares zero"
    low, high = SUM_RANGE[0] - _SUM_SLACK, SUM_RANGE[1] + _SUM_SLACK
    if not (low <= without <= high or low <= math.fsum(shares) <= high):
        return "shares far from summing to 1"
    return None


def answers_of(options: list[str], shares: list[float], non_answers: NonAnswers) -> Answers | tuple[str, Kind]:
    """The candidates of one distribution with scores that sum to 1, or why it is lost (reason, kind)."""
    fault = check_shares(shares, options)
    if fault:
        return fault, "fault"
    merged: dict[str, tuple[int, str, float]] = {}
    totals = 0
    for place, (text, share) in enumerate(zip(options, shares, strict=True)):
        key = " ".join(text.split())
        if is_total(text):
            totals += 1
        elif key in merged:
            first, spelling, so_far = merged[key]
            merged[key] = (first, spelling, so_far + share)
        else:
            merged[key] = (place, text, share)
    if len(merged) < 2:
        return "one candidate", "fault"
    kept = [a for a in merged.values() if non_answers == "keep" or not is_non_answer(a[1])]
    mass = math.fsum(share for _, _, share in kept)
    if mass == 0:
        return "only non-answers", "choice"
    if len(kept) < 2:
        return "one candidate besides non-answers", "choice"
    return Answers(
        kept=[(place, text, share / mass) for place, text, share in kept],
        left_out=len(merged) - len(kept),
        merged=len(options) - totals - len(merged),
        totals=totals,
        rounded=abs(math.fsum(shares) - 1) > _ROUNDING_NOTE,
    )


@dataclass
class _Reader:
    """What is gathered while rows are read."""

    samples: Samples
    non_answers: NonAnswers
    template: str
    ledger: Ledger = field(default_factory=Ledger)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    seen: dict[str, dict[str, float]] = field(default_factory=dict)
    fates: list[Counter[str]] = field(default_factory=list)  # per row of the source; "" counts kept comparisons
    compared: int = 0
    mismatched: int = 0
    first_mismatch: str = ""

    def add_row(self, number: int, row: dict[str, Any], where: str) -> None:
        """One question with all its countries."""
        at = f"{where}: row {number}"
        selections = parse_selections(row["selections"], f"{at}, column selections")
        options = parse_options(row["options"], f"{at}, column options")
        source = read_source(row["source"], f"{at}, column source")
        question = read_question(row["question"], f"{at}, column question")
        self.fates.append(Counter())
        if not selections:
            self._drop(None, "no country", "fault")
        for name, shares in selections:
            self.compared += 1
            if len(shares) != len(options):
                self.mismatched += 1
                self.first_mismatch = self.first_mismatch or f"row {number}, {name}: {len(shares)} and {len(options)}"
            base, sample = split_sample(name)
            group = canonical(base)
            if not group:
                self._drop(None, "empty country name", "fault")
            elif self.samples == "national" and sample not in NATIONAL:
                self._drop(group, f"{sample} sample", "choice")
            elif not normalise_question(question):
                self._drop(group, "empty question", "fault")
            else:
                found = answers_of(options, shares, self.non_answers)
                if isinstance(found, Answers):
                    self._keep(question, group, found, {"sample": sample, "source": source})
                else:
                    self._drop(group, *found)

    def _keep(self, question: str, group: str, answers: Answers, attributes: dict[str, str]) -> None:
        cluster = normalise_question(question)
        comparison = f"{cluster}/{group}" + (f"/{attributes['sample']}" if self.samples == "all" else "")
        scores = {" ".join(text.split()): score for _, text, score in answers.kept}
        first = self.seen.setdefault(comparison, scores)
        if first is not scores:
            if first.keys() == scores.keys() and all(math.isclose(first[t], scores[t], abs_tol=1e-9) for t in first):
                self._drop(group, "repeated with the same shares", "note")
            else:
                self._drop(group, "duplicate", "fault")
            return
        self.fates[-1][""] += 1
        self.ledger.keep(group)
        self.ledger.note(group, "non-answer options left out", answers.left_out)
        self.ledger.note(group, "options with the same text merged", answers.merged)
        self.ledger.note(group, "total left out of the options", answers.totals)
        self.ledger.note(group, "shares renormalised", int(answers.rounded))
        prompt = self.template.format(question=question, group=group)
        for place, text, score in answers.kept:
            candidate = {
                "dataset": "goqa",
                "comparison_id": comparison,
                "candidate_id": f"{comparison}/{place}",
                "prompt": prompt,
                "history": [],
                "response": text,
                "score": score,
                "group": group,
                "annotator_id": None,
                "cluster_id": cluster,
                "attributes": dict(attributes),
            }
            for name, value in candidate.items():
                self.columns.setdefault(name, []).append(value)

    def _drop(self, group: str | None, reason: str, kind: Kind) -> None:
        self.fates[-1][reason] += 1
        self.ledger.drop(group, reason, kind)

    def check(self, where: str) -> None:
        """Stop where nothing is left, or where options and shares never fit (the columns do not belong together)."""
        if self.mismatched and self.mismatched == self.compared:
            raise UserError(
                f"{where}: columns selections and options: expected as many shares as options, found other numbers in "
                f"all {self.compared} distributions ({self.first_mismatch}); do the columns come from the same rows?"
            )
        if not self.seen:
            reasons: Counter[str] = sum(self.fates, Counter())
            shown = ", ".join(f"{reason} {n}" for reason, n in sorted(reasons.items())) or "the source has no rows"
            raise UserError(f"{where}: expected at least one comparison to keep, found none ({shown})")

    def questions(self) -> dict[str, Any]:
        """Rows of the source: in all, with a kept comparison, and without one by their reasons."""
        lost = Counter(" + ".join(sorted(fate)) for fate in self.fates if not fate[""])
        return {
            "rows": len(self.fates),
            "kept": len(self.fates) - lost.total(),
            "clusters": len(set(self.columns["cluster_id"])),
            "lost": dict(sorted(lost.items())),
        }
