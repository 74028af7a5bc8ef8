"""Training what is learned for each group: gradients, checkpointing, LoRA beside it, frozen networks, group dropout, DRO."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
from steered import GROUPS, MODES, PLAIN, rewards, save_steered, steered, steered_pairs, steering_of
from tiny_backbones import build_backbone
from torch import Tensor

from scpo.data.datamodule import PairSet, PreferenceData
from scpo.dro import GroupDRO
from scpo.errors import UserError
from scpo.lit import RewardModule
from scpo.model.reward import ModelOptions, RewardNetwork, load_model
from scpo.model.score import score_encoded
from scpo.model.steering_files import load_steered

Gradients = dict[str, Tensor]


class Recorder(torch.optim.SGD):
    """Keeps the gradients and learning rates of every step."""

    def __init__(self, groups: Any, lr: float) -> None:
        super().__init__(groups, lr=lr)
        self.rates: list[list[float]] = []
        self.seen: list[list[Tensor]] = []

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Note, then move."""
        assert closure is None or closure() is None
        self.rates.append([group["lr"] for group in self.param_groups])
        self.seen.append([p.grad.clone() for group in self.param_groups for p in group["params"] if p.grad is not None])
        super().step()


class Note(L.Callback):
    """Keeps the logged values of every step."""

    def __init__(self) -> None:
        self.logged: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        """Copy them."""
        self.logged.append({k: float(v) for k, v in trainer.callback_metrics.items()})


def halving(optimizer: torch.optim.Optimizer, total: int) -> Any:
    """Half the rate at every step."""
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)


def run(
    model: RewardNetwork,
    train: PairSet,
    *,
    steps: int = 1,
    tokens: int = 8192,
    lr: float = 0.0,
    dropout: float = 0.0,
    pairs: int = 12,
    seed: int = 0,
    **settings: Any,
) -> tuple[RewardModule, Recorder, Note]:
    """Some steps of SGD under Lightning's trainer."""
    made: list[Recorder] = []

    def optimizer(groups: Any) -> Recorder:
        made.append(Recorder(groups, lr))
        return made[-1]

    data = PreferenceData(
        train, None, pad_id=model.pad_id, pairs_per_step=pairs, batch_tokens=tokens, group_dropout=dropout, seed=seed
    )
    defaults = {"schedule": halving, "pairs_per_step": data.mean_pairs_per_step(), "total_steps": steps}
    module = RewardModule(model, GROUPS, optimizer=optimizer, **{**defaults, **settings})
    note = Note()
    trainer = L.Trainer(
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
        limit_val_batches=0,
        callbacks=[note],
    )
    model.train()
    trainer.fit(module, datamodule=data)
    return module, made[0], note


def gradients(model: RewardNetwork) -> Gradients:
    """By name, of what is trained."""
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.requires_grad and p.grad is not None}


def alike(found: Gradients, expected: Gradients) -> None:
    """Equal names, and values to float32 rounding of the largest."""
    assert found.keys() == expected.keys()
    scale = max(float(g.abs().max()) for g in expected.values())
    for name in expected:
        assert float((found[name] - expected[name]).abs().max()) < 2e-5 * scale, name


@pytest.fixture(scope="module", params=["llama", "gpt2", "modernbert", "deberta", "bert"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two decoders and three encoders, without dropout."""
    return build_backbone(request.param, tmp_path_factory.mktemp("models") / request.param)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One decoder."""
    return build_backbone("llama", tmp_path_factory.mktemp("models") / "llama")


@pytest.mark.parametrize(("mode", "freeze"), [("all", False), ("embedding", True), ("adapter", True)])
def test_gradient_checkpointing_changes_no_gradient_of_the_groups(folder: Path, mode: str, freeze: bool) -> None:
    """37: the pass that is run again must steer each text as the first did; also where nothing else is trained."""
    seen = []
    for checkpointing in (False, True):
        options = ModelOptions(max_length=64, gradient_checkpointing=checkpointing)
        model = steered(folder, mode, options)
        for p in model.network.parameters():
            p.requires_grad_(not freeze)
        # Two chunks and more: the rows of one must not steer the pass that is run again for another.
        run(model, steered_pairs(model), tokens=150)
        seen.append(gradients(model))
    alike(seen[1], seen[0])
    own = {name: g for name, g in seen[1].items() if name.startswith("steering.")}
    assert own
    assert all(bool(g.any()) for g in own.values())
    assert (len(own) == len(seen[1])) is freeze


@pytest.mark.parametrize("mode", ["low-rank", "all"])
def test_a_step_is_the_same_however_it_is_cut(llama: Path, mode: str) -> None:
    """Mixed groups in one pass, a few, or one comparison at a time."""
    seen = []
    for tokens in (8192, 150, 1):
        model = steered(llama, mode)
        run(model, steered_pairs(model), tokens=tokens)
        seen.append(gradients(model))
    alike(seen[1], seen[0])
    alike(seen[2], seen[0])


@pytest.mark.parametrize(
    ("kind", "mode"), [*(("llama", mode) for mode in MODES), ("deberta", "all"), ("gpt2", "all"), ("gpt2", "head")]
)
def test_a_lora_beside_the_groups_trains_merges_and_comes_back(tmp_path: Path, kind: str, mode: str) -> None:
    """The hooks survive peft's wrapping, its merged copy, and the merge in place."""
    pytest.importorskip("peft")
    lora = {"rank": 2, "alpha": 4, "dropout": 0.0, "targets": "all-linear"}
    start = build_backbone(kind, tmp_path / "start")
    model = steered(start, mode, ModelOptions(max_length=64, lora=lora), moved=False)
    first = rewards(model, [0, 1, 2, -1, 0])
    np.testing.assert_allclose(first, rewards(load_model(start, PLAIN)[0], None), rtol=1e-5, atol=1e-5)
    _, recorder, _ = run(model, steered_pairs(model), steps=4, lr=0.1, steering_lr_scale=3.0)
    assert len(recorder.seen) == 4
    trained = rewards(model, [0, 1, 2, -1, 0])
    assert np.abs(trained - first).min() > 1e-4
    assert all(bool((p != 0).any()) for p in steering_of(model).parameters())
    moved = [rewards(model, row) for row in (0, 1, 2, -1)]
    assert all(np.abs(moved[a] - moved[b]).max() > 1e-6 for a in range(4) for b in range(a))
    model.merge()
    np.testing.assert_allclose(rewards(model, [0, 1, 2, -1, 0]), trained, rtol=1e-5, atol=1e-5)
    saved = save_steered(model, tmp_path / "model", mode)
    again = load_steered(saved, PLAIN)[0]
    np.testing.assert_allclose(rewards(again, [0, 1, 2, -1, 0]), trained, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_groups_without_gradients_are_stopped_though_the_network_learns(llama: Path, mode: str) -> None:
    """Here the hooks are gone; every group would keep the starting model's rewards, and nobody would know."""
    model = steered(llama, mode, moved=False)
    steering_of(model).detach()
    with pytest.raises(UserError, match="the groups' gradients are zero at the first step"):
        run(model, steered_pairs(model))


def named_steps(train: PairSet, dropout: float, seed: int, pairs: int) -> list[bool]:
    """Which steps of the first epoch name a group."""
    data = PreferenceData(train, None, pad_id=0, pairs_per_step=pairs, group_dropout=dropout, seed=seed)
    silent = data.unnamed(0)
    assert silent is not None
    return [not bool(silent[step].all()) for step in data.steps_of_epoch(0)]


def test_a_first_step_without_named_groups_is_no_fault_and_the_check_waits(llama: Path) -> None:
    """Group dropout can take all of a step's groups; the first step that names one is looked at."""
    train = steered_pairs(load_model(llama, PLAIN)[0])
    seed = next(s for s in range(200) if named_steps(train, 0.6, s, 3)[:2] == [False, True])
    model = steered(llama, "head", moved=False)
    _, recorder, _ = run(model, train, steps=2, dropout=0.6, seed=seed, pairs=3)
    own = [step[-1] for step in recorder.seen]
    assert not own[0].any()
    assert own[1].any()
    frozen = steered(llama, "head", moved=False)
    frozen.network.requires_grad_(False)
    run(frozen, train, steps=2, dropout=0.6, seed=seed, pairs=3)  # all that it trains is the groups', and waits as well
    broken = steered(llama, "head", moved=False)
    steering_of(broken).detach()
    run(broken, train, steps=1, dropout=0.6, seed=seed, pairs=3)
    with pytest.raises(UserError, match="the groups' gradients are zero"):
        run(broken, train, steps=2, dropout=0.6, seed=seed, pairs=3)


def test_group_dropout_trains_on_the_rewards_without_a_group(llama: Path) -> None:
    """The gradient is that of the same comparisons whose dropped ones are told no group; without dropout nothing changes."""
    model = steered(llama, "all")
    train = steered_pairs(model)
    data = PreferenceData(train, None, pad_id=0, group_dropout=0.5)
    silent = data.unnamed(0)
    assert silent is not None
    assert 0 < silent.sum() < len(silent)
    run(model, train, pairs=1000, dropout=0.5)
    found = gradients(model)
    comparisons = train.grouped()
    assert train.steer is not None
    steer = train.steer.copy()
    for position in np.flatnonzero(silent):
        steer[comparisons.candidates[position]] = -1
    by_hand = steered(llama, "all")
    batch = train.chunk(np.arange(len(comparisons)), comparisons, model.pad_id)
    rows = np.concatenate(comparisons.candidates)
    batch["inputs"]["group"] = torch.from_numpy(steer[rows])
    out = by_hand(**batch["inputs"])
    margin = out[batch["chosen"]] - out[batch["rejected"]]
    (torch.log1p(torch.exp(-margin)) * batch["weight"]).sum().div(len(train.pairs)).backward()
    alike(found, gradients(by_hand))


@pytest.mark.parametrize("freeze", [False, True])
def test_the_groups_have_a_learning_rate_of_their_own_and_share_the_schedule(llama: Path, freeze: bool) -> None:
    """30 times the network's, and both halve at every step; with `freeze` there is nothing else."""
    model = load_model(llama, PLAIN)[0]
    model.add_steering(GROUPS, MODES["all"], freeze=freeze)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    module, recorder, note = run(model, steered_pairs(model), steps=3, lr=1e-3, steering_lr_scale=30.0)
    own = [p for n, p in model.named_parameters() if n.startswith("steering.")]
    expected = [[3e-2 / 2**i] if freeze else [1e-3 / 2**i, 3e-2 / 2**i] for i in range(3)]
    np.testing.assert_allclose(recorder.rates, expected)
    last = recorder.param_groups[-1]["params"]
    assert [id(p) for p in last] == [id(p) for p in own]
    assert sum(len(g["params"]) for g in recorder.param_groups) == len(own) if freeze else len(before)
    changed = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert any(n.startswith("network.") for n in changed) is not freeze
    assert {n for n in before if n.startswith("steering.")} <= changed
    checkpoint: dict[str, Any] = {"state_dict": dict(module.state_dict())}
    module.on_save_checkpoint(checkpoint)
    inside = set(checkpoint["state_dict"])
    expected_names = {f"model.{n}" for n, p in model.named_parameters() if p.requires_grad}
    assert inside == expected_names
    assert all(n.startswith("model.steering.") for n in inside) is freeze
    # The logged rate is the network's where it is trained.
    assert note.logged[0]["train/lr"] == pytest.approx((3e-2 if freeze else 1e-3) / 2)


# ---- group DRO


def dro_of(train: PairSet, pairs_per_step: float, **settings: float) -> GroupDRO:
    counts = np.bincount(train.group, minlength=len(GROUPS)).tolist()
    return GroupDRO(counts, pairs_per_step=pairs_per_step, **settings)


@pytest.mark.parametrize("tokens", [8192, 150, 1])
def test_dro_in_training_is_the_formula_however_a_step_is_cut(llama: Path, tokens: int) -> None:
    """Nothing moves but q: the logged weights and losses of five steps from rewards that are known."""
    model = steered(llama, "head")
    train = steered_pairs(model, comparisons=20)
    assert train.steer is not None
    data = PreferenceData(train, None, pad_id=0, pairs_per_step=6)
    per_step = data.mean_pairs_per_step()
    dro = dro_of(train, per_step, eta=0.5, adjustment=0.3)
    _, _, note = run(model, train, steps=5, tokens=tokens, pairs=6, dro=dro)

    out = score_encoded(model, train.encoded, group=train.steer).astype(np.float64)
    loss = np.log1p(np.exp(out[train.pairs.rejected] - out[train.pairs.chosen])) * train.weight
    n = np.bincount(train.group, minlength=3).astype(float)
    assert len(set(n)) > 1
    q = np.full(3, 1 / 3)
    comparisons = train.grouped()
    for step, logged in zip(data.steps_of_epoch(0), note.logged, strict=False):
        inside = np.concatenate([comparisons.pairs[c] for c in step])
        group = train.group[inside]
        expected = (loss[inside] * (q / (n / n.sum()))[group]).sum() / per_step
        assert logged["train/loss"] == pytest.approx(expected, rel=1e-4)
        sums = np.array([loss[inside][group == g].sum() for g in range(3)])
        q = q * np.exp(0.5 * (sums / (n / n.sum() * per_step) + 0.3 / np.sqrt(n)))
        q = q / q.sum()
        assert [logged[f"dro/{g}"] for g in GROUPS] == pytest.approx(q.tolist(), rel=1e-4)
    assert len(note.logged) == 5
    assert np.abs(q - 1 / 3).max() > 0.05


def test_dro_scales_each_pairs_gradient_by_its_groups_weight(llama: Path) -> None:
    """Gradients of pairs times q over the share are what is trained; weights in the data give the same."""
    model = steered(llama, "all")
    train = steered_pairs(model)
    dro = dro_of(train, 12.0)
    dro.q.copy_(torch.tensor([0.7, 0.2, 0.1]))
    run(model, train, pairs=1000, dro=dro)
    found = gradients(model)
    share = np.bincount(train.group, minlength=3) / len(train.group)
    train.weight[:] *= (np.array([0.7, 0.2, 0.1]) / share)[train.group]
    other = steered(llama, "all")
    run(other, train, pairs=1000)
    alike(found, gradients(other))


def test_the_groups_weights_are_saved(llama: Path) -> None:
    """As part of the module, also where the network is frozen; the sums of a step are not."""
    model = load_model(llama, PLAIN)[0]
    model.add_steering(GROUPS, MODES["head"], freeze=True)
    train = steered_pairs(model)
    module, _, _ = run(model, train, steps=2, dro=dro_of(train, 12.0, eta=0.5))
    checkpoint: dict[str, Any] = {"state_dict": dict(module.state_dict())}
    module.on_save_checkpoint(checkpoint)
    assert set(checkpoint["state_dict"]) == {"model.steering.heads.weights", "dro.q"}
    assert checkpoint["state_dict"]["dro.q"].tolist() != pytest.approx([1 / 3] * 3)
