"""What a group changes inside one shared network: a vector on every token, a head, a LoRA, or several of them.

Everything starts at zero change, so a steered model begins exactly at its starting model, and a text without a group keeps
to the shared weights. The changes enter through hooks on the network's own modules, so any backbone takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from scpo.errors import UserError, did_you_mean
from scpo.model.head import head_modules


@dataclass(frozen=True)
class SteeringOptions:
    """What is learned for each group.

    Attributes:
        embedding: a vector that is added to every token embedding.
        head_rank: None: no head of its own; 0: a full linear head; k: weights over k shared reward directions
            (LoRe, arXiv 2504.14439: reward = w_group . V features).
        adapter_rank: None: no adapter; else the rank of a LoRA (arXiv 2106.09685).
        adapter_alpha: the LoRA's change is scaled by alpha / rank.
        adapter_targets: "all-linear", or last parts of the names of backbone modules.
        seed: of the factors that do not start at zero.
    """

    embedding: bool = False
    head_rank: int | None = None
    adapter_rank: int | None = None
    adapter_alpha: float = 8.0
    adapter_targets: str | tuple[str, ...] = "all-linear"
    seed: int = 0

    @property
    def late(self) -> bool:
        """True where the group enters only after the network's features: equal texts of all groups are encoded once."""
        return not self.embedding and self.adapter_rank is None


class _Change(nn.Module):
    """A change of one module's output that depends on each text's group.

    `rows` (n,) holds each text's row among the groups, -1 where none is named; None leaves the output alone. It stays set
    after a forward pass, because gradient checkpointing runs the pass again during the backward one.
    """

    rows: Tensor | None = None
    text: Tensor | None = None

    def attach(self, module: nn.Module) -> None:
        """Apply the change to a module's output from now on."""
        self._handle = module.register_forward_hook(self._hook)

    def detach(self) -> None:
        """Leave the module's output alone from now on."""
        self._handle.remove()

    def _hook(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        if self.rows is None:
            return output
        if self.text is not None:
            return output[self.text] + self.change(args[0][self.text], output, self.rows).to(output.dtype)
        if len(output) != len(self.rows):
            raise UserError(
                f"steering: expected one row per text ({len(self.rows)}), found {tuple(output.shape)}: an attention that packs "
                "texts together cannot be steered; set model.attention=sdpa"
            )
        return output + self.change(args[0], output, self.rows).to(output.dtype)

    def change(self, inputs: Tensor, output: Tensor, rows: Tensor) -> Tensor:
        """What is added to the output, for rows (n,)."""
        raise NotImplementedError


def pick(table: Tensor, rows: Tensor) -> Tensor:
    """``table[rows]``, and zeros for rows of -1; every entry of the table stays part of the graph (for DDP)."""
    picked = table[rows.clamp(min=0)]
    return picked * (rows >= 0).view(-1, *[1] * (table.ndim - 1)).to(table.dtype)


class TokenVectors(_Change):
    """A vector per group, added to the embedding of every token: (n_groups, width)."""

    def __init__(self, n_groups: int, width: int) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.zeros(n_groups, width))

    def change(self, inputs: Tensor, output: Tensor, rows: Tensor) -> Tensor:
        return pick(self.vectors, rows)[:, None, :]


class Heads(_Change):
    """A linear head per group beside the shared one, in float32: full (n_groups, width), or weights (n_groups, rank) over a
    shared basis (rank, width). There is no bias: it would move no ranking inside a group."""

    def __init__(self, n_groups: int, width: int, rank: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(n_groups, rank or width))
        self.basis = nn.Parameter(torch.randn(rank, width) / width**0.5) if rank else None

    def change(self, inputs: Tensor, output: Tensor, rows: Tensor) -> Tensor:
        with torch.autocast(device_type=output.device.type, enabled=False):
            features = inputs.float()  # (n, width)
            if self.basis is not None:
                features = features @ self.basis.T
            return (features * pick(self.weights, rows)).sum(dim=-1, keepdim=True)

    def deltas(self) -> Tensor:
        """(n_groups, width): what each group adds to the shared head's weight."""
        return self.weights @ self.basis if self.basis is not None else self.weights


class Adapters(_Change):
    """A LoRA per group on one linear module, applied to a mixed batch by two batched products.

    `down` (n_groups, rank, in) starts as LoRA's does, `up` (n_groups, out, rank) at zero.
    """

    def __init__(self, n_groups: int, inside: int, outside: int, rank: int, scale: float) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.empty(n_groups, rank, inside).uniform_(-(inside**-0.5), inside**-0.5))
        self.up = nn.Parameter(torch.zeros(n_groups, outside, rank))
        self.scale = scale

    def change(self, inputs: Tensor, output: Tensor, rows: Tensor) -> Tensor:
        down, up = pick(self.down, rows).to(inputs.dtype), pick(self.up, rows).to(inputs.dtype)
        texts = inputs if inputs.ndim == 3 else inputs[:, None, :]  # (n, length, in)
        change = torch.bmm(torch.bmm(texts, down.mT * self.scale), up.mT)
        return change if inputs.ndim == 3 else change[:, 0, :]


class Steering(nn.Module):
    """All that is learned for each group of one network.

    Args:
        groups: names; their order is that of the rows.
        options: what is learned.
        network: the sequence classifier, with or without peft's wrapper; it is given hooks.
    """

    def __init__(self, groups: Sequence[str], options: SteeringOptions, network: Any) -> None:
        super().__init__()
        self.groups = list(groups)
        self.options = options
        self.embedding: TokenVectors | None = None
        self.heads: Heads | None = None
        self.adapters = nn.ModuleDict()
        self.adapted: dict[str, str] = {}  # key in `adapters` -> name of the module in the plain classifier
        n = len(self.groups)
        plain = network.get_base_model() if hasattr(network, "peft_config") else network
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            if options.embedding:
                module = plain.get_input_embeddings()
                self.embedding = TokenVectors(n, module.weight.shape[1])
                self.embedding.attach(module)
            if options.head_rank is not None:
                last = last_linear(plain)
                self.heads = Heads(n, last.in_features, options.head_rank)
                self.heads.attach(last)
            if options.adapter_rank is not None:
                for name, module in linear_modules(plain, options.adapter_targets).items():
                    inside, outside = sizes(module)
                    scale = options.adapter_alpha / options.adapter_rank
                    adapters = Adapters(n, inside, outside, options.adapter_rank, scale)
                    adapters.attach(module)
                    key = name.replace(".", "/")  # a name of a module may hold no dot
                    self.adapters[key], self.adapted[key] = adapters, name

    def changes(self) -> Iterator[_Change]:
        """The modules that change the network."""
        yield from (m for m in self.modules() if isinstance(m, _Change))

    def steer(self, rows: Tensor | None, text: Tensor | None = None) -> None:
        """Set each text's row among the groups for the next forward passes; None: no text has a group.

        Args:
            text: for a steering that is `late`: each row's place among the texts of the batch; None: rows and texts are one.
        """
        for change in self.changes():
            change.rows, change.text = rows, text

    def detach(self) -> None:
        """Take the hooks off the network."""
        for change in self.changes():
            change.detach()

    @torch.no_grad()
    def copy_row(self, other: Steering, group: str | None, row: int = 0) -> None:
        """Take over another steering's weights for one group, and what its groups share.

        Args:
            other: of the same network with the same options.
            group: one of the other's groups; None begins at no change.
            row: the row to write.
        """
        theirs = dict(other.named_parameters())
        per_group = self.per_group()
        for name, parameter in self.named_parameters():
            if name not in per_group:
                parameter.copy_(theirs[name])
            elif group is not None:
                parameter[row] = theirs[name][other.row(group)]

    def per_group(self) -> dict[str, nn.Parameter]:
        """The parameters whose first axis is the group; the rest (a basis) is shared."""
        return {name: p for name, p in self.named_parameters() if not name.endswith("basis")}

    def row(self, group: str) -> int:
        """A group's row.

        Raises:
            UserError: a group that the model does not know.
        """
        if group not in self.groups:
            raise UserError(
                f"the model does not know the group {group!r}; it knows {', '.join(self.groups)}."
                + did_you_mean(group, self.groups)
            )
        return self.groups.index(group)

    @torch.no_grad()
    def fold(self, network: Any, group: str) -> None:
        """Write one group's change into a plain classifier's own weights, in place: afterwards it needs no hook."""
        row = self.row(group)
        if self.embedding is not None:
            table = network.get_input_embeddings()
            scale = getattr(table, "embed_scale", 1.0)  # Gemma multiplies inside the module that the vector follows
            table.weight += (self.embedding.vectors[row] / scale).to(table.weight)
        if self.heads is not None:
            last = last_linear(network)
            last.weight += self.heads.deltas()[row].to(last.weight)
        modules = dict(network.named_modules())
        for key, name in self.adapted.items():
            adapters: Any = self.adapters[key]
            change = adapters.scale * (adapters.up[row] @ adapters.down[row])  # (out, in)
            weight = modules[name].weight
            weight += (change.T if is_conv1d(modules[name]) else change).to(weight)


def last_linear(network: Any) -> nn.Linear:
    """The linear layer whose output is the reward.

    Raises:
        UserError: the head has none, or several.
    """
    found = []
    for module in head_modules(network).values():
        chosen = getattr(module, "modules_to_save", None)  # peft trains a copy of a head
        inside = chosen["default"] if chosen is not None else module
        found += [m for m in inside.modules() if isinstance(m, nn.Linear) and m.out_features == 1]
    if len(found) != 1:
        raise UserError(
            f"conditioning=head: expected one linear layer with one output in the reward head of {type(network).__name__}, "
            f"found {len(found)}; choose conditioning=embedding or adapter"
        )
    return found[0]


def is_conv1d(module: nn.Module) -> bool:
    """True for GPT-2's linear layer, which keeps its weight as (in, out)."""
    from transformers.pytorch_utils import Conv1D

    return isinstance(module, Conv1D)


def sizes(module: Any) -> tuple[int, int]:
    """Inputs and outputs of a linear module."""
    shape = tuple(module.weight.shape)
    return shape if is_conv1d(module) else (shape[1], shape[0])


def linear_modules(network: Any, targets: str | Sequence[str]) -> dict[str, nn.Module]:
    """The backbone's linear modules that get adapters, by their names in the plain classifier.

    "all-linear" leaves out the modules that :func:`per_text` does not name.

    Raises:
        UserError: a target that no module of the backbone is named, or whose module serves all texts at once.
    """
    prefix = f"{network.base_model_prefix}."
    found: dict[str, nn.Module] = {}
    for name, module in network.named_modules():
        inside_lora = ".lora_" in name
        if name.startswith(prefix) and not inside_lora and (isinstance(module, nn.Linear) or is_conv1d(module)):
            found[name.removesuffix(".base_layer")] = module
    usable = per_text(network, found)
    wanted = [targets] if isinstance(targets, str) else list(targets)
    known = {name.rpartition(".")[2] for name in usable}
    for target in wanted if targets != "all-linear" else ():
        named = {name for name in found if name.endswith(f".{target}")}
        if not named:
            raise UserError(
                f"conditioning.adapter_targets: no linear module of the backbone is named {target!r}."
                + did_you_mean(target, known)
            )
        if named - usable:
            raise UserError(
                f"conditioning.adapter_targets: {target!r} of {type(network).__name__} also reads what all texts share, which "
                f"no single group may change; choose among {', '.join(sorted(known)) or 'other modes'}"
            )
    if not usable:
        raise UserError(
            f"conditioning=adapter: {type(network).__name__} has no linear module with one row per text; choose "
            "conditioning=embedding or head"
        )
    ends = tuple(f".{target}" for target in wanted)
    return {name: m for name, m in found.items() if name in usable and (targets == "all-linear" or name.endswith(ends))}


def per_text(network: Any, modules: Mapping[str, nn.Module]) -> set[str]:
    """The names of those modules that every call gives one row per text, as a pass over a few tokens shows.

    DeBERTa's query and key layers also project the relative positions, once for all texts; a mixture of experts hands its
    layers single tokens; packed attention has no rows at all. A change that depends on the text's group has no place there.
    """
    inputs = {name: tensor.to(network.device) for name, tensor in network.dummy_inputs.items()}
    texts = len(inputs["input_ids"])
    fits: dict[str, bool] = {}

    def look(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            fits[name] = fits.get(name, True) and args[0].ndim in (2, 3) and len(args[0]) == texts

        return hook

    handles = [module.register_forward_pre_hook(look(name)) for name, module in modules.items()]
    training = network.training
    network.eval()
    try:
        with torch.no_grad():
            network.base_model(**inputs)
    finally:
        network.train(training)
        for handle in handles:
            handle.remove()
    return {name for name, fit in fits.items() if fit}
