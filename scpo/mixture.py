"""Steering by one group or several: what a user may ask for, checked against what a model knows, and rewards combined."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scpo.conditioning import LEARNED, STEERING
from scpo.errors import UserError, did_you_mean
from scpo.groups import resolve
from scpo.io import shown

FloatArray = npt.NDArray[np.float32]

AGGREGATES = ("mean", "min")


@dataclass(frozen=True)
class Mix:
    """What steers a text, checked and in the model's own names; made by :meth:`Steerer.steer`.

    Attributes:
        groups: whose rewards are asked for; ``(None,)`` is no group. Groups of weight 0 are left out.
        weights: one for each group, sum 1; None takes the least of the groups' rewards.
        standardised: False for one group, whose reward stays raw.
    """

    groups: tuple[str | None, ...]
    weights: tuple[float, ...] | None = (1.0,)
    standardised: bool = False


Steer = str | Mapping[str, float] | Sequence[str] | Mix | None
"""A name, weights of groups, a list of groups (with an aggregate), or no group."""


def is_list(group: Any) -> bool:
    """True for several groups without weights."""
    return isinstance(group, list | tuple)


def check_aggregate(aggregate: str | None) -> None:
    """Raise UserError unless this is None or a known aggregate."""
    if aggregate is not None and aggregate not in AGGREGATES:
        raise UserError(f"aggregate: expected mean or min, found {aggregate!r}.{did_you_mean(aggregate, AGGREGATES)}")


def normalised(weights: Mapping[str, float]) -> dict[str, float]:
    """Weights divided by their sum.

    Raises:
        UserError: no weight, a weight that is no number from 0 up, or a sum of 0.
    """
    for group, weight in weights.items():
        number = isinstance(weight, int | float | np.integer | np.floating) and not isinstance(weight, bool)
        if not number or not 0 <= weight <= sys.float_info.max or not math.isfinite(weight):
            raise UserError(f"group: weight of {group!r}: expected a number from 0 up, found {shown(weight)}")
    largest = max(map(float, weights.values()), default=0.0)
    if largest == 0:
        raise UserError(f"group: expected at least one weight above 0, found {shown(dict(weights))}")
    # By the largest first: a sum of very large or very small weights is no longer exact.
    scaled = {group: float(weight) / largest for group, weight in weights.items()}
    total = math.fsum(scaled.values())
    return {group: weight / total for group, weight in scaled.items()}


def combine(
    rewards: npt.NDArray[np.floating], mixes: Sequence[Mix], scale: Mapping[str | None, tuple[float, float]]
) -> FloatArray:
    """One reward per mix, (n,) float32.

    Args:
        rewards: (sum of the mixes' groups,) raw rewards: those of the first mix's groups, then the second's, ...
        mixes: (n,) what each text was asked for.
        scale: mean and standard deviation of each group that is mixed.
    """
    out = np.empty(len(mixes), dtype=np.float32)
    start = 0
    for i, mix in enumerate(mixes):
        part = rewards[start : start + len(mix.groups)].astype(np.float64)
        start += len(mix.groups)
        if mix.standardised:
            mean, deviation = np.array([scale[group] for group in mix.groups]).T
            part = (part - mean) / deviation
        out[i] = part.min() if mix.weights is None else part @ np.array(mix.weights)
    return out


class Steerer:
    """What a model can be told, by its folder and its steering file (None for a plain model)."""

    def __init__(self, folder: Path, document: dict[str, Any] | None) -> None:
        self.folder = folder
        self.document = document
        self.mode: str = "none" if document is None else document["mode"]
        self.groups: tuple[str, ...] = () if document is None or self.mode == "none" else tuple(document["groups"])
        self.has_default: bool = True if document is None else document["default"]

    def steer(self, group: Steer, aggregate: str | None = None) -> Mix:
        """Check what should steer a text, and resolve its names.

        Raises:
            UserError: a group that the model does not know, weights that are no mixture, or no scale to mix on.
        """
        check_aggregate(aggregate)
        if isinstance(group, Mix):
            return group
        if group is None or isinstance(group, str):
            if aggregate is not None:
                raise UserError(
                    f"aggregate={aggregate}: expected a list of groups, found {group!r}; leave aggregate out"
                )
            return Mix((self.known(group),))
        if isinstance(group, Mapping):
            if aggregate == "min":
                raise UserError(
                    f"aggregate=min: expected a list of groups, found weights {shown(dict(group))}: the least of several "
                    f"groups' rewards has no use for weights; give the list {list(group)}"
                )
            shares: Mapping[str, float] = normalised(group)
        elif is_list(group):
            odd = [name for name in group if not isinstance(name, str)]
            if odd:
                raise UserError(f"group: expected names of groups, found {shown(odd[0])}")
            shares = dict.fromkeys(group, 1 / max(1, len(group)))
            if len(shares) != len(group) or not shares:
                raise UserError(f"group: expected one or more groups, each once, found {shown(list(group))}")
            if aggregate is None:
                raise UserError(
                    f"group: expected aggregate=mean or aggregate=min with the list {shown(list(group))}, found no aggregate; "
                    "or give weights of groups"
                )
        else:
            raise UserError(f"group: expected a name, None, weights of groups or a list of them, found {shown(group)}")
        return self._mix(shares, aggregate)

    def _mix(self, shares: Mapping[str, float], aggregate: str | None) -> Mix:
        names: dict[str, str] = {}
        for name in shares:
            if not isinstance(name, str):
                raise UserError(f"group: expected names of groups, found {shown(name)}")
            known = str(self.known(name))
            if known in names:
                raise UserError(f"group: {names[known]!r} and {name!r} are both {known}; name each group once")
            names[known] = name
        if len(names) == 1:
            return Mix(tuple(names))
        used = {known: shares[name] for known, name in names.items() if shares[name] > 0}
        for known in used:
            self.scale(known)
        return Mix(tuple(used), None if aggregate == "min" else tuple(used.values()), True)

    def known(self, name: str | None) -> str | None:
        """The model's own spelling of a group; None stays None.

        Raises:
            UserError: a group that the model does not know, or none where it has nothing to serve it.
        """
        if name is None:
            if self.mode == "separate":
                raise UserError(
                    f"expected a group, found none; {self.folder} holds one model per group and no default: name one of "
                    f"{', '.join(self.groups)}{self.or_mixture()}"
                )
            return None
        if self.document is None:
            raise UserError(f"group {name!r}: {self.folder} is a plain reward model that takes no group; leave it out")
        if self.mode == "none":
            raise UserError(
                f"group {name!r}: {self.folder} was trained without groups (conditioning=none); leave it out"
            )
        try:
            return resolve([name], self.groups, "the model")[0]
        except UserError as error:
            raise UserError(f"{error} {self._instead()}") from error

    def _instead(self) -> str:
        """What serves a group that the model does not know."""
        default = "no group (None)" if self.has_default else "no group (None, which was not trained for)"
        learn = f"'scpo adapt model={self.folder} group=NAME'" if self.mode in LEARNED else "a training with this group"
        offers = ([] if self.mode == "separate" else [default]) + [learn]
        return f"A group that is not known is served by {' or '.join(offers)}{self.or_mixture()}"

    def or_mixture(self) -> str:
        """The end of a sentence that offers a mixture; "" where the model knows fewer than two groups."""
        if len(self.groups) < 2:
            return ""
        return f', or a mixture of known ones: {{"{self.groups[0]}": 0.7, "{self.groups[1]}": 0.3}}'

    def scale(self, group: str) -> tuple[float, float]:
        """Mean and standard deviation of a group's rewards on the validation texts.

        Raises:
            UserError: the model was saved without them, or the deviation is 0.
        """
        found = ((self.document or {}).get("scale") or {}).get(group)
        where = f"{self.folder / STEERING}: scale of {group!r}: expected the mean and deviation of its rewards, to mix groups"
        if found is None:
            raise UserError(f"{where}, found none; train the run again, or pass a single group")
        mean, deviation = map(float, found)
        if not (math.isfinite(mean) and math.isfinite(deviation) and deviation > 0):
            raise UserError(
                f"{where}, found {shown(found)}: rewards that do not differ have no scale; train the run again, or pass a "
                "single group"
            )
        return mean, deviation
