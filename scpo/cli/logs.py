"""Messages of the command line: plain lines on stderr, without the chatter of the libraries below."""

from __future__ import annotations

import logging
import sys


def set_up() -> None:
    """Send scpo's messages to stderr; Lightning and transformers speak only of warnings and errors."""
    logger = logging.getLogger("scpo")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for name in ("lightning", "lightning.pytorch", "lightning.fabric", "transformers", "datasets", "huggingface_hub"):
        logging.getLogger(name).setLevel(logging.WARNING)
