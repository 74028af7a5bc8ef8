"""``scpo adapt``: a Hydra application around :mod:`scpo.run.adapt`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from scpo.cli.hydra_app import run_hydra, start_job

SHORT = "model="
"""``model=RUN/model`` names the model itself; Hydra would look for it among the choices of its config group."""


def main(argv: list[str]) -> int:
    """Adapt with these Hydra overrides."""
    return run_hydra(
        "adapt", [f"model.name_or_path={a[len(SHORT) :]}" if a.startswith(SHORT) else a for a in argv], job
    )


def job(config: Any) -> None:
    """One Hydra job: a single adaptation, or one of a sweep."""
    start_job("adapt", config, run_one)


def run_one(config: dict[str, Any], folder: Path | None, overrides: list[str]) -> None:
    """Adapt by one config and print its table and the path of its report; without a folder its name follows from the config."""
    from scpo.evaluation.report import terminal_table
    from scpo.run.adapt import adapt
    from scpo.run.folder import default_run_dir
    from scpo.run.measure import command_line

    folder = folder or default_run_dir(config)
    metrics = adapt(config, folder, command_line(["adapt", *overrides]))
    sys.stdout.write(f"{terminal_table(metrics).rstrip()}\n\nreport: {folder / 'report.html'}\n")
    sys.stdout.flush()
