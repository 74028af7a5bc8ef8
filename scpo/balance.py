"""Balance: one weight per group, so that small communities are heard.

Weights come from the numbers of kept training pairs and have mean 1 over the training set; they are fixed for the whole
training and never renormalised inside a batch: the trained loss is the weighted loss of the data set at any batch size.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from scpo.errors import UserError, did_you_mean

FloatArray = npt.NDArray[np.float64]

METHODS = ("none", "inverse", "sqrt", "effective", "dro")


def group_weights(counts: npt.ArrayLike, method: str, *, effective_beta: float = 0.999) -> FloatArray:
    """Weight of a pair of each group.

    Args:
        counts: (n_groups,) kept training pairs of each group; 0 gets weight 0.
        method: `none` (1 for all), `inverse` (1 / n), `sqrt` (1 / sqrt(n)) or `effective` ((1 - b) / (1 - b^n), the
            effective number of samples; Cui et al. 2019, "Class-Balanced Loss", eq. 2). `dro` is 1 for all here: its
            weights move during training (:mod:`scpo.dro`).
        effective_beta: b of `effective`, in [0, 1); 0 is `none`, and near 1 it is `inverse`.

    Returns:
        (n_groups,) weights with ``sum(counts * weights) == sum(counts)``.
    """
    n = np.asarray(counts, dtype=np.float64)
    if method not in METHODS:
        raise UserError(f"balance: expected a known method, found {method!r}.{did_you_mean(method, METHODS)}")
    if not 0.0 <= effective_beta < 1.0:
        raise UserError(f"balance.effective_beta: expected a number in [0, 1), found {effective_beta}")
    present = n > 0
    raw = np.zeros_like(n)
    if method in ("none", "dro"):
        raw[present] = 1.0
    elif method == "inverse":
        raw[present] = 1.0 / n[present]
    elif method == "sqrt":
        raw[present] = 1.0 / np.sqrt(n[present])
    else:
        raw[present] = (1.0 - effective_beta) / (1.0 - effective_beta ** n[present])
    total = (n * raw).sum()
    return raw * (n.sum() / total) if total > 0 else raw
