"""LoRA: adapters and head train, the rest is frozen; merging changes no reward and leaves the original alone."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_backbones import BACKBONES, PROMPTS, RESPONSES, build_backbone

from scpo.errors import UserError
from scpo.model.head import head_modules
from scpo.model.lora import add_lora, merged_copy
from scpo.model.reward import ModelOptions, RewardNetwork, load_model
from scpo.model.score import score_texts

pytest.importorskip("peft")

LORA: dict[str, Any] = {"rank": 2, "alpha": 4, "dropout": 0.0, "targets": "all-linear"}
OPTIONS = ModelOptions(max_length=64, lora=LORA)


@pytest.fixture(scope="module", params=list(BACKBONES))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder per kind."""
    return build_backbone(request.param, tmp_path_factory.mktemp("models") / request.param)


def trained(model: RewardNetwork, seed: int = 0) -> RewardNetwork:
    """All trainable weights moved, as by training."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.add_(torch.randn(p.shape, generator=generator) * 0.05)
    return model


def test_adapters_and_the_whole_head_train_and_nothing_else(folder: Path) -> None:
    """T5, 51: requires_grad of every weight; also of the head's layers before its last one."""
    model = load_model(folder, OPTIONS)[0]
    prefix = f"network.base_model.model.{model.classifier.base_model_prefix}."
    for name, p in model.named_parameters():
        in_head = not name.startswith(prefix)
        expected = "lora_" in name or (in_head and ".modules_to_save." in name)
        assert p.requires_grad is expected, name
        assert not (in_head and "lora_" in name), name
    plain = load_model(folder, ModelOptions(max_length=64))[0]
    in_head = [p for m in head_modules(plain.classifier).values() for p in m.parameters()]
    copies = [p for n, p in model.named_parameters() if ".modules_to_save." in n]
    assert len(in_head) == len(copies) > 0
    assert all(torch.equal(a, b) for a, b in zip(in_head, copies, strict=True))


def test_untrained_adapters_change_no_reward(folder: Path) -> None:
    """They start at zero."""
    plain = score_texts(load_model(folder, ModelOptions(max_length=64))[0], PROMPTS, RESPONSES)
    np.testing.assert_allclose(
        score_texts(load_model(folder, OPTIONS)[0], PROMPTS, RESPONSES), plain, rtol=1e-5, atol=1e-5
    )


def test_rewards_do_not_depend_on_the_batch(folder: Path) -> None:
    """10: also with adapters."""
    model = trained(load_model(folder, OPTIONS)[0])
    alone = np.concatenate([score_texts(model, [p], [r]) for p, r in zip(PROMPTS, RESPONSES, strict=True)])
    np.testing.assert_allclose(score_texts(model, PROMPTS, RESPONSES), alone, rtol=1e-5, atol=1e-5)


def test_the_saved_model_is_merged_and_the_original_untouched(folder: Path, tmp_path: Path) -> None:
    """T5, 47: a plain folder of equal rewards; the model that was saved can train on."""
    model = trained(load_model(folder, OPTIONS)[0])
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rewards = score_texts(model, PROMPTS, RESPONSES)
    model.save(tmp_path / "saved")
    np.testing.assert_array_equal(score_texts(model, PROMPTS, RESPONSES), rewards)
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    plain, notes = load_model(tmp_path / "saved", ModelOptions(max_length=64), require_head=True)
    assert notes == []
    np.testing.assert_allclose(score_texts(plain, PROMPTS, RESPONSES), rewards, rtol=1e-5, atol=1e-5)
    assert not list((tmp_path / "saved").glob("adapter_*"))


def test_merging_in_place_changes_no_reward(folder: Path) -> None:
    """What a finished training does; the head stays float32."""
    model = trained(load_model(folder, OPTIONS)[0])
    rewards = score_texts(model, PROMPTS, RESPONSES)
    model.merge()
    assert not hasattr(model.network, "peft_config")
    np.testing.assert_allclose(score_texts(model, PROMPTS, RESPONSES), rewards, rtol=1e-5, atol=1e-5)
    model.merge()
    np.testing.assert_allclose(score_texts(model, PROMPTS, RESPONSES), rewards, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["llama", "modernbert"])
def test_a_merged_bfloat16_model_scores_as_it_is_saved(kind: str, tmp_path: Path) -> None:
    """Merging rounds the weights to bfloat16: after it, the model and its folder agree to the last bit."""
    options = ModelOptions(max_length=64, dtype="bfloat16", lora=LORA)
    model = trained(load_model(build_backbone(kind, tmp_path / "m"), options)[0])
    adapters = {p.dtype for n, p in model.named_parameters() if "lora_" in n}
    assert adapters == {torch.float32}
    model.merge()
    rewards = score_texts(model, PROMPTS, RESPONSES)
    model.save(tmp_path / "saved")
    again = load_model(tmp_path / "saved", ModelOptions(max_length=64, dtype="bfloat16"), require_head=True)[0]
    np.testing.assert_array_equal(score_texts(again, PROMPTS, RESPONSES), rewards)


@pytest.mark.parametrize("kind", ["llama", "modernbert", "deberta"])
@pytest.mark.parametrize("merge", [False, True])
def test_a_copy_is_a_model_of_its_own(kind: str, merge: bool, tmp_path: Path) -> None:
    """A copied head must compute with its own weights, not with the original's."""
    model = load_model(build_backbone(kind, tmp_path / "m"), OPTIONS)[0]
    rewards = score_texts(model, PROMPTS, RESPONSES)
    other = copy.deepcopy(model)
    if merge:
        other.network = merged_copy(other.network)
    with torch.no_grad():
        for m in head_modules(other.classifier).values():
            for p in m.parameters():
                p.mul_(2).add_(0.1)
    assert abs(score_texts(other, PROMPTS, RESPONSES) - rewards).max() > 0.05
    np.testing.assert_array_equal(score_texts(model, PROMPTS, RESPONSES), rewards)


def test_adapters_follow_the_seed(tmp_path: Path) -> None:
    """And leave the global random numbers alone."""
    folder = build_backbone("llama", tmp_path / "m")
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    models = [load_model(folder, ModelOptions(max_length=64, lora=LORA, seed=seed))[0] for seed in (0, 0, 1)]
    assert torch.equal(torch.rand(3), expected)
    first, second, other = ({n: p for n, p in m.named_parameters() if "lora_A" in n} for m in models)
    assert all(torch.equal(first[n], second[n]) for n in first)
    assert not any(torch.equal(first[n], other[n]) for n in first)


def test_named_targets(tmp_path: Path) -> None:
    """Only these modules get adapters."""
    lora = {**LORA, "targets": ["q_proj", "v_proj"]}
    model = load_model(build_backbone("llama", tmp_path / "m"), ModelOptions(max_length=64, lora=lora))[0]
    names = {n.split(".")[-4] for n, _ in model.named_parameters() if "lora_A" in n}
    assert names == {"q_proj", "v_proj"}


@pytest.mark.parametrize(
    ("lora", "message"),
    [
        ({**LORA, "targets": ["q_proj", "vproj"]}, "no module of the backbone is named 'vproj'. Did you mean 'v_proj'"),
        ({**LORA, "rnak": 4}, "expected rank, alpha, dropout, targets; found 'rnak'"),
        ({**LORA, "rank": 0}, "model.lora"),
        ({**LORA, "targets": ["score"]}, "no module of the backbone is named 'score'"),
        ({**LORA, "targets": "nosuch"}, "model.lora"),
        ({"rank": 4}, "model.lora: expected rank, alpha and targets, found no alpha"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, lora: dict[str, Any], message: str) -> None:
    """In one line."""
    folder = build_backbone("llama", tmp_path / "m")
    with pytest.raises(UserError) as caught:
        load_model(folder, ModelOptions(max_length=64, lora=lora))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_settings_are_not_changed(tmp_path: Path) -> None:
    """They are the config's."""
    settings = copy.deepcopy(LORA)
    network = load_model(build_backbone("llama", tmp_path / "m"), ModelOptions(max_length=64))[0].network
    add_lora(network, settings, 0)
    assert settings == LORA
