"""One drawn PRISM-like corpus in memory: conversations, turns, candidates, their traits, texts, utilities and scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scpo.data.simulate import text, world
from scpo.data.simulate.people import Person
from scpo.data.simulate.settings import Settings
from scpo.data.simulate.world import Bools, Floats, Ints, World

CONVERSATION_TYPES = ("unguided", "values guided", "controversy guided")
EMPTY_SHARE = 0.0022
TIE_SHARE = 0.02
KIND_NAMES = ("none", "mislabelled", "extreme")

MODELS: tuple[tuple[str, str, int], ...] = (
    ("command", "cohere", 4812),
    ("claude-instant-1", "anthropic", 4292),
    ("models/chat-bison-001", "google", 4168),
    ("HuggingFaceH4/zephyr-7b-beta", "huggingface_api", 4133),
    ("meta-llama/Llama-2-7b-chat-hf", "huggingface_api", 3995),
    ("command-light", "cohere", 3929),
    ("command-nightly", "cohere", 3816),
    ("gpt-4-1106-preview", "openai", 3735),
    ("gpt-4", "openai", 3515),
    ("meta-llama/Llama-2-70b-chat-hf", "huggingface_api", 3493),
    ("gpt-3.5-turbo", "openai", 3471),
    ("timdettmers/guanaco-33b-merged", "huggingface_api", 3468),
    ("claude-2.1", "anthropic", 3338),
    ("mistralai/Mistral-7B-Instruct-v0.1", "huggingface_api", 3261),
    ("claude-2", "anthropic", 3209),
    ("tiiuae/falcon-7b-instruct", "huggingface_api", 2608),
    ("OpenAssistant/oasst-sft-4-pythia-12b-epoch-3.5", "huggingface_api", 2314),
    ("meta-llama/Llama-2-13b-chat-hf", "huggingface_api", 1744),
    ("luminous-supreme-control", "aleph", 1722),
    ("google/flan-t5-xxl", "huggingface_api", 1715),
    ("luminous-extended-control", "aleph", 1633),
)
"""(name, provider, utterances) of PRISM's 21 models. In the planted world a model has no style of its own."""


@dataclass(frozen=True)
class Corpus:
    """Conversations (c), interactions (i) and candidates (n) in file order; every array is indexed by its own level."""

    people: list[Person]
    person: Ints  # (c,) index of the annotator
    kind: Ints  # (c,) index of the conversation type
    conversation: Ints  # (i,) index of the conversation
    turn: Ints  # (i,)
    prompts: list[str]  # (i,)
    noise: npt.NDArray[np.int8]  # (i,) index in KIND_NAMES
    interaction: Ints  # (n,) index of the interaction
    within: Ints  # (n,) within_turn_id
    model: Ints  # (n,) index in MODELS
    responses: list[str]  # (n,) empty for an empty response
    traits: Ints  # (n, n_traits) strength 0, 1 or 2
    global_utility: Floats  # (n,)
    utility: Floats  # (n, n_groups)
    scores: Ints  # (n,)
    chosen: Bools  # (n,)

    @property
    def annotator(self) -> Ints:
        """Index of each candidate's annotator, (n,)."""
        return self.person[self.conversation[self.interaction]]


def spans(codes: Ints) -> tuple[Ints, Ints]:
    """Starts and ends of the runs of equal, ascending codes 0, 1, 2, ..."""
    counts = np.bincount(codes)
    ends = np.cumsum(counts)
    return ends - counts, ends


def draw_corpus(
    people: list[Person], planted: World, settings: Settings, rng: np.random.Generator, progress: Callable[[str], None]
) -> Corpus:
    """Draw everything of a corpus but the survey."""
    person = np.repeat(np.arange(len(people)), [p.conversations for p in people])
    kind = rng.choice(3, size=len(person), p=[0.389, 0.307, 0.304])
    # PRISM: 2 to 22 turns, mean 3.39, sd 1.58.
    turns = np.minimum(2 + rng.negative_binomial(1.75, 0.557, size=len(person)), 22)
    conversation = np.repeat(np.arange(len(person)), turns)
    turn = np.arange(len(conversation)) - np.repeat(np.cumsum(turns) - turns, turns)
    size = np.where(turn == 0, rng.choice([2, 3, 4], size=len(turn), p=[0.05, 0.15, 0.8]), 2)
    interaction = np.repeat(np.arange(len(turn)), size)
    within = np.arange(len(interaction)) - np.repeat(np.cumsum(size) - size, size)

    progress(f"writing the texts of {len(interaction)} responses")
    topics = [text.draw_topic(rng) for _ in range(len(person))]
    prompts = []
    for c, t in zip(conversation.tolist(), turn.tolist(), strict=True):
        opens = t == 0
        prompts.append(
            text.opening_prompt(CONVERSATION_TYPES[kind[c]], topics[c], rng)
            if opens
            else text.follow_up(topics[c], rng)
        )
    targets = text.draw_lengths(len(interaction), settings.lengths, rng)
    traits = text.draw_traits(text.sentence_counts(targets, rng), len(planted.traits), rng)
    empty = rng.random(len(interaction)) < EMPTY_SHARE
    traits[empty] = 0
    responses = [
        ""
        if empty[n]
        else text.response(strengths, topics[conversation[interaction[n]]], int(targets[n]), planted.traits, rng)
        for n, strengths in enumerate(traits.tolist())
    ]

    progress("scoring")
    chars = np.array([len(r) for r in responses])
    global_utility, utility = world.group_utilities(planted, traits, chars, empty)
    scores = personal_scores(
        people, planted, person[conversation[interaction]], traits, chars, empty, settings.noise, rng
    )
    noise = world.draw_kinds(len(turn), settings.mislabelled, settings.extreme, rng)
    chosen = np.zeros(len(interaction), dtype=np.bool_)
    tied = rng.random(len(turn)) < TIE_SHARE
    for i, (start, end) in enumerate(zip(*spans(interaction), strict=True)):
        if noise[i] == 2:
            scores[start:end] = world.extreme_scores(global_utility[start:end], rng)
        elif noise[i] == 1:
            scores[start:end] = world.reversed_scores(scores[start:end])
        elif tied[i]:
            scores[end - 1] = scores[start]
        chosen[start:end] = world.choose(scores[start:end], rng)
    model = draw_models(conversation, turn, interaction, chosen, rng)
    return Corpus(
        people, person, kind, conversation, turn, prompts, noise, interaction, within, model, responses, traits,
        global_utility, utility, scores, chosen,
    )  # fmt: skip


def personal_scores(
    people: list[Person], planted: World, annotator: Ints, traits: Ints, chars: Ints, empty: Bools, noise: float,
    rng: np.random.Generator,
) -> Ints:  # fmt: skip
    """Scores (n,) by each annotator's own weights: the group's, plus those of attributes, plus a personal deviation."""
    column = {group: g for g, group in enumerate(planted.groups)}
    weights = np.stack(
        [
            planted.weights
            + (planted.shifts[column[p.group]] if p.group is not None else 0.0)
            + world.attribute_shift(planted, p.answers)
            for p in people
        ]
    )
    weights = weights + rng.normal(0.0, world.PERSONAL_SD, weights.shape)  # (n_people, n_traits)
    own = np.einsum("nt,nt->n", traits.astype(np.float64), weights[annotator])
    # Centred for each annotator, so that a turned trait moves the order of the scores and not their level.
    centre = (weights @ traits[~empty].mean(axis=0))[annotator]
    utility = np.where(empty, world.EMPTY_UTILITY, own - centre + world.length_utility(chars))
    return world.slider_scores(utility, annotator, len(people), noise, rng)


def draw_models(conversation: Ints, turn: Ints, interaction: Ints, chosen: Bools, rng: np.random.Generator) -> Ints:
    """Model of each candidate, (n,): distinct ones in the first turn, later two samples of the first turn's chosen one."""
    counts = np.array([count for _, _, count in MODELS], dtype=np.float64)
    # Gumbel top-k: the largest perturbed log weights are a weighted draw without replacement.
    keys = np.log(counts) + rng.gumbel(size=(int(conversation.max()) + 1, len(MODELS)))
    order = np.argsort(-keys, axis=1)
    model = np.zeros(len(interaction), dtype=np.int64)
    current = 0
    for i, (start, end) in enumerate(zip(*spans(interaction), strict=True)):
        if turn[i] == 0:
            model[start:end] = order[conversation[i], : end - start]
            current = int(model[start + int(np.argmax(chosen[start:end]))])
        else:
            model[start:end] = current
    return model
