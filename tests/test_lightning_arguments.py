"""The arguments of `scpo cli` against the config tree: none forgotten, none astray; and messages in their words."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from scpo.cli.hydra_app import conf_dir
from scpo.cli.lightning import tidy
from scpo.errors import UserError
from scpo.lightning_cli import (
    DATA_CHOICES,
    DATA_KEYS,
    MODEL_CHOICES,
    MODEL_KEYS,
    SteerableModule,
    TableData,
    compose,
    own_names,
)


def test_every_argument_is_a_key_or_a_choice_of_the_tree() -> None:
    """None is forgotten, none goes to a key that the tree lacks, and what is left null is what the tree says."""
    for target, choices, keys, linked in (
        (TableData, DATA_CHOICES, DATA_KEYS, {"groups", "seed", "trainer"}),
        (SteerableModule, MODEL_CHOICES, MODEL_KEYS, {"data"}),
    ):
        parameters = inspect.signature(target).parameters
        assert set(parameters) == set(choices) | set(keys) | linked
        assert all(parameters[name].default is None for name in keys)
        assert f"{target.__doc__}".count("\n        ") >= len(parameters)
        for name, group in choices.items():
            # An annotation is text here; each choice that it names is a file of the group, and the other way round.
            files = {path.stem for path in (conf_dir() / group).glob("*.yaml")}
            assert {word.strip("\"' ") for word in parameters[name].annotation[8:-1].split(",")} == files
        for key in keys.values():
            changed: Any = compose({}, {key: "changed"})
            for part in key.split("."):
                changed = changed[part]
            assert changed == "changed"
    plain = compose({}, {})
    assert compose({}, {"optim.lr": None}) == plain
    assert compose({}, {"optim.lr": 0.5})["optim"]["factory"]["lr"] == 0.5
    assert compose({}, {"data.dir": "a=b,{c}'"})["data"]["dir"] == "a=b,{c}'"
    assert plain["conditioning"]["name"] == inspect.signature(SteerableModule).parameters["conditioning"].default


def test_messages_in_the_words_of_the_command() -> None:
    with pytest.raises(UserError) as error, own_names():
        raise UserError("optim.lr: wrong; use selection=full or groups.names=[a], not RUN/optim.lr or a=b.optim.lr")
    assert str(error.value) == (
        "model.lr: wrong; use data.selection=full or data.groups=[a], not RUN/optim.lr or a=b.optim.lr"
    )
    assert tidy("something\nelse") == "something else"
