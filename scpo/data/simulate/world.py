"""The planted preferences: traits, global weights, shifts per group, effects of attributes, scores and their noise.

All numbers are invented and say nothing about real communities: which traits a group turns around is drawn by the seed.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scpo.groups import MAJORITY

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

GLOBAL_WEIGHTS: dict[str, float] = {
    "verdict": 0.7,
    "hedging": -0.8,
    "warmth": 0.9,
    "formality": -0.5,
    "steps": 0.6,
    "evidence": 1.0,
    "family": -0.5,
    "choice": 0.8,
    "faith": -0.6,
    "humour": 0.5,
}
"""What one sentence of a trait adds to the utility of a response for the majority."""

ATTRIBUTE_EFFECTS: tuple[tuple[str, str, str, float], ...] = (
    ("age", "18-24 years old", "humour", 0.3),
    ("age", "55-64 years old", "formality", 0.3),
    ("age", "65+ years old", "formality", 0.3),
    ("gender", "Female", "steps", 0.25),
    ("gender", "Male", "verdict", -0.25),
    ("education", "Graduate / Professional degree", "evidence", 0.3),
    ("employment_status", "Student", "hedging", 0.3),
    ("religion", "Christian", "faith", 0.3),
)
"""(attribute, value, trait, addition to the trait's weight) for annotators with that value, in every group."""

LENGTH_EFFECT = 0.25
"""Utility of a response e times as long; the zero point is 300 characters."""
EMPTY_UTILITY = -5.0
"""Utility of an empty response for everyone: below nearly every written one."""
PERSONAL_SD = 0.1
"""Spread of an annotator's own weights around those of the group and attributes."""
POINTS_PER_UTILITY = 17.0
"""Slider points for one unit of utility, for the median annotator."""
COSINE_RANGE = (0.52, 0.66)
"""Bounds on the cosine between a shifted group's weights and the global ones, so that no seed plants a group that is
hard or trivial: the global weights then order roughly two thirds of its pairs."""


@dataclass(frozen=True)
class World:
    """The planted preferences. ``shifts`` is (n_groups, n_traits), already scaled; ``weights`` is (n_traits,)."""

    traits: tuple[str, ...]
    groups: tuple[str, ...]
    weights: Floats
    shifts: Floats


def draw_shift(seed: int, group: str, weights: Floats) -> Floats:
    """The unscaled shift of one group, (n_traits,): two or three traits turned around, one or two boosted.

    It depends on the seed and the group's name only, so a group keeps its preference in worlds of any size.
    """
    if group in MAJORITY:
        return np.zeros_like(weights)
    rng = np.random.default_rng([seed, zlib.crc32(group.encode("utf-8"))])
    while True:
        chosen = rng.permutation(len(weights))[: rng.integers(3, 6)]
        turned, boosted = chosen[: max(2, len(chosen) - 2)], chosen[max(2, len(chosen) - 2) :]
        shift = np.zeros_like(weights)
        shift[turned] = -2.0 * weights[turned]
        shift[boosted] = 0.5 * np.sign(weights[boosted])
        own = weights + shift
        cosine = float(weights @ own / (np.linalg.norm(weights) * np.linalg.norm(own)))
        if COSINE_RANGE[0] <= cosine <= COSINE_RANGE[1]:
            return shift


def make_world(groups: Sequence[str], seed: int, scale: float) -> World:
    """The world of these groups (canonical names); ``scale`` multiplies every shift."""
    weights = np.array(list(GLOBAL_WEIGHTS.values()))
    shifts = np.stack([draw_shift(seed, group, weights) for group in groups]) * scale
    return World(tuple(GLOBAL_WEIGHTS), tuple(groups), weights, shifts)


def length_utility(chars: Ints) -> Floats:
    """The mild length effect, (n,), from lengths in characters (at least 1)."""
    return LENGTH_EFFECT * np.log(np.maximum(chars, 1) / 300.0)


def group_utilities(world: World, traits: Ints, chars: Ints, empty: Bools) -> tuple[Floats, Floats]:
    """Global utility (n,) and utility for each group (n, n_groups) of candidates with these traits (n, n_traits)."""
    base = traits @ world.weights + length_utility(chars)
    by_group = base[:, None] + traits @ world.shifts.T
    base[empty] = EMPTY_UTILITY
    by_group[empty] = EMPTY_UTILITY
    return base, by_group


def attribute_shift(world: World, attributes: dict[str, str]) -> Floats:
    """What an annotator's attributes add to the weights, (n_traits,)."""
    shift = np.zeros(len(world.traits))
    for attribute, value, trait, effect in ATTRIBUTE_EFFECTS:
        if attributes.get(attribute) == value:
            shift[world.traits.index(trait)] += effect
    return shift


def slider_scores(utility: Floats, annotator: Ints, n_annotators: int, noise: float, rng: np.random.Generator) -> Ints:
    """Scores 1 to 100, (n,): each annotator's intercept and slope on centred utility, plus normal noise.

    Args:
        utility: (n,) utility for the annotator who scores, centred on 0.
        annotator: (n,) index of that annotator.
        noise: standard deviation in slider points.
    """
    intercept = rng.normal(64.0, 8.0, n_annotators)
    slope = POINTS_PER_UTILITY * np.exp(rng.normal(0.0, 0.2, n_annotators))
    raw = intercept[annotator] + slope[annotator] * utility + noise * rng.normal(size=len(utility))
    return np.clip(np.rint(raw), 1, 100).astype(np.int64)


def draw_kinds(n: int, mislabelled: float, extreme: float, rng: np.random.Generator) -> npt.NDArray[np.int8]:
    """Noise kind of each comparison, (n,): 0 none, 1 mislabelled, 2 extreme; the counts are the shares, rounded."""
    kinds = np.zeros(n, dtype=np.int8)
    order = rng.permutation(n)
    first, second = round(mislabelled * n), round(extreme * n)
    kinds[order[:first]] = 1
    kinds[order[first : first + second]] = 2
    return kinds


def reversed_scores(scores: Ints) -> Ints:
    """The scores of one comparison mirrored about the middle of their range, so that every pair turns around."""
    return scores.max() + scores.min() - scores


def extreme_scores(global_utility: Floats, rng: np.random.Generator) -> Ints:
    """Scores of one comparison in the reverse order of the global utility, from 92..100 down to 1..8, evenly spaced."""
    order = np.argsort(global_utility, kind="stable")
    scores = np.empty(len(order), dtype=np.int64)
    scores[order] = np.rint(np.linspace(rng.integers(92, 101), rng.integers(1, 9), len(order))).astype(np.int64)
    return scores


def choose(scores: Ints, rng: np.random.Generator) -> Bools:
    """``if_chosen`` of one comparison: the top score; among tied tops one at random, or now and then all of them."""
    top = np.flatnonzero(scores == scores.max())
    chosen = np.zeros(len(scores), dtype=np.bool_)
    several = len(top) > 1 and rng.random() < 0.2
    chosen[top if several else top[rng.integers(len(top))]] = True
    return chosen
