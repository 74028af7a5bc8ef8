"""The embedded planted world: people, texts, preferences and surveys whose truth is known, in the corpora's raw layouts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from scpo.data.simulate.settings import Settings


def simulate(
    out: Path,
    *,
    seed: int = 0,
    annotators: int = 300,
    mislabelled: float = 0.05,
    extreme: float = 0.05,
    noise: float = 5.0,
    shift: float = 1.0,
    lengths: str = "short",
    questions: int = 200,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Write a planted world into the folder ``out``: ``prism/``, ``goqa/`` and ``truth/``. Deterministic by seed.

    Args:
        out: a folder that is absent, empty, or holds an untouched earlier simulation (which is replaced).
        seed: whole number >= 0; every byte written follows from it and the other settings.
        annotators: rows of the survey, 20 to 1500 (at 1500 the sizes are PRISM's).
        mislabelled: share of comparisons whose scores are reversed.
        extreme: share of comparisons in which the globally worst candidate gets the top score and the best the bottom.
        noise: standard deviation of a single score, in points of the 1 to 100 slider.
        shift: factor on every group's deviation from the global preference; 0 makes all groups alike.
        lengths: ``"short"`` (about 30 to 60 words) or ``"prism"`` (PRISM's distribution of characters).
        questions: questions of the GlobalOpinionQA part, 10 to 5000.
        progress: called with one short line at the start of each stage.

    Returns:
        ``{"out", "counts", "settings", "ceiling"}``; the ceiling is that of ``truth/world.json``.

    Raises:
        UserError: a setting out of range, or an output folder that holds other files.
    """
    # Here, not above: numpy, pandas and pyarrow must not load when only the settings are asked for.
    from scpo.data.simulate.build import build

    settings = Settings(seed, annotators, mislabelled, extreme, noise, shift, lengths, questions)
    return build(Path(out), settings, progress or (lambda line: None))


__all__ = ["Settings", "simulate"]
