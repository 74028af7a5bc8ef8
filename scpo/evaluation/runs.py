"""Run folders: found below a root, read, and grouped into rows by what differs between their configurations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scpo.errors import UserError
from scpo.io import read_json, require_dir, require_file, shorten, shown

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

MAX_KEYS = 10_000
"""More keys than any configuration of a run has."""

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
            check_metrics(metrics, str(folder / "metrics.json"))
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
        raise UserError(f"{path}: expected keys and values, found {shown(value)}")
    return value


def read_yaml(path: Path) -> Any:
    """Read a plain YAML file (safe loader: no Python objects)."""
    import yaml

    try:
        return yaml.safe_load(require_file(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    # ValueError: not UTF-8, thousands of digits, a 13th month; RecursionError: thousands of brackets.
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise UserError(f"{path}: expected YAML, found something else ({shorten(str(error), 120)})") from error


def flat(value: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings as dotted keys; lists stay values.

    Raises:
        UserError: more keys than a configuration can have: an alias of YAML that stands inside itself, or many times.
    """
    out: dict[str, Any] = {}
    open_ = [("", value)]
    while open_:
        prefix, mapping = open_.pop()
        for key, item in mapping.items():
            if isinstance(item, Mapping):
                open_.append((f"{prefix}{key}.", item))
            else:
                out[f"{prefix}{key}"] = item
        if len(out) + len(open_) > MAX_KEYS or len(prefix) > MAX_KEYS:
            raise UserError(f"config.yaml: expected at most {MAX_KEYS} keys, found more; is it a configuration?")
    return out


def check_metrics(metrics: Mapping[str, Any], where: str) -> None:
    """Raise UserError unless metrics have what a table reads, each of its type (undefined numbers are null)."""

    def expect(fits: bool, key: str, expected: str, value: Any) -> None:
        if not fits:
            raise UserError(f"{where}: key {key}: expected {expected}, found {shown(value)}")

    def fraction(holder: Any, key: str, name: str, needed: bool = True) -> None:
        expect(
            isinstance(holder, Mapping) and (key in holder or not needed), f"{name}.{key}", "a number or null", holder
        )
        value = holder.get(key)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = value is None or (number and 0 <= value <= 1)
        expect(fits, f"{name}.{key}", "a fraction from 0 to 1 or null", value)

    def count(holder: Mapping[str, Any], key: str, name: str) -> None:
        value = holder.get(key)
        expect(type(value) is int and value >= 0, f"{name}.{key}", "a whole number from 0", value)

    expect(metrics.get("schema") == 1, "schema", "metrics of schema 1", metrics.get("schema"))
    groups = metrics.get("by_group")
    expect(isinstance(groups, Mapping), "by_group", "groups and their numbers", groups)
    for average in ("macro", "micro"):
        fraction(metrics.get(average), "accuracy", average)
    for baseline in ("chance", "length", "reference"):
        fraction(metrics.get("baselines"), baseline, "baselines", needed=False)
    for key in ("n_pairs", "n_clusters"):
        if metrics.get(key) is not None:
            count(metrics, key, "metrics")
    for group, cell in dict(groups or {}).items():
        name = f"by_group.{group}"
        expect(isinstance(cell, Mapping), name, "numbers by name", cell)
        for subset in ("all", "distinctive", "shared"):
            fraction(cell.get(subset), "accuracy", f"{name}.{subset}")
            fraction(cell.get("reference"), subset, f"{name}.reference")
        for baseline in ("chance", "length", "reference"):
            fraction(cell.get("baselines", {}), baseline, f"{name}.baselines", needed=False)
        fraction(cell, "kept_ratio", name, needed=False)
        for key in ("n_pairs", "n_clusters"):
            count(cell, key, name)
        expect(
            isinstance(cell.get("insufficient"), bool),
            f"{name}.insufficient",
            "true or false",
            cell.get("insufficient"),
        )


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
