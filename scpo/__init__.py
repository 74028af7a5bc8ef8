"""scpo: steerable, multi-group reward models, and an honest account of whom they serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scpo.serve import RewardModel

__all__ = ["RewardModel", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`RewardModel`, imported when it is first asked for: `import scpo` alone stays light."""
    if name == "RewardModel":
        from scpo.serve import RewardModel

        return RewardModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
