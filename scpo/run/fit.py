"""Train one part: Lightning's trainer around a reward model, resumed from its last checkpoint where there is one."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint

from scpo.data.datamodule import PairSet, PreferenceData
from scpo.errors import UserError
from scpo.lit import MONITORS, RewardModule
from scpo.model.reward import RewardModel
from scpo.run.config import Config
from scpo.run.progress import TrainProgress


def make_schedule(optimizer: torch.optim.Optimizer, total_steps: int, *, name: str, warmup: float) -> Any:
    """A learning-rate schedule of transformers by name; `warmup` is a share of the steps."""
    from transformers import get_scheduler

    try:
        return get_scheduler(
            name, optimizer, num_warmup_steps=round(warmup * total_steps), num_training_steps=total_steps
        )
    except ValueError as error:
        raise UserError(f"schedule.name: expected a name of transformers.get_scheduler, found {name!r}") from error


def make_optimizer(parameters: Iterable[torch.Tensor], *, factory: dict[str, Any]) -> torch.optim.Optimizer:
    """The optimiser of the config's `optim.factory`."""
    from hydra.utils import instantiate

    return instantiate(factory)(list(parameters))


def fit_part(
    config: Config, model: RewardModel, groups: list[str], train: PairSet, val: PairSet | None, folder: Path, name: str
) -> dict[str, Any]:
    """Train a model in place on pairs; returns `pairs`, `candidates_encoded`, `seconds`, `steps` and `best_step`.

    Args:
        groups: names by group code.
        folder: the run folder; checkpoints go to ``checkpoints/<name>``, logs to ``logs/<name>``.
        name: of the part.
    """
    L.seed_everything(config["seed"], workers=True, verbose=False)
    trainer_config = config["trainer"]
    data = PreferenceData(
        train,
        val,
        pad_id=model.pad_id,
        pairs_per_step=config["batch"]["pairs"],
        batch_tokens=config["batch"]["tokens"],
        seed=config["seed"],
        num_workers=config["batch"]["workers"],
    )
    total = data.total_steps(trainer_config["max_epochs"], trainer_config["max_steps"])
    schedule = config["schedule"]
    module = RewardModule(
        model,
        groups,
        optimizer=functools.partial(make_optimizer, factory=config["optim"]["factory"]),
        schedule=functools.partial(make_schedule, name=schedule["name"], warmup=schedule["warmup"]),
        pairs_per_step=data.mean_pairs_per_step(),
        total_steps=max(1, total),
        margin=config["loss"]["margin"],
        centering=config["loss"]["centering"],
        clip=trainer_config["gradient_clip_val"],
    )
    checkpoints = folder / "checkpoints" / name
    resume, best, others = make_callbacks(config, checkpoints, name, val is not None)
    trainer = L.Trainer(
        accelerator=trainer_config["accelerator"],
        devices=trainer_config["devices"],
        strategy=trainer_config["strategy"],
        precision=trainer_config["precision"],
        max_steps=total,
        max_epochs=trainer_config["max_epochs"],
        # A step count may span epochs, which Lightning allows only without check_val_every_n_epoch.
        val_check_interval=trainer_config["val_check_interval"],
        check_val_every_n_epoch=None if trainer_config["val_check_interval"] else 1,
        limit_val_batches=0 if val is None else None,
        log_every_n_steps=trainer_config["log_every_n_steps"],
        detect_anomaly=trainer_config["detect_anomaly"],
        deterministic=trainer_config["deterministic"],
        logger=make_logger(config, folder, name),
        callbacks=[resume, *([best] if best else []), *others],
        use_distributed_sampler=False,
        reload_dataloaders_every_n_epochs=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=folder,
    )
    last = checkpoints / "last.ckpt"
    model.train()
    trainer.fit(module, datamodule=data, ckpt_path=last if last.is_file() else None, weights_only=True)
    if trainer.interrupted:
        raise KeyboardInterrupt
    best_step = None
    if best is not None and best.best_model_path:
        state = torch.load(best.best_model_path, map_location="cpu", weights_only=True)
        module.load_state_dict(state["state_dict"], strict=False)
        best_step = int(state["global_step"])
    model.eval()
    counts = {"pairs": module.pairs_seen, "candidates_encoded": module.candidates_encoded}
    if trainer.world_size > 1:
        sums = torch.tensor(list(counts.values()), device=module.device)
        torch.distributed.all_reduce(sums)
        counts = dict(zip(counts, sums.tolist(), strict=True))
    return {**counts, "seconds": module.seconds, "steps": trainer.global_step, "best_step": best_step}


def make_callbacks(
    config: Config, checkpoints: Path, name: str, has_val: bool
) -> tuple[ModelCheckpoint, ModelCheckpoint | None, list[Callback]]:
    """The checkpoint to resume from, the best one (if a monitor is set), and all other callbacks."""
    from hydra.utils import instantiate

    settings = config["callbacks"]
    monitor = settings["monitor"]
    if monitor is not None and not has_val:
        raise UserError(
            f"callbacks.monitor={monitor}: needs validation pairs, and this split has none for {name}; set it to null"
        )
    resume = ModelCheckpoint(
        dirpath=checkpoints,
        filename="last",
        every_n_train_steps=settings["every_n_steps"],
        enable_version_counter=False,
    )
    others: list[Callback] = [TrainProgress(name, sys.stderr)]
    best = None
    if monitor is not None:
        mode = MONITORS[monitor]
        best = ModelCheckpoint(
            dirpath=checkpoints, filename="best", monitor=monitor, mode=mode, enable_version_counter=False, save_top_k=1
        )
        if settings["patience"] is not None:
            others.append(EarlyStopping(monitor=monitor, mode=mode, patience=settings["patience"]))
    others += [instantiate(callback) for callback in settings["extra"].values()]
    return resume, best, others


def make_logger(config: Config, folder: Path, name: str) -> Any:
    """The config's logger for one part, below ``logs/``."""
    from hydra.utils import instantiate

    try:
        return instantiate(config["logger"], save_dir=str(folder / "logs"), name=name)
    except Exception as error:
        raise UserError(
            f"logger: {config['logger'].get('_target_')} cannot be made ({' '.join(str(error).split())[:200]})"
        ) from error
