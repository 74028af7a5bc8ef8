"""Selection: which training pairs a community keeps, and at what weight (the arms of the ablation).

All functions take float arrays of reference rewards of the chosen and the rejected response, shape (n_pairs,), and act
on margins ``r+ - r-``: a probability is never formed from a ratio of exponentials, so rewards of any size are safe.
Source: SCPO (arXiv 2606.18606), its filter and weight; the arms are the rows of its ablation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from scpo.errors import UserError, did_you_mean

ARMS = ("full", "filter", "weight", "inverse", "scpo", "random")

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Selection:
    """The outcome for each pair: `keep` (n_pairs,) bool, and the weight W of the loss (n_pairs,), 0 where not kept."""

    keep: BoolArray
    weight: FloatArray


def margins(chosen: npt.ArrayLike, rejected: npt.ArrayLike) -> FloatArray:
    """``r+ - r-`` in float64, so that float32 rewards of any size subtract without overflow; NaN is refused."""
    plus, minus = np.asarray(chosen, dtype=np.float64), np.asarray(rejected, dtype=np.float64)
    if plus.shape != minus.shape or plus.ndim != 1:
        raise ValueError(f"expected two arrays of one shape (n_pairs,), found {plus.shape} and {minus.shape}")
    bad = np.flatnonzero(~np.isfinite(plus) | ~np.isfinite(minus))
    if len(bad):
        raise UserError(
            f"reference rewards: expected finite numbers; {len(bad)} pairs have none (first: pair {bad[0]})"
        )
    return plus - minus


def probability(chosen: npt.ArrayLike, rejected: npt.ArrayLike) -> FloatArray:
    """The reference model's probability ``sigmoid(r+ - r-)`` that the chosen response is the better one."""
    return expit(margins(chosen, rejected))


def threshold(tau: float) -> float:
    """The margin at which the filter cuts: logit(tau); tau = 1 gives infinity and keeps every pair."""
    check_tau(tau)
    return np.inf if tau == 1.0 else float(np.log(tau) - np.log1p(-tau))


def filter_mask(chosen: npt.ArrayLike, rejected: npt.ArrayLike, tau: float) -> BoolArray:
    """True where the pair stays: ``sigmoid(r+ - r-) < tau``, strictly, as ``r+ - r- < logit(tau)``."""
    return margins(chosen, rejected) < threshold(tau)


def weight(chosen: npt.ArrayLike, rejected: npt.ArrayLike, beta: float) -> FloatArray:
    """``W = min(exp((r+ - r-) / beta), 1)``: 1 where the reference agrees, falling with its disagreement."""
    check_beta(beta)
    return np.exp(np.minimum(margins(chosen, rejected) / beta, 0.0))


def inverse_weight(chosen: npt.ArrayLike, rejected: npt.ArrayLike) -> FloatArray:
    """``W = max(exp(r- - r+), 1)``: raises disagreement, up to exp(80), where float32 is about to overflow."""
    return np.exp(np.clip(-margins(chosen, rejected), 0.0, MAX_INVERSE_EXPONENT))


MAX_INVERSE_EXPONENT = 80.0
"""exp(80) is about 5.5e34; times a loss in the hundreds it stays finite in float32."""


def check_tau(tau: float) -> None:
    """Raise UserError unless 0 < tau <= 1."""
    if not 0.0 < float(tau) <= 1.0:
        raise UserError(f"selection.tau: expected a number above 0 and at most 1, found {tau}")


def check_beta(beta: float) -> None:
    """Raise UserError unless beta > 0."""
    if not 0.0 < float(beta) < np.inf:
        raise UserError(f"selection.beta: expected a positive number, found {beta}")


def select(
    arm: str,
    chosen: npt.ArrayLike,
    rejected: npt.ArrayLike,
    groups: IntArray,
    *,
    tau: float = 0.7,
    beta: float = 1.1,
    seed: int = 0,
) -> Selection:
    """Apply one arm of the ablation.

    =========  =======================================================  ==========
    arm        pairs kept                                               weight W
    =========  =======================================================  ==========
    full       all (rewards are not looked at and may be NaN)           1
    filter     sigmoid(r+ - r-) < tau                                   1
    weight     all                                                      min(exp((r+ - r-) / beta), 1)
    inverse    all                                                      max(exp(r- - r+), 1)
    scpo       sigmoid(r+ - r-) < tau                                   min(exp((r+ - r-) / beta), 1)
    random     per group as many as filter would keep, drawn by seed    1
    =========  =======================================================  ==========

    Args:
        arm: a name of the table.
        chosen, rejected: reference rewards r+ and r-, shape (n_pairs,).
        groups: (n_pairs,) integer code of each pair's group, used by `random` only, whose draw depends on the code.
        tau: filter threshold in (0, 1].
        beta: weight temperature, > 0, in units of reward.
        seed: for `random`.

    Raises:
        UserError: an unknown arm, tau or beta out of range, rewards that are not finite.
    """
    if arm not in ARMS:
        raise UserError(f"selection: expected one of the six arms, found {arm!r}.{did_you_mean(arm, ARMS)}")
    check_tau(tau)
    check_beta(beta)
    n_pairs = len(np.asarray(chosen))
    keep, w = np.ones(n_pairs, dtype=bool), np.ones(n_pairs)
    if arm in ("filter", "scpo"):
        keep = filter_mask(chosen, rejected, tau)
    elif arm == "random":
        keep = random_mask(filter_mask(chosen, rejected, tau), np.asarray(groups), seed)
    if arm in ("weight", "scpo"):
        w = weight(chosen, rejected, beta)
    elif arm == "inverse":
        w = inverse_weight(chosen, rejected)
    return Selection(keep, np.where(keep, w, 0.0))


def random_mask(like: BoolArray, groups: IntArray, seed: int) -> BoolArray:
    """A random mask with as many True in each group as ``like`` has there; shape (n_pairs,)."""
    keep = np.zeros(len(like), dtype=bool)
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        # One stream per code: with codes that follow the names, no other group changes this group's draw.
        rng = np.random.default_rng([seed, int(group)])
        keep[rng.permutation(members)[: int(like[members].sum())]] = True
    return keep


def needs_reference(arm: str) -> bool:
    """True for every arm but `full`."""
    return arm != "full"
