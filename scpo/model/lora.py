"""LoRA on the backbone, with the reward head fully trained beside it (peft)."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from scpo.errors import UserError, did_you_mean


def add_lora(network: Any, settings: dict[str, Any], seed: int) -> Any:
    """Wrap a sequence classifier in peft: adapters and the head are trained, the rest is frozen.

    Args:
        settings: `rank`, `alpha`, `dropout`, `targets` ("all-linear" or names of modules).

    Raises:
        UserError: peft is not installed, a target matches nothing, or the head would stay frozen.
    """
    try:
        from peft import LoraConfig, TaskType, get_peft_model
    except ImportError as error:
        raise UserError("model.lora needs peft; install it with: pip install 'scpo[lora]'") from error
    unknown = set(settings) - {"rank", "alpha", "dropout", "targets"}
    if unknown:
        raise UserError(f"model.lora: expected rank, alpha, dropout, targets; found {sorted(unknown)[0]!r}")
    missing = [name for name in ("rank", "alpha", "targets") if name not in settings]
    if missing:
        raise UserError(f"model.lora: expected rank, alpha and targets, found no {missing[0]}")
    targets = settings["targets"] if isinstance(settings["targets"], str) else list(settings["targets"])
    # All of the head is trained in full, also the layers before its last one (ModernBERT's head, DeBERTa's pooler), which
    # peft by itself would freeze, random as they may be.
    heads = [
        name
        for name, m in network.named_children()
        if name != network.base_model_prefix and any(True for _ in m.parameters())
    ]
    names = [f".{network.base_model_prefix}.{name}" for name, _ in network.base_model.named_modules()]
    for target in targets if isinstance(targets, list) else []:
        if not any(name.endswith(f".{target}") for name in names):
            known = {
                name.rpartition(".")[2] for name, m in network.base_model.named_modules() if isinstance(m, nn.Linear)
            }
            raise UserError(
                f"model.lora.targets: no module of the backbone is named {target!r}.{did_you_mean(target, known)}"
            )
    config = LoraConfig(
        # Without the task type peft leaves a new head frozen at random values.
        task_type=TaskType.SEQ_CLS,
        r=int(settings["rank"]),
        lora_alpha=settings["alpha"],
        lora_dropout=float(settings.get("dropout", 0.0)),
        target_modules=targets,
        exclude_modules=rf"({'|'.join(heads)})(\..*)?",
        modules_to_save=list(heads),  # peft adds names of its own to the list
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            wrapped = get_peft_model(network, config)
        except ValueError as error:
            raise UserError(f"model.lora: {' '.join(str(error).split())[:300]}") from error
    trained = [name for name, p in wrapped.named_parameters() if p.requires_grad]
    frozen_heads = [h for h in heads if not any(f".{h}.modules_to_save." in name for name in trained)]
    if not any("lora_" in name for name in trained) or frozen_heads:
        raise UserError(
            "model.lora: expected trainable adapters and a trainable head; the targets leave one of them frozen"
        )
    return wrapped


def merged_copy(network: Any) -> Any:
    """A plain classifier with the adapters merged into a copy of the weights; the original is untouched."""
    return copy.deepcopy(network).merge_and_unload()
