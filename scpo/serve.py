"""Rewards for texts, steered to any community: what users call.

model = scpo.RewardModel.from_pretrained("RUN/model")
model.score("How do I cook rice?", ["Wash it first.", "Ask your mother."], group={"Chile": 0.7, "Canada": 0.3})
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scpo.conditioning import STEERING, folder_of, read_steering
from scpo.data.encode import OVERLONG, Turn
from scpo.errors import UserError
from scpo.io import shown
from scpo.mixture import FloatArray, Mix, Steer, Steerer, check_aggregate, combine, is_list

log = logging.getLogger(__name__)

DTYPES = ("float32", "bfloat16")

MIN_LENGTH = 16
"""Fewest tokens that a text may be cut to; see :class:`scpo.data.encode.Formatter`."""


class NoDefaultWarning(UserWarning):
    """Rewards without a group are asked of a model that was always told one in training."""


@dataclass(frozen=True)
class Best:
    """The best of several responses.

    Attributes:
        index: of the response with the highest reward, the first of equals.
        response: its text.
        reward: its reward.
        rewards: (n,) of all responses; NaN for one that is too long for a model trained with overlong=drop.
        tied: the other responses with exactly this reward.
    """

    index: int
    response: str
    reward: float
    rewards: FloatArray
    tied: tuple[int, ...] = ()


class RewardModel:
    """A trained model of any conditioning mode, or a plain Hugging Face reward model. Made by :meth:`from_pretrained`.

    Args:
        folder: the model's folder.
        steering: its steering file, or None for a plain model.
        options: the keywords of :class:`scpo.model.reward.ModelOptions`.
        device: a torch device.
        batch_tokens: most padded tokens of one forward pass.
    """

    def __init__(
        self,
        folder: Path,
        steering: dict[str, Any] | None,
        options: dict[str, Any],
        *,
        device: str = "cpu",
        batch_tokens: int = 8192,
    ) -> None:
        self.folder = folder
        self.device = device
        self.batch_tokens = batch_tokens
        self.steerer = Steerer(folder, steering)
        self._options = options
        self._loaded: dict[Path, Any] = {}
        self._warned = False
        if self.mode != "separate":
            self._load(folder)

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        *,
        device: str = "cpu",
        dtype: str | None = None,
        max_length: int | None = None,
        batch_tokens: int = 8192,
        allow_pickle: bool = False,
    ) -> RewardModel:
        """Load RUN/model of any mode, a model folder, or a model of the Hub; one model per group is loaded when first asked.

        Args:
            path_or_hub_id: a folder, or 'owner/name'.
            device: cpu, cuda, cuda:N or mps.
            dtype: of the model's body, float32 or bfloat16; None: as trained, else float32. Rewards are float32 always.
            max_length: most tokens of a text; None: as trained, else 512.
            batch_tokens: most padded tokens of one forward pass.
            allow_pickle: read weights that are not safetensors (trusted sources only).

        Raises:
            UserError: no such model, a damaged one, or an option out of range.
        """
        from scpo.model.files import resolve_model

        if type(batch_tokens) is not int or batch_tokens < 1:
            raise UserError(f"batch_tokens: expected at least 1, as a whole number, found {batch_tokens!r}")
        if max_length is not None and (type(max_length) is not int or max_length < MIN_LENGTH):
            raise UserError(
                f"max_length: expected at least {MIN_LENGTH} tokens, as a whole number, found {max_length!r}"
            )
        if not isinstance(path_or_hub_id, str | os.PathLike):
            raise UserError(f"expected a model's folder or its Hub id, found {path_or_hub_id!r}")
        if dtype is not None and dtype not in DTYPES:
            raise UserError(f"dtype: expected {' or '.join(DTYPES)}, found {dtype!r}")
        check_device(device)
        path = Path(path_or_hub_id).expanduser()
        steering = read_steering(path) if path.is_dir() else None
        if steering is None or steering["mode"] != "separate":
            path = resolve_model(path_or_hub_id, allow_pickle=allow_pickle)
            steering = read_steering(path)  # a model of the Hub has one as well
        options = {**_options(path, steering, dtype, max_length), "allow_pickle": allow_pickle}
        return cls(path, steering, options, device=device, batch_tokens=batch_tokens)

    @property
    def mode(self) -> str:
        """The conditioning that the model was trained with; `none` for a plain model."""
        return self.steerer.mode

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that can be named; none where the model is not told groups."""
        return self.steerer.groups

    @property
    def has_default(self) -> bool:
        """True where rewards without a group were trained for."""
        return self.steerer.has_default

    def score(
        self,
        prompt: str,
        responses: Sequence[str],
        group: Steer = None,
        *,
        history: Sequence[Turn] = (),
        aggregate: str | None = None,
    ) -> FloatArray:
        """Rewards (n,) float32 of n responses to one prompt; higher is better.

        One group gives the raw reward. Over several groups each one's rewards first lose that group's mean and are divided
        by its standard deviation, both taken on the validation texts after training. This is needed because the
        Bradley-Terry loss fixes neither a reward's level (only differences enter it) nor what one unit is worth between
        groups, so that raw rewards of two groups are not in one unit: the group with the larger spread would decide a mean,
        and the one with the lower level a minimum. The least reward over groups is the policy's reward of MaxMin-RLHF
        (arXiv 2402.08925); group rewards of RLHF that are only known up to a level must be aligned before they are compared.

        Args:
            prompt: the last message of the user.
            responses: the candidates.
            group: a name or an alias; None for no group; weights of groups such as ``{"Chile": 0.7, "Canada": 0.3}``, which
                are divided by their sum; or a list of groups, with an aggregate. Weights or a list that name one group give
                that group's raw reward; a second group puts them on the common scale, even with a weight of 0.
            history: earlier turns, ``{"role", "content"}``.
            aggregate: over a list of groups, `mean` or `min`.

        Returns:
            NaN for a text that is too long for a model trained with overlong=drop.

        Raises:
            UserError: a group that the model does not know, weights that are no mixture, or no scale to mix on.
        """
        texts = _listed(responses, "responses")
        n = len(texts)
        return self._score([prompt] * n, texts, [self.steer(group, aggregate)] * n, [history] * n)

    def score_rows(
        self,
        prompts: Sequence[str],
        responses: Sequence[str],
        groups: Sequence[Steer] | None = None,
        histories: Sequence[Sequence[Turn] | None] | None = None,
        *,
        aggregate: str | None = None,
    ) -> FloatArray:
        """Rewards (n,) float32 of n rows, each under its own group; equal texts under equal groups are scored once.

        Args:
            groups: (n,) what :meth:`score` takes; None: no row has a group.
            histories: (n,) earlier turns of each row.
            aggregate: for the rows whose group is a list.

        Raises:
            UserError: as :meth:`score`, with the row; arguments of unequal length.
        """
        check_aggregate(aggregate)
        asked, texts = _listed(prompts, "prompts"), _listed(responses, "responses")
        if isinstance(groups, str | Mapping):
            raise UserError(
                f"groups: expected one group for each row, found {shown(groups)}; to steer all alike: [group] * n"
            )
        told: list[Steer] = [None] * len(asked) if groups is None else list(groups)
        # Tables give histories as arrays, whose truth is undefined.
        turns: list[Sequence[Turn]] = [()] * len(asked)
        if histories is not None:
            turns = [() if history is None else list(history) for history in histories]
        lengths = {"prompts": len(asked), "responses": len(texts), "groups": len(told), "histories": len(turns)}
        if len(set(lengths.values())) > 1:
            raise UserError(
                "expected one entry per row in all of them, found "
                + ", ".join(f"{n} {key}" for key, n in lengths.items())
            )
        mixes = []
        for row, group in enumerate(told):
            try:
                mixes.append(self.steer(group, aggregate if is_list(group) else None))
            except UserError as error:
                raise UserError(f"row {row}: {error}") from error
        return self._score(asked, texts, mixes, turns)

    def best_of_n(
        self,
        prompt: str,
        responses: Sequence[str],
        group: Steer = None,
        *,
        history: Sequence[Turn] = (),
        aggregate: str | None = None,
    ) -> Best:
        """The response with the highest reward; see :meth:`score`.

        Raises:
            UserError: as :meth:`score`; no response, or none that is short enough to have a reward.
        """
        rewards = self.score(prompt, responses, group, history=history, aggregate=aggregate)
        if np.isnan(rewards).all():
            raise UserError(
                f"responses: expected at least one with a reward, found {len(rewards)}, all of them too long for the model"
                if len(rewards)
                else "responses: expected at least one, found none"
            )
        index, *tied = np.flatnonzero(rewards == np.nanmax(rewards)).tolist()
        return Best(index, responses[index], float(rewards[index]), rewards, tuple(tied))

    def steer(self, group: Steer, aggregate: str | None = None) -> Mix:
        """Check what should steer a text, and resolve its names; the result may be passed wherever a group may.

        Raises:
            UserError: see :meth:`score`.
        """
        return self.steerer.steer(group, aggregate)

    def _score(
        self,
        prompts: Sequence[str],
        responses: Sequence[str],
        mixes: Sequence[Mix],
        histories: Sequence[Sequence[Turn]],
    ) -> FloatArray:
        for row, (prompt, response, history) in enumerate(zip(prompts, responses, histories, strict=True)):
            for name, text in (("prompt", prompt), ("response", response)):
                if not isinstance(text, str):
                    raise UserError(f"row {row}: {name}: expected text, found {shown(text)}")
            if not all(is_turn(turn) for turn in history):
                raise UserError(
                    f'row {row}: history: expected a list of {{"role", "content"}}, found {shown(list(history))}'
                )
        if not self.has_default and not self._warned and any(mix.groups == (None,) for mix in mixes):
            self._warned = True
            warnings.warn(
                f"{self.folder} was always told a group in training (no group dropout), so its rewards without one were not "
                f"trained for; name a group{self.steerer.or_mixture()}",
                NoDefaultWarning,
                stacklevel=3,
            )
        owner = np.repeat(np.arange(len(mixes)), [len(mix.groups) for mix in mixes]).tolist()
        rewards = self._raw(
            [prompts[i] for i in owner],
            [responses[i] for i in owner],
            [histories[i] for i in owner],
            [group for mix in mixes for group in mix.groups],
        )
        named = dict.fromkeys(group for mix in mixes if mix.standardised for group in mix.groups)
        return combine(rewards, mixes, {group: self.steerer.scale(str(group)) for group in named})

    def _raw(
        self,
        prompts: list[str],
        responses: list[str],
        histories: list[Sequence[Turn]],
        groups: list[str | None],
    ) -> FloatArray:
        """Raw rewards (n,) of texts, each under one group."""
        from scpo.model.score import score_texts

        result = np.zeros(len(prompts), dtype=np.float32)
        folders = [folder_of(self.folder, self.steerer.document, group) for group in groups]
        for folder in dict.fromkeys(folders):
            places = [i for i, f in enumerate(folders) if f == folder]
            result[places] = score_texts(
                self._load(folder),
                [prompts[i] for i in places],
                [responses[i] for i in places],
                [histories[i] for i in places],
                None if self.mode == "separate" else [groups[i] for i in places],
                batch_tokens=self.batch_tokens,
                share=False,  # the processes of a policy's training each have completions of their own
            )
        return result

    def _load(self, folder: Path) -> Any:
        """The network of a folder, loaded once."""
        if folder not in self._loaded:
            from scpo.model.files import resolve_model
            from scpo.model.reward import ModelOptions
            from scpo.model.steering_files import load_steered

            options = ModelOptions(**self._options)
            model, notes = load_steered(resolve_model(folder, allow_pickle=options.allow_pickle), options)
            for note in notes:
                log.info("%s", note)
            self._loaded[folder] = model.to(self.device)
        return self._loaded[folder]


def check_device(name: str, where: str = "device") -> None:
    """Raise UserError unless this is a processor or an accelerator that torch has here."""
    if not re.fullmatch(r"cpu|mps|cuda(:[0-9]{1,3})?", str(name)):
        raise UserError(f"{where}: expected cpu, cuda, cuda:N or mps, found {name!r}")
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"{where}: expected cpu, or a device of this machine, found {name!r}") from error


def is_turn(turn: Any) -> bool:
    """True for ``{"role": text, "content": text}``."""
    return isinstance(turn, Mapping) and isinstance(turn.get("role"), str) and isinstance(turn.get("content"), str)


def _listed(texts: Sequence[str], name: str) -> list[str]:
    """A list of texts; one text would be read letter by letter."""
    if isinstance(texts, str) or not hasattr(texts, "__iter__"):
        raise UserError(f"{name}: expected a list of texts, found {shown(texts)}")
    return list(texts)


def _options(
    folder: Path, steering: dict[str, Any] | None, dtype: str | None, max_length: int | None
) -> dict[str, Any]:
    """Length, policy for longer texts, template and precision: as trained (PITFALLS 33), unless the user says otherwise.

    Raises:
        UserError: a steering file with another value than `scpo train` writes.
    """
    known = steering or {}
    trained, length, overlong = (
        known.get("trained_dtype"),
        known.get("max_length", 512),
        known.get("overlong", "truncate"),
    )
    for key, value, fits, expected in (
        ("trained_dtype", trained, trained is None or trained in DTYPES, " or ".join(DTYPES)),
        ("overlong", overlong, overlong in OVERLONG, ", ".join(OVERLONG)),
        ("max_length", length, type(length) is int and length >= MIN_LENGTH, f"a whole number from {MIN_LENGTH}"),
    ):
        if not fits:
            raise UserError(f"{folder / STEERING}: {key}: expected {expected}, found {shown(value)}")
    used = dtype or trained or "float32"
    if trained is not None and used != trained:
        log.warning("%s: scored in %s, trained in %s: rewards differ slightly from the run's", folder, used, trained)
    return {
        "max_length": max_length or length,
        "overlong": overlong,
        "template": known.get("template", "{group}"),
        "dtype": used,
    }
