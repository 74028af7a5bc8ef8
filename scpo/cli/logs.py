"""Messages of the command line: plain lines on stderr, without the chatter of the libraries below."""

from __future__ import annotations

import logging
import sys
import warnings

HANDLER = "scpo"

QUIET = {
    # Devices, advertisements and "fit stopped". Lightning sets the level of its top logger when it is imported, so that a
    # level set there before is lost, but not one of the modules' own loggers.
    "lightning.pytorch.utilities.rank_zero": logging.WARNING,
    "lightning.fabric.utilities.rank_zero": logging.WARNING,
    "lightning.fabric.utilities.distributed": logging.WARNING,
    "lightning.pytorch.trainer.connectors.checkpoint_connector": logging.WARNING,
    # A table of the weights that a model folder lacks; scpo.model.reward refuses the folder or names the new head.
    "transformers.utils.loading_report": logging.ERROR,
}

NOT_OURS = (
    # Lightning on torch 2.13, at every training; nothing that a user or this library could change.
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",
    # peft asks transformers by an old name.
    r"`is_gradient_checkpointing` is deprecated",
    # Not so here: the data module deals a resumed epoch from the step where the checkpoint stands (tests/run/test_fit.py).
    r"You're resuming from a checkpoint that ended before the epoch ended and your dataloader is not resumable",
    # The folder of a training that is resumed holds what it resumes from.
    r"Checkpoint directory .* exists and is not empty",
)
"""Warnings, by the beginning of their message, that say nothing to a user and have no other switch."""


class _Stderr(logging.Handler):
    """Writes to whatever `sys.stderr` is when the message comes, as it may have been replaced since."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(self.format(record) + "\n")


def set_up() -> None:
    """Send scpo's messages to stderr; Lightning and transformers speak only of warnings and errors."""
    logger = logging.getLogger("scpo")
    if not any(handler.name == HANDLER for handler in logger.handlers):
        handler = _Stderr()
        handler.name = HANDLER
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for name in ("transformers", "datasets", "huggingface_hub"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for name, level in QUIET.items():
        logging.getLogger(name).setLevel(level)
    for message in NOT_OURS:
        warnings.filterwarnings("ignore", message=message)
