"""What is true of a planted world, written beside it: utilities, noise, traits, and how right anyone could be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from scpo.data.pairs import make_pairs
from scpo.data.simulate import world
from scpo.data.simulate.draw import KIND_NAMES, Corpus
from scpo.data.simulate.settings import Settings
from scpo.data.simulate.world import Floats, World
from scpo.io import read_json

MADE_BY = "scpo simulate"


def is_simulated(raw: Path, hashes: Iterable[str]) -> bool:
    """True where a raw file or folder is one that `scpo simulate` wrote, by the content hashes in the truth beside it."""
    folder = raw if raw.is_dir() else raw.parent
    path = folder.resolve().parent / "truth" / "world.json"
    if not path.is_file():
        return False
    document = read_json(path)
    if (
        not isinstance(document, dict)
        or document.get("made_by") != MADE_BY
        or not isinstance(document.get("files"), dict)
    ):
        return False
    return bool(set(hashes) & set(document["files"].values()))


def accuracy(utility: Floats, chosen: world.Ints, rejected: world.Ints) -> float | None:
    """Share of pairs with a strictly higher utility of the chosen candidate; null for no pairs. A tie counts as wrong."""
    if not len(chosen):
        return None
    return float((utility[chosen] > utility[rejected]).mean())


def ceilings(corpus: Corpus, planted: World) -> dict[str, dict[str, Any]]:
    """Per group, over all its score pairs: ``n_pairs``, ``n_clusters``, and the accuracy of three perfect judges.

    ``group`` ranks by the group's true utility (what a model of the group can reach), ``global`` by the global weights,
    and ``group_without_noise`` is the first on comparisons that are neither mislabelled nor extreme.
    """
    pairs = make_pairs(corpus.interaction, corpus.scores.astype(np.float64))
    annotator = corpus.annotator
    column = {group: g for g, group in enumerate(planted.groups)}
    group_of = np.array([column.get(p.group or "", -1) for p in corpus.people])
    of_pair = group_of[annotator[pairs.chosen]]
    clean = corpus.noise[corpus.interaction[pairs.chosen]] == 0
    result = {}
    for g, group in enumerate(planted.groups):
        mine = of_pair == g
        chosen, rejected = pairs.chosen[mine], pairs.rejected[mine]
        result[group] = {
            "n_pairs": len(chosen),
            "n_clusters": len(np.unique(annotator[chosen])),
            "group": accuracy(corpus.utility[:, g], chosen, rejected),
            "global": accuracy(corpus.global_utility, chosen, rejected),
            "group_without_noise": accuracy(
                corpus.utility[:, g], pairs.chosen[mine & clean], pairs.rejected[mine & clean]
            ),
        }
    return result


def write_utterances(corpus: Corpus, planted: World, path: Path) -> None:
    """utterances.parquet: utterance_id, interaction_id, group, noise, ``trait_*`` (int8), and a float column per group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    groups = [corpus.people[a].group for a in corpus.annotator.tolist()]
    columns: dict[str, Any] = {
        "utterance_id": [f"ut{n}" for n in range(len(groups))],
        "interaction_id": [f"int{i}" for i in corpus.interaction.tolist()],
        "group": pa.array(groups, pa.string()),
        "noise": [KIND_NAMES[k] for k in corpus.noise[corpus.interaction].tolist()],
    }
    columns |= {f"trait_{name}": corpus.traits[:, t].astype(np.int8) for t, name in enumerate(planted.traits)}
    columns |= {group: corpus.utility[:, g] for g, group in enumerate(planted.groups)}
    pq.write_table(pa.table(columns), path, compression="zstd")


def world_document(
    prism: World,
    goqa: World,
    settings: Settings,
    counts: dict[str, int],
    ceiling: dict[str, Any],
    files: dict[str, str],
) -> dict[str, Any]:
    """The document of world.json. ``files`` maps every other written file to its SHA-256."""
    return {
        "made_by": MADE_BY,
        "note": "An invented world: its preferences are drawn by the seed and say nothing about real communities.",
        "settings": asdict(settings),
        "traits": list(prism.traits),
        "global_weights": named(prism.traits, prism.weights),
        "shifts": {group: named(prism.traits, shift) for group, shift in zip(prism.groups, prism.shifts, strict=True)},
        "goqa_shifts": {
            group: named(goqa.traits, shift) for group, shift in zip(goqa.groups, goqa.shifts, strict=True)
        },
        "attribute_effects": [
            {"attribute": attribute, "value": value, "trait": trait, "effect": effect}
            for attribute, value, trait, effect in world.ATTRIBUTE_EFFECTS
        ],
        "length_effect": world.LENGTH_EFFECT,
        "empty_utility": world.EMPTY_UTILITY,
        "personal_sd": world.PERSONAL_SD,
        "points_per_utility": world.POINTS_PER_UTILITY,
        "counts": counts,
        "ceiling": ceiling,
        "files": files,
    }


def named(traits: tuple[str, ...], values: Floats) -> dict[str, float]:
    """The non-zero values by trait, rounded to 6 digits."""
    return {trait: round(float(value), 6) for trait, value in zip(traits, values, strict=True) if value}
