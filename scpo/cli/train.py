"""``scpo train``: a Hydra application around :func:`scpo.run.execute.execute`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from scpo.cli.hydra_app import run_hydra, start_job


def main(argv: list[str]) -> int:
    """Train with these Hydra overrides."""
    return run_hydra("train", argv, job)


def job(config: Any) -> None:
    """One Hydra job: a single run, or one of a sweep."""
    start_job("train", config, run_one)


def run_one(config: dict[str, Any], folder: Path | None, overrides: list[str]) -> None:
    """Run one config and print its table and the path of its report; without a folder its name follows from the config."""
    from scpo.evaluation.report import terminal_table
    from scpo.run.execute import execute
    from scpo.run.folder import default_run_dir
    from scpo.run.measure import command_line

    folder = folder or default_run_dir(config)
    metrics = execute(config, folder, command_line(["train", *overrides]))
    sys.stdout.write(f"{terminal_table(metrics).rstrip()}\n\nreport: {folder / 'report.html'}\n")
    sys.stdout.flush()
