"""Rows of ``survey.jsonl``: PRISM's 32 fields, in its order, from the drawn annotators."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from scpo.data.simulate.people import SIMPLE_ETHNICITY, SIMPLE_RELIGION, Person
from scpo.data.simulate.places import UNKNOWN

USECASES: tuple[tuple[str, float], ...] = (
    *(("homework_assistance", 0.228), ("research", 0.492), ("source_suggestions", 0.173)),
    *(("professional_work", 0.374), ("creative_writing", 0.313), ("casual_conversation", 0.209)),
    *(("personal_recommendations", 0.212), ("daily_productivity", 0.172)),
    *(("technical_or_programming_help", 0.269), ("travel_guidance", 0.106), ("lifestyle_and_hobbies", 0.247)),
    *(("well-being_guidance", 0.127), ("medical_guidance", 0.104), ("financial_guidance", 0.085)),
    *(("games", 0.114), ("historical_or_news_insight", 0.146), ("relationship_advice", 0.078)),
    *(("language_learning", 0.183), ("other", 0.099)),
)
STATED: tuple[tuple[str, float, float], ...] = (
    *(("values", 54.3, 26.3), ("creativity", 69.6, 22.1), ("fluency", 86.7, 16.3), ("factuality", 88.7, 16.2)),
    *(("diversity", 75.7, 20.0), ("safety", 80.2, 25.2), ("personalisation", 67.9, 24.6)),
    *(("helpfulness", 89.4, 14.4), ("other", 57.5, 19.0)),
)
"""(preference, mean, standard deviation) on a slider from 0 to 100."""

VALUES = (
    "honesty",
    "kindness",
    "fairness",
    "hard work",
    "loyalty",
    "curiosity",
    "patience",
    "courage",
    "modesty",
    "humour",
)
HABITS = (
    "listen first",
    "keep my word",
    "help a neighbour",
    "learn something new",
    "stay calm",
    "look after my friends",
)
MANNERS = (
    "be polite",
    "be brief",
    "say what it does not know",
    "avoid harm",
    "stay neutral",
    "explain its reasons",
    "be warm",
)
START = datetime(2023, 11, 22, 15, 48, 46)
SPAN_SECONDS = 29 * 24 * 3600


def completed_at(index: int, total: int) -> datetime:
    """When the annotator with this index finished the survey: evenly spread over PRISM's month of collection."""
    return START + timedelta(seconds=int(SPAN_SECONDS * index / max(total, 1)))


def sliders(means: tuple[tuple[str, float, float], ...], low: int, rng: np.random.Generator) -> dict[str, int]:
    """One slider value, ``low`` to 100, for each (name, mean, sd)."""
    values = np.clip(np.rint([rng.normal(mean, sd) for _, mean, sd in means]), low, 100)
    return {name: int(value) for (name, _, _), value in zip(means, values, strict=True)}


def minutes(seconds: float) -> float:
    """Seconds as minutes, rounded as in the corpus."""
    return round(seconds / 60, 2)


def survey_rows(people: list[Person], balanced: list[bool], rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """The rows in file order. ``balanced`` says who is in the balanced subset, (n_people,)."""
    for index, person in enumerate(people):
        answers = person.answers
        seconds = int(np.clip(rng.lognormal(6.35, 0.55), 160, 529927))
        shown = "Yes" in (answers["lm_direct_use"], answers["lm_indirect_use"])
        residence, birth = person.reside, person.birth
        locale = residence.locale
        same = UNKNOWN if UNKNOWN in (birth.name, residence.name) else ("Yes" if birth == residence else "No")
        values = [VALUES[i] for i in rng.permutation(len(VALUES))[:3]]
        manners = [MANNERS[i] for i in rng.permutation(len(MANNERS))[:2]]
        order = [int(i) + 1 for i in rng.permutation(len(USECASES) - 1)] + [len(USECASES)]
        names = [name for name, _ in USECASES]
        used = rng.random(len(USECASES)) < np.array([share for _, share in USECASES])
        yield {
            "user_id": person.user_id,
            "survey_only": person.conversations == 0,
            "num_completed_conversations": person.conversations,
            "timing_duration_s": seconds,
            "timing_duration_mins": minutes(seconds),
            "generated_datetime": str(completed_at(index, len(people))),
            "consent": "Yes, I consent to take part",
            "consent_age": "I certify that I am 18 years of age or over",
            "lm_familiarity": answers["lm_familiarity"],
            "lm_indirect_use": answers["lm_indirect_use"],
            "lm_direct_use": answers["lm_direct_use"],
            "lm_frequency_use": answers["lm_frequency_use"] if shown else None,
            "self_description": f"I value {values[0]}, {values[1]} and {values[2]}. I try to {HABITS[rng.integers(6)]}.",
            "system_string": f"The assistant should {manners[0]} and {manners[1]}.",
            "age": answers["age"],
            "gender": answers["gender"],
            "employment_status": answers["employment_status"],
            "education": answers["education"],
            "marital_status": answers["marital_status"],
            "english_proficiency": answers["english_proficiency"],
            "study_id": f"study_{locale.lower().replace(' ', '_')}",
            "study_locale": locale,
            "religion": described(answers["religion"], SIMPLE_RELIGION),
            "ethnicity": described(answers["ethnicity"], SIMPLE_ETHNICITY),
            "location": {
                "birth_country": birth.name,
                "birth_countryISO": birth.iso,
                "birth_subregion": birth.subregion,
                "reside_country": residence.name,
                "reside_countryISO": residence.iso,
                "reside_subregion": residence.subregion,
                "same_birth_reside_country": same,
                "special_region": birth.special,
            },
            "lm_usecases": {name: int(flag) if shown else None for name, flag in zip(names, used, strict=True)}
            | {"other_text": "planning a party" if shown and used[-1] else None},
            "stated_prefs": sliders(STATED, 0, rng) | {"other_text": None},
            "order_lm_usecases": {n: place if shown else None for n, place in zip(names, order, strict=True)},
            "order_stated_prefs": {
                name: int(place) + 1
                for (name, _, _), place in zip(
                    STATED, [*rng.permutation(len(STATED) - 1), len(STATED) - 1], strict=True
                )
            },
            "included_in_US_REP": bool(locale == "US" and person.conversations and rng.random() < 0.64),
            "included_in_UK_REP": bool(locale == "UK" and person.conversations and rng.random() < 0.77),
            "included_in_balanced_subset": balanced[index],
        }


def described(category: str, simple: dict[str, str]) -> dict[str, str]:
    """The three spellings of a religion or ethnicity: as typed, categorised, simplified."""
    return {
        "self_described": category.lower(),
        "categorised": category,
        "simplified": simple.get(category, "Other"),
    }
