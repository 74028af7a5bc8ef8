"""torchmetrics modules over the pure functions. States are sums only, so any number of processes adds up exactly."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric

from scpo.errors import UserError
from scpo.metrics.functional import group_accuracy_sums

AVERAGES = ("micro", "macro")


class GroupAccuracy(Metric):
    """Accuracy of reward margins per group, with micro and macro averages. A tie is wrong, and counted.

    Own rather than torchmetrics' group metrics, which (1.9.0) relabel the groups of a batch that lacks one.

    Args:
        groups: names; group id i is groups[i]. All of them are always in the result, so that every process logs the
            same keys.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    correct: Tensor  # (num_groups,) long
    pairs: Tensor  # (num_groups,) long
    ties: Tensor  # (num_groups,) long

    def __init__(self, groups: list[str]) -> None:
        super().__init__()
        if not groups or len(set(groups)) != len(groups):
            raise ValueError(f"expected at least one group, each once, found {groups}")
        if set(groups) & set(AVERAGES):
            raise ValueError(
                f"a group cannot be called {' or '.join(AVERAGES)}: these are the averages, found {groups}"
            )
        self.groups = list(groups)
        for state in ("correct", "pairs", "ties"):
            self.add_state(state, default=torch.zeros(len(groups), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, margins: Tensor, group: Tensor) -> None:
        """Add pairs.

        Args:
            margins: (n_pairs,) float, reward of the chosen minus the rejected response.
            group: (n_pairs,) long ids.

        Raises:
            ValueError: ids outside 0..num_groups - 1, shapes that do not fit.
            UserError: a NaN margin, which would otherwise pass for a wrong pair.
        """
        if margins.ndim != 1:
            raise ValueError(f"expected margins of shape (n_pairs,), found {tuple(margins.shape)}")
        if torch.isnan(margins).any():
            row = int(torch.isnan(margins).nonzero()[0])
            raise UserError(
                f"rewards: expected finite numbers, found a NaN margin in pair {row} of a batch; lower the learning rate?"
            )
        right, total = group_accuracy_sums(margins > 0, group, len(self.groups))
        tied, _ = group_accuracy_sums(margins == 0, group, len(self.groups))
        self.correct += right
        self.pairs += total
        self.ties += tied

    def compute(self) -> dict[str, Tensor]:
        """``{group: accuracy, ..., "micro": .., "macro": ..}``, NaN for what has no pair; macro over groups with pairs."""
        accuracy = self.correct / self.pairs  # (num_groups,) float32; 0 / 0 is NaN
        result = {name: accuracy[i] for i, name in enumerate(self.groups)}
        result["micro"] = self.correct.sum() / self.pairs.sum()
        result["macro"] = accuracy.nanmean()
        return result

    def tie_counts(self) -> dict[str, int]:
        """Pairs with equal rewards so far, per group, on this process."""
        return {name: int(self.ties[i]) for i, name in enumerate(self.groups)}

    def pair_counts(self) -> dict[str, int]:
        """Pairs so far, per group, on this process."""
        return {name: int(self.pairs[i]) for i, name in enumerate(self.groups)}
