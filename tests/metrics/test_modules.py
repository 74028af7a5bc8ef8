from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score

from scpo.errors import UserError
from scpo.metrics.modules import GroupAccuracy


def test_pooled_accuracy_is_not_the_mean_of_batch_means() -> None:
    """PITFALLS T10: 17 items in batches of 8, the last one wrong: 16/17 = 0.941, the mean of batch means is 0.667."""
    margins = torch.ones(17)
    margins[-1] = -1.0
    metric = GroupAccuracy(["Chile"])
    for start in range(0, 17, 8):
        batch = margins[start : start + 8]
        metric.update(batch, torch.zeros(len(batch), dtype=torch.long))
    assert float(metric.compute()["Chile"]) == pytest.approx(16 / 17)
    assert float(metric.compute()["micro"]) == pytest.approx(0.941, abs=5e-4)


def test_all_groups_are_always_there_and_ties_are_wrong_and_counted() -> None:
    metric = GroupAccuracy(["A", "B", "C"])
    metric.update(torch.tensor([0.5, 0.0, -0.1, 2.0]), torch.tensor([2, 2, 2, 0]))
    result = metric.compute()
    assert list(result) == ["A", "B", "C", "micro", "macro"]
    assert float(result["A"]) == 1.0
    assert torch.isnan(result["B"])
    assert float(result["C"]) == pytest.approx(1 / 3)
    assert float(result["micro"]) == 0.5
    assert float(result["macro"]) == pytest.approx(2 / 3)
    assert metric.tie_counts() == {"A": 0, "B": 0, "C": 1}
    assert metric.pair_counts() == {"A": 1, "B": 0, "C": 3}


def test_any_batching_equals_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    margins = rng.integers(-2, 3, size=203).astype(np.float32)
    group = rng.choice([0, 2, 3], size=203)
    for size in (1, 7, 203):
        metric = GroupAccuracy(["a", "b", "c", "d"])
        for start in range(0, 203, size):
            metric.update(torch.tensor(margins[start : start + size]), torch.tensor(group[start : start + size]))
        result = metric.compute()
        for g, name in ((0, "a"), (2, "c"), (3, "d")):
            expected = accuracy_score(np.ones((group == g).sum()), margins[group == g] > 0)
            assert float(result[name]) == pytest.approx(expected, rel=1e-6)


def test_two_processes_add_up() -> None:
    """States are sums: what DDP does to them, by hand."""
    parts = [GroupAccuracy(["a", "b"]) for _ in range(2)]
    parts[0].update(torch.tensor([1.0, 1.0, -1.0]), torch.tensor([0, 0, 0]))
    parts[1].update(torch.tensor([-1.0]), torch.tensor([1]))
    assert set(parts[0]._reductions) == {"correct", "pairs", "ties"}
    assert all(fx is torch.sum or getattr(fx, "__name__", "") == "dim_zero_sum" for fx in parts[0]._reductions.values())
    whole = GroupAccuracy(["a", "b"])
    for state in ("correct", "pairs", "ties"):
        setattr(whole, state, torch.stack([getattr(p, state) for p in parts]).sum(0))
    whole._update_count = 1
    assert float(whole.compute()["a"]) == pytest.approx(2 / 3)
    assert float(whole.compute()["b"]) == 0.0


def test_reset_and_nothing_seen() -> None:
    metric = GroupAccuracy(["a"])
    metric.update(torch.zeros(0), torch.zeros(0, dtype=torch.long))
    assert all(torch.isnan(v) for v in metric.compute().values())
    metric.update(torch.tensor([1.0]), torch.tensor([0]))
    metric.reset()
    assert metric.pair_counts() == {"a": 0}


def test_bad_input() -> None:
    metric = GroupAccuracy(["a", "b"])
    with pytest.raises(ValueError, match="0 to 1"):
        metric.update(torch.tensor([1.0]), torch.tensor([2]))
    with pytest.raises(UserError, match="NaN margin in pair 1"):
        metric.update(torch.tensor([1.0, float("nan")]), torch.tensor([0, 0]))
    with pytest.raises(ValueError, match="n_pairs"):
        metric.update(torch.ones(2, 2), torch.tensor([0, 0]))
    assert metric.pair_counts() == {"a": 0, "b": 0}
    for groups in ([], ["a", "a"], ["a", "macro"]):
        with pytest.raises(ValueError):
            GroupAccuracy(groups)
