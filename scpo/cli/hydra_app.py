"""Hydra behind scpo's rules: where its config tree lies, its errors as one line, and the sweep that tells all failures."""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import scpo
from scpo.errors import UserError
from scpo.io import read_json, write_json, write_text

RECORDS = "SCPO_SWEEP_RECORDS"
"""Environment variable: the folder where the jobs of the running sweep record how they ended; child processes inherit it."""


def conf_dir() -> Path:
    """The config tree: inside the installed package, or beside it in a checkout."""
    package = Path(scpo.__file__).parent
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "train.yaml").is_file():
            return folder
    raise UserError(f"the config tree is missing; expected it in {package / 'conf'}: reinstall scpo")


def run_hydra(config_name: str, argv: list[str], job: Callable[[Any], Any]) -> int:
    """Run a Hydra application with this command line, untouched; returns the exit code of a sweep, or 0.

    Raises:
        UserError: what Hydra says of the command line or the config, and what the job raises.
    """
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import HydraException
    from hydra.types import RunMode
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    OmegaConf.register_new_resolver("scpo_sweep_dir", sweep_dir, replace=True)
    before, full_error = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    # With this Hydra lets exceptions through instead of printing them and leaving with code 1.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    os.environ.pop(RECORDS, None)
    sys.argv = [f"scpo {config_name}", *argv]
    failed: list[Exception] = []

    def quiet_job(config: Any) -> None:
        try:
            job(config)
        except Exception as error:
            # Hydra would print a line of its own before it passes the error of a single run on.
            if HydraConfig.get().mode != RunMode.RUN:
                raise
            failed.append(error)

    try:
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=config_name)(quiet_job)()
        if failed:
            raise failed[0]
        records = os.environ.get(RECORDS)
        return 0 if records is None else tell_sweep(Path(records))
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(explain(error, config_name)) from error
    except ValueError as error:
        # Hydra's word for an override such as "=3".
        if error in failed:
            raise
        raise UserError(explain(error, config_name)) from error
    finally:
        sys.argv = before
        os.environ.pop("HYDRA_FULL_ERROR")
        if full_error is not None:
            os.environ["HYDRA_FULL_ERROR"] = full_error
        # A sweep that was interrupted, or that Hydra stopped, leaves no records behind.
        if (left := os.environ.pop(RECORDS, None)) is not None:
            shutil.rmtree(left, ignore_errors=True)


def explain(error: BaseException, config_name: str) -> str:
    """Hydra's message in one line, with its cause and where to look."""
    texts = [str(error)]
    cause = error.__cause__
    while cause is not None:
        if str(cause) not in texts[-1]:
            texts.append(str(cause))
        cause = cause.__cause__
    lines = [line.strip() for text in texts for line in text.splitlines()]
    dropped = ("full_key:", "object_type=", "reference_type=", "Set the environment variable")
    lines = [line for line in lines if line and not line.startswith(dropped)]
    return f"{'; '.join(lines)} ('scpo {config_name} --help' shows the config groups and keys)"


def sweep_dir(run_dir: str | None, name: str) -> str:
    """The root of a sweep: `run_dir`, or runs/<name>."""
    from scpo.run.folder import safe_name

    root = Path(str(run_dir)) if run_dir else Path("runs") / safe_name(name)
    if root.exists() and not root.is_dir():
        raise UserError(f"run_dir={root}: expected a folder for the jobs of the sweep, found a file")
    return str(root)


def make_sweep_records() -> Any:
    """The Hydra callback that opens a folder of records when a sweep starts."""
    from hydra.experimental.callback import Callback

    class SweepRecords(Callback):
        def on_multirun_start(self, config: Any, **kwargs: Any) -> None:
            import tempfile

            root = Path(str(config.hydra.sweep.dir)).absolute()
            root.mkdir(parents=True, exist_ok=True)
            os.environ[RECORDS] = tempfile.mkdtemp(prefix=".sweep.", dir=root)

    return SweepRecords()


def start_job(command: str, config: Any, run: Callable[[dict[str, Any], Path | None, list[str]], None]) -> None:
    """Start what Hydra composed: a single run in the folder of `run_dir`, or one job of a sweep.

    Raises:
        UserError: unknown or missing keys, or several choices for one group.
    """
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf import OmegaConf

    from scpo.cli.keys import check_keys
    from scpo.cli.logs import set_up

    # Launchers start jobs in fresh processes.
    set_up()
    hydra = HydraConfig.get()
    overrides = [str(o) for o in hydra.overrides.task]
    for override in overrides:
        group, _, choice = override.lstrip("+").partition("=")
        if choice.startswith("[") and (conf_dir() / group).is_dir():
            # Hydra would merge the files, and the last one would win.
            raise UserError(
                f"{override}: expected one choice; to run one after another: -m {group}={choice.strip('[]')}"
            )
    plain: Any = OmegaConf.to_container(config, resolve=True)
    check_keys(plain, conf_dir(), command)
    if hydra.mode == RunMode.MULTIRUN:
        sweep_job(command, plain, Path(str(hydra.sweep.dir)), int(hydra.job.num), overrides, run)
    else:
        run(plain, Path(str(plain["run_dir"])) if plain["run_dir"] else None, overrides)


def sweep_job(
    command: str,
    config: dict[str, Any],
    root: Path,
    number: int,
    overrides: list[str],
    run: Callable[[dict[str, Any], Path | None, list[str]], None],
) -> None:
    """One job of a sweep, in ``root/<hash8>``; a failure is recorded at once and the other jobs go on.

    Args:
        command: such as "train".
        config: resolved.
        root: the folder of the sweep.
        number: of the job.
        overrides: what the user and the sweep set.
        run: does the work in a folder.
    """
    from scpo.run.config import config_hash
    from scpo.run.folder import RunFolder
    from scpo.run.measure import command_line

    folder = root / config_hash(config)[:8]
    if config["fail_fast"] and any_failed():
        record(number, folder, "skipped", None)
        return
    sys.stderr.write(f"job {number}: {' '.join(overrides)} -> {folder}\n")
    try:
        run(config, folder, overrides)
    except Exception as error:
        text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        text = " ".join(text.split())
        sys.stderr.write(f"job {number} failed: {text}\n")
        RunFolder(folder, config).record_failure(text, command_line([command, *overrides]))
        if folder.is_dir() and not isinstance(error, UserError):
            write_text(folder / "error.txt", traceback.format_exc())
        record(number, folder, "failed", text)
        return
    record(number, folder, "finished", None)


def record(number: int, folder: Path, state: str, error: str | None) -> None:
    """Note how a job of the running sweep ended."""
    write_json(
        Path(os.environ[RECORDS]) / f"{number:06d}.json",
        {"number": number, "folder": str(folder), "state": state, "error": error},
    )


def any_failed() -> bool:
    """True where a job of the running sweep has failed."""
    return any(read_json(p)["state"] == "failed" for p in Path(os.environ[RECORDS]).glob("*.json"))


def tell_sweep(records: Path) -> int:
    """Print how the jobs of a sweep ended, every failure among them; 1 if one failed, else 0."""
    jobs = [read_json(path) for path in sorted(records.glob("*.json"))]
    if not jobs:
        raise UserError("the sweep has no job: one of its keys has no value")
    failed = [job for job in jobs if job["state"] == "failed"]
    skipped = [job for job in jobs if job["state"] == "skipped"]
    done = len(jobs) - len(failed) - len(skipped)
    text = f"{len(jobs)} jobs: {done} finished, {len(failed)} failed"
    text += f", {len(skipped)} not started (fail_fast)" if skipped else ""
    sys.stderr.write(f"{text}; collect them with: scpo table {records.parent}\n")
    for job in failed:
        sys.stderr.write(f"failed: job {job['number']}, {job['folder']}: {job['error']}\n")
    return 1 if failed else 0
