"""Does the steering check agree with what was planted? Only on the embedded world, whose truth is known.

    python experiments/steering/planted.py TRUTH RUN...

For every ordered pair of groups (told g, pairs of h): what the model loses by being told g instead of h, against the distance
between the planted trait weights of the two. For every group: its advantage against the mean distance to the others.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from scipy.stats import pearsonr, spearmanr

from scpo.io import read_json


def main(truth: Path, runs: list[Path]) -> None:
    """Print one line per run."""
    shifts = read_json(truth / "world.json")["shifts"]
    traits = sorted({trait for shift in shifts.values() for trait in shift})
    weights = {group: np.array([shift.get(trait, 0.0) for trait in traits]) for group, shift in shifts.items()}
    print("| run | pairs of groups | Pearson | Spearman | groups | Pearson | verdict |")
    print("|---|--:|--:|--:|--:|--:|---|")
    for run in runs:
        check = read_json(run / "metrics.json")["steering"]
        groups, matrix = check["groups"], check["matrix"]
        ordered = [(g, h) for h in groups for g in groups if g != h]
        lost = [matrix[h][h]["accuracy"] - matrix[g][h]["accuracy"] for g, h in ordered]
        apart = [float(np.linalg.norm(weights[g] - weights[h])) for g, h in ordered]
        own = [check["by_group"][h]["advantage"]["value"] for h in groups]
        away = [float(np.mean([np.linalg.norm(weights[g] - weights[h]) for g in groups if g != h])) for h in groups]
        numbers = f"{len(ordered)} | {pearsonr(lost, apart)[0]:.2f} | {spearmanr(lost, apart)[0]:.2f}"
        print(f"| {run.name} | {numbers} | {len(groups)} | {pearsonr(own, away)[0]:.2f} | {check['verdict']} |")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python experiments/steering/planted.py TRUTH RUN...")
    main(Path(sys.argv[1]), [Path(run) for run in sys.argv[2:]])
