"""From traits to text: draws how many sentences of each trait a response has, and composes prompts and responses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from scpo.data.simulate.phrases import FRAGMENTS, NEUTRAL_PATTERNS, TRAIT_PATTERNS, Pattern
from scpo.data.simulate.topics import FOLLOW_UPS, OPENERS, TAILS, TOPICS

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

LENGTH_QUANTILES = ((0.0, 1), (0.02, 30), (0.06, 110), (0.25, 294), (0.5, 448), (0.75, 800), (0.95, 1230))
LENGTH_TAIL = ((0.99, 1600), (0.998, 2100), (1.0, 4600))
"""Inverse distribution of PRISM's response lengths in characters: published quartiles, mean 565, sd 388, 1 to 4630;
the other points are chosen to meet the mean and the standard deviation."""

DOUBLED = 0.3
"""Chance that the next sentence repeats a trait already present once, which makes strength 2."""


def draw_lengths(n: int, lengths: str, rng: np.random.Generator) -> Ints:
    """Target lengths in characters, (n,). "short" has none: 0 stands for two to four sentences of traits."""
    if lengths == "short":
        return np.zeros(n, dtype=np.int64)
    points = LENGTH_QUANTILES + LENGTH_TAIL
    return np.rint(np.interp(rng.random(n), [p for p, _ in points], [c for _, c in points])).astype(np.int64)


def sentence_counts(targets: Ints, rng: np.random.Generator) -> Ints:
    """How many trait sentences each response has, (n,): two to four, fewer where the target is short."""
    counts = rng.integers(2, 5, len(targets))
    room = np.where(targets == 0, 4, targets // 75)
    return np.minimum(counts, room)


def draw_traits(counts: Ints, n_traits: int, rng: np.random.Generator) -> Ints:
    """Strength 0, 1 or 2 of each trait, (n, n_traits); rows sum to ``counts`` (at most n_traits)."""
    strengths = np.zeros((len(counts), n_traits), dtype=np.int64)
    order = np.argsort(rng.random((len(counts), n_traits)), axis=1)  # (n, n_traits): each row a permutation
    doubles = rng.random((len(counts), int(counts.max(initial=0)))) < DOUBLED
    used = np.zeros(len(counts), dtype=np.int64)  # distinct traits so far
    rows = np.arange(len(counts))
    for step in range(doubles.shape[1]):
        active = counts > step
        latest = order[rows, np.maximum(used - 1, 0)]
        again = active & doubles[:, step] & (used > 0) & (strengths[rows, latest] == 1)
        strengths[rows[again], latest[again]] = 2
        fresh = active & ~again
        strengths[rows[fresh], order[rows[fresh], used[fresh]]] = 1
        used += fresh
    return strengths


def trait_sentence(trait: str, topic: str, draws: list[int]) -> str:
    """One sentence that shows a trait: its main pattern three times in four."""
    main, other = TRAIT_PATTERNS[trait]
    return sentence(main if draws.pop() % 4 < 3 else other, topic, draws)


def neutral_sentence(topic: str, draws: list[int]) -> str:
    """One sentence that shows no trait."""
    return sentence(NEUTRAL_PATTERNS[draws.pop() % len(NEUTRAL_PATTERNS)], topic, draws)


def sentence(pattern: Pattern, topic: str, draws: list[int]) -> str:
    """One alternative of each slot, numbers and topic filled in; uses up ``draws`` (whole numbers) from the end."""
    words = " ".join(slot[draws.pop() % len(slot)] for slot in pattern)
    if "{" in words:
        number = draws.pop()
        words = words.replace("{t}", topic).replace("{n}", str(150 + number % 4800))
        words = words.replace("{p}", str(3 + number % 94)).replace("{y}", str(2 + number % 17))
    return words[0].upper() + words[1:]


def response(strengths: list[int], topic: str, target: int, traits: tuple[str, ...], rng: np.random.Generator) -> str:
    """One response: the trait sentences in random order with verdicts first, and neutral ones up to the target length.

    Args:
        strengths: (n_traits,) number of sentences of each trait.
        target: characters; 0 for the trait sentences and, where they are few, one neutral sentence.
    """
    neutral = 1 + target // 40
    draws: list[int] = rng.integers(0, 1 << 30, 8 * (sum(strengths) + neutral + 1)).tolist()
    first: list[str] = []
    others: list[str] = []
    for trait, strength in zip(traits, strengths, strict=True):
        for _ in range(strength):
            (first if trait == "verdict" else others).append(trait_sentence(trait, topic, draws))
    if target == 0 and len(first) + len(others) < 4:
        others.append(neutral_sentence(topic, draws))
    written = sum(len(part) + 1 for part in first) + sum(len(part) + 1 for part in others)
    if not written and target < 40:
        return FRAGMENTS[draws.pop() % len(FRAGMENTS)]
    while not written or written + 32 < target:
        others.append(neutral_sentence(topic, draws))
        written += len(others[-1]) + 1
    for i in range(len(others) - 1, 0, -1):
        j = draws.pop() % (i + 1) if draws else 0
        others[i], others[j] = others[j], others[i]
    # Longer answers come in paragraphs, as the corpus has them.
    glue = "\n\n" if target > 700 else " "
    parts = first + others
    middle = (len(parts) + 1) // 2
    halves = (" ".join(parts[:middle]), " ".join(parts[middle:]))
    return glue.join(half for half in halves if half)


def opening_prompt(kind: str, topic: str, rng: np.random.Generator) -> str:
    """A first message of a conversation of this type about a topic."""
    frames = OPENERS[kind]
    text = frames[rng.integers(len(frames))].replace("{t}", topic)
    return text + TAILS[rng.integers(len(TAILS))]


def follow_up(topic: str, rng: np.random.Generator) -> str:
    """A later message of a conversation about a topic."""
    return FOLLOW_UPS[rng.integers(len(FOLLOW_UPS))].replace("{t}", topic)


def draw_topic(rng: np.random.Generator) -> str:
    """One topic."""
    return TOPICS[rng.integers(len(TOPICS))]
