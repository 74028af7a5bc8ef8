"""Learned steering on disk: ``model/steering/steering.safetensors``, adapters in peft's layout, and the checks on reading.

Nothing is ever filled with random weights: what is missing, too much, or of another shape than the model is an error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scpo.conditioning import LEARNED, STEERING, read_steering
from scpo.errors import UserError
from scpo.groups import slug
from scpo.io import atomic_path, read_json, replace_folder, shown, write_json
from scpo.model.head import head_hash
from scpo.model.reward import ModelOptions, RewardNetwork, load_model
from scpo.model.steering import Steering, SteeringOptions, is_conv1d

TENSORS = "steering.safetensors"
ADAPTERS = "adapters"
PEFT_PREFIX = "base_model.model."
MAX_RANK = 4096
GROUPS = "groups"
"""Key of the safetensors' metadata that names the groups in the order of the rows."""


def describe(model: RewardNetwork) -> dict[str, Any] | None:
    """What `steering.json` says of a network's learned steering; None without one.

    `head` names the shared head that the steering was trained beside.
    """
    steering = model.steering
    if steering is None:
        return None
    options = steering.options
    targets = options.adapter_targets
    return {
        "embedding": options.embedding,
        "head_rank": options.head_rank,
        "adapter_rank": options.adapter_rank,
        "adapter_alpha": options.adapter_alpha,
        "adapter_targets": targets if isinstance(targets, str) else list(targets),
        "head": head_hash(model.classifier),
    }


def save_steering(model: RewardNetwork, folder: Path) -> None:
    """Write the learned steering below a model's folder; nothing without one."""
    steering = model.steering
    if steering is None:
        return
    from safetensors.torch import save_file

    own = {k: v.detach().cpu().contiguous() for k, v in steering.state_dict().items() if not k.startswith("adapters.")}
    inside = folder / STEERING.parent
    if own:
        inside.mkdir(parents=True, exist_ok=True)
        with atomic_path(inside / TENSORS) as temporary:
            save_file(own, temporary, metadata={"format": "pt", GROUPS: json.dumps(steering.groups)})
    if steering.options.adapter_rank is not None:
        with replace_folder(inside / ADAPTERS) as temporary:
            for row, group in enumerate(steering.groups):
                _save_adapter(model, steering, row, temporary / slug(group))


def _save_adapter(model: RewardNetwork, steering: Steering, row: int, folder: Path) -> None:
    """One group's LoRA as peft writes it, so that peft alone can load it onto the plain classifier."""
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    for key, name in steering.adapted.items():
        adapters: Any = steering.adapters[key]
        tensors[f"{PEFT_PREFIX}{name}.lora_A.weight"] = adapters.down[row].detach().cpu().contiguous()
        tensors[f"{PEFT_PREFIX}{name}.lora_B.weight"] = adapters.up[row].detach().cpu().contiguous()
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    modules = dict(model.classifier.named_modules())
    write_json(
        folder / "adapter_config.json",
        {
            "peft_type": "LORA",
            # Without a task peft adds no copy of the head: the classifier's own is the right one.
            "task_type": None,
            "base_model_name_or_path": "../../..",
            "inference_mode": True,
            "r": steering.options.adapter_rank,
            "lora_alpha": steering.options.adapter_alpha,
            "lora_dropout": 0.0,
            "bias": "none",
            "fan_in_fan_out": any(is_conv1d(modules[name]) for name in steering.adapted.values() if name in modules),
            "target_modules": sorted(steering.adapted.values()),
        },
    )


def load_steered(folder: Path, options: ModelOptions) -> tuple[RewardNetwork, list[str]]:
    """Load a trained model with what it learned for its groups; a model of another mode is loaded as it is.

    Raises:
        UserError: the steering and the model, or the steering's files and its description, do not belong together.
    """
    document = read_steering(folder)
    model, notes = load_model(folder, options, require_head=True)
    if document is None or document["mode"] not in LEARNED:
        return model, notes
    where, learned = folder / STEERING, document["learned"]
    steering_options = read_options(learned, where)
    head = head_hash(model.classifier)
    if learned.get("head") != head:
        raise UserError(
            f"{where}: was trained beside a reward head {learned.get('head')}, and the model's is {head}; the weights of "
            f"{folder} were changed: take both from one run"
        )
    model.add_steering(list(document["groups"]), steering_options)
    assert model.steering is not None
    model.steering.load_state_dict(_read_tensors(model.steering, where.parent))
    return model.eval(), notes


def read_options(learned: dict[str, Any], where: Path) -> SteeringOptions:
    """The options of a steering file.

    Raises:
        UserError: a missing key or a value of another kind.
    """
    targets = learned.get("adapter_targets")
    checks = {
        "embedding": isinstance(learned.get("embedding"), bool),
        "head_rank": learned.get("head_rank") is None or _whole(learned["head_rank"], 0),
        "adapter_rank": learned.get("adapter_rank") is None or _whole(learned["adapter_rank"], 1),
        "adapter_alpha": type(learned.get("adapter_alpha")) in (int, float),
        "adapter_targets": isinstance(targets, str)
        or (isinstance(targets, list) and all(isinstance(t, str) for t in targets)),
    }
    wrong = [key for key, fits in checks.items() if not fits]
    if not wrong and not learned["embedding"] and learned["head_rank"] is None and learned["adapter_rank"] is None:
        raise UserError(f"{where}: learned: expected an embedding, a head or an adapter, found none of them")
    if wrong:
        raise UserError(
            f"{where}: learned.{wrong[0]}: expected what scpo train writes, found {learned.get(wrong[0])!r}"
        )
    return SteeringOptions(
        embedding=learned["embedding"],
        head_rank=learned["head_rank"],
        adapter_rank=learned["adapter_rank"],
        adapter_alpha=float(learned["adapter_alpha"]),
        adapter_targets=targets if isinstance(targets, str) else tuple(targets or ()),
    )


def _whole(value: Any, least: int) -> bool:
    return type(value) is int and least <= value <= MAX_RANK


def _read_tensors(steering: Steering, inside: Path) -> dict[str, Tensor]:
    """The state of a steering from its files, every tensor checked against the groups and the model."""
    wanted = steering.state_dict()
    _check_places(steering, inside)
    own = {k: v for k, v in wanted.items() if not k.startswith("adapters.")}
    found = _read_file(inside / TENSORS, steering.groups) if own else {}
    _compare(own, found, inside / TENSORS)
    for row, group in enumerate(steering.groups if steering.options.adapter_rank is not None else ()):
        path = inside / ADAPTERS / slug(group) / "adapter_model.safetensors"
        read = _read_file(path)
        _check_scale(steering.options, path.with_name("adapter_config.json"))
        for key, name in steering.adapted.items():
            for ours, theirs in (("down", "lora_A"), ("up", "lora_B")):
                tensor = read.pop(f"{PEFT_PREFIX}{name}.{theirs}.weight", None)
                state = f"adapters.{key}.{ours}"
                _compare({state: wanted[state][row]}, {} if tensor is None else {state: tensor}, path)
                assert tensor is not None
                found.setdefault(state, torch.empty_like(wanted[state], device="cpu"))[row] = tensor
        if read:
            raise UserError(f"{path}: expected the adapters of this model, found {min(read)!r} beyond them")
    return found


def _check_places(steering: Steering, inside: Path) -> None:
    """Refuse weights that the description says nothing of: they were learned, and would be left out without a word."""
    options = steering.options
    if not options.embedding and options.head_rank is None and (inside / TENSORS).exists():
        raise UserError(f"{inside / TENSORS}: expected no such file, as {STEERING} tells of no embedding and no head")
    wanted = {slug(group) for group in steering.groups} if options.adapter_rank is not None else set()
    there = {p.name for p in (inside / ADAPTERS).iterdir()} if (inside / ADAPTERS).is_dir() else set()
    if there - wanted:
        raise UserError(
            f"{inside / ADAPTERS / min(there - wanted)}: expected adapters of {', '.join(sorted(wanted)) or 'no group'}, as "
            f"{STEERING} says, found this one beyond them"
        )


def _check_scale(options: SteeringOptions, path: Path) -> None:
    """The scale of a LoRA stands in two places, ours and peft's; they must agree, or the two would give other rewards."""
    config = read_json(path)
    for key, expected in (("r", options.adapter_rank), ("lora_alpha", options.adapter_alpha)):
        found = config.get(key) if isinstance(config, dict) else None
        if found != expected:
            raise UserError(f"{path}: {key}: expected {expected}, as {STEERING} says, found {found!r}")


def _read_file(path: Path, groups: list[str] | None = None) -> dict[str, Tensor]:
    """The tensors of a file; with `groups`, whose rows must be of these groups in this order."""
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file

    if not path.is_file():
        raise UserError(f"{path}: expected the weights of the steering, found no such file; take the folder whole")
    try:
        if groups is not None:
            with safe_open(path, framework="pt") as file:
                named = (file.metadata() or {}).get(GROUPS)
            if named != json.dumps(groups):
                raise UserError(
                    f"{path}: expected rows of the groups {json.dumps(groups)}, as {STEERING} says, found {shown(named)}"
                )
        return dict(load_file(path))
    except SafetensorError as error:
        raise UserError(f"{path}: damaged, not read ({' '.join(str(error).split())[:120]})") from error


def _compare(wanted: dict[str, Tensor], found: dict[str, Tensor], path: Path) -> None:
    for key, tensor in wanted.items():
        if key not in found:
            raise UserError(
                f"{path}: expected the weights {key!r} {tuple(tensor.shape)}, found none; train the run again"
            )
        if found[key].shape != tensor.shape:
            raise UserError(
                f"{path}: {key}: expected {tuple(tensor.shape)} (first the number of groups, then the model's widths), found "
                f"{tuple(found[key].shape)}: the steering is of another model or of other groups"
            )
        if found[key].dtype != torch.float32:
            raise UserError(f"{path}: {key}: expected float32 numbers, found {found[key].dtype}")
        if not bool(torch.isfinite(found[key]).all()):
            raise UserError(f"{path}: {key}: expected finite numbers, found NaN or infinity")
    extra = sorted(found.keys() - wanted.keys())
    if extra:
        raise UserError(f"{path}: expected only {', '.join(wanted)}, found {extra[0]!r} beyond them")
