"""Several processes on this machine: torch's elastic launcher starts workers that read the run folder's config.

The workers get the resolved config from ``RUN/config.yaml``, never the command line, so no second Hydra run can start.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from scpo.errors import UserError
from scpo.io import read_json

ERROR = "worker_error.json"


def launch(run_dir: Path, count: int) -> None:
    """Train the parts of a run on ``count`` processes and wait for them.

    Raises:
        UserError: a worker stopped with one, or crashed.
    """
    error_path = run_dir / "work" / ERROR
    error_path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={count}"]
    command += ["-m", "scpo.run.worker", str(run_dir)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count))),
    }
    done = subprocess.run(command, env=environment, stdout=sys.stderr, check=False)
    if done.returncode:
        if error_path.is_file():
            raise UserError(str(read_json(error_path)["error"]))
        raise RuntimeError(f"a worker process ended with exit code {done.returncode}; its message stands above")


def process_count(trainer: dict[str, Any]) -> int:
    """How many processes a trainer's devices ask for; more than one are launched, whatever the strategy is called."""
    devices = trainer["devices"]
    if isinstance(devices, list):
        return len(devices)
    if devices in ("auto", -1):
        import torch

        return max(1, torch.cuda.device_count()) if trainer["accelerator"] in ("gpu", "cuda", "auto") else 1
    return int(devices)


def read_config(run_dir: Path) -> dict[str, Any]:
    """The resolved config of a run folder."""
    from scpo.evaluation.runs import read_yaml

    path = Path(run_dir) / "config.yaml"
    if not path.is_file():
        raise UserError(f"{run_dir}: expected a run folder, found no config.yaml in it")
    config = read_yaml(path)
    if not isinstance(config, dict):
        raise UserError(f"{path}: expected a mapping of settings")
    return config
