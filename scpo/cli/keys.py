"""The keys that a config may and must have, read off the shipped tree: what Hydra lets through with + or ~ stops here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scpo.errors import UserError, did_you_mean
from scpo.evaluation.runs import read_yaml

FREE = ("logger", "hydra")
"""Sections whose keys belong to other libraries."""


def check_keys(config: dict[str, Any], tree: Path, name: str) -> None:
    """Raise UserError when a config has a key that no shipped file knows, lacks one that all of them have, or merges choices.

    Args:
        config: the resolved config.
        tree: the folder of the config tree.
        name: of the primary config, such as "train".
    """
    sections = known_keys(tree, name)
    wrong = [f"{key}: unknown key.{did_you_mean(key, sections)}" for key in config if key not in sections]
    wrong += [f"{key}: missing" for key in sections if key not in config]
    for section, (some, every) in sections.items():
        found = config.get(section)
        if section in FREE or not some or not isinstance(found, dict):
            continue
        wrong += [f"{section}.{key}: unknown key.{did_you_mean(key, some)}" for key in found if key not in some]
        wrong += [f"{section}.{key}: missing" for key in sorted(every - set(found))]
    if wrong:
        raise UserError("; ".join(wrong))


def known_keys(tree: Path, name: str) -> dict[str, tuple[set[str], set[str]]]:
    """Per section: the keys of any of its files, and those of all of them; both empty for a plain value."""
    primary = read_yaml(tree / f"{name}.yaml")
    sections: dict[str, tuple[set[str], set[str]]] = {}
    for entry in primary["defaults"]:
        group = next(iter(entry)) if isinstance(entry, dict) else entry
        if group.startswith(("override ", "experiment", "_self_")):
            continue
        if (tree / group).is_dir():
            files = [set(read_yaml(path)) for path in sorted((tree / group).glob("*.yaml"))]
            sections[group] = (set.union(*files), set.intersection(*files))
        else:
            sections |= _sections_of(read_yaml(tree / f"{group}.yaml"))
    for key, (some, every) in _sections_of(
        {k: v for k, v in primary.items() if k not in ("defaults", "hydra")}
    ).items():
        # The primary config may set keys of a group's section; what all choices have is in that section whatever it sets.
        known, always = sections.get(key, (set(), every))
        sections[key] = (known | some, always)
    return sections


def _sections_of(document: dict[str, Any]) -> dict[str, tuple[set[str], set[str]]]:
    return {k: (set(v), set(v)) if isinstance(v, dict) else (set(), set()) for k, v in document.items()}
