"""The LightningModule: what a step's loss and gradient are, what is validated, what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
from tiny_backbones import build_backbone, make_pair_set
from torch import Tensor

from scpo.data.batching import collate
from scpo.data.datamodule import PairSet, PreferenceData
from scpo.errors import UserError
from scpo.lit import RewardModule, step_seed
from scpo.model.reward import ModelOptions, RewardNetwork, load_model
from scpo.model.score import score_encoded

GROUPS = ["Chile", "Israel", "Canada"]


class Recorder(torch.optim.SGD):
    """Keeps the gradients of every step and changes nothing."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(list(parameters), lr=0.0)
        self.seen: list[Tensor] = []

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Note the gradients as one vector."""
        if closure is not None:
            closure()
        self.seen.append(flat([p.grad for group in self.param_groups for p in group["params"]]))


def flat(tensors: list[Any]) -> Tensor:
    """One vector; a gradient that is None counts as absent."""
    return torch.cat([t.detach().flatten().clone() for t in tensors if t is not None])


def constant(optimizer: torch.optim.Optimizer, total: int) -> Any:
    """A schedule without change."""
    return torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder without dropout."""
    return build_backbone("bert", tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture
def model(folder: Path) -> RewardNetwork:
    """A fresh copy of it."""
    return load_model(folder, ModelOptions(max_length=64))[0]


def module_of(model: RewardNetwork, optimizer: Any, **settings: Any) -> RewardModule:
    """A module with sensible settings."""
    defaults = {"schedule": constant, "pairs_per_step": 4.0, "total_steps": 3}
    return RewardModule(model, GROUPS, optimizer=optimizer, **{**defaults, **settings})


def run(
    model: RewardNetwork,
    train: PairSet,
    val: PairSet | None = None,
    *,
    steps: int = 1,
    tokens: int = 8192,
    pairs: int = 4,
    callbacks: Any = (),
    **settings: Any,
) -> tuple[RewardModule, Recorder, L.Trainer]:
    """Some steps under Lightning's trainer, with the recording optimiser."""
    recorders: list[Recorder] = []

    def optimizer(parameters: Any) -> Recorder:
        recorders.append(Recorder(parameters))
        return recorders[-1]

    data = PreferenceData(train, val, pad_id=model.pad_id, pairs_per_step=pairs, batch_tokens=tokens)
    module = module_of(model, optimizer, **{"pairs_per_step": data.mean_pairs_per_step(), **settings})
    trainer = trainer_of(steps, list(callbacks), val is not None)
    model.train()
    trainer.fit(module, datamodule=data)
    return module, recorders[0], trainer


def trainer_of(steps: int, callbacks: list[Any], validate: bool) -> L.Trainer:
    """A silent trainer."""
    return L.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        reload_dataloaders_every_n_epochs=1,
        limit_val_batches=None if validate else 0,
        val_check_interval=steps if validate else None,
        check_val_every_n_epoch=None if validate else 1,
        callbacks=callbacks,
    )


def one_by_one(
    model: RewardNetwork,
    train: PairSet,
    positions: list[int],
    divisor: float,
    *,
    margin: float = 0.0,
    centering: float = 0.0,
) -> tuple[float, Tensor]:
    """Loss and gradient of pairs that are encoded and differentiated one after another, by the formula."""
    model.zero_grad()
    total = 0.0
    for i in positions:
        plus, minus = (
            model(**collate(train.encoded, np.array([row]), model.pad_id))[0]
            for row in (train.pairs.chosen[i], train.pairs.rejected[i])
        )
        distance = plus - minus - margin * float(train.pairs.gap[i])
        loss = torch.log1p(torch.exp(-distance)) + centering * (plus + minus) ** 2
        loss = loss * float(np.float32(train.weight[i])) / divisor
        loss.backward()
        total += float(loss.detach())
    return total, flat([p.grad for p in model.parameters()])


def pairs_of_first_step(train: PairSet, pairs_per_step: int) -> list[int]:
    """Positions of the pairs in the first planned step."""
    data = PreferenceData(train, None, pad_id=0, pairs_per_step=pairs_per_step)
    comparisons = train.grouped()
    return [int(i) for c in data.steps_of_epoch(0)[0] for i in comparisons.pairs[c]]


@pytest.mark.parametrize("settings", [{}, {"margin": 0.02}, {"centering": 0.1}, {"margin": 0.01, "centering": 0.05}])
def test_a_step_is_the_weighted_sum_of_its_pairs_however_it_is_cut(
    folder: Path, model: RewardNetwork, settings: dict[str, float]
) -> None:
    """All in one forward pass, or one comparison at a time: the gradient of the pairs encoded one by one."""
    train = make_pair_set(model, comparisons=12)
    positions = pairs_of_first_step(train, 10)
    assert len(positions) >= 10
    loss, expected = one_by_one(model, train, positions, 7.5, **settings)
    model.zero_grad()
    for tokens in (8192, 90, 1):
        fresh = load_model(folder, ModelOptions(max_length=64))[0]
        module, recorder, trainer = run(fresh, train, tokens=tokens, pairs=10, pairs_per_step=7.5, **settings)
        assert float((recorder.seen[0] - expected).norm() / expected.norm()) < 1e-5
        assert float(trainer.callback_metrics["train/loss"]) == pytest.approx(loss, rel=1e-5)
        assert module.pairs_seen == len(positions)


class Constant(RewardNetwork):
    """A model whose rewards are set by hand; they do depend on a parameter."""

    def __init__(self, like: RewardNetwork, rewards: list[float]) -> None:
        super().__init__(like.network, like.formatter)
        self.rewards = torch.nn.Parameter(torch.tensor(rewards))

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """The reward at the position that the first token id names."""
        return self.rewards[input_ids[:, 0]]


def by_hand(model: RewardNetwork, pairs: list[tuple[float, float]], weight: list[float]) -> tuple[Constant, PairSet]:
    """Comparisons of two candidates with these rewards, chosen first; the text of candidate i is the token i."""
    from scpo.data.encode import Encoded
    from scpo.data.pairs import Pairs

    n = 2 * len(pairs)
    even = np.arange(0, n, 2)
    encoded = Encoded(
        np.arange(n, dtype=np.int32),
        None,
        np.arange(n + 1, dtype=np.int64),
        np.zeros(n, dtype=bool),
        np.zeros(n, dtype=bool),
    )
    train = PairSet(
        encoded,
        np.array([f"c{i}" for i in range(n)], dtype=object),
        np.arange(n, dtype=np.int64) // 2,
        Pairs(even, even + 1, np.full(len(pairs), 10.0)),
        np.array(weight),
        np.arange(len(pairs), dtype=np.int64) % len(GROUPS),
    )
    return Constant(model, [r for pair in pairs for r in pair]), train


def test_the_loss_of_a_step_by_hand(model: RewardNetwork) -> None:
    """(1.0, 0.2) with W 1 and (0.1, 0.9) with W 0.5: the mean of 0.3711007 and 0.5 * 1.1711007 is 0.4783255."""
    fixed, train = by_hand(model, [(1.0, 0.2), (0.1, 0.9)], [1.0, 0.5])
    _, recorder, trainer = run(fixed, train, pairs=2)
    assert float(trainer.callback_metrics["train/loss"]) == pytest.approx(0.4783255, abs=1e-6)
    assert float(trainer.callback_metrics["train/accuracy"]) == 0.5
    assert float(trainer.callback_metrics["train/margin"]) == pytest.approx(0.0, abs=1e-6)
    # The four rewards 1.0, 0.2, 0.1, 0.9: mean 0.55, mean of squares 0.465, so a variance of 0.1625 over all of them.
    assert float(trainer.callback_metrics["train/reward_mean"]) == pytest.approx(0.55, abs=1e-6)
    assert float(trainer.callback_metrics["train/reward_std"]) == pytest.approx(0.4031129, abs=1e-6)
    # d/dr+ of W * -log sigmoid(d) is -W * sigmoid(-d), halved by the mean.
    down, up = 1 / (1 + math.exp(0.8)) / 2, 0.5 / (1 + math.exp(-0.8)) / 2

    assert recorder.seen[0].tolist() == pytest.approx([-down, down, -up, up], abs=1e-6)


def test_the_divisor_stays_when_a_step_is_larger(model: RewardNetwork) -> None:
    """T1: a step of two pairs where steps have 1.5 in the mean is divided by 1.5, not by its own two."""
    fixed, train = by_hand(model, [(1.0, 0.2), (0.1, 0.9)], [1.0, 0.5])
    trainer = run(fixed, train, pairs=2, pairs_per_step=1.5)[2]
    assert float(trainer.callback_metrics["train/loss"]) == pytest.approx(2 * 0.4783255 / 1.5, abs=1e-6)


def test_an_epoch_adds_up_to_the_weighted_loss_of_the_data_set(model: RewardNetwork) -> None:
    """T1: the mean of the steps' losses is the data set's weighted loss, with steps of unequal size."""
    train = make_pair_set(model, comparisons=12)
    losses: list[float] = []

    class Note(L.Callback):
        def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
            losses.append(float(trainer.callback_metrics["train/loss"]))

    steps = len(PreferenceData(train, None, pad_id=0, pairs_per_step=5).steps_of_epoch(0))
    run(model, train, steps=steps, pairs=5, callbacks=[Note()])
    rewards = score_encoded(model, train.encoded).astype(np.float64)
    each = np.log1p(np.exp(rewards[train.pairs.rejected] - rewards[train.pairs.chosen]))
    assert len(losses) == steps > 3
    assert np.mean(losses) == pytest.approx(float((each * train.weight).mean()), rel=1e-5)


def test_the_gradient_is_clipped_as_a_whole(folder: Path, model: RewardNetwork) -> None:
    """Its direction stays, its norm becomes the bound; a gradient below the bound is left alone."""
    train = make_pair_set(model)
    free = run(model, train)[1].seen[0]
    assert free.norm() > 0.05
    for bound, norm in ((0.05, 0.05), (1e6, float(free.norm()))):
        clipped = run(load_model(folder, ModelOptions(max_length=64))[0], train, clip=bound)[1].seen[0]
        assert float(clipped.norm()) == pytest.approx(norm, rel=1e-4)
        assert float(torch.nn.functional.cosine_similarity(clipped, free, dim=0)) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("tokens", [8192, 100])
def test_validation_numbers_are_exact(model: RewardNetwork, tokens: int) -> None:
    """T10: pooled over uneven batches, not the mean of batch means; a group without pairs is no part of the mean."""
    train, val = make_pair_set(model), make_pair_set(model, comparisons=9, seed=3)
    trainer = run(model, train, val, tokens=tokens)[2]
    rewards = score_encoded(model, val.encoded).astype(np.float64)
    margin = rewards[val.pairs.chosen] - rewards[val.pairs.rejected]
    correct = margin > 0
    by_group = [correct[val.group == g].mean() for g in (0, 1)]
    found = {name: float(value) for name, value in trainer.callback_metrics.items()}
    assert 0 < correct.mean() < 1
    assert by_group[0] != by_group[1]
    assert found["val/accuracy_micro"] == pytest.approx(correct.mean())
    assert found["val/accuracy"] == pytest.approx(np.mean(by_group))
    assert [found[f"val/accuracy/{g}"] for g in GROUPS[:2]] == pytest.approx(by_group)
    assert math.isnan(found["val/accuracy/Canada"])
    weighted = (np.log1p(np.exp(-margin)) * val.weight).sum() / val.weight.sum()
    assert found["val/loss"] == pytest.approx(weighted, rel=1e-5)


def test_the_margin_of_a_validation_by_hand_and_its_sums_on_the_cpu(
    model: RewardNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.8, -0.8 and 0.3 over three chunks; the sums are float64, which Apple's GPU has not."""
    fixed, val = by_hand(model, [(1.0, 0.2), (0.1, 0.9), (0.5, 0.2)], [1.0, 0.5, 1.0])
    module, _, trainer = run(fixed, val, val, tokens=2)
    assert float(trainer.callback_metrics["val/margin"]) == pytest.approx(0.1, abs=1e-6)
    monkeypatch.setattr(RewardModule, "device", property(lambda self: torch.device("meta")))
    module.on_validation_epoch_start()
    assert module._val_sums.device.type == "cpu"
    assert module._val_sums.dtype == torch.float64
    chunk = PreferenceData(val, val, pad_id=0, batch_tokens=2).val.chunk(np.array([0]), val.grouped(), 0)  # type: ignore[union-attr]
    module.validation_step([chunk], 0)
    # Loss, weight, margin and number of the first pair.
    assert module._val_sums.tolist() == pytest.approx([0.3711007, 1.0, 0.8, 1.0], abs=1e-6)


def test_validation_is_without_dropout(tmp_path: Path) -> None:
    """Two validations of an unchanged model are equal, and equal to scoring."""
    folder = build_backbone("bert", tmp_path / "m", hidden_dropout_prob=0.3)
    model = load_model(folder, ModelOptions(max_length=64))[0]
    val = make_pair_set(model, comparisons=9, seed=3)
    trainer = run(model, make_pair_set(model), val)[2]
    rewards = score_encoded(model, val.encoded).astype(np.float64)
    margin = rewards[val.pairs.chosen] - rewards[val.pairs.rejected]
    weighted = (np.log1p(np.exp(-margin)) * val.weight).sum() / val.weight.sum()
    assert float(trainer.callback_metrics["val/loss"]) == pytest.approx(weighted, rel=1e-5)
    assert model.training


def test_a_loss_that_is_not_finite_names_the_candidates(model: RewardNetwork) -> None:
    """31: training stops there, with the ids of the pair."""
    fixed, train = by_hand(model, [(1.0, 0.2), (math.nan, 0.9)], [1.0, 0.5])
    with pytest.raises(UserError, match=r"not finite at step 0 for 1 pairs \(c2 over c3\); lower optim\.lr"):
        run(fixed, train, pairs=2)


def test_rewards_far_apart_train_without_overflow(model: RewardNetwork) -> None:
    """1000 against -1000, both ways round: losses 0 and 2000."""
    fixed, train = by_hand(model, [(1000.0, -1000.0), (-1000.0, 1000.0)], [1.0, 1.0])
    trainer = run(fixed, train, pairs=2)[2]
    assert float(trainer.callback_metrics["train/loss"]) == pytest.approx(1000.0)


def test_a_first_step_that_is_all_right_is_no_fault(model: RewardNetwork) -> None:
    """A loss of exactly 0 has no gradient, and nothing is wrong with that."""
    fixed, train = by_hand(model, [(1000.0, -1000.0)], [1.0])
    assert run(fixed, train, pairs=1)[0].pairs_seen == 1


def test_a_training_without_gradients_is_stopped(model: RewardNetwork) -> None:
    """All weights zero: nothing would be learnt, and nobody would know."""
    fixed, train = by_hand(model, [(1.0, 0.2)], [0.0])
    with pytest.raises(UserError, match="all gradients are zero at the first step"):
        run(fixed, train, pairs=1)


def test_adapters_without_gradients_are_stopped_though_the_head_learns(tmp_path: Path) -> None:
    """37: what gradient checkpointing over inputs without gradients does to a LoRA, here done to it by force."""
    pytest.importorskip("peft")
    lora = {"rank": 2, "alpha": 4, "dropout": 0.0, "targets": "all-linear"}
    folder = build_backbone("llama", tmp_path / "m")
    model = load_model(folder, ModelOptions(max_length=64, lora=lora))[0]
    forward = model.classifier.base_model.forward

    def cut(*args: Any, **kwargs: Any) -> Any:
        out = forward(*args, **kwargs)
        out.last_hidden_state = out.last_hidden_state.detach()
        return out

    model.classifier.base_model.forward = cut
    with pytest.raises(UserError, match="the adapters' gradients are zero at the first step"):
        run(model, make_pair_set(model))


@pytest.mark.parametrize("kind", ["modernbert", "bert", "roberta", "deberta", "llama", "gpt2", "qwen3"])
def test_lora_with_gradient_checkpointing_trains(tmp_path: Path, kind: str) -> None:
    """37: adapters get the gradients that they get without checkpointing."""
    pytest.importorskip("peft")
    lora = {"rank": 2, "alpha": 4, "dropout": 0.0, "targets": "all-linear"}
    folder = build_backbone(kind, tmp_path / "m")
    seen = []
    for checkpointing in (False, True):
        options = ModelOptions(max_length=64, lora=lora, gradient_checkpointing=checkpointing)
        model = load_model(folder, options)[0]
        run(model, make_pair_set(model))
        names = [n for n, p in model.named_parameters() if p.requires_grad]
        gradients = {n: p.grad for n, p in model.named_parameters() if p.requires_grad}
        # B starts at zero, so that at the first step the gradient of A is zero, and that of B is not.
        assert all(float(gradients[n].norm()) > 0 for n in names if "lora_B" in n)
        seen.append(flat([gradients[n] for n in names]))
    assert float((seen[0] - seen[1]).norm() / seen[0].norm()) < 1e-5


def test_each_step_has_dropout_of_its_own() -> None:
    """Of seed, step and process; no two alike."""
    seeds = {step_seed(seed, step, rank) for seed in range(3) for step in range(10) for rank in range(3)}
    assert len(seeds) == 90
    assert step_seed(0, 5, 0) == step_seed(0, 5, 0)


def test_a_checkpoint_leaves_frozen_weights_out_and_refuses_one_without_trained_weights(model: RewardNetwork) -> None:
    """64: what is left out is exactly what is frozen."""
    for p in model.classifier.bert.parameters():
        p.requires_grad = False
    module = run(model, make_pair_set(model))[0]
    checkpoint: dict[str, Any] = {"state_dict": dict(module.state_dict())}
    module.on_save_checkpoint(checkpoint)
    assert set(checkpoint["state_dict"]) == {"model.network.classifier.weight", "model.network.classifier.bias"}
    assert checkpoint["scpo"]["pairs_seen"] == module.pairs_seen > 0
    module.pairs_seen = 0
    module.on_load_checkpoint(checkpoint)
    assert module.pairs_seen == checkpoint["scpo"]["pairs_seen"]
    del checkpoint["state_dict"]["model.network.classifier.bias"]
    with pytest.raises(UserError, match=r"lacks 1 trained weights \(such as model\.network\.classifier\.bias\)"):
        module.on_load_checkpoint(checkpoint)
