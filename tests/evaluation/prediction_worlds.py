"""Small predictions tables for the tests."""

from __future__ import annotations

import numpy as np
import pandas as pd

COLUMNS = ["candidate_id", "comparison_id", "cluster_id", "annotator_id", "group", "attributes", "score"]
COLUMNS += ["reference_reward", "conditioned_on", "reward"]


def row(group: str, cluster: str, comparison: str, candidate: str, score: float, reward: float, **more: object) -> dict:
    """One candidate, conditioned on its own group."""
    base = {
        "candidate_id": candidate,
        "comparison_id": comparison,
        "cluster_id": cluster,
        "annotator_id": cluster,
        "group": group,
        "attributes": {},
        "score": score,
        "reference_reward": None,
        "conditioned_on": group,
        "reward": reward,
    }
    return base | more


def table(rows: list[dict]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=[*COLUMNS, *(k for k in rows[0] if k not in COLUMNS)])


def pair(
    group: str, cluster: str, name: str, margin: float, reference: float | None = None, **more: object
) -> list[dict]:
    """A comparison of two candidates whose chosen one has a reward (and reference reward) higher by the margin."""
    ref = (None, None) if reference is None else (reference, 0.0)
    return [
        row(group, cluster, name, f"{name}/c", 2.0, margin, reference_reward=ref[0], **more),
        row(group, cluster, name, f"{name}/r", 1.0, 0.0, reference_reward=ref[1], **more),
    ]


def random_world(
    seed: int, groups: int = 3, clusters: int = 6, comparisons: int = 3, reference: bool = True
) -> pd.DataFrame:
    """Groups of different size, up to four candidates, ties in scores, rewards and reference rewards."""
    rng = np.random.default_rng(seed)
    rows = []
    for g in range(groups):
        for c in range(clusters + g):
            attributes = {"age": str(rng.integers(2)), "gender": "ab"[rng.integers(2)]}
            for q in range(comparisons):
                for i in range(int(rng.integers(2, 5))):
                    name = f"{g}-{c}-{q}"
                    values = rng.integers(0, 4, size=3)
                    rows.append(
                        row(
                            f"G{g}",
                            f"{g}-{c}",
                            name,
                            f"{name}-{i}",
                            float(values[0]),
                            float(values[1]),
                            reference_reward=float(values[2]) if reference else None,
                            attributes=attributes,
                            response_length=int(rng.integers(1, 5)),
                        )
                    )
    return table(rows)


def told(
    group: str, cluster: str, name: str, scores: list[float], rewards: dict[str | None, list[float]], **more: object
) -> list[dict]:
    """A comparison scored under several conditions: rewards of its candidates by the group told, None for no group."""
    return [
        row(group, cluster, name, f"{name}/{i}", score, values[i], conditioned_on=condition, **more)
        for condition, values in rewards.items()
        for i, score in enumerate(scores)
    ]


def following_world() -> pd.DataFrame:
    """Two groups, two clusters each. A is right told A and wrong told B; B is right told B and half right told A.

    Told no group both candidates are equal.
    """
    right, wrong, equal = [1.0, 0.0], [0.0, 1.0], [0.5, 0.5]
    return table(
        [
            *told("A", "u", "q1", [2, 1], {"A": right, "B": wrong, None: equal}),
            *told("A", "v", "q2", [2, 1], {"A": right, "B": wrong, None: equal}),
            *told("B", "w", "q3", [2, 1], {"B": right, "A": right, None: equal}),
            *told("B", "x", "q4", [2, 1], {"B": right, "A": wrong, None: equal}),
        ]
    )


def random_swaps(seed: int, default: bool = True, groups: int = 3) -> pd.DataFrame:
    """Every comparison of a random world under every group: the own rewards, and others with many ties; some scores missing."""
    rng = np.random.default_rng([seed, 7])
    own = random_world(seed, groups=groups, clusters=3, comparisons=2)
    own.loc[rng.random(len(own)) < 0.1, "score"] = np.nan
    parts = [own]
    for condition in [*(f"G{g}" for g in range(groups)), *([None] if default else [])]:
        rows = own[own["group"] != condition]
        rewards = rows["reward"] + rng.integers(-1, 2, size=len(rows))
        parts.append(rows.assign(conditioned_on=pd.Series([condition] * len(rows), rows.index, object), reward=rewards))
    return pd.concat(parts, ignore_index=True)
