"""Every shipped config: composed, checked, its targets found, its keys read; and the names that scripts rely on."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.utils import get_object, instantiate
from world import compose

from scpo.cli.cli import examples_dir
from scpo.cli.hydra_app import conf_dir
from scpo.conditioning import MODES
from scpo.lightning_cli import SteerableModule, TableData
from scpo.run.config import check_train_config

CONF = conf_dir()
CLI = examples_dir()
"""Whole configs of `scpo cli`, which is not Hydra's."""
GROUPS = sorted(p.name for p in CONF.iterdir() if p.is_dir())
CHOICES = [(g, p.stem) for g in GROUPS for p in sorted((CONF / g).glob("*.yaml"))]
EXPERIMENTS = [name for group, name in CHOICES if group == "experiment"]


def targets(value: Any) -> Iterator[str]:
    """Every _target_ below a config."""
    if isinstance(value, dict):
        if "_target_" in value:
            yield value["_target_"]
        for inner in value.values():
            yield from targets(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from targets(inner)


def leaves(value: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of the keys whose values are no mappings."""
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from leaves(inner, (*path, key))
        else:
            yield (*path, key)


def test_the_tree_is_found() -> None:
    assert len(CHOICES) > 30
    assert {"train.yaml", "evaluate.yaml"} <= {p.name for p in CONF.glob("*.yaml")}


@pytest.mark.parametrize(("group", "choice"), CHOICES)
def test_each_choice_composes_and_is_right(group: str, choice: str) -> None:
    config = compose(f"{group}={choice}")
    check_train_config(config)
    for target in targets(config):
        assert callable(get_object(target)), target
    if group not in ("logger", "experiment"):
        assert config[group].get("name", choice) is not None


@pytest.mark.parametrize("choice", [c for g, c in CHOICES if g == "data"])
@pytest.mark.parametrize("split", [c for g, c in CHOICES if g == "split"])
def test_the_evaluation_composes(choice: str, split: str) -> None:
    assert compose(f"data={choice}", f"split={split}", name="evaluate")["split"]["method"] == split


@pytest.mark.parametrize("group", [g for g in GROUPS if g not in ("logger", "experiment", "data")])
def test_choices_of_a_group_have_the_same_keys(group: str) -> None:
    files = {p.stem: yaml.safe_load(p.read_text(encoding="utf-8")) for p in (CONF / group).glob("*.yaml")}
    keys = {name: sorted(content) for name, content in files.items()}
    assert len({tuple(k) for k in keys.values()}) == 1, keys


@pytest.mark.parametrize("path", sorted(CONF.rglob("*.yaml")), ids=lambda p: str(p.relative_to(CONF)))
def test_each_file_says_what_it_is_for(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.name in ("evaluation.yaml", "runtime.yaml"):
        return  # each of their lines has its comment
    first = lines[1] if lines[0].startswith("# @package") else lines[0]
    assert re.match(r"# \w.{6,}", first), first


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_experiment_names_its_command(name: str) -> None:
    text = (CONF / "experiment" / f"{name}.yaml").read_text(encoding="utf-8")
    (command, *_) = re.findall(rf"#   scpo train (.*experiment={name}.*)", text)
    words = [w for w in command.split() if w != "-m"]
    assert f"experiment={name}" in words
    if name != "demo":  # its DATA and GLOBAL stand for folders
        compose(*(w.split(",")[0] for w in words))


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_has_a_config_of_the_cli(mode: str) -> None:
    """Parsed and trained by tests/cli/test_lightning_cli.py; here: its command, and the mode's own choice in the tree."""
    text = (CLI / f"fit_{mode}.yaml").read_text(encoding="utf-8")
    assert f"#   scpo cli fit --config examples/cli/fit_{mode}.yaml --data.dir DATA" in text
    content = yaml.safe_load(text)
    for section, target in (("data", TableData), ("model", SteerableModule)):
        assert set(content[section]) <= set(inspect.signature(target).parameters)
    assert content["model"]["conditioning"] == mode
    tree = compose(f"conditioning={mode}")["conditioning"]
    own = {key: value for key, value in content["model"].items() if key in tree}
    assert own == {key: tree[key] for key in own}
    assert content["trainer"]["max_steps"] == compose()["trainer"]["max_steps"]


def test_the_cli_has_no_other_configs() -> None:
    assert {p.name for p in CLI.iterdir()} == {f"fit_{mode}.yaml" for mode in MODES}


def test_a_papers_row_is_what_the_paper_says() -> None:
    config = compose("experiment=prism_main")
    assert config["selection"] == {"name": "scpo", "tau": 0.7, "beta": 1.1}
    assert config["optim"]["lr"] == 1e-6
    assert config["optim"]["factory"]["lr"] == 1e-6
    assert (config["batch"]["pairs"], config["trainer"]["max_steps"], config["seed"]) == (8, 1024, 0)
    assert config["model"]["name_or_path"] == "OpenAssistant/reward-model-deberta-v3-base"
    assert config["model"]["max_length"] == 512
    assert config["conditioning"]["name"] == "separate"
    assert config["schedule"]["name"] == "linear"
    assert (config["split"]["method"], config["split"]["seed"]) == ("paper", 0)
    names = ["Chile", "South Africa", "New Zealand", "Australia", "Mexico", "Israel", "Canada"]
    assert config["groups"]["names"] == names
    assert compose("experiment=global")["groups"]["names"] == ["United States", "United Kingdom"]


def test_what_scripts_rely_on() -> None:
    config = compose()
    for group, choice in (
        ("data", "simulated"),
        ("groups", "prism7"),
        ("model", "tiny"),
        ("selection", "scpo"),
        ("conditioning", "separate"),
        ("balance", "none"),
        ("loss", "pairwise"),
        ("trainer", "cpu"),
    ):
        assert config[group]["name"] == choice, group
    for path in (
        *(
            "data.dir",
            "groups.names",
            "model.name_or_path",
            "reference.name_or_path",
            "selection.tau",
            "selection.beta",
        ),
        *("trainer.max_steps", "trainer.max_epochs", "batch.pairs", "batch.tokens", "optim.lr", "seed", "run_dir"),
    ):
        section, _, key = path.partition(".")
        assert section in config, path
        assert not key or key in config[section], path
    assert compose("optim.lr=3e-4")["optim"]["factory"]["lr"] == 3e-4
    assert compose("model=minilm")["optim"]["lr"] == compose("model=minilm")["model"]["lr"]


def test_the_optimiser_and_the_logger_are_built(tmp_path: Path) -> None:
    import torch

    config = compose("optim.lr=0.25", "optim.weight_decay=0.125", "optim.betas=[0.5,0.75]")
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = instantiate(config["optim"]["factory"])([weight])
    assert isinstance(optimizer, torch.optim.AdamW)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["weight_decay"], tuple(group["betas"])) == (0.25, 0.125, (0.5, 0.75))
    for choice in ("csv", "tensorboard"):
        logger = instantiate(compose(f"logger={choice}")["logger"], save_dir=str(tmp_path), name="part")
        logger.log_metrics({"x": 1.0}, step=1)
        logger.save()
        assert any((tmp_path / "part").iterdir()), choice


def test_no_key_is_dead() -> None:
    """Each leaf is read by name in the library, passed on to a function that has it, or used by another key."""
    from scpo.data.simulate import Settings
    from scpo.model import lora, tiny

    library = "\n".join(p.read_text(encoding="utf-8") for p in (CONF.parent / "scpo").rglob("*.py"))
    conf = "\n".join(p.read_text(encoding="utf-8") for p in CONF.rglob("*.yaml"))
    passed_on = {
        ("model", "scratch"): set(inspect.signature(tiny.build).parameters),
        ("data", "simulate"): set(inspect.signature(Settings).parameters),
    }
    lora_source = inspect.getsource(lora)
    dead = []
    paths: set[tuple[str, ...]] = set()
    for file in CONF.rglob("*.yaml"):
        if file.parent == CLI:
            continue  # its keys are arguments, which another test reads
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        content.pop("defaults", None)
        content.pop("hydra", None)
        inside = file.parent != CONF and file.parent.name != "experiment"
        paths |= set(leaves(content, (file.parent.name,) if inside else ()))
    assert len(paths) > 80
    for path in sorted(paths):
        if path[:2] in passed_on and len(path) == 3:
            alive = path[2] in passed_on[path[:2]]
        elif path[:2] == ("model", "lora") and len(path) == 3:
            alive = path[2] in lora_source
        elif path[0] == "logger" or path[:2] == ("optim", "factory"):
            alive = True  # arguments of a _target_, which is built by another test
        else:
            read = re.search(rf"[\"']{re.escape(path[-1])}[\"']", library)
            alive = bool(read) or "${" + ".".join(path) + "}" in conf
        if not alive:
            dead.append(".".join(path))
    assert dead == []
