"""``scpo evaluate``: a Hydra application around :mod:`scpo.run.evaluate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from scpo.cli.hydra_app import run_hydra, start_job


def main(argv: list[str]) -> int:
    """Evaluate with these Hydra overrides."""
    return run_hydra("evaluate", argv, job)


def job(config: Any) -> None:
    """One Hydra job: a single evaluation, or one of a sweep."""
    start_job("evaluate", config, run_one)


def run_one(config: dict[str, Any], folder: Path | None, overrides: list[str]) -> None:
    """Evaluate one config and print its table and the path of its report.

    Args:
        config: resolved.
        folder: for the results; None chooses one.
        overrides: what the user set.
    """
    from scpo.evaluation.report import terminal_table
    from scpo.run.evaluate import evaluate
    from scpo.run.measure import command_line

    config = {**config, "run_dir": None if folder is None else str(folder)}
    given = {o.split("=")[0].lstrip("+~") for o in overrides}
    out, metrics = evaluate(config, given, command_line(["evaluate", *overrides]))
    sys.stdout.write(f"{terminal_table(metrics).rstrip()}\n\nreport: {out / 'report.html'}\n")
    sys.stdout.flush()
