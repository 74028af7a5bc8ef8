"""Losses over pairs, as pure functions of float32 tensors."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def bradley_terry(
    chosen: Tensor,
    rejected: Tensor,
    weight: Tensor | None = None,
    *,
    margin: Tensor | None = None,
    centering: float = 0.0,
) -> Tensor:
    """The weighted Bradley-Terry loss of each pair.

    Formula:
        ``W * (-log sigmoid(r+ - r- - m) + c * (r+ + r-)^2)``

    Shapes:
        chosen, rejected, weight, margin: (n_pairs,); returns (n_pairs,), not reduced.

    Args:
        chosen, rejected: rewards r+ and r-; taken to float32 before they are subtracted.
        weight: W, selection times balance; None is 1.
        margin: m >= 0, a gap that the rewards are asked to keep; None is 0.
        centering: c >= 0, pulls r+ + r- to 0, since Bradley-Terry leaves the level of rewards free.

    Source:
        SCPO (arXiv 2606.18606) for W; Llama 2 (arXiv 2307.09288, eq. 2) for the margin; Eisenstein et al. 2023
        (arXiv 2312.09244) for centering.

    When to use:
        Pairs from scores or choices. The mean over the data set divides by a fixed number, outside (see `lit`).
    """
    plus, minus = chosen.float(), rejected.float()
    difference = plus - minus
    if margin is not None:
        difference = difference - margin.float()
    loss = -logsigmoid(difference)
    if centering:
        loss = loss + centering * (plus + minus).square()
    return loss if weight is None else loss * weight.float()


def gap_margin(gap: Tensor, scale: float) -> Tensor:
    """The margin m = scale * gap from the annotator's score gap, shape (n_pairs,)."""
    return scale * torch.as_tensor(gap).float()
