"""Training one part: overfitting, resuming after a kill, the best weights, early stopping, what a checkpoint holds."""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
from tiny_backbones import build_backbone, make_pair_set

from scpo.cli.hydra_app import conf_dir
from scpo.data.datamodule import PairSet
from scpo.errors import UserError
from scpo.lit import RewardModule
from scpo.model.reward import ModelOptions, RewardNetwork, load_model
from scpo.model.score import score_encoded
from scpo.run.fit import fit_part, make_schedule

STEPS = 12
GROUPS = ["Chile", "Israel"]


def compose(*overrides: str) -> dict[str, Any]:
    """The config of `scpo train` with these overrides, as plain values."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("scpo_sweep_dir", lambda run_dir, name: "unused", replace=True)
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        plain: Any = OmegaConf.to_container(compose("train", overrides=list(overrides)), resolve=True)
    return plain


def settings(**callbacks: Any) -> dict[str, Any]:
    """A short training: 12 steps of at least 4 pairs, a checkpoint after 5, a validation every 4."""
    config = compose(
        f"trainer.max_steps={STEPS}",
        "trainer.val_check_interval=4",
        "trainer.log_every_n_steps=1",
        "batch.pairs=4",
        "batch.tokens=90",
        "optim.lr=0.003",
        "callbacks.every_n_steps=5",
    )
    config["callbacks"].update(callbacks)
    return config


class StopAfter(L.Callback):
    """Raises after an optimiser step, as a kill would come."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        """Count and raise."""
        if trainer.global_step == self.step:
            raise RuntimeError("killed")


class StopInValidation(L.Callback):
    """Raises when the validation after a step begins."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        """Raise at that step."""
        if trainer.global_step == self.step:
            raise RuntimeError("killed")


class Validations(L.Callback):
    """Notes the step and the metrics of every validation into a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        """Append one line."""
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(f"{trainer.global_step} {float(trainer.callback_metrics['val/accuracy']):.6f}\n")


def extra(**callbacks: Any) -> dict[str, Any]:
    """Callbacks of this module for `callbacks.extra`."""
    return {name: {"_target_": f"{__name__}.{name}", **kwargs} for name, kwargs in callbacks.items()}


def start(tmp_path: Path, **options: Any) -> RewardNetwork:
    """A fresh tiny model; always the same."""
    folder = tmp_path / "start"
    if not folder.exists():
        build_backbone("modernbert", folder, classifier_dropout=0.1, mlp_dropout=0.1)
    return load_model(folder, ModelOptions(max_length=64, **options))[0]


def sets(model: RewardNetwork) -> tuple[PairSet, PairSet]:
    """17 comparisons to train on (the epochs end after 11 steps or so), 6 to validate on."""
    return make_pair_set(model, comparisons=17), make_pair_set(model, comparisons=6, seed=1)


def fit(
    config: dict[str, Any], tmp_path: Path, folder: str, *, options: Any = None, data: Any = None
) -> tuple[RewardNetwork, Any]:
    """Train the tiny model in a folder."""
    model = start(tmp_path, **(options or {}))
    train, val = data(model) if data else sets(model)
    result = fit_part(config, model, GROUPS, train, val, tmp_path / folder, "part")
    return model, result


def weights(model: RewardNetwork) -> dict[str, torch.Tensor]:
    """A copy of all weights."""
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Equal to the last bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    ("every", "kill", "monitor", "interval"),
    [
        (5, 7, None, 4),  # saved inside the first epoch, which has 11 steps
        (5, 7, "val/loss", 4),
        (5, 12, "val/accuracy", 4),
        (4, 6, "val/loss", 4),  # saved where a validation stands
        (11, 12, "val/loss", 4),  # saved between two epochs
        (11, 12, "val/loss", None),  # and with the validation there
        (5, 11, None, None),
        (4, -8, "val/loss", 4),  # killed inside the validation after step 8
    ],
)
def test_a_killed_training_goes_on_to_the_same_weights(
    tmp_path: Path, every: int, kill: int, monitor: str | None, interval: int | None
) -> None:
    """Order, optimiser, schedule, dropout, validations and the best weights go on as if nothing had happened."""

    def config(name: str, **more: Any) -> dict[str, Any]:
        callbacks = extra(Validations={"path": str(tmp_path / f"{name}.txt")}, **more)
        made = settings(monitor=monitor, every_n_steps=every, extra=callbacks)
        made["trainer"].update(val_check_interval=interval, max_steps=14)
        return made

    whole, expected = fit(config("whole"), tmp_path, "whole")
    with pytest.raises(RuntimeError, match="killed"):
        fit(config("cut", **{"StopAfter" if kill > 0 else "StopInValidation": {"step": abs(kill)}}), tmp_path, "cut")
    assert (tmp_path / "cut" / "checkpoints" / "part" / "last.ckpt").is_file()
    resumed, found = fit(config("cut"), tmp_path, "cut")
    assert same(weights(resumed), weights(whole))
    assert {k: v for k, v in found.items() if k != "seconds"} == {k: v for k, v in expected.items() if k != "seconds"}
    # A validation may be run again after the kill, but none is left out and none gives another number.
    lines = {n: (tmp_path / f"{n}.txt").read_text(encoding="utf-8").splitlines() for n in ("whole", "cut")}
    assert set(lines["cut"]) == set(lines["whole"])
    assert [line.split()[0] for line in lines["whole"]] == (["4", "8", "12"] if interval else ["11"])


def test_thirty_steps_on_four_pairs_rank_them_all_right(tmp_path: Path) -> None:
    """The sanity check of any training loop."""

    def few(model: RewardNetwork) -> tuple[PairSet, PairSet]:
        train = make_pair_set(model, comparisons=3, seed=5)
        first = np.arange(4)
        return replace(train, pairs=train.pairs[first], weight=train.weight[:4], group=train.group[:4]), sets(model)[1]

    config = settings()
    config["trainer"].update(max_steps=30)
    model, _ = fit(config, tmp_path, "run", data=few)
    train = few(model)[0]
    rewards = score_encoded(model, train.encoded)
    assert len(train.pairs) == 4
    assert (rewards[train.pairs.chosen] > rewards[train.pairs.rejected]).all()


def test_the_same_seed_gives_the_same_weights_and_another_does_not(tmp_path: Path) -> None:
    """Order and dropout follow the seed alone."""
    first, second, other = settings(), settings(), {**settings(), "seed": 1}
    for config in (first, second, other):
        config["trainer"].update(max_steps=3)
    a, b, c = (weights(fit(cfg, tmp_path, f"run{i}")[0]) for i, cfg in enumerate((first, second, other)))
    assert same(a, b)
    assert not same(a, c)


def test_a_checkpoint_holds_plain_values_and_only_trained_weights(tmp_path: Path) -> None:
    """T7: it loads with weights_only=True; frozen weights of a LoRA training are left out."""
    pytest.importorskip("peft")
    lora = {"rank": 2, "alpha": 4, "dropout": 0.0, "targets": "all-linear"}
    model, result = fit(settings(every_n_steps=4), tmp_path, "run", options={"lora": lora})
    path = tmp_path / "run" / "checkpoints" / "part" / "last.ckpt"
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    assert checkpoint["global_step"] == STEPS == result["steps"]
    names = set(checkpoint["state_dict"])
    assert names
    assert all("lora_" in n or "modules_to_save" in n for n in names)
    assert checkpoint["scpo"]["pairs_seen"] == result["pairs"] > 0
    assert not list(path.parent.glob("*.tmp"))
    # The trained adapters end inside the plain weights.
    assert not hasattr(model.network, "peft_config")
    fresh = start(tmp_path)
    name = "network.model.layers.0.attn.Wqkv.weight"
    assert not torch.equal(model.state_dict()[name], fresh.state_dict()[name])


def test_a_lora_training_resumes_to_the_same_weights(tmp_path: Path) -> None:
    """A checkpoint without the frozen weights is enough."""
    pytest.importorskip("peft")
    options = {"lora": {"rank": 2, "alpha": 4, "dropout": 0.1, "targets": "all-linear"}}
    whole, expected = fit(settings(), tmp_path, "whole", options=options)
    with pytest.raises(RuntimeError, match="killed"):
        fit(settings(extra=extra(StopAfter={"step": 7})), tmp_path, "cut", options=options)
    resumed, found = fit(settings(), tmp_path, "cut", options=options)
    assert same(weights(resumed), weights(whole))
    assert found["pairs"] == expected["pairs"]


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    """It lacks weights that would be trained, and says which."""
    fit(settings(every_n_steps=4), tmp_path, "run")
    path = tmp_path / "run" / "checkpoints" / "part" / "last.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    lost = next(iter(checkpoint["state_dict"]))
    del checkpoint["state_dict"][lost]
    torch.save(checkpoint, path)
    with pytest.raises(UserError, match=f"lacks 1 trained weights \\(such as {re.escape(lost)}\\)"):
        fit(settings(), tmp_path, "run")


def test_the_best_weights_are_restored(tmp_path: Path) -> None:
    """A learning rate of 3 ruins the model after the first validation; the weights of that validation come back."""
    config = settings(monitor="val/loss")
    config["trainer"].update(val_check_interval=1, max_steps=6, gradient_clip_val=0.0)
    config["schedule"]["name"] = "constant"
    config["optim"]["factory"]["lr"] = 3.0
    model, result = fit(config, tmp_path, "run")
    assert result["steps"] == 6
    assert 1 <= result["best_step"] < 6
    config["trainer"].update(max_steps=result["best_step"])
    assert same(weights(model), weights(fit(config, tmp_path, "short")[0]))


def test_training_stops_early(tmp_path: Path) -> None:
    """With a step of 0 no validation is better than the first; patience 2 ends training at the third."""
    config = settings(monitor="val/loss", patience=2)
    config["trainer"].update(val_check_interval=1)
    config["optim"]["factory"]["lr"] = 0.0
    model, result = fit(config, tmp_path, "run")
    assert (result["steps"], result["best_step"]) == (3, 1)
    assert same(weights(model), weights(start(tmp_path)))


def test_a_training_shorter_than_the_interval_is_still_validated(tmp_path: Path) -> None:
    """Else the monitor would have nothing to choose from, and nobody would know."""
    config = settings(monitor="val/accuracy")
    config["trainer"].update(val_check_interval=250, max_steps=3)
    assert fit(config, tmp_path, "run")[1]["best_step"] == 3


def test_a_monitor_needs_validation_pairs(tmp_path: Path) -> None:
    """Said before training, with the key."""
    with pytest.raises(UserError, match=r"callbacks\.monitor=val/loss: needs validation pairs"):
        fit(settings(monitor="val/loss"), tmp_path, "run", data=lambda model: (sets(model)[0], None))


def test_an_unknown_schedule_is_named() -> None:
    """With its key."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    with pytest.raises(UserError, match=r"schedule\.name: .*'linaer'"):
        make_schedule(optimizer, 10, name="linaer", warmup=0.0)


def test_the_schedule_falls_to_zero_over_all_steps() -> None:
    """Linear, with a warm-up of a fifth: 0, 1/2, 1, then down to 0 at the last step."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = make_schedule(optimizer, 10, name="linear", warmup=0.2)
    rates = []
    for _ in range(11):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([0, 0.5, *(1 - i / 8 for i in range(9))])


class Interrupt(L.Callback):
    """Ctrl-C after the first step."""

    def on_train_batch_end(self, *args: Any) -> None:
        """Raise as the signal's handler would."""
        raise KeyboardInterrupt


def test_ctrl_c_stays_an_interrupt_and_the_next_one_still_works(tmp_path: Path) -> None:
    """Lightning would exit with 1 and ignore the signal from then on."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        fit(settings(extra=extra(Interrupt={})), tmp_path, "run")
    assert signal.getsignal(signal.SIGINT) is before


def test_epochs_bound_a_training(tmp_path: Path) -> None:
    """One epoch of 11 steps sees every pair once."""
    config = settings()
    config["trainer"].update(max_steps=-1, max_epochs=1)
    _, result = fit(config, tmp_path, "run")
    assert result["steps"] == 11
    assert result["pairs"] == len(sets(start(tmp_path))[0].pairs)
    assert result["candidates_encoded"] == 52


def test_the_counts_are_added_up_before_the_module_leaves_its_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the training Lightning moves the module to the CPU, and processes on GPUs could not add up any more."""
    end = RewardModule.on_train_end

    def leave(module: RewardModule) -> None:
        end(module)
        assert module.totals == (len(train.pairs), 52)
        module.pairs_seen = module.candidates_encoded = -1

        def counts() -> tuple[int, int]:
            raise AssertionError("counted after the end")

        module.counts = counts  # type: ignore[method-assign]

    train = sets(start(tmp_path))[0]
    config = settings()
    config["trainer"].update(max_steps=-1, max_epochs=1)
    monkeypatch.setattr(RewardModule, "on_train_end", leave)
    _, result = fit(config, tmp_path, "run")
    assert (result["pairs"], result["candidates_encoded"]) == (len(train.pairs), 52)


def test_a_training_that_was_at_its_end_keeps_its_counts(tmp_path: Path) -> None:
    """Killed after the last checkpoint, before the results were written: nothing is left to train."""
    _, first = fit(settings(every_n_steps=4), tmp_path, "run")
    _, again = fit(settings(every_n_steps=4), tmp_path, "run")
    assert first["steps"] == again["steps"] == STEPS
    for key in ("pairs", "candidates_encoded"):
        assert again[key] == first[key] > 0
