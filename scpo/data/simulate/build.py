"""Draws a world, writes it into a temporary folder beside the wanted one, and moves it into place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from scpo.data.simulate import goqa, truth
from scpo.data.simulate.draw import draw_corpus
from scpo.data.simulate.people import make_people
from scpo.data.simulate.places import PLACES, UNKNOWN
from scpo.data.simulate.prism import write_prism
from scpo.data.simulate.settings import Settings
from scpo.data.simulate.world import make_world
from scpo.errors import UserError
from scpo.groups import canonical
from scpo.io import read_json, replace_folder, sha256_file, write_json

FILES = (
    *("prism/survey.jsonl", "prism/utterances.jsonl", "prism/conversations.jsonl", "goqa/global_opinions.csv"),
    *("truth/utterances.parquet", "truth/options.parquet", "truth/world.json"),
)


def build(out: Path, settings: Settings, progress: Callable[[str], None]) -> dict[str, Any]:
    """See :func:`scpo.data.simulate.simulate`."""
    out = out.expanduser().resolve()
    check_output(out)
    try:
        with replace_folder(out) as folder:
            summary = write_world(folder, settings, progress)
    except OSError as error:
        found = error.strerror or str(error)
        raise UserError(
            f"{out}: expected a folder that can be written, found: {found}; choose another --out"
        ) from error
    return {"out": str(out), **summary}


def write_world(folder: Path, settings: Settings, progress: Callable[[str], None]) -> dict[str, Any]:
    """Draw a world and write its files into an existing, empty folder."""
    for name in ("prism", "goqa", "truth"):
        (folder / name).mkdir()
    # One stream for each part: more questions or other texts leave the people as they are.
    people_rng, corpus_rng, survey_rng, goqa_rng = (
        np.random.default_rng([settings.seed, stream]) for stream in range(4)
    )
    progress(f"drawing {settings.annotators} annotators")
    people = make_people(settings.annotators, people_rng)
    residences = [canonical(p.name) for p in PLACES if p.reside and p.name != UNKNOWN]
    planted = make_world(residences, settings.seed, settings.shift)
    corpus = draw_corpus(people, planted, settings, corpus_rng, progress)
    progress("writing PRISM's files")
    write_prism(corpus, folder / "prism", survey_rng)
    truth.write_utterances(corpus, planted, folder / "truth/utterances.parquet")
    progress("writing GlobalOpinionQA's file")
    survey_world = make_world(goqa.groups(), settings.seed, settings.shift)
    rows = goqa.draw_questions(survey_world, settings.questions, goqa_rng)
    goqa.write_csv(rows, folder / "goqa/global_opinions.csv")
    goqa.write_options(rows, survey_world, folder / "truth/options.parquet")
    counts = {
        "annotators": len(people),
        "survey_only": sum(p.conversations == 0 for p in people),
        "conversations": len(corpus.person),
        "interactions": len(corpus.turn),
        "utterances": len(corpus.responses),
        "questions": settings.questions,
        "question_rows": len(rows),
    }
    ceiling = truth.ceilings(corpus, planted)
    files = {name: sha256_file(folder / name) for name in FILES[:-1]}
    write_json(folder / FILES[-1], truth.world_document(planted, survey_world, settings, counts, ceiling, files))
    return {"counts": counts, "settings": asdict(settings), "ceiling": ceiling}


def check_output(out: Path) -> None:
    """Raise UserError unless ``out`` is absent, empty, or an untouched earlier simulation.

    A file that differs from what the earlier simulation wrote may be the only copy of someone's work, so it counts as other.
    """
    parent = next(folder for folder in out.parents if folder.exists())
    if not parent.is_dir():
        raise UserError(f"{out}: expected a folder that can be made, but {parent} is a file; choose another --out")
    if not out.exists():
        return
    if not out.is_dir():
        raise UserError(f"{out}: expected a folder for the simulated corpora, found a file; choose another --out")
    found = sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_symlink() or not p.is_dir())
    advice = "move it away or choose another --out"
    if not found:
        return
    other = [name for name in found if name not in FILES]
    document = read_json(out / FILES[-1]) if FILES[-1] in found else None
    if not isinstance(document, dict) or document.get("made_by") != truth.MADE_BY:
        raise UserError(
            f"{out}: expected an empty folder or an earlier simulation, found {(other or found)[0]}; {advice}"
        )
    if other:
        raise UserError(f"{out}: expected only the files of an earlier simulation, found also {other[0]}; {advice}")
    recorded = document.get("files")
    for name in found:
        if name != FILES[-1] and (not isinstance(recorded, dict) or recorded.get(name) != sha256_file(out / name)):
            raise UserError(f"{out}: expected an untouched earlier simulation, found {name} changed since; {advice}")
