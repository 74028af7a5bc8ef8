"""LoRA on the backbone, with the reward head fully trained beside it (peft)."""

from __future__ import annotations

import copy
from typing import Any

import torch

from scpo.errors import UserError


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
    # All of the head is trained in full, also the layers before its last one (ModernBERT's head, DeBERTa's pooler), which
    # peft by itself would freeze, random as they may be.
    heads = [name for name, m in network.named_children() if name != network.base_model_prefix and any(True for _ in m.parameters())]
    config = LoraConfig(
        # Without the task type peft leaves a new head frozen at random values.
        task_type=TaskType.SEQ_CLS,
        r=int(settings["rank"]),
        lora_alpha=settings["alpha"],
        lora_dropout=float(settings.get("dropout", 0.0)),
        target_modules=settings["targets"] if isinstance(settings["targets"], str) else list(settings["targets"]),
        exclude_modules=rf"({'|'.join(heads)})(\..*)?",
        modules_to_save=heads,
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
