"""Progress on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from typing import Any, TextIO

from lightning.pytorch.callbacks import Callback

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Shows how far a piece of work is, at most once in a while.

    Args:
        what: the work, such as ``"reference rewards"``.
        stream: where to write.
    """

    def __init__(self, what: str, stream: TextIO) -> None:
        self.what, self.stream = what, stream
        self.terminal = stream.isatty()
        self.started = time.monotonic()
        self.shown = 0.0 if self.terminal else self.started

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Show ``done`` of ``total``."""
        now = time.monotonic()
        wait = 0.1 if self.terminal else SECONDS_BETWEEN_LINES
        if now - self.shown < wait and done < total:
            return
        self.shown = now
        rate = done / max(now - self.started, 1e-9)
        left = f", {(total - done) / rate:.0f} s left" if done and done < total else ""
        text = f"{self.what}: {done}/{total} in {now - self.started:.0f} s{left}{note}"
        if self.terminal:
            self.stream.write(f"\r\033[K{text}" + ("\n" if done >= total else ""))
        else:
            self.stream.write(text + "\n")
        self.stream.flush()


class TrainProgress(Callback):
    """Progress of a training, with its loss."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self.name, self.stream = name, stream
        self.progress: Progress | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the clock."""
        if trainer.is_global_zero:
            self.progress = Progress(f"training {self.name}", self.stream)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Show the step and the loss."""
        if self.progress is not None:
            loss = trainer.callback_metrics.get("train/loss")
            note = f", loss {float(loss):.4f}" if loss is not None else ""
            self.progress(trainer.global_step, max(pl_module.total_steps, trainer.global_step), note)
