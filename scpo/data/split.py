"""Train, validation and test: which clusters go where, as pure functions that do not depend on the order of rows.

A cluster is what may not stand on both sides: the annotator in PRISM, the question in GlobalOpinionQA.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from scpo.errors import UserError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

Method = Literal["stratified", "paper", "question", "row"]
METHODS: tuple[Method, ...] = ("stratified", "paper", "question", "row")
PAPER_TEST_SIZE, PAPER_SEED = 0.15, 0
Fractions = tuple[float, float, float]


def assign_split(
    frame: pd.DataFrame,
    method: str,
    *,
    seed: int = 0,
    fractions: Fractions = (0.75, 0.10, 0.15),
    survey_users: Sequence[str] | None = None,
    val_fraction: float = 0.0,
) -> pd.Series:
    """The split of each row: train, val or test.

    Args:
        frame: one row per candidate, with `comparison_id`, `cluster_id` and `group`.
        method:
            `stratified`: clusters, each group by `fractions`; a group of three clusters or more gets at least one in test
            and, if asked for, in val. A cluster that is in several groups is assigned once.
            `question`: clusters by `fractions`, whatever their group.
            `row`: comparisons by `fractions`; the one method where a cluster may stand on both sides, so that its test
            numbers say how well known questions (or people) are predicted, not new ones.
            `paper`: 85/15 over all annotators of the survey in file order, seed 0, as `datasets` does it.
        seed: for all methods but the paper's test set, which has its own.
        fractions: of train, val and test; not used by `paper`.
        survey_users: all annotators in file order; needed by `paper`.
        val_fraction: share of the training clusters that `paper` hands to val, stratified by group.

    Returns:
        Series of str with the frame's index.

    Raises:
        UserError: an unknown method, fractions out of range, or `paper` without a survey.
    """
    import pandas as pd

    if method not in METHODS:
        raise UserError(
            f"split: expected one of {', '.join(METHODS)}, found {method!r}." + did_you_mean(method, METHODS)
        )
    check_fractions(fractions)
    unit = "comparison_id" if method == "row" else "cluster_id"
    if method == "paper":
        parts = paper_parts(frame, survey_users, val_fraction, seed)
    elif method == "stratified":
        parts = stratify(clusters_by_group(frame), fractions, seed)
    else:
        parts = shuffle(frame[unit].unique(), fractions, seed)
    return pd.Series(frame[unit].map(parts).to_numpy(), index=frame.index, name="split")


def check_fractions(fractions: Fractions) -> None:
    """Raise UserError unless train and test are above 0, val is not below, and the three sum to 1."""
    train, val, test = fractions
    if (
        not all(math.isfinite(f) for f in fractions)
        or not (train > 0 and val >= 0 and test > 0)
        or abs(sum(fractions) - 1) > 1e-9
    ):
        raise UserError(
            "split fractions: expected train > 0, val >= 0 and test > 0 with sum 1, found "
            + ", ".join(f"{f:g}" for f in fractions)
        )


def rank(unit: Hashable, seed: int) -> bytes:
    """A number that orders units at random but the same way wherever and in whatever order they appear."""
    return hashlib.sha256(f"{seed}\x00{unit}".encode()).digest()


def clusters_by_group(frame: pd.DataFrame) -> dict[str, list[str]]:
    """The distinct clusters of each group."""
    distinct = frame[["group", "cluster_id"]].drop_duplicates()
    return {str(group): list(part) for group, part in distinct.groupby("group")["cluster_id"]}


def quota(n: int, fractions: Fractions) -> tuple[int, int]:
    """How many of ``n`` units go to val and test: the rounded shares; :func:`repair` sees to groups that round to none."""
    return round(n * fractions[1]), round(n * fractions[2])


def shuffle(units: Iterable[str], fractions: Fractions, seed: int) -> dict[str, str]:
    """Split of each unit, without regard to groups."""
    return stratify({"all": list(units)}, fractions, seed)


def stratify(groups: Mapping[str, Sequence[str]], fractions: Fractions, seed: int) -> dict[str, str]:
    """Split of each cluster so that every group comes close to the fractions.

    Groups are filled from the smallest to the largest: a small group has no choice, and a large one makes up for what its
    shared clusters already brought. Where sharing leaves a group of three or more without test (or val), a cluster of its
    training part is moved, one that takes no other group's last training cluster if there is such a one.
    """
    parts: dict[str, str] = {}
    order = sorted(groups, key=lambda group: (len(groups[group]), group))
    for group in order:
        clusters = sorted(groups[group], key=lambda cluster: rank(cluster, seed))
        want_val, want_test = quota(len(clusters), fractions)
        taken = [parts[c] for c in clusters if c in parts]
        free = [c for c in clusters if c not in parts]
        n_test = min(max(0, want_test - taken.count("test")), len(free))
        n_val = min(max(0, want_val - taken.count("val")), len(free) - n_test)
        for i, cluster in enumerate(free):
            parts[cluster] = "test" if i < n_test else "val" if i < n_test + n_val else "train"
    for part in ("test", "val") if fractions[1] > 0 else ("test",):
        for group in order:
            repair(groups, group, part, parts, seed)
    return parts


def repair(groups: Mapping[str, Sequence[str]], group: str, part: str, parts: dict[str, str], seed: int) -> None:
    """Move one training cluster of a group of three or more into a part that the group lacks."""
    clusters = groups[group]
    if len(clusters) < 3 or any(parts[c] == part for c in clusters):
        return
    owners = [other for other in groups if len(groups[other]) >= 3]

    def harm(cluster: str) -> int:
        return sum(
            cluster in groups[o] and not any(parts[c] == "train" for c in groups[o] if c != cluster) for o in owners
        )

    training = [c for c in clusters if parts[c] == "train"]
    if training:
        parts[min(training, key=lambda c: (harm(c), rank(c, seed)))] = part


def paper_test_rows(n: int) -> list[int]:
    """Positions of the test rows among ``n`` survey rows, by the `datasets` library's own train_test_split."""
    from datasets import Dataset

    if n < 2:
        raise UserError(f"split paper: expected a survey of at least two annotators, found {n}")
    rows = Dataset.from_dict({"row": np.arange(n)})
    test = rows.train_test_split(test_size=PAPER_TEST_SIZE, seed=PAPER_SEED, load_from_cache_file=False)["test"]
    return [int(row) for row in test["row"]]


def paper_parts(
    frame: pd.DataFrame, survey_users: Sequence[str] | None, val_fraction: float, seed: int
) -> dict[str, str]:
    """The paper's split of annotators; val is carved from train, never from test."""
    if not survey_users:
        raise UserError("split paper: expected a corpus with a survey (prism); use --split stratified or question")
    if not 0 <= val_fraction < 1:
        raise UserError(f"val fraction: expected 0 <= fraction < 1, found {val_fraction:g}")
    stranger = next((c for c in frame["cluster_id"].unique() if c not in set(survey_users)), None)
    if stranger is not None:
        raise UserError(f"split paper: expected every cluster to be an annotator of the survey, found {stranger!r}")
    test = {survey_users[row] for row in paper_test_rows(len(survey_users))}
    parts = {str(c): "test" if c in test else "train" for c in frame["cluster_id"].unique()}
    if val_fraction:
        training = frame[[parts[c] == "train" for c in frame["cluster_id"]]]
        # stratify() fills "test" first, so the carved share travels under that name.
        carved = stratify(clusters_by_group(training), (1 - val_fraction, 0.0, val_fraction), seed)
        parts.update({c: "val" for c, part in carved.items() if part == "test"})
    return parts


def check_split(frame: pd.DataFrame, by_cluster: bool = True) -> None:
    """Raise UserError when a comparison, or (with ``by_cluster``) a cluster, has rows in two parts."""
    for column in ("comparison_id", "cluster_id") if by_cluster else ("comparison_id",):
        sides = frame.groupby(column)["split"].nunique()
        if (sides > 1).any():
            name = sides.index[(sides > 1).to_numpy()][0]
            found = sorted(set(frame.loc[frame[column] == name, "split"]))
            raise UserError(f"split: expected each {column} in one part, found {name!r} in {' and '.join(found)}")
