"""``scpo evaluate``: a Hydra application around :mod:`scpo.run.evaluate`."""

from __future__ import annotations

import sys
from typing import Any

from scpo.cli.hydra_app import run_hydra


def main(argv: list[str]) -> int:
    """Evaluate with these Hydra overrides."""
    return run_hydra("evaluate", argv, job)


def job(config: Any) -> None:
    """One Hydra job."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    from scpo.cli.logs import set_up
    from scpo.evaluation.report import terminal_table
    from scpo.run.evaluate import evaluate
    from scpo.run.measure import command_line

    set_up()
    plain: Any = OmegaConf.to_container(config, resolve=True)
    overrides = [str(o) for o in HydraConfig.get().overrides.task]
    folder, metrics = evaluate(
        plain, {o.split("=")[0].lstrip("+") for o in overrides}, command_line(["evaluate", *overrides])
    )
    sys.stdout.write(f"{terminal_table(metrics).rstrip()}\n\nreport: {folder / 'report.html'}\n")
