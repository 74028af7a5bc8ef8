"""The settings of a planted world and their ranges."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scpo.errors import UserError, did_you_mean

LENGTHS = ("short", "prism")
MAX_ANNOTATORS = 1500


@dataclass(frozen=True)
class Settings:
    """What shapes a planted world; see :func:`scpo.data.simulate.simulate` for the meaning and units of each field."""

    seed: int = 0
    annotators: int = 300
    mislabelled: float = 0.05
    extreme: float = 0.05
    noise: float = 5.0
    shift: float = 1.0
    lengths: str = "short"
    questions: int = 200

    def __post_init__(self) -> None:
        whole("seed", self.seed, 0, 2**63 - 1)
        whole("annotators", self.annotators, 20, MAX_ANNOTATORS)
        whole("questions", self.questions, 10, 5000)
        # Past one half a reversed score would no longer be noise but the rule.
        real("mislabelled", self.mislabelled, 0.0, 0.5)
        real("extreme", self.extreme, 0.0, 0.5)
        real("noise", self.noise, 0.0, 100.0)
        real("shift", self.shift, 0.0, 5.0)
        if self.lengths not in LENGTHS:
            hint = did_you_mean(str(self.lengths), LENGTHS)
            raise UserError(f"lengths: expected short or prism, found {self.lengths!r}.{hint}")


def whole(name: str, value: object, low: int, high: int) -> None:
    """Raise UserError unless ``value`` is a whole number from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UserError(f"{name}: expected a whole number from {low} to {high}, found {value!r}")


def real(name: str, value: object, low: float, high: float) -> None:
    """Raise UserError unless ``value`` is a finite number from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UserError(f"{name}: expected a number from {low:g} to {high:g}, found {value!r}")
    if not low <= value <= high:
        raise UserError(f"{name}: expected a number from {low:g} to {high:g}, found {value:g}")
