"""The reward head of a sequence classifier: which modules it is made of, and how it stays in float32."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


class _Float32Head(nn.Module):
    """Mixed into the class of a head's module: computes in float32 whatever the backbone's dtype or autocast.

    A class of its own, and not a new `forward` on the instance, since a copy of the module would keep calling the original.
    """

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        cast = [_float32(a) for a in args]
        named = {k: _float32(v) for k, v in kwargs.items()}
        device = next((a.device.type for a in (*cast, *named.values()) if isinstance(a, Tensor)), "cpu")
        with torch.autocast(device_type=device, enabled=False):
            return super().forward(*cast, **named)


def _float32(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value


def keep_float32(module: nn.Module) -> None:
    """Make a head keep and compute float32: bf16 rewards make false ties."""
    module.float()
    own = type(module)
    if not issubclass(own, _Float32Head):
        module.__class__ = type(f"Float32{own.__name__}", (_Float32Head, own), {})


def head_modules(classifier: Any) -> dict[str, nn.Module]:
    """The modules of a sequence classifier beside its backbone, by name: score, or pooler, dropout and classifier."""
    return {name: module for name, module in classifier.named_children() if name != classifier.base_model_prefix}


def head_hash(classifier: Any) -> str:
    """Eight hex digits that change with any weight of the head, so that a user sees which head was loaded."""
    digest = hashlib.sha256()
    for module in head_modules(classifier).values():
        for tensor in module.state_dict().values():
            digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:8]


def restore_head(network: Any, folder: Path) -> None:
    """Read the head's weights again from the safetensors in the precision they have there.

    transformers casts all weights to the backbone's dtype while it loads; a float32 head would come back rounded to bfloat16.
    """
    from safetensors import safe_open

    heads = head_modules(network)
    for module in heads.values():
        module.float()
    wanted = {f"{name}.{key}": tensor for name, m in heads.items() for key, tensor in m.state_dict().items()}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for key in wanted.keys() & set(file.keys()):
                wanted[key].copy_(file.get_tensor(key))


def wraps_linear(classifier: Any) -> bool:
    """True for a `score` head that peft wrapped to train a copy of it."""
    score = getattr(classifier, "score", None)
    return score is not None and isinstance(getattr(score, "original_module", None), nn.Linear)
