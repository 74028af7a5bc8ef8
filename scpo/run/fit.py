"""Train one part: Lightning's trainer around a reward model, resumed from its last checkpoint where there is one."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint, EarlyStopping, ModelCheckpoint

from scpo.data.datamodule import PairSet, PreferenceData
from scpo.dro import GroupDRO
from scpo.errors import UserError
from scpo.lit import MONITORS, RewardModule
from scpo.model.reward import RewardNetwork
from scpo.run.config import Config
from scpo.run.progress import TrainProgress

TRAINER_FLAGS: dict[str, Any] = {
    "use_distributed_sampler": False,  # the data module deals each process its share
    "reload_dataloaders_every_n_epochs": 1,  # each epoch has a plan of its own
    "num_sanity_val_steps": 0,
}
"""Flags of Lightning's trainer that the data module relies on, whoever makes the trainer."""


def make_schedule(optimizer: torch.optim.Optimizer, total_steps: int, *, name: str, warmup: float) -> Any:
    """A learning-rate schedule of transformers by name; `warmup` is a share of the steps."""
    from transformers import get_scheduler

    try:
        return get_scheduler(
            name, optimizer, num_warmup_steps=round(warmup * total_steps), num_training_steps=total_steps
        )
    except ValueError as error:
        raise UserError(f"schedule.name: expected a name of transformers.get_scheduler, found {name!r}") from error


def make_optimizer(parameters: list[dict[str, Any]], *, factory: dict[str, Any]) -> torch.optim.Optimizer:
    """The optimiser of the config's `optim.factory` over groups of parameters."""
    from hydra.utils import instantiate

    return instantiate(factory)(parameters)


def make_dro(config: Config, train: PairSet, groups: list[str], pairs_per_step: float) -> GroupDRO | None:
    """Group DRO over the training pairs where the config asks for it and there is more than one group to weigh."""
    balance = config["balance"]
    counts = np.bincount(train.group, minlength=len(groups)).tolist()
    if balance["name"] != "dro" or sum(n > 0 for n in counts) < 2:
        return None
    return GroupDRO(
        counts, pairs_per_step=pairs_per_step, eta=float(balance["eta"]), adjustment=float(balance["adjustment"])
    )


def data_options(config: Config, model: RewardNetwork) -> dict[str, Any]:
    """The keywords of a config's :class:`PreferenceData`."""
    return {
        "pad_id": model.pad_id,
        "pairs_per_step": config["batch"]["pairs"],
        "batch_tokens": config["batch"]["tokens"],
        "seed": config["seed"],
        "group_dropout": float(config["conditioning"]["group_dropout"]),
        "num_workers": config["batch"]["workers"],
    }


def module_options(config: Config, groups: list[str], data: PreferenceData, total_steps: int) -> dict[str, Any]:
    """The keywords of a config's :class:`RewardModule` on these data; `total_steps` is the length of the training."""
    schedule, pairs_per_step = config["schedule"], data.mean_pairs_per_step()
    return {
        "optimizer": functools.partial(make_optimizer, factory=config["optim"]["factory"]),
        "schedule": functools.partial(make_schedule, name=schedule["name"], warmup=schedule["warmup"]),
        "pairs_per_step": pairs_per_step,
        "total_steps": max(1, total_steps),
        "margin": config["loss"]["margin"],
        "centering": config["loss"]["centering"],
        "clip": config["trainer"]["gradient_clip_val"],
        "seed": config["seed"],
        "steering_lr_scale": float(config["conditioning"]["lr_scale"]),
        "dro": make_dro(config, data.train, groups, pairs_per_step),
    }


def fit_part(
    config: Config,
    model: RewardNetwork,
    groups: list[str],
    train: PairSet,
    val: PairSet | None,
    folder: Path,
    name: str,
) -> dict[str, Any]:
    """Train a model in place on pairs; returns `pairs`, `candidates_encoded`, `seconds`, `steps` and `best_step`.

    Args:
        groups: names by group code.
        folder: the run folder; checkpoints go to ``checkpoints/<name>``, logs to ``logs/<name>``.
        name: of the part.
    """
    L.seed_everything(config["seed"], workers=True, verbose=False)
    trainer_config = config["trainer"]
    data = PreferenceData(train, val, **data_options(config, model))
    total = data.total_steps(trainer_config["max_epochs"], trainer_config["max_steps"])
    module = RewardModule(model, groups, **module_options(config, groups, data, total))
    checkpoints = folder / "checkpoints" / name
    best, callbacks = make_callbacks(config, checkpoints, name, val is not None)
    # A training shorter than the interval is still validated once, at its end.
    interval = trainer_config["val_check_interval"] and min(trainer_config["val_check_interval"], max(1, total))
    trainer = L.Trainer(
        accelerator=trainer_config["accelerator"],
        devices=trainer_config["devices"],
        strategy=trainer_config["strategy"],
        precision=trainer_config["precision"],
        max_steps=total,
        max_epochs=trainer_config["max_epochs"],
        # A step count may span epochs, which Lightning allows only without check_val_every_n_epoch.
        val_check_interval=interval,
        check_val_every_n_epoch=None if interval else 1,
        limit_val_batches=0 if val is None else None,
        log_every_n_steps=trainer_config["log_every_n_steps"],
        detect_anomaly=trainer_config["detect_anomaly"],
        deterministic=trainer_config["deterministic"],
        logger=make_logger(config, folder, name),
        callbacks=callbacks,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **TRAINER_FLAGS,
    )
    last = checkpoints / "last.ckpt"
    model.train()
    with interrupts_kept():
        trainer.fit(module, datamodule=data, ckpt_path=last if last.is_file() else None, weights_only=True)
    best_step = None
    if best is not None and best.best_model_path:
        state = torch.load(best.best_model_path, map_location="cpu", weights_only=True)
        module.load_state_dict(state["state_dict"], strict=False)
        best_step = int(state["global_step"])
    # A training that was already at its end has only what its checkpoint counted.
    pairs, candidates = module.totals or (module.pairs_seen, module.candidates_encoded)
    # Merged in place, so that the rewards of the run and of its saved model are one model's, also in bfloat16.
    model.merge()
    model.eval()
    return {
        "pairs": pairs,
        "candidates_encoded": candidates,
        "seconds": module.seconds,
        "steps": trainer.global_step,
        "best_step": best_step,
    }


@contextlib.contextmanager
def interrupts_kept() -> Iterator[None]:
    """Let Ctrl-C end a block as KeyboardInterrupt: Lightning turns it into an exit with code 1."""
    try:
        yield
    except SystemExit as error:
        raise KeyboardInterrupt from error


class ResumeCheckpoint(Checkpoint):
    """The checkpoint that a killed training resumes from: the state after every n-th step, in ``last.ckpt``.

    Where a validation follows the step, it is saved after that: Lightning counts the validation of a step that it resumes
    from as done, so the best weights and early stopping would miss it. Stands after the callbacks whose state it keeps.
    """

    def __init__(self, folder: Path, every_n_steps: int) -> None:
        self.path = folder / "last.ckpt"
        self.every_n_steps = every_n_steps

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
        """Save, where no validation follows."""
        if self._due(trainer) and not self._validates(trainer):
            self._save(trainer)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save, where the step of this validation is to be saved."""
        if self._due(trainer):
            self._save(trainer)

    def _due(self, trainer: L.Trainer) -> bool:
        return trainer.global_step > 0 and trainer.global_step % self.every_n_steps == 0

    def _validates(self, trainer: L.Trainer) -> bool:
        if not trainer.enable_validation:
            return False
        if trainer.check_val_every_n_epoch is None:
            return trainer.global_step % int(trainer.val_check_interval or 1) == 0
        return trainer.fit_loop.epoch_loop.batch_progress.is_last_batch

    def _save(self, trainer: L.Trainer) -> None:
        # Lightning writes into the system's temporary folder and moves, which is a copy between two file systems.
        temporary = self.path.with_suffix(".tmp")
        trainer.save_checkpoint(temporary)
        if trainer.is_global_zero:
            os.replace(temporary, self.path)


def make_callbacks(
    config: Config, checkpoints: Path, name: str, has_val: bool
) -> tuple[ModelCheckpoint | None, list[Callback]]:
    """The checkpoint of the best weights (None without a monitor), and all callbacks in their order."""
    from hydra.utils import instantiate

    settings = config["callbacks"]
    monitor = settings["monitor"]
    if monitor is not None and not has_val:
        raise UserError(
            f"callbacks.monitor={monitor}: needs validation pairs, and this split has none for {name}; set it to null"
        )
    callbacks: list[Callback] = [TrainProgress(name, sys.stderr)]
    best = None
    if monitor is not None:
        mode = MONITORS[monitor]
        if settings["patience"] is not None:
            callbacks.append(
                EarlyStopping(monitor, mode=mode, patience=settings["patience"], check_on_train_epoch_end=False)
            )
        best = ModelCheckpoint(
            dirpath=checkpoints,
            filename="best",
            monitor=monitor,
            mode=mode,
            enable_version_counter=False,
            save_on_train_epoch_end=False,  # but right after the validation, so that the checkpoint to resume from knows it
        )
        callbacks.append(best)
    # Lightning puts checkpoints last and keeps their order.
    resume = ResumeCheckpoint(checkpoints, settings["every_n_steps"])
    callbacks += [*(instantiate(callback) for callback in settings["extra"].values()), resume]
    return best, callbacks


def make_logger(config: Config, folder: Path, name: str) -> Any:
    """The config's logger for one part, below ``logs/``."""
    from hydra.utils import instantiate

    try:
        return instantiate(config["logger"], save_dir=str(folder / "logs"), name=name)
    except Exception as error:
        raise UserError(
            f"logger: {config['logger'].get('_target_')} cannot be made ({' '.join(str(error).split())[:200]})"
        ) from error
