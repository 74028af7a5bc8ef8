"""Conditioning: which models a run trains, and how a group reaches each of them.

A run has one or more parts; a part is one model. `separate` trains a part per group, the others one part for all groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scpo.errors import UserError, did_you_mean
from scpo.groups import slug
from scpo.io import read_json, write_json

MODES = ("separate", "none", "prefix")
STEERING = Path("steering") / "steering.json"


@dataclass(frozen=True)
class Part:
    """One model of a run.

    Attributes:
        name: for folders and messages; the group's slug with `separate`, else "all".
        groups: whose pairs it is trained on and tested on.
        folder: below `model/`; "." is `model/` itself.
    """

    name: str
    groups: tuple[str, ...]
    folder: str


def parts(mode: str, groups: Sequence[str]) -> list[Part]:
    """The models that a conditioning mode trains."""
    if mode == "separate":
        return [Part(slug(group), (group,), slug(group)) for group in groups]
    return [Part("all", tuple(groups), ".")]


def named_groups(mode: str, groups: Sequence[str]) -> list[str | None]:
    """What each text's group is called in the input: the group itself with `prefix`, else nothing."""
    return list(groups) if mode == "prefix" else [None] * len(groups)


def conditioned_on(mode: str, group: str) -> str | None:
    """The `conditioned_on` of a prediction for a group: null for a model that is not told."""
    return None if mode == "none" else group


def write_steering(model: Path, config: dict[str, Any], groups: Sequence[str], mode: str) -> None:
    """Write ``model/steering/steering.json``: what a later reader must know to ask the model in the way it was trained.

    A group's own folder below a `separate` model is itself a model without groups: its mode is `none`.
    """
    write_json(
        model / STEERING,
        {
            "schema": 1,
            "mode": mode,
            "template": config["conditioning"]["template"],
            "groups": {group: part.folder for part in parts(mode, groups) for group in part.groups},
            "max_length": config["model"]["max_length"],
            "overlong": config["model"]["overlong"],
            "trained_dtype": config["model"]["dtype"],
            "trained_precision": str(config["trainer"]["precision"]),
        },
    )


def read_steering(model: Path) -> dict[str, Any] | None:
    """The steering file of a model folder, or None for a plain Hugging Face folder.

    Raises:
        UserError: not the document that :func:`write_steering` writes.
    """
    path = Path(model) / STEERING
    if not path.is_file():
        return None
    found = read_json(path)
    keys = ("mode", "template", "groups", "max_length", "overlong")
    kinds = {"mode": str, "template": str, "groups": dict, "max_length": int, "overlong": str}
    if (
        not isinstance(found, dict)
        or found.get("schema") != 1
        or not all(isinstance(found.get(k), kinds[k]) for k in keys)
        or found["mode"] not in MODES
    ):
        raise UserError(f"{path}: expected a steering file (schema 1 with {', '.join(keys)}), found another document")
    folders = found["groups"].values() if isinstance(found["groups"], dict) else [None]
    # A model folder of unknown origin must not send its reader to weights elsewhere.
    if not all(isinstance(f, str) and (f == "." or (f != ".." and Path(f).name == f)) for f in folders):
        raise UserError(f"{path}: expected a steering file with groups as a map from group to a folder beside it")
    return found


def folder_of(model: Path, steering: dict[str, Any] | None, group: str | None) -> Path:
    """The folder whose weights serve a group.

    Raises:
        UserError: a group that the model does not know, or none where the model has no default.
    """
    if steering is None or steering["mode"] in ("none", "prefix"):
        return Path(model)
    known = steering["groups"]
    if group is None:
        raise UserError(f"{model}: holds one model per group and no default; name a group.{did_you_mean('', known)}")
    if group not in known:
        raise UserError(
            f"{model}: expected a group that the model was trained for, found {group!r}.{did_you_mean(group, known)}"
        )
    return Path(model) / known[group]
