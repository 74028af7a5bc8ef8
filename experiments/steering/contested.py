"""GlobalOpinionQA: is a steered model better on the pairs of options that countries order differently?

    python experiments/steering/contested.py DATA RUN BASELINE_RUN...     # against other runs on the same split
    python experiments/steering/contested.py DATA RUN others              # against the mean of the other countries

A pair of options is contested where at least two countries of DATA order it strictly differently. Measured are all
contested pairs of the test cells (question, country) of RUN. `others` ranks two options by their mean share over the other
cells of the question, which are not tested. Questions are resampled and, for p, the sign of each question's difference is
flipped, 10,000 times each (two-sided).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from scpo.data.pairs import make_pairs
from scpo.evaluation.accuracy import steered_rows
from scpo.run.launch import read_config

DRAWS = 10_000
Array = npt.NDArray[np.float64]


def own_rows(run: Path) -> pd.DataFrame:
    """Each test candidate once, under its own group."""
    frame = pd.read_parquet(run / "predictions.parquet")
    return frame[steered_rows(frame, str(run))].sort_values("candidate_id", ignore_index=True)


def pairs_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Chosen and rejected rows of every pair of a table with comparison_id and score."""
    codes = pd.factorize(frame["comparison_id"])[0].astype(np.int64)
    pairs = make_pairs(codes, frame["score"].to_numpy(dtype=np.float64, na_value=np.nan), 0.0)
    return pd.DataFrame({"chosen": pairs.chosen, "rejected": pairs.rejected})


def contested(data: pd.DataFrame) -> set[tuple[str, str, str]]:
    """(question, option, option) in sorted order, for the pairs that two countries order differently."""
    pairs = pairs_of(data)
    better, worse = (data["response"].to_numpy()[pairs[side]] for side in ("chosen", "rejected"))
    question = data["cluster_id"].to_numpy()[pairs["chosen"]]
    seen: dict[tuple[str, str, str], set[bool]] = {}
    for q, a, b in zip(question, better, worse, strict=True):
        low, high = sorted((a, b))
        seen.setdefault((q, low, high), set()).add(a == low)
    return {key for key, orders in seen.items() if len(orders) == 2}


def others_reward(run: Path, data: pd.DataFrame, test: pd.DataFrame) -> Array:
    """Mean share of each test candidate's option over the question's training cells; NaN where there is none."""
    held = set(test["comparison_id"])
    config = read_config(run)
    known = data[~data["comparison_id"].isin(held) & data["group"].isin(config["groups"]["names"] or data["group"])]
    if config["split"]["method"] == "prepared":
        known = known[known["split"] == "train"]
    mean = known.groupby(["cluster_id", "response"])["score"].mean()
    keys = pd.MultiIndex.from_arrays([test["cluster_id"], test["response"]])
    return mean.reindex(keys).to_numpy(dtype=np.float64)


def tested(difference: Array, pairs: Array, seed: int) -> tuple[float, float, float]:
    """Interval of the pooled difference and p, from each question's summed difference and number of pairs."""
    rng = np.random.default_rng(seed)
    n = len(pairs)
    drawn = rng.integers(0, n, size=(DRAWS, n))
    low, high = np.quantile(difference[drawn].sum(axis=1) / pairs[drawn].sum(axis=1), [0.025, 0.975])
    flipped = np.abs((rng.choice([-1.0, 1.0], size=(DRAWS, n)) * difference).sum(axis=1))
    p = (1 + int((flipped >= abs(difference.sum()) - 1e-9).sum())) / (1 + DRAWS)
    return float(low), float(high), p


def main(data_dir: Path, run: Path, baselines: list[str]) -> None:
    """Print one line per baseline."""
    data = pd.read_parquet(data_dir / "comparisons.parquet")
    text = data.set_index("candidate_id")["response"]
    test = own_rows(run)
    test["response"] = text.loc[test["candidate_id"]].to_numpy()
    pairs, keys = pairs_of(test), contested(data)
    option, question = test["response"].to_numpy(), test["cluster_id"].to_numpy()
    rows = zip(question[pairs["chosen"]], option[pairs["chosen"]], option[pairs["rejected"]], strict=True)
    inside = np.array([(q, *sorted((a, b))) in keys for q, a, b in rows])
    reward = test["reward"].to_numpy(dtype=np.float64)
    print("| model | baseline | pairs | questions | model % | baseline % | difference, points | p |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for name in baselines:
        other = others_reward(run, data, test) if name == "others" else own_rows(Path(name))["reward"].to_numpy()
        for what, chosen in (("contested", inside), ("all", np.ones_like(inside))):
            plus, minus = pairs["chosen"].to_numpy(), pairs["rejected"].to_numpy()
            kept = chosen & ~np.isnan(other[plus]) & ~np.isnan(other[minus])
            plus, minus = plus[kept], minus[kept]
            ours, theirs = reward[plus] > reward[minus], other[plus] > other[minus]
            code = pd.factorize(question[plus])[0]
            difference = np.bincount(code, ours.astype(float) - theirs.astype(float), 0)
            low, high, p = tested(difference, np.bincount(code).astype(float), 0)
            print(
                f"| {run.name} | {Path(name).name}, {what} | {kept.sum():,} | {code.max() + 1} | {100 * ours.mean():.1f} | "
                f"{100 * theirs.mean():.1f} | {100 * (ours.mean() - theirs.mean()):+.1f} "
                f"[{100 * low:+.1f}, {100 * high:+.1f}] | {p:.4f} |"
            )


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: python experiments/steering/contested.py DATA RUN BASELINE_RUN... | others")
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
