"""The paper's published numbers, for the rows of our tables that repeat its experiment.

Source: SCPO (arXiv 2606.18606): OpenAssistant/reward-model-deberta-v3-base, PRISM, mean over seven countries, in third-party
notes of its table. Cells per country, the table of the larger model and GlobalOpinionQA numbers are not known and not here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scpo.groups import PRISM7

LABEL = "the paper, OpenAssistant deberta-v3-base, PRISM, mean of 7 countries"

# Accuracy on all test pairs and on distinctive pairs, as fractions; the latter is not simply better when higher.
GLOBAL_MODEL = {"all": 0.5855, "distinctive": 0.0}
ARMS = {
    "full": {"all": 0.6212, "distinctive": 0.2737},
    "filter": {"all": 0.4687, "distinctive": 0.6301},
    "inverse": {"all": 0.5662, "distinctive": 0.4670},
    "weight": {"all": 0.6113, "distinctive": 0.1821},
    "scpo": {"all": 0.6272, "distinctive": 0.4057},
}
TAU, BETA = 0.7, 1.1
USES = {"full": (), "filter": ("tau",), "inverse": (), "weight": ("beta",), "scpo": ("tau", "beta")}
SETTINGS = {"selection.tau": TAU, "selection.beta": BETA}
ROW = {
    "model.name": "deberta",
    "conditioning.name": "separate",
    "balance.name": "none",
    "loss.name": "pairwise",
    "data.min_gap": 0.0,
    "split.method": "paper",
    "trainer.max_steps": 1024,
    "optim.lr": 1e-6,
    "batch.pairs": 8,
}
"""What experiment=prism_main sets: with any of it changed a run is another experiment than the published one."""


def same_experiment(config: Mapping[str, Any], groups: Sequence[str]) -> bool:
    """True for PRISM, the paper's seven countries, and the settings of its published row.

    Args:
        config: the run's configuration as dotted keys.
        groups: names of the groups evaluated.
    """
    if config.get("data.name") != "prism" or sorted(groups) != sorted(PRISM7):
        return False
    return all(config.get(key) == value for key, value in ROW.items())


def published(config: Mapping[str, Any], groups: Sequence[str]) -> dict[str, float] | None:
    """``{"all": .., "distinctive": ..}`` of the paper's row for this run, or None where the paper has no such row."""
    arm = str(config.get("selection.name"))
    if arm not in ARMS or not same_experiment(config, groups):
        return None
    for short in USES[arm]:
        key = f"selection.{short}"
        found = config.get(key)
        if found is not None and found != SETTINGS[key]:
            return None
    return ARMS[arm]
