"""The reward function for TRL: prompts and completions of both forms, each under the group of its row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_backbones import build_backbone
from tiny_models import SENTENCES, plain_tokenizer

from scpo.conditioning import write_steering
from scpo.errors import UserError
from scpo.model.reward import ModelOptions, load_model
from scpo.model.steering import SteeringOptions
from scpo.model.steering_files import describe, save_steering
from scpo.serve import RewardModel
from scpo.trl import reward_function

GROUPS = ["Chile", "Canada"]
PROMPTS = ["how old are trees", "is the lake cold"]
TEXTS = ["no one agrees", "cold in the morning"]


def make_model(folder: Path, *, default: bool = True, overlong: str = "truncate") -> RewardModel:
    """A tiny model with a random head for each of two groups."""
    options = ModelOptions(max_length=64)
    network, _ = load_model(build_backbone("bert", folder / "start"), options)
    network.add_steering(GROUPS, SteeringOptions(head_rank=0))
    assert network.steering is not None
    with torch.no_grad():
        for parameter in network.steering.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 3)
    config = {
        "conditioning": {"template": "{group}", "group_dropout": 0.1},
        "model": {"max_length": 64, "overlong": overlong, "dtype": "float32"},
        "trainer": {"precision": "32-true"},
    }
    scale = {"Chile": [0.5, 2.0], "Canada": [-1.0, 4.0]}
    network.save(folder / "model")
    save_steering(network, folder / "model")
    write_steering(folder / "model", config, GROUPS, "head", scale, describe(network), default)
    return RewardModel.from_pretrained(folder / "model")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> RewardModel:
    return make_model(tmp_path_factory.mktemp("steered"))


def chat(text: str, role: str = "assistant") -> list[dict[str, str]]:
    return [{"role": role, "content": text}]


def test_texts_and_messages_give_the_same_rewards_under_the_rows_groups(model: RewardModel) -> None:
    reward = reward_function(model)
    want = [float(model.score(p, [t], g)[0]) for p, t, g in zip(PROMPTS, TEXTS, GROUPS, strict=True)]
    found = reward(prompts=PROMPTS, completions=TEXTS, group=GROUPS, completion_ids=[[1], [2]], trainer_state=None)
    assert found == pytest.approx(want, abs=1e-5)
    assert all(type(value) is float for value in found)
    messages = [chat(p, "user") for p in PROMPTS]
    assert reward(prompts=messages, completions=[chat(t) for t in TEXTS], group=["CL", "CA"]) == pytest.approx(
        want, abs=1e-5
    )
    swapped = reward(prompts=PROMPTS, completions=TEXTS, group=GROUPS[::-1])
    assert np.abs(np.subtract(swapped, want)).min() > 0.1


def test_earlier_turns_are_the_history(model: RewardModel) -> None:
    before = [*chat("salt and olives", "user"), *chat("are enough")]
    found = reward_function(model)(
        prompts=[[*before, *chat(PROMPTS[0], "user")]], completions=[chat(TEXTS[0])], group=["Chile"]
    )
    assert found == pytest.approx(model.score(PROMPTS[0], TEXTS[:1], "Chile", history=before).tolist(), abs=1e-5)
    assert found != pytest.approx(model.score(PROMPTS[0], TEXTS[:1], "Chile").tolist(), abs=1e-3)


def test_a_column_may_hold_weights_lists_and_nulls(model: RewardModel) -> None:
    """A dataset stores weights as one struct, in which a row's missing groups are null."""
    from datasets import Dataset

    weights = Dataset.from_list([{"group": {"Chile": 1.0, "Canada": 3.0}}, {"group": {"Chile": 2.0}}])["group"]
    reward = reward_function(model, aggregate="min")
    found = reward(prompts=PROMPTS, completions=TEXTS, group=list(weights))
    assert found[0] == pytest.approx(
        float(model.score(PROMPTS[0], TEXTS[:1], {"Chile": 0.25, "Canada": 0.75})[0]), abs=1e-5
    )
    assert found[1] == pytest.approx(float(model.score(PROMPTS[1], TEXTS[1:], "Chile")[0]), abs=1e-5)
    found = reward(prompts=PROMPTS, completions=TEXTS, group=[GROUPS, None])
    least = model.score(PROMPTS[0], TEXTS[:1], GROUPS, aggregate="min")
    assert found == pytest.approx([float(least[0]), float(model.score(PROMPTS[1], TEXTS[1:])[0])], abs=1e-5)


def test_columns_and_name_may_be_chosen(model: RewardModel) -> None:
    reward = reward_function(model, group_column="country", prompt_column="question", name="steered")
    assert (reward.__name__, reward_function(model).__name__) == ("steered", "scpo")
    found = reward(prompts=["<s>x"] * 2, completions=TEXTS, country=GROUPS, question=PROMPTS)
    assert found == pytest.approx(reward_function(model)(prompts=PROMPTS, completions=TEXTS, group=GROUPS), abs=1e-6)
    none = reward_function(model, group_column=None)(prompts=PROMPTS, completions=TEXTS)
    assert none == pytest.approx(model.score_rows(PROMPTS, TEXTS).tolist(), abs=1e-6)


def refusal(model: RewardModel, *, call: dict[str, Any] | None = None, **options: Any) -> str:
    with pytest.raises(UserError) as error:
        reward_function(model, **options)(**{"prompts": PROMPTS, "completions": TEXTS, "group": GROUPS, **(call or {})})
    assert "\n" not in str(error.value)
    return str(error.value)


def test_mistakes_are_named(model: RewardModel) -> None:
    line = refusal(model, group_column="groups", call={"id": [1, 2], "completion_ids": [[1], [2]], "log_extra": print})
    assert "expected the column 'groups' in the dataset, found the columns group, id." in line
    assert "Did you mean 'group'?" in line
    assert "found the columns none" in refusal(model, prompt_column="q", call={"group": None})
    assert "column 'group': expected 2 entries, found 1" in refusal(model, call={"group": ["Chile"]})
    assert "row 1: groups: expected the name of a group" in refusal(model, call={"group": ["Chile", "Kenya"]})
    assert "row 1: group: expected aggregate=mean" in refusal(model, call={"group": ["Chile", GROUPS]})
    assert "aggregate: expected mean or min" in refusal(model, aggregate="max")
    asked = [chat("a", "user"), chat("b")]
    assert "row 1: column prompt: expected messages that end with the user's" in refusal(model, call={"prompts": asked})
    said = [chat("a"), chat("b", "tool")]
    assert "row 1: completion: expected messages that end with the assistant's, found the roles tool" in refusal(
        model, call={"completions": said}
    )
    assert "row 0: column completion: expected text or a list" in refusal(model, call={"completions": [3, "b"]})


def test_a_model_without_default_needs_every_rows_group(tmp_path: Path) -> None:
    model = make_model(tmp_path, default=False)
    line = refusal(model, call={"group": ["Chile", None]})
    assert "row 1: column 'group': expected a group, found null" in line
    assert "name one of Chile, Canada, or a mixture of known ones" in line
    with pytest.raises(UserError, match="group_column: expected the column"):
        reward_function(model, group_column=None)


def test_a_completion_without_a_reward_stops_the_training(tmp_path: Path) -> None:
    model = make_model(tmp_path, overlong="drop")
    line = refusal(model, call={"completions": [TEXTS[0], "salt " * 100]})
    assert line.startswith("row 1: expected a text of at most the reward model's length")
    assert "larger max_length" in line


def test_two_steps_of_grpo(model: RewardModel, tmp_path: Path) -> None:
    trl = pytest.importorskip("trl", reason="TRL is absent (pip install 'scpo[trl]')")
    from datasets import Dataset
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = plain_tokenizer()
    torch.manual_seed(0)
    policy = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=128,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    before = [parameter.detach().clone() for parameter in policy.parameters()]
    rows = [{"prompt": text, "group": GROUPS[i % 2], "id": i} for i, text in enumerate(SENTENCES[:4])]
    inner = reward_function(model, name="community")
    seen: list[tuple[list[str], list[str], list[str], list[int], list[float]]] = []

    def watched(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        rewards = inner(prompts=prompts, completions=completions, **columns)
        seen.append((prompts, completions, columns["group"], columns["id"], rewards))
        return rewards

    watched.__name__ = inner.__name__
    trainer = trl.GRPOTrainer(
        model=policy,
        processing_class=tokenizer,
        reward_funcs=[watched],
        train_dataset=Dataset.from_list(rows),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path / "grpo"),
            use_cpu=True,
            bf16=False,
            report_to="none",
            max_steps=2,
            per_device_train_batch_size=4,
            num_generations=2,
            max_completion_length=8,
            learning_rate=1e-2,
            logging_steps=1,
            save_strategy="no",
            disable_tqdm=True,
            seed=0,
        ),
    )
    trainer.train()
    assert len(seen) == 2
    for prompts, completions, groups, ids, rewards in seen:
        assert len(rewards) == 4
        assert groups == [GROUPS[i % 2] for i in ids]
        for prompt, completion, group, reward in zip(prompts, completions, groups, rewards, strict=True):
            assert reward == pytest.approx(float(model.score(prompt, [completion], group)[0]), abs=1e-4)
            other = GROUPS[1 - GROUPS.index(group)]
            assert reward != pytest.approx(float(model.score(prompt, [completion], other)[0]), abs=1e-2)
    logged = [
        entry["rewards/community/mean"] for entry in trainer.state.log_history if "rewards/community/mean" in entry
    ]
    assert logged == pytest.approx([np.mean(step[-1]) for step in seen], abs=1e-4)
    assert any(not torch.equal(old, new) for old, new in zip(before, policy.parameters(), strict=True))
