"""Run folders: found below a root, read, and grouped into rows by what differs between their configurations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scpo.errors import UserError
from scpo.io import read_json, require_dir, require_file, shorten

FINISHED = "finished"
PRIORITY = (
    "selection.name",
    "conditioning.name",
    "balance.name",
    "loss.name",
    "model.name",
    "data.name",
    "groups.name",
)
"""Keys that label rows first, so that whatever merely follows from them does not."""

PLACES = ("run_dir", "name", "config_hash")
"""Keys that say where a run lies, not what it is."""


@dataclass(frozen=True)
class Run:
    """A finished run: its name below the root, its configuration as dotted keys, its metrics, and when it ended."""

    name: str
    config: dict[str, Any]
    metrics: dict[str, Any]
    finished: str = ""

    @property
    def seed(self) -> str:
        """The seed as text."""
        return str(self.config.get("seed"))


@dataclass
class Collected:
    """Finished runs, and the names of the others with their state."""

    runs: list[Run] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)


def collect(root: Path) -> Collected:
    """Find the run folders at or below `root`; a run folder holds status.json, or config.yaml and metrics.json.

    A run that is not finished, cannot be read, or repeats the configuration and seed of another is left out by name.

    Raises:
        UserError: no such folder, or no finished run in it.
    """
    root = require_dir(Path(root), "a folder of runs")
    found = Collected()
    for folder in sorted(_run_folders(root)):
        name = folder.relative_to(root).as_posix() if folder != root else folder.name or str(folder)
        try:
            status = (
                _mapping(read_json(folder / "status.json"), folder / "status.json")
                if (folder / "status.json").exists()
                else {}
            )
            state = str(status.get("state") or "without status.json")
            if state != FINISHED:
                found.left_out.append(
                    (name, state + (f" ({shorten(str(status['error']))})" if status.get("error") else ""))
                )
                continue
            config = flat(_mapping(read_yaml(folder / "config.yaml"), folder / "config.yaml"))
            metrics = _mapping(read_json(folder / "metrics.json"), folder / "metrics.json")
            if metrics.get("schema") != 1 or not isinstance(metrics.get("by_group"), dict):
                raise UserError(
                    f"{folder / 'metrics.json'}: expected metrics of schema 1, found {metrics.get('schema')!r}"
                )
        except UserError as error:
            found.left_out.append((name, f"unreadable ({error})"))
            continue
        found.runs.append(Run(name, config, metrics, str(status.get("finished") or "")))
    _drop_repeats(found)
    if not found.runs:
        states = "; ".join(f"{name}: {state}" for name, state in found.left_out[:10])
        raise UserError(
            f"{root}: expected at least one finished run, found {states or 'no run folder'}; start one with 'scpo train'"
        )
    return found


def _run_folders(root: Path) -> list[Path]:
    folders = []
    for here, below, files in os.walk(root):
        names = set(files)
        if "status.json" in names or {"config.yaml", "metrics.json"} <= names:
            folders.append(Path(here))
            below.clear()  # a run holds no runs
        below[:] = [b for b in below if not b.startswith(".")]
    return folders


def _mapping(value: Any, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{path}: expected keys and values, found {shorten(repr(value))}")
    return value


def read_yaml(path: Path) -> Any:
    """Read a plain YAML file (safe loader: no Python objects)."""
    import yaml

    try:
        return yaml.safe_load(require_file(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: expected YAML, found something else ({shorten(str(error), 120)})") from error


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys; lists stay values."""
    out: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            out.update(flat(item, f"{prefix}{key}."))
        else:
            out[f"{prefix}{key}"] = item
    return out


def _is_identity(key: str) -> bool:
    """False for seeds, places and Hydra's own keys: they tell two runs of one row apart, not two rows."""
    parts = key.split(".")
    return parts[-1] != "seed" and parts[0] not in ("hydra", *PLACES)


def varying_keys(runs: list[Run]) -> list[str]:
    """The fewest keys, in order of :data:`PRIORITY` and then by name, that tell the rows apart as all keys do."""
    keys = sorted({k for run in runs for k in run.config if _is_identity(k)})
    keys.sort(key=lambda k: (PRIORITY.index(k) if k in PRIORITY else len(PRIORITY), k))
    chosen: list[str] = []
    blocks = 1 if runs else 0
    for key in keys:
        finer = len({label(run, [*chosen, key]) for run in runs})
        if finer > blocks:
            chosen.append(key)
            blocks = finer
    if "selection.name" not in chosen and any("selection.name" in run.config for run in runs):
        chosen.insert(0, "selection.name")  # the arm always heads the row
    return chosen


def label(run: Run, keys: list[str]) -> tuple[str, ...]:
    """The run's values of the keys, as text; absent and null are one."""
    return tuple("" if run.config.get(k) is None else str(run.config[k]) for k in keys)


def rows_of(runs: list[Run], keys: list[str]) -> dict[tuple[str, ...], list[Run]]:
    """Runs of each row, rows in the order of the ablation and then by label, runs by seed."""
    arms = ("full", "filter", "weight", "inverse", "scpo", "random")
    out: dict[tuple[str, ...], list[Run]] = {}
    for run in sorted(runs, key=lambda r: (r.seed.zfill(12), r.name)):
        out.setdefault(label(run, keys), []).append(run)

    def order(values: tuple[str, ...]) -> tuple[Any, ...]:
        return tuple((arms.index(v) if v in arms else len(arms), v) for v in reversed(values))

    return dict(sorted(out.items(), key=lambda item: order(item[0])))


def _drop_repeats(found: Collected) -> None:
    """Keep the last finished of several runs with one configuration and seed: counting both would fake a smaller spread."""
    last: dict[tuple[str, ...], Run] = {}
    keys = sorted({k for run in found.runs for k in run.config if k.split(".")[0] not in ("hydra", *PLACES)})
    for run in sorted(found.runs, key=lambda r: (r.finished, r.name)):
        last[label(run, keys)] = run
    kept = {id(run) for run in last.values()}
    for run in found.runs:
        if id(run) not in kept:
            found.left_out.append((run.name, f"finished, repeated by {last[label(run, keys)].name}"))
    found.runs = [run for run in found.runs if id(run) in kept]
