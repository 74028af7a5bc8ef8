"""The conditioning modes side by side: mean over seeds, and each mode's paired difference to `separate`.

    python experiments/steering/modes.py RUNS

RUNS holds the runs of one sweep over `conditioning` and `seed` on the same data and split. Clusters are resampled within
groups, for all modes together; a pair counts with the mean of its correctness over the seeds.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from scpo.evaluation.accuracy import cluster_sums, score_pairs, steered_rows
from scpo.evaluation.bootstrap import interval, resample
from scpo.io import read_json
from scpo.run.launch import read_config

MODES = ("none", "prefix", "embedding", "head", "adapter", "separate")


def name_of(run: Path) -> str:
    """The mode, with what the run learns beside it."""
    conditioning = read_config(run)["conditioning"]
    mode = str(conditioning["name"])
    more = [f"rank {conditioning['adapter_rank']}"] if conditioning["adapter_rank"] is not None else []
    if conditioning["head_rank"]:
        more.append(f"head rank {conditioning['head_rank']}")
    return f"{mode} ({', '.join(more)})" if more else mode


def correctness(run: Path) -> tuple[pd.DataFrame, list[str]]:
    """Group, cluster and correctness of every test pair, in an order that depends on the candidates only."""
    frame = pd.read_parquet(run / "predictions.parquet")
    own = frame[steered_rows(frame, str(run))].sort_values("candidate_id", ignore_index=True)
    pairs = score_pairs(own)
    return pd.DataFrame({"group": pairs.group, "cluster": pairs.cluster, "correct": pairs.correct}), pairs.groups


def stored(run: Path) -> float:
    """Bytes of all weights below the run's model."""
    return float(sum(p.stat().st_size for p in (run / "model").rglob("*.safetensors")))


def main(root: Path) -> None:
    """Print a Markdown table."""
    runs: dict[str, list[Path]] = {}
    for status in sorted(root.glob("*/status.json")):
        if read_json(status)["state"] == "finished":
            runs.setdefault(name_of(status.parent), []).append(status.parent)
    names = sorted(runs, key=lambda n: (MODES.index(n.split(" ")[0]), n))
    one = stored(runs["separate"][0]) / len(read_json(runs["separate"][0] / "metrics.json")["by_group"])
    tables = {name: [correctness(run) for run in runs[name]] for name in names}
    first, groups = tables["separate"][0]
    columns = np.stack([np.mean([t["correct"] for t, _ in tables[name]], axis=0) for name in names], axis=1)
    for several in tables.values():
        assert all((t[["group", "cluster"]] == first[["group", "cluster"]]).all(axis=None) for t, _ in several)
    sums = cluster_sums(first["group"].to_numpy(), first["cluster"].to_numpy(), columns, np.ones_like(columns))
    draws = resample(sums.correct, sums.pairs, sums.cell, len(groups), resamples=10_000, seed=0).accuracy
    base = names.index("separate")
    print("| conditioning | seeds | macro all % | worst group % | against separate, points | candidates | stored |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for i, name in enumerate(names):
        metrics = [read_json(run / "metrics.json") for run in runs[name]]
        macro = [100 * m["macro"]["accuracy"] for m in metrics]
        worst = [100 * m["worst_group"]["accuracy"] for m in metrics]
        difference = 100 * (draws[:, :, i] - draws[:, :, base]).mean(axis=1)
        low, high = interval(difference) or (float("nan"), float("nan"))
        against = (
            ""
            if i == base
            else f"{np.mean(macro) - np.mean(macro_of(runs['separate'])):+.1f} [{low:+.1f}, {high:+.1f}]"
        )
        spread = f" ± {np.std(macro, ddof=1):.1f}" if len(macro) > 1 else ""
        candidates = np.mean([m["train"]["candidates_encoded"] for m in metrics])
        print(
            f"| {name} | {len(macro)} | {np.mean(macro):.1f}{spread} | {np.mean(worst):.1f} | {against} | {candidates:,.0f} | "
            f"{stored(runs[name][0]) / one:.2f} |"
        )
    print(f"\n{len(first):,} test pairs, {first['cluster'].nunique()} annotators, {len(groups)} groups.")


def macro_of(runs: list[Path]) -> list[float]:
    """Macro accuracies in percent."""
    return [100 * read_json(run / "metrics.json")["macro"]["accuracy"] for run in runs]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python experiments/steering/modes.py RUNS")
    main(Path(sys.argv[1]))
