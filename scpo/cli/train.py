"""``scpo train``: a Hydra application around :func:`scpo.run.execute.execute`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from scpo.cli.hydra_app import run_hydra, sweep_job


def main(argv: list[str]) -> int:
    """Train with these Hydra overrides."""
    return run_hydra("train", argv, job)


def job(config: Any) -> None:
    """One Hydra job: a single run, or one of a sweep."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf import OmegaConf

    from scpo.cli.logs import set_up

    # Launchers start jobs in fresh processes.
    set_up()
    hydra = HydraConfig.get()
    plain: Any = OmegaConf.to_container(config, resolve=True)
    overrides = [str(o) for o in hydra.overrides.task]
    if hydra.mode == RunMode.MULTIRUN:
        sweep_job("train", plain, Path(str(hydra.sweep.dir)), int(hydra.job.num), overrides, run_one)
        return
    from scpo.run.folder import default_run_dir

    run_one(plain, Path(plain["run_dir"]) if plain["run_dir"] else default_run_dir(plain), overrides)


def run_one(config: dict[str, Any], folder: Path, overrides: list[str]) -> None:
    """Run one config and print its table and the path of its report."""
    from scpo.evaluation.report import terminal_table
    from scpo.run.execute import execute
    from scpo.run.measure import command_line

    metrics = execute(config, folder, command_line(["train", *overrides]))
    sys.stdout.write(f"{terminal_table(metrics).rstrip()}\n\nreport: {folder / 'report.html'}\n")
    sys.stdout.flush()
