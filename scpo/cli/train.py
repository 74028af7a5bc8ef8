"""``scpo train``: a Hydra application around :func:`scpo.run.execute.execute`."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

from scpo.cli.hydra_app import any_failed, record, run_hydra
from scpo.errors import UserError


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
        sweep_job(plain, Path(str(hydra.sweep.dir)), int(hydra.job.num), overrides)
        return
    from scpo.run.folder import default_run_dir

    run_one(plain, Path(plain["run_dir"]) if plain["run_dir"] else default_run_dir(plain), overrides)


def sweep_job(config: dict[str, Any], root: Path, number: int, overrides: list[str]) -> None:
    """One job of a sweep, in ``root/<hash8>``; a failure is recorded at once and the other jobs go on."""
    from scpo.io import write_text
    from scpo.run.config import config_hash

    folder = root / config_hash(config)[:8]
    if config["fail_fast"] and any_failed():
        record(number, folder, "skipped", None)
        return
    sys.stderr.write(f"job {number}: {' '.join(overrides)} -> {folder}\n")
    try:
        run_one(config, folder, overrides)
    except Exception as error:
        text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        text = " ".join(text.split())
        sys.stderr.write(f"job {number} failed: {text}\n")
        if folder.is_dir() and not isinstance(error, UserError):
            write_text(folder / "error.txt", traceback.format_exc())
        record(number, folder, "failed", text)
        return
    record(number, folder, "finished", None)


def run_one(config: dict[str, Any], folder: Path, overrides: list[str]) -> None:
    """Run one config and print its table and the path of its report."""
    from scpo.evaluation.report import terminal_table
    from scpo.run.execute import execute
    from scpo.run.measure import command_line

    metrics = execute(config, folder, command_line(["train", *overrides]))
    sys.stdout.write(f"{terminal_table(metrics).rstrip()}\n\nreport: {folder / 'report.html'}\n")
    sys.stdout.flush()
