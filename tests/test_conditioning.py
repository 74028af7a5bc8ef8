"""Which models a mode trains, what it tells them, and the file that a later reader needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scpo.conditioning import (
    STEERING,
    Part,
    conditioned_on,
    folder_of,
    named_groups,
    parts,
    read_steering,
    write_steering,
)
from scpo.errors import UserError

GROUPS = ["Chile", "South Africa"]


def config() -> dict[str, Any]:
    return {
        "conditioning": {"name": "separate", "template": "The reader lives in {group}.", "group_dropout": 0.0},
        "model": {"max_length": 128, "overlong": "truncate", "dtype": "float32"},
        "trainer": {"precision": "32-true"},
    }


def test_separate_is_one_model_per_group_and_the_others_one_for_all() -> None:
    assert parts("separate", GROUPS) == [
        Part("Chile", ("Chile",), "Chile"),
        Part("South_Africa", ("South Africa",), "South_Africa"),
    ]
    for mode in ("none", "prefix"):
        assert parts(mode, GROUPS) == [Part("all", ("Chile", "South Africa"), ".")]


def test_only_prefix_names_the_group_in_the_text() -> None:
    assert named_groups("prefix", GROUPS) == GROUPS
    assert named_groups("none", GROUPS) == named_groups("separate", GROUPS) == [None, None]


def test_conditioned_on_is_null_only_for_a_model_that_is_not_told() -> None:
    assert [conditioned_on(mode, "Chile") for mode in ("separate", "prefix", "none")] == ["Chile", "Chile", None]


@pytest.mark.parametrize(
    ("mode", "folders"),
    [("separate", {"Chile": "Chile", "South Africa": "South_Africa"}), ("prefix", {"Chile": ".", "South Africa": "."})],
)
def test_the_steering_file_leads_to_the_weights(tmp_path: Path, mode: str, folders: dict[str, str]) -> None:
    write_steering(tmp_path, config(), GROUPS, mode)
    steering = read_steering(tmp_path)
    assert steering is not None
    assert steering["groups"] == folders
    assert {k: steering[k] for k in ("schema", "mode", "template", "max_length", "overlong", "trained_dtype")} == {
        "schema": 1,
        "mode": mode,
        "template": "The reader lives in {group}.",
        "max_length": 128,
        "overlong": "truncate",
        "trained_dtype": "float32",
    }
    for group, folder in folders.items():
        assert folder_of(tmp_path, steering, group) == tmp_path / folder


def test_a_plain_folder_and_a_model_for_all_groups_serve_anyone(tmp_path: Path) -> None:
    assert read_steering(tmp_path) is None
    assert folder_of(tmp_path, None, "Chile") == tmp_path
    write_steering(tmp_path, config(), GROUPS, "prefix")
    assert folder_of(tmp_path, read_steering(tmp_path), None) == tmp_path


def test_a_group_without_a_model_and_no_group_at_all(tmp_path: Path) -> None:
    write_steering(tmp_path, config(), GROUPS, "separate")
    steering = read_steering(tmp_path)
    with pytest.raises(UserError, match=r"found 'Chili'. Did you mean 'Chile'"):
        folder_of(tmp_path, steering, "Chili")
    with pytest.raises(UserError, match=r"name a group\. Known: Chile, South Africa"):
        folder_of(tmp_path, steering, None)


def document(**changes: object) -> dict[str, object]:
    good = {"schema": 1, "mode": "separate", "template": "{group}", "groups": {"Chile": "Chile"}}
    more = {"max_length": 8, "overlong": "drop", "default": False, "scale": None, "learned": None}
    return {**good, **more, **changes}


def test_a_groups_own_folder_is_a_model_without_groups(tmp_path: Path) -> None:
    write_steering(tmp_path, config(), ["Chile"], "none")
    steering = read_steering(tmp_path)
    assert folder_of(tmp_path, steering, None) == folder_of(tmp_path, steering, "Chile") == tmp_path


@pytest.mark.parametrize(
    "found",
    [
        [],
        {"schema": 1, "mode": "prefix"},
        document(schema=2),
        document(groups=["Chile"]),
        document(groups={"Chile": 3}),
        document(groups={"Chile": ".."}),
        document(groups={"Chile": "../other"}),
        document(groups={"Chile": "/other"}),
    ],
)
def test_another_document_is_refused(tmp_path: Path, found: object) -> None:
    path = tmp_path / STEERING
    path.parent.mkdir()
    path.write_text(json.dumps(document()))
    assert read_steering(tmp_path) == document()
    path.write_text(json.dumps(found))
    with pytest.raises(UserError, match=r"steering\.json: expected a steering file"):
        read_steering(tmp_path)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            document(mode="embedding", groups={"Chile": "."}),
            "mode 'embedding': expected what was learned for each group",
        ),
        (
            document(mode="prefix", groups={"Chile": "."}, learned={}),
            "mode 'prefix': expected nothing learned for groups",
        ),
        (document(learned={}), "mode 'separate': expected nothing learned"),
        (document(groups={"Chile": "Chile", "Mexico": "Chile"}), "expected a folder of its own for each group"),
        (document(groups={"Chile": "."}), "expected a folder of its own for each group"),
        (document(mode="none", groups={"Chile": "Chile"}), "expected one folder for all groups"),
        (document(scale={"Chile": [0.0, -1.0]}), "scale: expected .mean, deviation."),
        (document(scale={"Peru": [0.0, 1.0]}), "scale: expected .mean, deviation. for a known group"),
        ({k: v for k, v in document().items() if k != "scale"}, "expected a steering file"),
    ],
)
def test_a_steering_file_that_was_changed_is_refused(tmp_path: Path, found: object, said: str) -> None:
    path = tmp_path / STEERING
    path.parent.mkdir()
    path.write_text(json.dumps(found))
    with pytest.raises(UserError, match=said):
        read_steering(tmp_path)
