"""Conditioning: which models a run trains, and how a group reaches each of them.

A run has one or more parts; a part is one model. `separate` trains a part per group, the others one part for all groups:
`none` is not told the group, `prefix` reads its name in the text, and `embedding`, `head` and `adapter` learn something for
each group inside one shared network (:mod:`scpo.model.steering`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scpo.errors import UserError, did_you_mean
from scpo.groups import slug
from scpo.io import read_json, shown, write_json

LEARNED = ("embedding", "head", "adapter")
MODES = ("separate", "none", "prefix", *LEARNED)
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


def named_groups(mode: str, groups: Sequence[str | None]) -> list[str | None]:
    """What each text's group is called in the input: the group itself with `prefix`, else nothing."""
    return list(groups) if mode == "prefix" else [None] * len(groups)


def group_rows(known: Sequence[str], groups: Sequence[str | None]) -> npt.NDArray[np.int64]:
    """(n,) each text's row among the groups of a learned mode; -1 where none is named.

    Raises:
        UserError: a group that the model does not know.
    """
    rows: dict[str | None, int] = {group: row for row, group in enumerate(known)}
    rows[None] = -1
    for group in dict.fromkeys(groups):
        if group not in rows:
            raise UserError(
                f"expected groups that the model knows ({', '.join(known)}), found {group!r}."
                + did_you_mean(str(group), known)
            )
    return np.array([rows[group] for group in groups], dtype=np.int64)


def conditioned_on(mode: str, group: str) -> str | None:
    """The `conditioned_on` of a prediction for a group: null for a model that is not told."""
    return None if mode == "none" else group


def has_default(mode: str, group_dropout: float) -> bool:
    """True where rewards without a group were trained for: always without groups, else with group dropout."""
    return mode == "none" or (mode != "separate" and group_dropout > 0)


def write_steering(
    model: Path,
    config: dict[str, Any],
    groups: Sequence[str],
    mode: str,
    scale: dict[str, list[float]] | None = None,
    learned: dict[str, Any] | None = None,
    default: bool | None = None,
) -> None:
    """Write ``model/steering/steering.json``: what a later reader must know to ask the model in the way it was trained.

    A group's own folder below a `separate` model is itself a model without groups: its mode is `none`.

    Args:
        scale: mean and standard deviation of each group's rewards, to put groups on one scale.
        learned: what :func:`scpo.model.steering_files.describe` says of the learned steering.
        default: rewards without a group were trained for; None: as the config's group dropout says.
    """
    conditioning = config["conditioning"]
    write_json(
        model / STEERING,
        {
            "schema": 1,
            "mode": mode,
            "template": conditioning["template"],
            "groups": {group: part.folder for part in parts(mode, groups) for group in part.groups},
            "default": has_default(mode, conditioning["group_dropout"]) if default is None else default,
            "scale": scale,
            "learned": learned,
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
    kinds: dict[str, Any] = {"mode": str, "template": str, "groups": dict, "max_length": int, "overlong": str}
    kinds |= {"default": bool, "scale": dict | None, "learned": dict | None}
    if (
        not isinstance(found, dict)
        or found.get("schema") != 1
        or not all(k in found and isinstance(found[k], kind) for k, kind in kinds.items())
        or found["mode"] not in MODES
    ):
        raise UserError(f"{path}: expected a steering file (schema 1 with {', '.join(kinds)}), found another document")
    # A model folder of unknown origin must not send its reader to weights elsewhere.
    if not all(
        isinstance(f, str) and (f == "." or (f != ".." and Path(f).name == f)) for f in found["groups"].values()
    ):
        raise UserError(f"{path}: expected a steering file with groups as a map from group to a folder beside it")
    if (found["learned"] is not None) != (found["mode"] in LEARNED):
        there = "nothing" if found["learned"] is None else "something"
        wanted = "what was learned for each group" if found["mode"] in LEARNED else "nothing learned for groups"
        raise UserError(f"{path}: mode {found['mode']!r}: expected {wanted}, found {there}: the file was changed")
    folders = list(found["groups"].values())
    separate = found["mode"] == "separate"
    fits = "." not in folders and len(set(folders)) == len(folders) if separate else set(folders) <= {"."}
    if not fits:
        wanted = "a folder of its own for each group" if separate else "one folder for all groups"
        raise UserError(f"{path}: mode {found['mode']!r}: expected {wanted}, found {shown(found['groups'])}")
    for group, scale in (found["scale"] or {}).items():
        usable = isinstance(scale, list) and len(scale) == 2 and all(isinstance(x, int | float) for x in scale)
        if group not in found["groups"] or not usable or scale[1] < 0:
            raise UserError(
                f"{path}: scale: expected [mean, deviation] for a known group, found {group!r}: {shown(scale)}"
            )
    return found


def folder_of(model: Path, steering: dict[str, Any] | None, group: str | None) -> Path:
    """The folder whose weights serve a group.

    Raises:
        UserError: a group that the model does not know, or none where the model has no default.
    """
    if steering is None or steering["mode"] != "separate":
        return Path(model)
    known = steering["groups"]
    if group is None:
        raise UserError(f"{model}: holds one model per group and no default; name a group.{did_you_mean('', known)}")
    if group not in known:
        raise UserError(
            f"{model}: expected a group that the model was trained for, found {group!r}.{did_you_mean(group, known)}"
        )
    return Path(model) / known[group]
