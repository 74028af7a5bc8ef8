"""The command line's messages: scpo's own, and the warnings that matter, without the chatter of the libraries below."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings

import pytest

from scpo.cli.logs import NOT_OURS, QUIET, set_up

CHATTER = (
    "`isinstance(treespec, LeafSpec)` is deprecated, use `isinstance(treespec, TreeSpec) and treespec.is_leaf()` instead.",
    "`is_gradient_checkpointing` is deprecated and will be removed in v6.",
    "You're resuming from a checkpoint that ended before the epoch ended and your dataloader is not resumable. This can",
    "Checkpoint directory /x/run/checkpoints/all exists and is not empty.",
)

SPEAK = """
import logging
from scpo.cli.logs import set_up
set_up()
import lightning.pytorch as L
from lightning.pytorch.utilities.rank_zero import rank_zero_info, rank_zero_warn
L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
rank_zero_info("chatter")
rank_zero_warn("a real warning")
logging.getLogger("scpo.run").info("our line")
"""


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels and handlers as they were, after the test."""
    for name in ("scpo", "transformers", "datasets", "huggingface_hub", *QUIET):
        logger = logging.getLogger(name)
        monkeypatch.setattr(logger, "level", logger.level)
        monkeypatch.setattr(logger, "propagate", logger.propagate)
        monkeypatch.setattr(logger, "handlers", list(logger.handlers))


@pytest.mark.usefixtures("restored")
def test_only_the_named_warnings_are_silent() -> None:
    """One by one; and any other still shows."""
    assert len(CHATTER) == len(NOT_OURS)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        set_up()
        for message in (*CHATTER, "a real warning", "deprecated: something else"):
            warnings.warn(message, UserWarning, stacklevel=1)
    assert [str(w.message) for w in seen] == ["a real warning", "deprecated: something else"]


def test_lightning_speaks_only_of_warnings_though_it_is_imported_later() -> None:
    """It sets its own level on import."""
    done = subprocess.run([sys.executable, "-c", SPEAK], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "GPU available" not in done.stderr
    assert "chatter" not in done.stderr
    assert "a real warning" in done.stderr
    assert done.stderr.splitlines()[-1] == "our line"
