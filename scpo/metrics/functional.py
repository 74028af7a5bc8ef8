"""Sums and accuracies per group by scatter-add, for numpy arrays and torch tensors alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor


@overload
def group_sums(values: npt.NDArray[Any], group: npt.NDArray[Any], num_groups: int) -> npt.NDArray[Any]: ...
@overload
def group_sums(values: Tensor, group: Tensor, num_groups: int) -> Tensor: ...
def group_sums(values: Any, group: Any, num_groups: int) -> Any:
    """Sum the rows of `values` per group: result[g] is the sum over the rows of group g, 0 for an absent group.

    Args:
        values: (n, ...) numbers.
        group: (n,) integer ids. Ids are positions, never ranks: an absent group does not relabel the others.
        num_groups: length of the result.

    Raises:
        ValueError: an id outside 0..num_groups - 1, ids that are not integers, or shapes that do not fit.
    """
    check_ids(group, num_groups, len(values))
    if isinstance(values, np.ndarray):
        out = np.zeros((num_groups, *values.shape[1:]), dtype=values.dtype)
        np.add.at(out, group, values)
        return out
    out = values.new_zeros((num_groups, *values.shape[1:]))
    return out.index_add_(0, group, values)


def check_ids(group: Any, num_groups: int, length: int) -> None:
    """Raise ValueError unless `group` holds `length` integer ids from 0 to num_groups - 1."""
    if group.ndim != 1 or len(group) != length:
        raise ValueError(f"expected one group id per row, shape ({length},), found {tuple(group.shape)}")
    if isinstance(group, np.ndarray):
        integer = np.issubdtype(group.dtype, np.integer)
    else:
        integer = not (group.is_floating_point() or group.is_complex() or group.dtype.itemsize < 4)
    if not integer:
        raise ValueError(f"expected integer group ids, found {group.dtype}")
    if length and (int(group.min()) < 0 or int(group.max()) >= num_groups):
        bad = int(group.min()) if int(group.min()) < 0 else int(group.max())
        raise ValueError(f"expected group ids from 0 to {num_groups - 1}, found {bad}")


def group_accuracy_sums(correct: Any, group: Any, num_groups: int, weight: Any = None) -> tuple[Any, Any]:
    """Weight of the right pairs and of all pairs per group; their ratio is the accuracy.

    Args:
        correct: (n_pairs,) bool, or 0 and 1.
        group: (n_pairs,) integer ids.
        num_groups: length of the results.
        weight: (n_pairs,) weights >= 0, default 1.

    Returns:
        Two arrays or tensors (num_groups,): numbers of pairs as integers without a weight, float64 sums with one.
        Sums of batches add up to the pooled accuracy; means of batches do not.
    """
    if isinstance(correct, np.ndarray):
        right = correct.astype(bool)
        weights = np.ones(len(right), dtype=np.int64) if weight is None else np.asarray(weight, dtype=np.float64)
        zeros = np.zeros_like(weights)
        return group_sums(np.where(right, weights, zeros), group, num_groups), group_sums(weights, group, num_groups)
    import torch

    right = correct.bool()
    if weight is None:
        ones = torch.ones_like(group, dtype=torch.long)
    else:
        ones = torch.as_tensor(weight, device=right.device).double()
    return group_sums(torch.where(right, ones, torch.zeros_like(ones)), group, num_groups), group_sums(
        ones, group, num_groups
    )


def group_accuracy(correct: Any, group: Any, num_groups: int, weight: Any = None) -> Any:
    """(num_groups,) accuracy per group; NaN where a group has no pair (or no weight), never 0."""
    right, total = group_accuracy_sums(correct, group, num_groups, weight)
    if isinstance(right, np.ndarray):
        total = total.astype(np.float64)
        return np.divide(right, total, out=np.full(num_groups, np.nan), where=total > 0)
    return right / total  # 0 / 0 is NaN
