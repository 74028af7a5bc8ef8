"""A steered network on every kind of backbone: where it starts, what a group changes, what does not, and folding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from steered import GROUPS, MODES, PLAIN, move, rewards, steered, steered_pairs, steering_of
from tiny_backbones import BACKBONES, PROMPTS, RESPONSES, build_backbone

from scpo.data.batching import collate
from scpo.errors import UserError
from scpo.model.reward import ModelOptions, load_model
from scpo.model.score import score_encoded, score_texts
from scpo.model.steering import SteeringOptions

MIXED = [0, -1, 2, 1, 0]


@pytest.fixture(scope="module", params=list(BACKBONES))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder per kind."""
    return build_backbone(request.param, tmp_path_factory.mktemp("models") / request.param)


def alike(found: np.ndarray, expected: np.ndarray, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("mode", MODES)
def test_training_starts_exactly_at_the_starting_model(folder: Path, mode: str) -> None:
    """Under every group, and without one."""
    plain = rewards(load_model(folder, PLAIN)[0], None)
    model = steered(folder, mode, moved=False)
    for row in (None, -1, 0, 1, 2, MIXED):
        np.testing.assert_allclose(rewards(model, row), plain, rtol=0, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_only_a_texts_own_group_changes_its_reward(folder: Path, mode: str) -> None:
    """No group: the starting model's reward. A mixed batch gives each text what a batch of its group gives it."""
    plain = rewards(load_model(folder, PLAIN)[0], None)
    model = steered(folder, mode)
    by_group = {row: rewards(model, row) for row in (0, 1, 2)}
    for row in (-1, None):
        by_none = rewards(model, row)
        np.testing.assert_allclose(by_none, plain, rtol=0, atol=1e-6)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert np.abs(by_group[a] - by_group[b]).max() > 1e-3
        assert np.abs(by_group[a] - plain).max() > 1e-3
    expected = [(by_group[row] if row >= 0 else plain)[i] for i, row in enumerate(MIXED)]
    alike(rewards(model, MIXED), np.array(expected))
    # The same texts under every group in one batch: whatever is encoded once, each group's reward is its own.
    repeated = model.formatter.encode(PROMPTS * 3, RESPONSES * 3)
    found = score_encoded(model, repeated, group=np.repeat([0, 1, 2], len(PROMPTS)))
    alike(found, np.concatenate([by_group[row] for row in range(3)]))


@pytest.mark.parametrize("mode", MODES)
def test_neither_padding_nor_batch_nor_company_changes_a_steered_reward(folder: Path, mode: str) -> None:
    """10, 11, 12: each text alone and unpadded; all in one batch; a batch that is padded further than any text."""
    model = steered(folder, mode)
    alone = rewards(model, MIXED, tokens=1)
    alike(rewards(model, MIXED), alone)
    encoded = model.formatter.encode(["x", "is the lake cold"], ["yes", "no"])
    batch = collate(encoded, np.array([0, 1]), model.pad_id, np.array([1, 2]))
    padded = {k: v if v.ndim == 1 else torch.nn.functional.pad(v, (0, 7)) for k, v in batch.items()}
    padded["input_ids"][:, -7:] = model.pad_id
    with torch.inference_mode():
        alike(model(**padded).numpy(), model(**batch).numpy())


@pytest.mark.parametrize("mode", MODES)
def test_a_folded_group_needs_no_hook(folder: Path, mode: str) -> None:
    """The plain classifier gives the steered rewards: Conv1D, scaled embeddings, poolers and all."""
    model = steered(folder, mode)
    for row, group in enumerate(GROUPS):
        plain = load_model(folder, PLAIN)[0]
        steering_of(model).fold(plain.network, group)
        alike(rewards(plain, None), rewards(model, row))


def test_the_gradient_of_a_mixed_batch_is_the_sum_over_its_groups(folder: Path) -> None:
    """So is that of the network, and a group that is absent gets zeros, not None (for DDP)."""
    model = steered(folder, "all")
    train = steered_pairs(model, comparisons=6)
    assert train.steer is not None
    comparisons = train.grouped()

    def gradient(chunk: list[int]) -> dict[str, torch.Tensor]:
        model.zero_grad()
        batch = train.chunk(np.array(chunk), comparisons, model.pad_id)
        out = model(**batch["inputs"])
        ((out[batch["chosen"]] - out[batch["rejected"]]) * batch["weight"]).sum().backward()
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    mixed = gradient([0, 1, 2, 3, 4, 5])
    parts = [gradient([row, row + 3]) for row in range(3)]
    of_groups = {f"steering.{name}" for name in steering_of(model).per_group()}
    assert of_groups < set(mixed)
    # Only differences are trained: a last bias has no gradient but rounding.
    scale = max(float(g.abs().max()) for g in mixed.values())
    for name, found in mixed.items():
        expected = sum(part[name] for part in parts)
        assert float((found - expected).abs().max()) < 1e-5 * scale, name
    for name in of_groups:
        for row, part in enumerate(parts):
            others = [r for r in range(3) if r != row]
            assert float(part[name][row].abs().max()) > 0, name
            assert not part[name][others].any(), name


def test_a_group_that_the_model_does_not_know(tmp_path: Path) -> None:
    """In one line, with the nearest name."""
    model = steered(build_backbone("llama", tmp_path / "m"), "embedding")
    with pytest.raises(
        UserError, match=r"does not know the group 'Chlie'; it knows Chile, Israel.* Did you mean 'Chile'"
    ):
        steering_of(model).row("Chlie")
    with pytest.raises(UserError, match=r"found 'Chlie'.* Did you mean 'Chile'"):
        score_texts(model, ["a"], ["b"], None, ["Chlie"])


def test_deberta_adapts_what_reads_one_row_per_text(tmp_path: Path) -> None:
    """Its query and key layers also project the relative positions, once for all texts, whatever their groups."""
    folder = build_backbone("deberta", tmp_path / "m")
    found = {name.rpartition(".")[2] for name in steering_of(steered(folder, "adapter")).adapted.values()}
    assert found == {"value_proj", "dense"}
    model = load_model(folder, PLAIN)[0]
    with pytest.raises(UserError, match=r"'query_proj' of DebertaV2\w+ also reads .*; choose among dense, value_proj"):
        model.add_steering(GROUPS, SteeringOptions(adapter_rank=2, adapter_targets=("value_proj", "query_proj")))
    # With position layers of their own, query and key see texts alone.
    other = build_backbone("deberta", tmp_path / "other", share_att_key=False)
    found = {name.rpartition(".")[2] for name in steering_of(steered(other, "adapter")).adapted.values()}
    assert found == {"query_proj", "key_proj", "value_proj", "dense"}


@pytest.mark.parametrize("kind", ["llama", "bert", "gpt2"])
def test_looking_for_the_targets_leaves_the_network_as_it_was(tmp_path: Path, kind: str) -> None:
    """No hook, mode, gradient or random number is left behind; a module that trains stays in training."""
    model = load_model(build_backbone(kind, tmp_path / "m"), PLAIN)[0].train()
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    model.add_steering(GROUPS, MODES["adapter"])
    assert torch.equal(torch.rand(2), expected)
    assert all(m.training for m in model.network.modules())
    assert not any(m._forward_pre_hooks for m in model.network.modules())
    assert all(p.grad is None for p in model.parameters())


def test_targets_by_name(tmp_path: Path) -> None:
    """Only these; one that is misspelled is named with the nearest."""
    folder = build_backbone("llama", tmp_path / "m")
    model = load_model(folder, PLAIN)[0]
    model.add_steering(GROUPS, SteeringOptions(adapter_rank=2, adapter_targets=("q_proj", "down_proj")))
    assert {name.rpartition(".")[2] for name in steering_of(model).adapted.values()} == {"q_proj", "down_proj"}
    assert len(steering_of(model).adapted) == 4
    one = load_model(folder, PLAIN)[0]
    one.add_steering(GROUPS, SteeringOptions(adapter_rank=2, adapter_targets="v_proj"))
    assert len(steering_of(one).adapted) == 2
    for targets in (("q_proj", "vproj"), "vproj"):
        with pytest.raises(UserError, match=r"adapter_targets: no linear .* is named 'vproj'\. Did you mean 'v_proj'"):
            load_model(folder, PLAIN)[0].add_steering(GROUPS, SteeringOptions(adapter_rank=2, adapter_targets=targets))
    with pytest.raises(UserError, match="is named 'score'"):  # the head is no part of the backbone
        load_model(folder, PLAIN)[0].add_steering(GROUPS, SteeringOptions(adapter_rank=2, adapter_targets="score"))


@pytest.mark.parametrize("mode", MODES)
def test_what_is_learned_starts_from_its_seed_alone(tmp_path: Path, mode: str) -> None:
    """And the global random numbers are left alone."""
    folder = build_backbone("llama", tmp_path / "m")
    torch.manual_seed(1)
    first = steering_of(steered(folder, mode, moved=False)).state_dict()
    torch.manual_seed(2)
    expected = torch.rand(1)
    torch.manual_seed(2)
    second = steering_of(steered(folder, mode, moved=False)).state_dict()
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["llama", "modernbert", "deberta"])
def test_a_backbone_in_bfloat16(tmp_path: Path, kind: str, mode: str) -> None:
    """What is learned stays float32, a head's own part is exact, and rewards are float32 of bfloat16's precision."""
    folder = build_backbone(kind, tmp_path / "m")
    model = steered(folder, mode, ModelOptions(max_length=64, dtype="bfloat16"))
    assert {p.dtype for p in steering_of(model).parameters()} == {torch.float32}
    plain = rewards(load_model(folder, ModelOptions(max_length=64, dtype="bfloat16"))[0], None)
    np.testing.assert_array_equal(rewards(model, -1), plain)
    own = [rewards(model, row) for row in range(3)]
    assert all(r.dtype == np.float32 and np.abs(r - plain).max() > 1e-3 for r in own)


def test_a_row_is_taken_over_from_another_steering(tmp_path: Path) -> None:
    """One group's weights and what the groups share; without a group the new row begins at no change."""
    folder = build_backbone("llama", tmp_path / "m")
    old, new = steered(folder, "all"), load_model(folder, PLAIN)[0]
    new.add_steering(["Kenya"], MODES["all"])
    steering_of(new).copy_row(steering_of(old), "Israel")
    alike(rewards(new, 0), rewards(old, 1))
    fresh = load_model(folder, PLAIN)[0]
    fresh.add_steering(["Kenya"], MODES["all"])
    steering_of(fresh).copy_row(steering_of(old), None)
    alike(rewards(fresh, 0), rewards(old, -1))
    heads, theirs = steering_of(fresh).heads, steering_of(old).heads
    assert heads is not None
    assert theirs is not None
    assert heads.basis is not None
    assert theirs.basis is not None
    assert torch.equal(heads.basis, theirs.basis)


def test_detached_steering_leaves_the_network_alone(tmp_path: Path) -> None:
    """And what moves afterwards moves nothing."""
    folder = build_backbone("llama", tmp_path / "m")
    model = steered(folder, "all")
    plain = rewards(model, -1)
    steering_of(model).detach()
    move(steering_of(model), seed=9)
    np.testing.assert_array_equal(rewards(model, 1), plain)
