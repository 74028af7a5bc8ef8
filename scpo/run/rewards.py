"""Reference rewards of a run: from the cache, or from the model on the trainer's kind of device."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from scpo.model.reward import ModelOptions, load_model
from scpo.model.score import score_texts
from scpo.reference import reference_rewards
from scpo.run.config import Config
from scpo.run.inputs import RunData
from scpo.run.progress import Progress

log = logging.getLogger(__name__)

FloatArray = npt.NDArray[np.float32]


def score_reference(config: Config, data: RunData, folder: Path | None) -> FloatArray | None:
    """Reference rewards of all candidates, from the cache or the model; None without a reference model."""
    if folder is None:
        return None
    options = ModelOptions(
        max_length=config["model"]["max_length"],
        # What is dropped for its length is gone before; the reference must have a reward for all the rest.
        overlong="truncate",
        dtype=config["model"]["dtype"],
        allow_pickle=config["reference"]["allow_pickle"] or config["model"]["allow_pickle"],
        attention=config["model"]["attention"],
    )

    def score(rows: pd.DataFrame) -> FloatArray:
        model, notes = load_model(folder, options, require_head=True)
        tell(notes)
        model.to(pick_device(config))
        return score_texts(
            model,
            list(rows["prompt"]),
            list(rows["response"]),
            list(rows["history"]),
            batch_tokens=config["batch"]["tokens"],
            progress=Progress("reference rewards", sys.stderr),
        )

    cache = Path(config["cache_dir"] or Path(config["data"]["dir"]) / "reference")
    return reference_rewards(data.frame, folder, options, cache, score)


def pick_device(config: Config) -> torch.device:
    """The device for scoring: the trainer's kind, and the first of its devices; its own one in a process of several."""
    kind = str(config["trainer"]["accelerator"])
    if kind in ("gpu", "cuda", "auto") and torch.cuda.is_available():
        devices = config["trainer"].get("devices")
        if isinstance(devices, list) and "LOCAL_RANK" not in os.environ:
            return torch.device("cuda", devices[0])
        return torch.device("cuda", torch.cuda.current_device())
    if kind in ("mps", "auto") and torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def set_threads(config: Config) -> None:
    """Set torch's CPU threads where the config names a number."""
    if config["trainer"]["threads"] is not None:
        torch.set_num_threads(int(config["trainer"]["threads"]))


def tell(lines: list[str]) -> None:
    """Lines for the user, on stderr."""
    for line in lines:
        log.info("%s", line)
