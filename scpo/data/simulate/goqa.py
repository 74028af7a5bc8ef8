"""The simulated surveys in GlobalOpinionQA's raw layout: questions whose shares follow the planted preferences, and dirt."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scpo.data.simulate.goqa_words import (
    COUNTRIES,
    NON_ANSWERS,
    RANKING_FRAMES,
    RATING_FRAMES,
    RATINGS,
    SAMPLES,
    SCALE_FRAME,
    TRAIT_CLAUSES,
    TRAIT_OPTIONS,
)
from scpo.data.simulate.text import draw_topic
from scpo.data.simulate.world import Floats, World
from scpo.groups import canonical, split_sample

SHARPNESS = 1.0
"""Logits of the shares for one unit of utility."""
SAMPLE_SD = 0.15
"""Normal noise of a country's logits."""
RESPONDENTS = 1000
FAULT_SHARE = 0.02
MAX_FAULTS = 0.1
"""No country has more than this share of broken distributions, so that no part of the data is lost to them."""
MERGED_SHARE = 0.02


@dataclass(frozen=True)
class Question:
    """One row of the csv. ``levels`` is (n_options, n_traits): how much an option stands for a trait; 0 for non-answers."""

    text: str
    source: str
    options: tuple[str | int, ...]
    answers: int  # the first options are answers, the rest non-answers
    levels: Floats
    selections: dict[str, list[float]]


def groups() -> list[str]:
    """Canonical names of the countries that can be asked, in the order of their table."""
    return [group_of(name) for name, _, _ in COUNTRIES]


def group_of(spelling: str) -> str:
    """The canonical country of a spelling, without its sample."""
    return canonical(split_sample(spelling)[0])


def draw_questions(world: World, questions: int, rng: np.random.Generator) -> list[Question]:
    """``questions`` different questions; a few of them stand in two rows with different countries."""
    drawn: dict[str, Question] = {}
    while len(drawn) < questions:
        question = draw_text(world, rng)
        drawn.setdefault(question.text, question)
    rows = [answered(question, world, rng) for question in drawn.values()]
    rows = with_faults(rows, rng)
    for i in rng.permutation(questions)[: max(1, round(MERGED_SHARE * questions))]:
        names = list(rows[i].selections)
        if len(names) < 2:
            continue
        halves = [dict(list(rows[i].selections.items())[part]) for part in (slice(0, None, 2), slice(1, None, 2))]
        rows[i] = replace(rows[i], selections=halves[0])
        rows.append(replace(rows[i], selections=halves[1]))
    return [rows[i] for i in rng.permutation(len(rows))]


def draw_text(world: World, rng: np.random.Generator) -> Question:
    """A question with options and levels, not yet asked anywhere."""
    source = ("GAS", "WVS")[rng.integers(2)]
    topic = draw_topic(rng)
    options: tuple[str | int, ...]
    if rng.random() < 0.45:
        chosen = rng.permutation(len(world.traits))[: rng.integers(3, 6)]
        wordings = [TRAIT_OPTIONS[world.traits[t]] for t in chosen]
        options = tuple(texts[rng.integers(len(texts))] for texts in wordings)
        levels = np.eye(len(world.traits))[chosen]
        text = RANKING_FRAMES[rng.integers(len(RANKING_FRAMES))].replace("{t}", topic)
    else:
        trait = int(rng.integers(len(world.traits)))
        clauses = TRAIT_CLAUSES[world.traits[trait]]
        clause = clauses[rng.integers(len(clauses))]
        if rng.random() < 0.3:
            top = int((5, 10)[rng.integers(2)])
            options, frame = tuple(range(1, top + 1)), SCALE_FRAME.replace("{k}", str(top))
            steps = np.linspace(-1.5, 1.5, top)
        else:
            options = RATINGS[rng.integers(len(RATINGS))]
            frame = RATING_FRAMES[rng.integers(len(RATING_FRAMES))]
            steps = np.linspace(1.5, -1.5, len(options))
        levels = np.outer(steps, np.eye(len(world.traits))[trait])
        text = frame.replace("{t}", topic).replace("{c}", clause)
    tails = NON_ANSWERS[source]
    tail = tails[rng.integers(len(tails))]
    levels = np.vstack([levels, np.zeros((len(tail), len(world.traits)))])
    return Question(text, source, (*options, *tail), len(options), levels, {})


def utilities(question: Question, world: World) -> Floats:
    """Utility of each option for each group, (n_options, n_groups); NaN for non-answers."""
    values = question.levels @ (world.weights + world.shifts).T
    values[question.answers :] = np.nan
    return values


def answered(question: Question, world: World, rng: np.random.Generator) -> Question:
    """The question with the shares of the countries it was asked in (at least three)."""
    spellings = [(gas if question.source == "GAS" else wvs, chance) for gas, wvs, chance in COUNTRIES]
    asked = [name for name, chance in spellings if rng.random() < chance]
    spare = [name for name, _ in spellings if name not in asked]
    while len(asked) < 3:
        asked.append(spare.pop(int(rng.integers(len(spare)))))
    asked += [name for name, chance in SAMPLES if rng.random() < chance]
    column = {group: g for g, group in enumerate(world.groups)}
    values = utilities(question, world)
    selections = {}
    for name in sorted(asked):
        logits = SHARPNESS * values[: question.answers, column[group_of(name)]]
        logits = logits + SAMPLE_SD * rng.normal(size=question.answers)
        expected = np.exp(logits - logits.max())
        refused = rng.uniform(0.0, 0.06, len(question.options) - question.answers)
        expected = np.concatenate([expected / expected.sum() * (1 - refused.sum()), refused])
        counts = rng.multinomial(RESPONDENTS, expected / expected.sum())
        shares = [count / RESPONDENTS for count in counts.tolist()]
        if rng.random() < 0.5:
            shares = printed(shares)
        selections[name] = shares
    return replace(question, selections=selections)


def printed(shares: list[float]) -> list[float]:
    """The shares as printed percentages, rounded one by one, unless their sum then leaves 0.98 to 1.02."""
    percent = [round(100 * share) for share in shares]
    return [p / 100 for p in percent] if 98 <= sum(percent) <= 102 else shares


def with_faults(rows: list[Question], rng: np.random.Generator) -> list[Question]:
    """A few distributions are all zero or have another length than the options; never many of one country."""
    rows = list(rows)
    entries = [(i, name) for i, row in enumerate(rows) for name in row.selections]
    asked = Counter(group_of(name) for _, name in entries)
    broken: Counter[str] = Counter()
    wanted = round(FAULT_SHARE * len(entries))
    for position in rng.permutation(len(entries)).tolist():
        if broken.total() >= wanted:
            break
        i, name = entries[position]
        group = group_of(name)
        if broken[group] + 1 > MAX_FAULTS * asked[group]:
            continue
        shares = rows[i].selections[name]
        kind = broken.total() % 3
        faulty = [0.0] * len(shares) if kind == 0 else (shares[:-1] if kind == 1 else [*shares, 0.0])
        rows[i] = replace(rows[i], selections={**rows[i].selections, name: faulty})
        broken[group] += 1
    return rows


def write_csv(rows: list[Question], path: Path) -> None:
    """global_opinions.csv: question, selections and options as the strings of Python objects, source."""
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["question", "selections", "options", "source"])
        for row in rows:
            selections = f"defaultdict(<class 'list'>, {row.selections!r})"
            writer.writerow([row.text, selections, repr(list(row.options)), row.source])


def write_options(rows: list[Question], world: World, path: Path) -> None:
    """options.parquet: one row per row of the csv (``row``, from 0) and option, with levels and a column per group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    position = [(r, o) for r, row in enumerate(rows) for o in range(len(row.options))]
    levels = np.concatenate([row.levels for row in rows])
    values = np.concatenate([utilities(row, world) for row in rows])
    columns: dict[str, Any] = {
        "row": [r for r, _ in position],
        "question": [rows[r].text for r, _ in position],
        "option_number": [o for _, o in position],
        "option": [str(rows[r].options[o]) for r, o in position],
        "non_answer": [o >= rows[r].answers for r, o in position],
    }
    columns |= {f"trait_{name}": levels[:, t] for t, name in enumerate(world.traits)}
    columns |= {group: pa.array(values[:, g], from_pandas=True) for g, group in enumerate(world.groups)}
    pq.write_table(pa.table(columns), path, compression="zstd")
