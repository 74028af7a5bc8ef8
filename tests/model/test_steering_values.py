"""The changes that a group makes, on tensors small enough to compute by hand, and against formulas written another way."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from scpo.errors import UserError
from scpo.model.steering import Adapters, Heads, SteeringOptions, TokenVectors, last_linear, pick, sizes


def set_to(parameter: Tensor, values: list[object]) -> None:
    with torch.no_grad():
        parameter.copy_(torch.tensor(values))


def test_pick_gives_zeros_where_no_group_is_named() -> None:
    """For rows of any number of axes; the whole table stays in the graph."""
    table = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    picked = pick(table, torch.tensor([1, -1, 0, 1]))
    assert picked.tolist() == [[3, 4], [0, 0], [1, 2], [3, 4]]
    picked.sum().backward()
    assert table.grad is not None
    assert table.grad.tolist() == [[1, 1], [2, 2]]
    assert pick(table[:, :, None], torch.tensor([-1, 1])).tolist() == [[[0], [0]], [[3], [4]]]
    table.grad = None
    pick(table, torch.tensor([-1])).sum().backward()
    assert table.grad is not None  # zeros and not None: a process without the group takes part in the sum
    assert not table.grad.any()


def test_a_vector_goes_on_every_token() -> None:
    vectors = TokenVectors(2, 3)
    assert not vectors.vectors.any()
    set_to(vectors.vectors, [[1.0, 2.0, 3.0], [0.5, 0.0, -0.5]])
    embedding = nn.Embedding(5, 3)
    vectors.attach(embedding)
    ids = torch.tensor([[0, 1], [2, 3], [4, 4]])
    before = embedding(ids)
    vectors.rows = torch.tensor([1, -1, 0])
    change = (embedding(ids) - before).tolist()
    expected = [[[0.5, 0.0, -0.5]] * 2, [[0.0] * 3] * 2, [[1.0, 2.0, 3.0]] * 2]
    np.testing.assert_allclose(change, expected, atol=1e-6)


def test_a_full_head_adds_its_own_product() -> None:
    """Features (1, 2) and (3, -1): 10 + 40 under the second group, 3 * 1 - 1 * 5 under the first."""
    heads = Heads(2, 2, 0)
    assert heads.basis is None
    assert not heads.weights.any()
    set_to(heads.weights, [[1.0, 5.0], [10.0, 20.0]])
    features = torch.tensor([[1.0, 2.0], [3.0, -1.0], [7.0, 7.0]])
    change = heads.change(features, torch.zeros(3, 1), torch.tensor([1, 0, -1]))
    assert change.tolist() == [[50.0], [-2.0], [0.0]]
    assert heads.deltas().tolist() == heads.weights.tolist()


def test_a_low_rank_head_weighs_shared_directions() -> None:
    """Directions (1, 0, 1) and (0, 2, 0) with weights (1, 2) and (3, 0): (1, 4, 1) and (3, 0, 3)."""
    heads = Heads(2, 3, 2)
    assert heads.basis is not None
    assert heads.basis.any()
    set_to(heads.basis, [[1.0, 0.0, 1.0], [0.0, 2.0, 0.0]])
    set_to(heads.weights, [[1.0, 2.0], [3.0, 0.0]])
    assert heads.deltas().tolist() == [[1.0, 4.0, 1.0], [3.0, 0.0, 3.0]]
    features = torch.tensor([[1.0, 2.0, 3.0]] * 3)
    assert heads.change(features, torch.zeros(3, 1), torch.tensor([0, 1, -1])).tolist() == [[12.0], [12.0], [0.0]]


def test_a_head_is_float32_under_autocast() -> None:
    """2049 has no place in bfloat16, whose product would be 2048."""
    heads = Heads(1, 2, 1)
    assert heads.basis is not None
    set_to(heads.basis, [[1.0, 1.0]])
    set_to(heads.weights, [[1.0]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        change = heads.change(torch.tensor([[2048.0, 1.0]]), torch.zeros(1, 1), torch.tensor([0]))
    assert change.dtype == torch.float32
    assert change.item() == 2049.0


def test_an_adapter_by_hand() -> None:
    """x (1, 2), down (3, 1), up (10, 20): 5, so (50, 100), times the scale of 2."""
    adapters = Adapters(1, 2, 2, 1, 2.0)
    assert not adapters.up.any()
    assert float(adapters.down.detach().abs().max()) <= 1 / math.sqrt(2)
    set_to(adapters.down, [[[3.0, 1.0]]])
    set_to(adapters.up, [[[10.0], [20.0]]])
    inputs = torch.tensor([[[1.0, 2.0]], [[1.0, 2.0]]])
    assert adapters.change(inputs, inputs, torch.tensor([0, -1])).tolist() == [[[100.0, 200.0]], [[0.0, 0.0]]]


@pytest.mark.parametrize("length", [None, 1, 4])
def test_adapters_in_a_mixed_batch_against_numpy(length: int | None) -> None:
    """Text by text, token by token; also where a layer reads one vector per text, as a pooler does."""
    rng = np.random.default_rng(0)
    adapters = Adapters(3, 5, 4, 2, 1.5)
    down, up = rng.normal(size=(3, 2, 5)), rng.normal(size=(3, 4, 2))
    set_to(adapters.down, down.tolist())
    set_to(adapters.up, up.tolist())
    rows = np.array([2, 0, -1, 2])
    inputs = rng.normal(size=(4, 5) if length is None else (4, length, 5))
    change = adapters.change(torch.tensor(inputs, dtype=torch.float32), torch.zeros(1), torch.tensor(rows))
    expected = np.zeros((*inputs.shape[:-1], 4))
    for i, row in enumerate(rows):
        if row >= 0:
            expected[i] = inputs[i] @ (1.5 * up[row] @ down[row]).T
    np.testing.assert_allclose(change.detach().numpy(), expected, rtol=1e-5, atol=1e-5)


def test_a_layer_with_other_rows_than_the_texts_is_refused() -> None:
    """Packed attention: two texts as one row."""
    vectors = TokenVectors(2, 3)
    embedding = nn.Embedding(5, 3)
    vectors.attach(embedding)
    vectors.rows = torch.tensor([0, 1])
    with pytest.raises(UserError, match=r"expected one row per text \(2\), found \(1, 4, 3\).* model.attention=sdpa"):
        embedding(torch.zeros(1, 4, dtype=torch.long))


def test_inputs_and_outputs_of_both_kinds_of_linear_layer() -> None:
    assert sizes(nn.Linear(3, 5)) == (3, 5)
    assert sizes(Conv1D(5, 3)) == (3, 5)


def test_a_head_without_one_last_layer_is_refused() -> None:
    """None, or two: which one would be the group's?"""

    class Network(nn.Module):
        base_model_prefix = "body"

        def __init__(self, *layers: nn.Module) -> None:
            super().__init__()
            self.body = nn.Linear(2, 1)
            self.classifier = nn.Sequential(*layers)

    last = nn.Linear(3, 1)
    assert last_linear(Network(nn.Linear(2, 3), last)) is last
    for layers in ((nn.Linear(2, 2),), (nn.Linear(2, 1), nn.Linear(1, 1))):
        with pytest.raises(UserError, match=rf"expected one linear layer .* of Network, found {2 * (len(layers) - 1)}"):
            last_linear(Network(*layers))


@pytest.mark.parametrize(
    ("options", "late"),
    [
        (SteeringOptions(head_rank=0), True),
        (SteeringOptions(head_rank=2), True),
        (SteeringOptions(embedding=True, head_rank=2), False),
        (SteeringOptions(adapter_rank=1, head_rank=0), False),
    ],
)
def test_only_heads_enter_after_the_features(options: SteeringOptions, late: bool) -> None:
    assert options.late is late
