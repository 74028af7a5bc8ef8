"""Group DRO: a balance that moves during training towards the groups with the highest loss.

Source: Sagawa et al. 2020 (arXiv 1911.08731, algorithm 1): ``q_g <- q_g * exp(eta * loss_g)``, normalised, and the trained
loss is ``sum_g q_g * loss_g``, with ``loss_g + C / sqrt(n_g)`` in place of ``loss_g`` for the adjustment to small groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def dro_update(q: Tensor, losses: Tensor, eta: float) -> Tensor:
    """The group weights after one step, from those before and the groups' losses; each (n_groups,)."""
    # In logarithms, so that no product overflows; a group of weight 0 keeps it.
    logits = q.log() + eta * losses
    return torch.softmax(logits, dim=0)


class GroupDRO(nn.Module):
    """The groups' weights q, part of the checkpoint.

    A step's pairs fall on groups by chance, so the mean of a group's pairs would update large groups more often than small
    ones. Here loss_g is the sum of the group's losses in the step over the number of its pairs that a step holds on average:
    equal in expectation to the group's mean loss, a plain sum over chunks and processes, and 0 for a group that is absent.
    The pairs of a step are weighted by the q of the steps before it, so that cutting a step into chunks changes nothing.

    Args:
        counts: (n_groups,) kept training pairs of each group; groups without any get weight 0.
        pairs_per_step: mean pairs of an optimiser step.
        eta: step size of q.
        adjustment: C.
    """

    q: Tensor
    sums: Tensor
    share: Tensor
    expected: Tensor
    penalty: Tensor

    def __init__(
        self, counts: Sequence[int], *, pairs_per_step: float, eta: float = 0.01, adjustment: float = 0.0
    ) -> None:
        super().__init__()
        n = torch.tensor(counts, dtype=torch.float32)
        self.eta = eta
        present = (n > 0).float()
        self.register_buffer("q", present / present.sum())
        self.register_buffer("share", n / n.sum(), persistent=False)
        self.register_buffer(
            "expected", self.share * pairs_per_step, persistent=False
        )  # a group's pairs in a mean step
        self.register_buffer("penalty", present * adjustment / n.clamp(min=1).sqrt(), persistent=False)
        self.register_buffer("sums", torch.zeros_like(n), persistent=False)

    def weights(self, group: Tensor) -> Tensor:
        """What the pairs' losses are multiplied by, (n_pairs,): q over the group's share of the training pairs.

        With q equal to the shares it is 1 everywhere; for any q it has mean 1 over the training set.
        """
        return (self.q / self.share.clamp(min=1e-12))[group]

    def add(self, losses: Tensor, group: Tensor) -> None:
        """Note the losses (n_pairs,) of one chunk."""
        self.sums.index_add_(0, group, losses.detach().float())

    def step(self, sums: Tensor) -> None:
        """Update q at the end of an optimiser step.

        Args:
            sums: (n_groups,) the groups' losses, summed over the chunks and processes of the step.
        """
        losses = sums / self.expected.clamp(min=1e-12)
        self.q.copy_(dro_update(self.q, losses + self.penalty, self.eta))
        self.sums.zero_()
