"""Annotators: countries of residence in PRISM's proportions, and the other answers of the survey by their marginals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scpo.data.simulate.places import PLACES, UNKNOWN, Place
from scpo.groups import PRISM7, canonical

Marginal = tuple[tuple[str, int], ...]

AGE: Marginal = (
    *(("25-34 years old", 454), ("18-24 years old", 297), ("35-44 years old", 237), ("45-54 years old", 208)),
    *(("55-64 years old", 197), ("65+ years old", 106), (UNKNOWN, 1)),
)
GENDER: Marginal = (("Male", 757), ("Female", 718), ("Non-binary / third gender", 21), (UNKNOWN, 4))
EMPLOYMENT: Marginal = (
    *(("Working full-time", 712), ("Working part-time", 265), ("Student", 191)),
    *(("Unemployed, seeking work", 113), ("Retired", 104), ("Homemaker / Stay-at-home parent", 46)),
    *(("Unemployed, not seeking work", 46), (UNKNOWN, 23)),
)
EDUCATION: Marginal = (
    *(("University Bachelors Degree", 637), ("Graduate / Professional degree", 241)),
    *(("Some University but no degree", 236), ("Completed Secondary School", 209), ("Vocational", 125)),
    *(("Some Secondary", 24), ("Completed Primary School", 16), (UNKNOWN, 9), ("Some Primary", 3)),
)
MARITAL: Marginal = (
    ("Never been married", 870),
    ("Married", 463),
    ("Divorced / Separated", 123),
    (UNKNOWN, 23),
    ("Widowed", 21),
)
ENGLISH: Marginal = (("Native speaker", 886), ("Fluent", 405), ("Advanced", 160), ("Intermediate", 42), ("Basic", 7))
RELIGION: Marginal = (
    *(("Non-religious", 762), ("Christian", 487), ("Agnostic", 71), (UNKNOWN, 59), ("Jewish", 42)),
    *(("Muslim", 31), ("Spiritual", 18), ("Buddhist", 12), ("Folk religion", 6), ("Hindu", 5), ("Other", 4)),
    ("Sikh", 3),
)
ETHNICITY: Marginal = (
    *(("White", 969), ("Black / African", 122), ("Hispanic / Latino", 121), ("Asian", 95), (UNKNOWN, 86)),
    *(("Mixed", 68), ("Other", 17), ("Middle Eastern / Arab", 14), ("Indigenous / First Peoples", 8)),
)
FAMILIARITY: Marginal = (("Somewhat familiar", 920), ("Very familiar", 424), ("Not familiar at all", 156))
DIRECT_USE: Marginal = (("Yes", 1162), ("No", 259), ("Unsure", 79))
INDIRECT_USE: Marginal = (("Yes", 1104), ("No", 215), ("Unsure", 181))
FREQUENCY: Marginal = (
    *(("Once per month", 374), ("Every week", 316), ("More than once a month", 291)),
    *(("Less than one a year", 162), ("Every day", 110)),
)
SIMPLE_RELIGION = {"Christian": "Christian", "Jewish": "Jewish", "Muslim": "Muslim", UNKNOWN: UNKNOWN}
SIMPLE_RELIGION |= {"Non-religious": "No Affiliation", "Agnostic": "No Affiliation", "Spiritual": "No Affiliation"}
SIMPLE_ETHNICITY = {"White": "White", "Black / African": "Black", "Hispanic / Latino": "Hispanic", "Asian": "Asian"}
SIMPLE_ETHNICITY |= {UNKNOWN: UNKNOWN, "Mixed": "Mixed"}


@dataclass(frozen=True)
class Person:
    """One annotator. ``group`` is the canonical country, null where residence was not said; ``conversations`` 0 to 7."""

    user_id: str
    group: str | None
    reside: Place
    birth: Place
    conversations: int
    answers: dict[str, str]


def resident_counts(annotators: int) -> list[int]:
    """Annotators per row of PLACES: PRISM's proportions by largest remainder, over floors for small worlds.

    The paper's seven countries get at least 12 each (fewer below 240 annotators), and one annotator does not say.
    """
    floor = min(12, annotators // 20)
    floors = [floor if p.name in PRISM7 else int(p.name == UNKNOWN) for p in PLACES]
    fixed: set[int] = set()
    while True:
        free = [i for i in range(len(PLACES)) if i not in fixed]
        share = (annotators - sum(floors[i] for i in fixed)) / sum(PLACES[i].reside for i in free)
        # Raising one country to its floor leaves less for the others, which may fall below theirs.
        below = {i for i in free if floors[i] and PLACES[i].reside * share < floors[i]}
        if not below:
            break
        fixed |= below
    counts = [floors[i] if i in fixed else int(PLACES[i].reside * share) for i in range(len(PLACES))]
    # The largest remainders get what rounding down left over; the order of the table breaks ties.
    by_remainder = sorted(free, key=lambda i: counts[i] - PLACES[i].reside * share)
    for i in by_remainder[: annotators - sum(counts)]:
        counts[i] += 1
    return counts


def pick(marginal: Marginal, n: int, rng: np.random.Generator) -> list[str]:
    """``n`` independent answers."""
    counts = np.array([count for _, count in marginal], dtype=np.float64)
    return [marginal[i][0] for i in rng.choice(len(marginal), size=n, p=counts / counts.sum())]


def survey_only(residence: npt.NDArray[np.int64], counts: list[int], rng: np.random.Generator) -> list[int]:
    """Annotators without conversations, PRISM's share of all; none of the seven countries falls below 12 with some."""
    wanted = round(len(residence) * 104 / 1500)
    left = list(counts)
    chosen: list[int] = []
    for annotator in rng.permutation(len(residence)).tolist():
        place = residence[annotator]
        least = {UNKNOWN: 1}.get(PLACES[place].name, 12 if PLACES[place].name in PRISM7 else 0)
        if len(chosen) < wanted and left[place] > least:
            chosen.append(annotator)
            left[place] -= 1
    return chosen


def make_people(annotators: int, rng: np.random.Generator) -> list[Person]:
    """The annotators in file order; about 7 percent answer the survey only."""
    counts = resident_counts(annotators)
    residence = np.repeat(np.arange(len(PLACES)), counts)
    residence = residence[rng.permutation(annotators)]
    born = np.array([p.born for p in PLACES], dtype=np.float64)
    births = rng.choice(len(PLACES), size=annotators, p=born / born.sum())
    stays = rng.random(annotators) < 0.85
    conversations = rng.choice(np.arange(1, 8), size=annotators, p=[0.012, 0.012, 0.02, 0.04, 0.06, 0.8, 0.056])
    conversations[survey_only(residence, counts, rng)] = 0
    columns = {
        "age": pick(AGE, annotators, rng),
        "gender": pick(GENDER, annotators, rng),
        "employment_status": pick(EMPLOYMENT, annotators, rng),
        "education": pick(EDUCATION, annotators, rng),
        "marital_status": pick(MARITAL, annotators, rng),
        "english_proficiency": pick(ENGLISH, annotators, rng),
        "religion": pick(RELIGION, annotators, rng),
        "ethnicity": pick(ETHNICITY, annotators, rng),
        "lm_familiarity": pick(FAMILIARITY, annotators, rng),
        "lm_indirect_use": pick(INDIRECT_USE, annotators, rng),
        "lm_direct_use": pick(DIRECT_USE, annotators, rng),
        "lm_frequency_use": pick(FREQUENCY, annotators, rng),
    }
    people = []
    for i in range(annotators):
        reside = PLACES[residence[i]]
        birth = reside if stays[i] else PLACES[births[i]]
        group = None if reside.name == UNKNOWN else canonical(reside.name)
        answers = {name: values[i] for name, values in columns.items()}
        people.append(Person(f"user{i}", group, reside, birth, int(conversations[i]), answers))
    return people
