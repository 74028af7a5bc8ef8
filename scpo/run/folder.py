"""The run folder: who works on it, its status.json, and whether its work is already done."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from scpo import __version__
from scpo.conditioning import read_steering
from scpo.errors import UserError
from scpo.io import read_json, write_json, write_text
from scpo.run.config import Config, config_hash

STATES = ("running", "finished", "failed", "interrupted")
PACKAGES = ("torch", "lightning", "transformers", "datasets", "torchmetrics", "hydra-core", "numpy", "pandas")


class RunFolder:
    """A run folder and the pieces of work inside it.

    `status.json` says running, finished, failed or interrupted. Work in progress lies in `work/` and `checkpoints/` and is
    removed at the end.
    """

    def __init__(self, path: Path, config: Config) -> None:
        self.path = Path(path)
        self.config = config
        self.hash = config_hash(config)

    @property
    def work(self) -> Path:
        """Finished pieces of an unfinished run."""
        return self.path / "work"

    @property
    def status_path(self) -> Path:
        """Where the state is written."""
        return self.path / "status.json"

    def status(self) -> dict[str, Any] | None:
        """The contents of status.json, or None where there is none."""
        if not self.status_path.is_file():
            return None
        status = read_json(self.status_path)
        if not isinstance(status, dict) or status.get("state") not in STATES or "config_hash" not in status:
            raise UserError(f"{self.status_path}: expected the state of a run, found another document; set run_dir")
        return status

    def record_failure(self, error: str, command: str) -> None:
        """Write why a run could not even start. The status of a run that did start is left as it is."""
        if self.path.exists():
            try:
                status = self.status() if self.path.is_dir() else None
            except UserError:
                return
            if status is None or status["state"] != "failed" or status.get("inputs"):
                return
        self.path.mkdir(parents=True, exist_ok=True)
        record = {**self._record({}, command), "state": "failed", "finished": _now(), "error": error}
        write_json(self.status_path, record)

    def _record(self, inputs: dict[str, str], command: str) -> dict[str, Any]:
        return {
            "state": "running",
            "started": _now(),
            "finished": None,
            "versions": versions(),
            "config_hash": self.hash,
            "inputs": inputs,
            "command": command,
            "cwd": str(Path.cwd()),
            "error": None,
        }

    def is_finished(self, inputs: dict[str, str]) -> bool:
        """True where this very run (same config, same data, same models) has ended well."""
        status = self.status()
        return bool(
            status
            and status["state"] == "finished"
            and status.get("config_hash") == self.hash
            and status.get("inputs") == inputs
            and self._is_whole()
        )

    def _is_whole(self) -> bool:
        """True where the results of a finished run are all there; what somebody removed or broke is made again."""
        try:
            metrics = read_json(self.path / "metrics.json")
            steering = read_steering(self.path / "model")
        except UserError:
            return False
        trained = "run" not in self.config and "selection" in self.config
        folders = set(steering["groups"].values()) if steering is not None else {"."}
        return (
            isinstance(metrics, dict)
            and metrics.get("schema") == 1
            and all((self.path / name).is_file() for name in ("predictions.parquet", "report.html", "report.md"))
            and (not trained or all((self.path / "model" / f / "config.json").is_file() for f in folders))
        )

    @contextlib.contextmanager
    def open(self, inputs: dict[str, str], command: str) -> Iterator[None]:
        """Hold the folder while working in it; the state at the end says how the block ended.

        Pieces of an earlier try are kept when config and inputs are the same, else cleared.

        Raises:
            UserError: the folder holds another run, other files, or another process works in it.
        """
        self._refuse_foreign()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / ".lock")
            lock.acquire(timeout=0)
        except Timeout as error:
            raise UserError(
                f"{self.path}: another process is working on this run; wait for it or set run_dir"
            ) from error
        except OSError as error:
            raise UserError(f"{self.path}: cannot be used as the folder of a run ({error}); set run_dir") from error
        try:
            before = self.status()
            if before is None or before.get("config_hash") != self.hash or before.get("inputs") != inputs:
                self._clear()
            record = self._record(inputs, command)
            # The status goes first: it is what marks the folder as a run's.
            write_json(self.status_path, record)
            write_text(self.path / "config.yaml", yaml.safe_dump(self.config, sort_keys=False, allow_unicode=True))
            try:
                yield
            except BaseException as error:
                interrupted = isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)
                text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
                state = "interrupted" if interrupted else "failed"
                write_json(self.status_path, {**record, "state": state, "finished": _now(), "error": text})
                raise
            write_json(self.status_path, {**record, "state": "finished", "finished": _now()})
            shutil.rmtree(self.work, ignore_errors=True)
        finally:
            lock.release()

    def _refuse_foreign(self) -> None:
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise UserError(f"{self.path}: expected a folder for the run, found a file; set run_dir")
        status = self.status()
        if status is None:
            others = sorted(p.name for p in self.path.iterdir() if p.name != ".lock")
            if others:
                raise UserError(
                    f"{self.path}: expected a new or empty folder, found one with {', '.join(others[:5])}; set run_dir"
                )
        elif status.get("state") == "finished" and status.get("config_hash") != self.hash:
            raise UserError(
                f"{self.path}: holds a finished run of another config (hash {str(status.get('config_hash'))[:8]}, this one is "
                f"{self.hash[:8]}); choose another run_dir or remove the folder"
            )

    def _clear(self) -> None:
        for name in ("work", "checkpoints", "model", "logs", "plots"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        for name in ("metrics.json", "predictions.parquet", "report.md", "report.html", "error.txt"):
            (self.path / name).unlink(missing_ok=True)


def default_run_dir(config: Config) -> Path:
    """``runs/<name>-<hash8>``."""
    return Path("runs") / f"{safe_name(config['name'])}-{config_hash(config)[:8]}"


def safe_name(name: str) -> str:
    """A name for a folder, without separators, ``=`` or ``,``."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in str(name)) or "run"


def versions() -> dict[str, str]:
    """Versions of scpo, Python and the packages that numbers depend on."""
    found = {"scpo": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def is_main_process() -> bool:
    """True on the one process that writes files."""
    return os.environ.get("RANK", "0") == "0"
