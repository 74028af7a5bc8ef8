"""The reward model: a Hugging Face sequence classifier with one output, read in a way that padding cannot change."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scpo.data.encode import Formatter
from scpo.errors import UserError
from scpo.io import replace_folder
from scpo.model.files import reward_head
from scpo.model.head import head_modules, keep_float32, restore_head, wraps_linear
from scpo.model.steering import Steering, SteeringOptions

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class ModelOptions:
    """How a model folder is loaded.

    Attributes:
        max_length: most tokens of a text.
        overlong: truncate, drop or error.
        template: names the group in the input, with ``{group}``.
        dtype: of the backbone; the head and rewards are float32 always.
        gradient_checkpointing: less memory for a third more time.
        lora: None, or rank, alpha, dropout and targets of a LoRA on the backbone (the head stays fully trained).
        allow_pickle: read weights that are not safetensors.
        attention: transformers' `attn_implementation`; None lets transformers choose.
        seed: of a new head.
    """

    max_length: int = 512
    overlong: str = "truncate"
    template: str = "The reader lives in {group}."
    dtype: str = "float32"
    gradient_checkpointing: bool = False
    lora: dict[str, Any] | None = None
    allow_pickle: bool = False
    attention: str | None = None
    seed: int = 0


class RewardNetwork(nn.Module):
    """Token ids, and where it is steered each text's group, to one float32 reward per text.

    Decoders (whose head is a linear layer named `score` over every token) are read at the last token of the attention
    mask, so that a pad token equal to the end-of-text token cannot move the reading. Encoders are read by their own
    pooling. Heads compute in float32 under any dtype or autocast.

    Attributes:
        steering: what is learned for each group inside the network, or None.
    """

    def __init__(self, network: Any, formatter: Formatter, origin: str = "") -> None:
        super().__init__()
        self.network = network
        self.formatter = formatter
        self.origin = origin
        self.steering: Steering | None = None
        base = self.classifier
        self.reads_last_token = isinstance(getattr(base, "score", None), nn.Linear) or wraps_linear(base)
        self._keep_head_float32()

    def _keep_head_float32(self) -> None:
        for module in head_modules(self.classifier).values():
            keep_float32(module)

    def add_steering(self, groups: Sequence[str], options: SteeringOptions, *, freeze: bool = False) -> None:
        """Learn something for each group, beginning with no change; with `freeze` the network itself is not trained."""
        self.steering = Steering(groups, options, self.network).to(self.device)
        if freeze:
            for parameter in self.network.parameters():
                parameter.requires_grad_(False)

    def merge(self) -> None:
        """Merge a LoRA into the weights, in place; nothing happens without one."""
        if hasattr(self.network, "peft_config"):
            self.network = self.network.merge_and_unload()
            self._keep_head_float32()

    @property
    def classifier(self) -> Any:
        """The sequence classifier itself, without peft's wrapper."""
        return self.network.get_base_model() if hasattr(self.network, "peft_config") else self.network

    @property
    def pad_id(self) -> int:
        """Token id that fills batches; it never reaches a reward."""
        return int(self.formatter.tokenizer.pad_token_id)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        group: Tensor | None = None,
        text: Tensor | None = None,
    ) -> Tensor:
        """Rewards (n,) in float32 of n right-padded texts (n, length).

        Args:
            group: (n,) each text's row in `steering.groups`, -1 where none is named; None: no text has a group.
            text: (m,) places among the n texts: the rewards are (m,), of texts that stand in the batch once. `group` is
                then (m,) for a steering that is late, else (n,). See :func:`scpo.data.batching.collate_once`.
        """
        late = self.steering is not None and self.steering.options.late and group is not None
        if self.steering is not None:
            self.steering.steer(group, text if late else None)
        rewards = self._rewards(input_ids, attention_mask, token_type_ids)
        return rewards if text is None or late else rewards[text]

    def _rewards(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None) -> Tensor:
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            inputs["token_type_ids"] = token_type_ids
        base = self.classifier
        if not self.reads_last_token:
            return base(**inputs).logits.float().squeeze(-1)
        hidden = base.base_model(**inputs).last_hidden_state  # (n, length, width)
        last = attention_mask.sum(dim=1) - 1
        pooled = hidden[torch.arange(len(hidden), device=hidden.device), last]
        return base.score(pooled).float().squeeze(-1)

    def save(self, folder: Path) -> None:
        """Write a plain AutoModelForSequenceClassification folder (safetensors, num_labels 1); a LoRA is merged in.

        The model itself is left as it was. The folder is replaced as a whole or not at all.
        """
        with replace_folder(folder) as temporary, _merged(self.network) as network, without_bars():
            network.save_pretrained(temporary)
            self.formatter.tokenizer.save_pretrained(temporary)


def load_model(folder: Path, options: ModelOptions, *, require_head: bool = False) -> tuple[RewardNetwork, list[str]]:
    """Load a reward model from a folder.

    Args:
        folder: a local model folder (see :func:`scpo.model.files.resolve_model`).
        require_head: refuse a folder without a trained reward head, as for a reference model.

    Returns:
        The model in eval mode, and lines worth telling: a new head, a pad token that was added.

    Raises:
        UserError: no tokenizer, a wrong number of labels, missing weights, a head missing where it is required.
    """
    from transformers import AutoModelForSequenceClassification

    if options.dtype not in DTYPES:
        raise UserError(
            f"model.dtype: expected float32 or bfloat16, found {options.dtype!r} (float16 rewards overflow)"
        )
    trained_head = reward_head(folder)
    if require_head and not trained_head:
        raise UserError(
            f"{folder}: expected a reward model with a trained head, found a model without one; train it first "
            "(scpo train experiment=global model.name_or_path=...) and give that run's model folder"
        )
    notes: list[str] = []
    tokenizer = load_tokenizer(folder)
    with torch.random.fork_rng(devices=[]), without_bars():
        torch.manual_seed(options.seed)
        try:
            network, info = AutoModelForSequenceClassification.from_pretrained(
                folder,
                num_labels=1,
                dtype=DTYPES[options.dtype],
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # named and refused below, in one line
                attn_implementation=options.attention,
                use_safetensors=None if options.allow_pickle else True,
                local_files_only=True,
                trust_remote_code=False,
            )
        except pickle.UnpicklingError as error:
            raise UserError(
                f"{folder}: its pickled weights hold more than tensors, or are damaged; not read"
            ) from error
        except Exception as error:  # a damaged config.json raises whatever its reader meets
            reason = " ".join(str(error).split())[:300]
            raise UserError(f"{folder}: cannot be loaded as a sequence classifier: {reason}") from error
    _check_loaded(network, info, folder, trained_head, notes, options)
    if trained_head and DTYPES[options.dtype] != torch.float32:
        restore_head(network, folder)
    added = _set_pad_token(tokenizer, network)
    if added:
        notes.append(f"{folder}: {added}")
    _check_length(network, tokenizer, options, folder)
    if options.gradient_checkpointing:
        network.activation_checkpointing_enable({"use_reentrant": False})
        network.enable_input_require_grads()
    if options.lora is not None:
        from scpo.model.lora import add_lora

        network = add_lora(network, options.lora, options.seed)
    formatter = Formatter(
        tokenizer, max_length=options.max_length, overlong=options.overlong, template=options.template
    )
    return RewardNetwork(network, formatter, str(folder)).eval(), notes


def load_tokenizer(folder: Path) -> Any:
    """The folder's own fast tokenizer."""
    from transformers import AutoTokenizer

    names = (
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
        "vocab.json",
        "tokenizer.model",
        "spm.model",
        "spiece.model",
    )
    if not any((folder / name).is_file() for name in names):
        raise UserError(f"{folder}: expected a tokenizer beside the model, found none of {', '.join(names)}")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # a damaged tokenizer raises whatever its reader meets
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{folder}: its tokenizer cannot be loaded: {reason}") from error
    if not tokenizer.is_fast:
        raise UserError(
            f"{folder}: expected a fast tokenizer (tokenizer.json), found only a slow one; convert it first"
        )
    return tokenizer


def _check_loaded(
    network: Any, info: dict[str, Any], folder: Path, trained_head: bool, notes: list[str], options: ModelOptions
) -> None:
    if info["mismatched_keys"]:
        key, found, expected = min(info["mismatched_keys"], key=str)
        raise UserError(
            f"{folder}: {len(info['mismatched_keys'])} weights have another shape than its config.json says, such as {key}: "
            f"expected {tuple(expected)}, found {tuple(found)}"
        )
    prefix = f"{network.base_model_prefix}."
    missing = sorted(info["missing_keys"])
    in_backbone = [k for k in missing if k.startswith(prefix) and ".pooler." not in k]
    if in_backbone or (trained_head and missing):
        shown = (in_backbone or missing)[:3]
        raise UserError(
            f"{folder}: {len(in_backbone or missing)} weights are missing (such as {', '.join(shown)}); "
            "they would be random, so the model is refused"
        )
    if missing:
        notes.append(f"{folder}: no reward head; a new one was made with seed {options.seed} ({', '.join(missing)})")


def _set_pad_token(tokenizer: Any, network: Any) -> str:
    """Give tokenizer and config one pad token that is not the end-of-text token; returns what was done, or ""."""
    said = ""
    before = network.get_input_embeddings().num_embeddings
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id == tokenizer.eos_token_id:
        why = "no pad token" if tokenizer.pad_token_id is None else "its pad token is its end-of-text token"
        tokenizer.add_special_tokens({"pad_token": "<|scpo_pad|>"})
        said = f"{why}; added {tokenizer.pad_token!r} with id {tokenizer.pad_token_id}"
    elif len(tokenizer) > before:
        said = f"its tokenizer has {len(tokenizer)} tokens and the model {before}; the rest got embeddings of zero"
    if len(tokenizer) > before:
        # New rows start at random; a pad embedding never reaches a reward, so zeros serve, and are the same every time.
        network.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        with torch.no_grad():
            network.get_input_embeddings().weight[before:].zero_()
    network.config.pad_token_id = tokenizer.pad_token_id
    return said


def _check_length(network: Any, tokenizer: Any, options: ModelOptions, folder: Path) -> None:
    positions = _usable_positions(network) or options.max_length
    usable = min(positions, int(min(tokenizer.model_max_length, 10**9)))
    if options.max_length > usable:
        raise UserError(
            f"{folder}: model.max_length is {options.max_length}, but this model reads at most {usable} tokens; "
            f"set model.max_length={usable} or less"
        )


def _usable_positions(network: Any) -> int | None:
    """The most tokens a model has positions for, or None where its config names no limit.

    RoBERTa-like models count positions from their pad id + 1 (their position table has a padding index): of 514 positions
    512 can be used.
    """
    positions = getattr(network.config, "max_position_embeddings", None)
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.num_embeddings - module.padding_idx - 1
    return int(positions) if positions else None


@contextlib.contextmanager
def without_bars() -> Iterator[None]:
    """Without transformers' progress bars for reading and writing a folder: the local disk needs none."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextlib.contextmanager
def _merged(network: Any) -> Iterator[Any]:
    """The plain classifier, with a LoRA merged for the length of the block."""
    if not hasattr(network, "peft_config"):
        yield network
        return
    from scpo.model.lora import merged_copy

    yield merged_copy(network)
