"""The check of a config: every wrong value named at once, in one line, before anything is loaded; and its hash."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from world import compose

from scpo.errors import UserError
from scpo.run.config import (
    NOT_HASHED,
    check_accelerator,
    check_evaluate_config,
    check_train_config,
    config_hash,
    number,
)

BAD = [
    ("selection.name", "foo"),
    ("selection.tau", 0),
    ("selection.tau", 1.2),
    ("selection.tau", "high"),
    ("selection.tau", math.nan),
    ("selection.beta", 0),
    ("selection.beta", -1.0),
    ("balance.name", "dro2"),
    ("balance.effective_beta", 1.0),
    ("conditioning.name", "tattoo"),
    ("conditioning.template", "no place for it"),
    ("conditioning.template", "{group} of {nation}"),
    ("conditioning.template", None),
    ("conditioning.group_dropout", 1),
    ("conditioning.group_dropout", -0.1),
    ("conditioning.group_dropout", "often"),
    ("conditioning.lr_scale", 0),
    ("conditioning.lr_scale", -1),
    ("conditioning.lr_scale", math.inf),
    ("conditioning.freeze", "yes"),
    ("conditioning.freeze", None),
    ("conditioning.embedding", 1),
    ("conditioning.adapter_alpha", 0),
    ("conditioning.adapter_targets", []),
    ("conditioning.adapter_targets", [1]),
    ("conditioning.adapter_targets", None),
    ("balance.eta", 0),
    ("balance.eta", "small"),
    ("balance.adjustment", -1),
    ("evaluation.steering_sample", -1),
    ("evaluation.steering_sample", 1.5),
    ("optim.lr", 0),
    ("optim.lr", -1e-4),
    ("optim.lr", math.nan),
    ("optim.lr", math.inf),
    ("optim.lr", "fast"),
    ("optim.lr", True),
    ("optim.weight_decay", -0.1),
    ("optim.betas", [0.9]),
    ("optim.betas", [0.9, 1.0]),
    ("optim.betas", [-0.1, 0.9]),
    ("optim.betas", ["high", 0.9]),
    ("optim.betas", 0.9),
    ("schedule.name", "linaer"),
    ("schedule.warmup", 1.5),
    ("loss.margin", -1),
    ("loss.centering", -0.01),
    ("batch.pairs", 0),
    ("batch.pairs", 2.5),
    ("batch.tokens", 0),
    ("batch.workers", -1),
    ("seed", -1),
    ("seed", 2**32),
    ("trainer.max_steps", -2),
    ("trainer.max_epochs", 1.5),
    ("trainer.gradient_clip_val", -1),
    ("trainer.accelerator", "abacus"),
    ("trainer.precision", "16-mixed"),
    ("trainer.precision", "foo"),
    ("trainer.precision", "bf16-true"),  # the head would be bfloat16 too
    ("trainer.max_steps", 0),
    ("trainer.max_epochs", 0),
    ("trainer.strategy", "foo"),
    ("trainer.devices", 0),
    ("trainer.devices", -2),
    ("trainer.devices", []),
    ("trainer.devices", [0, -1]),
    ("trainer.devices", ["first"]),
    ("trainer.devices", [0.5]),
    ("trainer.devices", True),
    ("trainer.devices", None),
    ("trainer.devices", "all"),
    ("trainer.devices", [0, 0]),
    ("trainer.strategy", "ddp_spawn"),
    ("trainer.val_check_interval", 0),
    ("trainer.threads", 0),
    ("trainer.log_every_n_steps", 0),
    ("callbacks.every_n_steps", 0),
    ("callbacks.monitor", "val/acuracy"),
    ("callbacks.patience", 3),  # without a monitor
    ("model.overlong", "wrap"),
    ("model.dtype", "float16"),
    ("model.max_length", 8),
    ("evaluation.split", "exam"),
    ("evaluation.min_clusters", 0),
    ("evaluation.min_pairs", 0),
    ("evaluation.resamples", 10),
    ("evaluation.tau", 0),
    ("evaluation.beta", 0),
    ("data.min_gap", -1),
    ("split.method", "coin"),
    ("split.val_fraction", 1.0),
    ("split.seed", -1),
    ("split.fractions", [0.8, 0.2]),
    ("split.fractions", [0.8, 0.1, "rest"]),
    ("split.fractions", [1.1, 0.1, 0.1]),
    ("split.fractions", None),
    ("groups.names", "Chile"),
    ("groups.names", []),
    ("groups.names", [1]),
]


@pytest.fixture(scope="module")
def default() -> dict[str, Any]:
    return compose()


def changed(config: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    result = copy.deepcopy(config)
    section, _, name = key.partition(".")
    if name:
        assert name in result[section]
        result[section][name] = value
    else:
        result[section] = value
    return result


@pytest.mark.parametrize(("key", "value"), BAD)
def test_each_wrong_value_is_named(default: dict[str, Any], key: str, value: Any) -> None:
    check_train_config(default)  # the rest of the config is right
    with pytest.raises(UserError) as error:
        check_train_config(changed(default, key, value))
    text = str(error.value)
    assert text.startswith(key), text
    assert ";" not in text, "one value is wrong and one is told"


@pytest.mark.parametrize(
    ("mode", "key", "value", "message"),
    [
        ("head", "head_rank", -1, "conditioning.head_rank: expected at least 0 and at most 4096, found -1"),
        ("head", "head_rank", 1.5, "conditioning.head_rank: expected a whole number, found 1.5"),
        ("head", "head_rank", True, "conditioning.head_rank: expected a whole number, found True"),
        ("head", "head_rank", None, "conditioning=head: expected what the mode is named for, found it switched off"),
        ("adapter", "adapter_rank", 0, "conditioning.adapter_rank: expected at least 1 and at most 4096, found 0"),
        ("adapter", "adapter_rank", None, "conditioning=adapter: expected what the mode is named for"),
        ("embedding", "embedding", False, "conditioning=embedding: expected what the mode is named for"),
        ("separate", "head_rank", 2, "conditioning=separate: learns nothing for each group; choose conditioning=head"),
        ("none", "embedding", True, "conditioning=none: learns nothing for each group; choose conditioning=embedding"),
        (
            "prefix",
            "adapter_rank",
            4,
            "conditioning=prefix: learns nothing for each group; choose conditioning=adapter",
        ),
        ("embedding", "group_dropout", 1.0, "conditioning.group_dropout: expected at least 0 and below 1, found 1.0"),
    ],
)
def test_what_a_mode_learns_must_fit_its_name(mode: str, key: str, value: Any, message: str) -> None:
    config = compose(f"conditioning={mode}")
    check_train_config(config)
    with pytest.raises(UserError) as error:
        check_train_config(changed(config, f"conditioning.{key}", value))
    assert str(error.value).startswith(message)
    assert ";" not in str(error.value).replace(message, "").replace("; choose another mode", "")


def test_modes_can_be_joined() -> None:
    """An embedding with a low-rank head and adapters, under either name."""
    more = ("conditioning.embedding=true", "conditioning.head_rank=8", "conditioning.adapter_rank=2")
    for mode in ("embedding", "head", "adapter"):
        check_train_config(compose(f"conditioning={mode}", *more))


def test_two_caps_absent_is_wrong(default: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"trainer.max_steps and trainer.max_epochs: .* found -1 in both"):
        check_train_config(changed(default, "trainer.max_steps", -1))
    check_train_config(changed(changed(default, "trainer.max_steps", -1), "trainer.max_epochs", 1))


def test_all_wrong_values_stand_in_one_line(default: dict[str, Any]) -> None:
    wrong = changed(default, "selection.tau", 0)
    for key, value in (("optim.lr", -1), ("batch.pairs", 0), ("evaluation.split", "exam"), ("groups.names", [])):
        wrong = changed(wrong, key, value)
    with pytest.raises(UserError) as error:
        check_train_config(wrong)
    text = str(error.value)
    for key in ("selection.tau", "optim.lr", "batch.pairs", "evaluation.split", "groups.names"):
        assert text.count(key) == 1, text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("key", "value"), [("selection.tau", 1.0), ("selection.tau", 1e-9), ("groups.names", None), ("data.min_gap", 0)]
)
def test_bounds_are_where_they_should_be(default: dict[str, Any], key: str, value: Any) -> None:
    check_train_config(changed(default, key, value))


def test_evaluation_needs_one_thing_to_measure() -> None:
    config = compose(name="evaluate")
    with pytest.raises(UserError, match=r"give run=RUN .* or model.name_or_path=ID_OR_PATH"):
        check_evaluate_config(config)
    with pytest.raises(UserError, match="not both"):
        check_evaluate_config(compose("run=a", "model.name_or_path=b", name="evaluate"))
    with pytest.raises(UserError, match=r"data.dir: expected the folder"):
        check_evaluate_config(compose("model.name_or_path=b", name="evaluate"))
    with pytest.raises(UserError, match=r"batch.tokens: .*; evaluation.resamples: "):
        check_evaluate_config(compose("run=a", "batch.tokens=0", "evaluation.resamples=1", name="evaluate"))
    check_evaluate_config(compose("run=a", name="evaluate"))


def leaves(config: dict[str, Any]) -> list[str]:
    """The dotted keys of all values, two levels deep."""
    return [f"{k}.{x}" for k, v in config.items() if isinstance(v, dict) for x in v] + [
        k for k, v in config.items() if not isinstance(v, dict)
    ]


def test_hash_is_of_what_decides_the_numbers(default: dict[str, Any]) -> None:
    """Every value of the config decides, but for where a run is written, who logs it, and how fast it is."""
    same = {**copy.deepcopy(default), "run_dir": "elsewhere", "cache_dir": "there", "fail_fast": True}
    same = changed(changed(same, "batch.workers", 3), "trainer.threads", 2)
    same = {**changed(same, "trainer.log_every_n_steps", 1), "logger": {"_target_": "other"}}
    assert config_hash(same) == config_hash(default)
    assert config_hash(dict(reversed(default.items()))) == config_hash(default)
    without = {key for key in leaves(default) if config_hash(changed(default, key, "other")) == config_hash(default)}
    assert without == {
        *(
            "run_dir",
            "cache_dir",
            "fail_fast",
            "batch.workers",
            "model.threads",
            "trainer.threads",
            "trainer.log_every_n_steps",
        ),
        *(key for key in leaves(default) if key.startswith("logger.")),
    }
    before = copy.deepcopy(default)
    config_hash(default)
    assert default == before, "the config itself is left as it is"


def test_a_config_that_will_be_refused_has_a_hash_too(default: dict[str, Any]) -> None:
    hashes = {config_hash(changed(default, "optim.lr", v)) for v in (math.nan, math.inf, -math.inf, 1.0)}
    assert len(hashes) == 4


@given(st.dictionaries(st.sampled_from(["a", "b", *NOT_HASHED]), st.integers() | st.text() | st.floats(), max_size=5))
def test_hash_ignores_order_and_places(config: dict[str, Any]) -> None:
    kept = {k: v for k, v in config.items() if k not in NOT_HASHED}
    assert config_hash(config) == config_hash(dict(sorted(kept.items(), reverse=True)))


@pytest.mark.parametrize("value", ["0.7", None, True, [1]])
def test_number_takes_numbers_only(value: Any) -> None:
    with pytest.raises(UserError, match="x: expected a number"):
        number("x", value)
    assert number("x", 1) == 1.0


@pytest.mark.parametrize(("accelerator", "devices"), [("cpu", [0]), ("cpu", -1)])
def test_a_cpu_has_processes_and_no_numbered_devices(accelerator: str, devices: Any) -> None:
    with pytest.raises(UserError, match="expected a number of processes on a CPU"):
        check_accelerator({"accelerator": accelerator, "devices": devices})
    check_accelerator({"accelerator": accelerator, "devices": 2})


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_an_accelerator_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match=r"trainer.accelerator=cuda: none on this machine"):
        check_accelerator({"accelerator": "cuda", "devices": 1})
