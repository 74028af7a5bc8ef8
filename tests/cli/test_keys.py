"""Keys that no shipped file knows, keys that are gone, and several choices for one group stop a run."""

from __future__ import annotations

from typing import Any

import pytest
from world import compose

from scpo.cli.hydra_app import conf_dir
from scpo.cli.keys import check_keys, known_keys
from scpo.errors import UserError


@pytest.mark.parametrize("name", ["train", "evaluate"])
def test_what_hydra_composes_has_exactly_the_known_keys(name: str) -> None:
    check_keys(compose(name=name), conf_dir(), name)


@pytest.mark.parametrize("override", ["experiment=prism_main", "model=tulu", "logger=wandb", "balance=effective"])
def test_every_choice_passes(override: str) -> None:
    check_keys(compose(override), conf_dir(), "train")


def test_unknown_keys_are_named_with_what_was_meant() -> None:
    config: dict[str, Any] = compose()
    config["selecton"] = {}
    config["selection"]["tao"] = 0.5
    with pytest.raises(
        UserError, match=r"selecton: unknown key\. Did you mean 'selection'\?; selection\.tao: unknown key"
    ):
        check_keys(config, conf_dir(), "train")


def test_missing_keys_are_named() -> None:
    config: dict[str, Any] = compose()
    del config["balance"], config["selection"]["tau"]
    with pytest.raises(UserError, match=r"balance: missing; selection\.tau: missing"):
        check_keys(config, conf_dir(), "train")


def test_keys_of_other_libraries_are_free() -> None:
    config: dict[str, Any] = compose()
    config["logger"]["flush_logs_every_n_steps"] = 5
    config["callbacks"]["extra"]["mine"] = {"_target_": "x"}
    check_keys(config, conf_dir(), "train")


def test_sections_know_the_keys_of_all_their_files() -> None:
    some, every = known_keys(conf_dir(), "train")["model"]
    assert {"name_or_path", "max_length", "lora", "scratch"} <= every <= some


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("+foo=1", "foo: unknown key"),
        ("++selection.foo=1", "selection.foo: unknown key"),
        ("~selection.tau", "selection.tau: missing"),
        ("selection=[full,filter]", "to run one after another: -m selection=full,filter"),
    ],
)
def test_the_command_stops_with_one_line(scpo: Any, override: str, said: str) -> None:
    done = scpo("train", override)
    assert done.code == 2
    assert said in done.line
