"""Finding, checking, hashing and replacing model folders."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_backbones import PROMPTS, RESPONSES, build_backbone

from scpo.errors import UserError
from scpo.io import replace_folder
from scpo.model.files import model_fingerprint, read_config, resolve_model, reward_head
from scpo.model.reward import ModelOptions, load_model
from scpo.model.score import score_texts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A reward model."""
    return build_backbone("llama", tmp_path / "m")


def pickled(folder: Path) -> Path:
    """The same weights as a pickle only."""
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


def test_a_folder_is_found_by_its_path(folder: Path) -> None:
    """As text or as a path, also below the home folder."""
    assert resolve_model(folder) == folder
    assert resolve_model(str(folder)) == folder


@pytest.mark.parametrize("name", ["gpt2", "a/b/c", "/no/where", "./no/where", "~/nowhere", "", "owner/"])
def test_names_that_are_neither_folder_nor_id(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said without asking the Hub."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    started = time.monotonic()
    with pytest.raises(UserError, match="model"):
        resolve_model(name)
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("name", ["two words/name", "owner/na me", "-owner/name"])
def test_ids_that_cannot_be(name: str) -> None:
    """The Hub's own rule for names, in one line."""
    with pytest.raises(UserError, match="expected a model folder or a Hub id 'owner/name'") as caught:
        resolve_model(name)
    assert "\n" not in str(caught.value)


def test_a_file_is_no_folder(folder: Path) -> None:
    """A path to the weights."""
    with pytest.raises(UserError, match="expected a model folder or a Hub id"):
        resolve_model(folder / "model.safetensors")


def test_a_folder_without_config(folder: Path) -> None:
    """Not a model folder."""
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match=r"expected a Hugging Face model folder, found no config\.json in it"):
        resolve_model(folder)


def test_a_folder_without_weights(folder: Path) -> None:
    """Only its texts were copied."""
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"expected model weights \(\*\.safetensors\), found none"):
        resolve_model(folder)


def test_a_folder_of_one_model_per_group_names_one(folder: Path) -> None:
    """`RUN/model` under conditioning=separate."""
    parent = folder.parent / "model"
    (parent / "steering").mkdir(parents=True)
    (parent / "steering" / "steering.json").write_text("{}", encoding="utf-8")
    shutil.copytree(folder, parent / "Chile")
    with pytest.raises(UserError, match=r"holds one model per group; give one of them, such as .*model/Chile"):
        resolve_model(parent)


def test_pickles_are_refused_unless_trusted(folder: Path) -> None:
    """Rule 9; then they give the same rewards."""
    expected = score_texts(load_model(folder, ModelOptions(max_length=64))[0], PROMPTS, RESPONSES)
    pickled(folder)
    with pytest.raises(
        UserError, match=r"its weights are pickles, which can run code when read; .*model\.allow_pickle=true"
    ):
        resolve_model(folder)
    assert resolve_model(folder, allow_pickle=True) == folder
    with pytest.raises(UserError, match="cannot be loaded"):
        load_model(folder, ModelOptions(max_length=64))
    for dtype in ("float32", "bfloat16"):
        model = load_model(folder, ModelOptions(max_length=64, allow_pickle=True, dtype=dtype))[0]
        rewards = score_texts(model, PROMPTS, RESPONSES)
        np.testing.assert_allclose(rewards, expected, atol=0 if dtype == "float32" else 0.05)


class Touch:
    """Runs code when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.path,)


def test_a_pickle_runs_no_code_even_when_allowed(folder: Path, tmp_path: Path) -> None:
    """It is read as weights only."""
    pickled(folder)
    torch.save({"score.weight": Touch(str(tmp_path / "was-here"))}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="its pickled weights hold more than tensors"):
        load_model(folder, ModelOptions(max_length=64, allow_pickle=True))
    assert not (tmp_path / "was-here").exists()


RESOLVE = """
import sys, time
from scpo.errors import UserError
from scpo.model.files import resolve_model
started = time.monotonic()
try:
    resolve_model("owner/no-such-model")
except UserError as error:
    print(f"{time.monotonic() - started:.1f}\\t{error}")
"""


def resolve_elsewhere(home: Path, **environment: str) -> tuple[float, str]:
    """Seconds and message of a Hub id in a fresh process, since the Hub's client reads its settings once."""
    env = {"PATH": "", "HOME": str(home), "HF_HOME": str(home / "hub"), **environment}
    done = subprocess.run([sys.executable, "-c", RESOLVE], capture_output=True, text=True, check=True, env=env)
    seconds, message = done.stdout.rstrip("\n").split("\t")
    return float(seconds), message


def test_a_hub_that_refuses_says_what_to_do_offline(tmp_path: Path) -> None:
    """At once, in one line."""
    seconds, message = resolve_elsewhere(tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    assert seconds < 5
    assert "the Hub cannot be reached" in message
    assert "run 'hf download owner/no-such-model --local-dir DIR', copy DIR here and give its path" in message


def test_a_hub_that_never_answers_is_given_up(tmp_path: Path) -> None:
    """A network that swallows requests: the client alone would wait for minutes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        seconds, message = resolve_elsewhere(tmp_path, HF_ENDPOINT=endpoint)
    assert seconds < 10
    assert "the Hub cannot be reached" in message


def test_offline_mode_is_respected(tmp_path: Path) -> None:
    """HF_HUB_OFFLINE=1: nothing is asked, and a copy in the cache still serves."""
    seconds, message = resolve_elsewhere(tmp_path, HF_HUB_OFFLINE="1")
    assert seconds < 5
    assert "the Hub cannot be reached" in message
    cache = tmp_path / "hub" / "hub" / "models--owner--no-such-model"
    build_backbone("llama", cache / "snapshots" / ("a" * 40))
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("a" * 40, encoding="utf-8")
    for environment in ({"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}):
        code = 'from scpo.model.files import resolve_model; print(resolve_model("owner/no-such-model"))'
        env = {"PATH": "", "HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hub"), **environment}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
        assert done.stdout.strip().endswith("snapshots/" + "a" * 40)


@pytest.mark.parametrize("text", ["{", "[1]", "\udcff"])
def test_a_config_that_is_no_json_object(folder: Path, text: str) -> None:
    """With its file."""
    (folder / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=r"config\.json: expected"):
        read_config(folder)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"architectures": ["LlamaForSequenceClassification"], "num_labels": 1}, True),
        ({"architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "LABEL_0"}}, True),
        ({"architectures": ["LlamaForCausalLM"], "id2label": {"0": "a", "1": "b", "2": "c"}}, False),
        ({"architectures": ["BertModel"]}, False),
        ({"architectures": None}, False),
        ({}, False),
    ],
)
def test_what_a_config_says_of_its_head(tmp_path: Path, config: dict[str, object], expected: bool) -> None:
    """48: a causal model has none."""
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert reward_head(tmp_path) is expected


@pytest.mark.parametrize(
    ("config", "labels"), [({}, 2), ({"id2label": {"0": "a", "1": "b", "2": "c"}}, 3), ({"num_labels": 5}, 5)]
)
def test_several_labels_are_no_reward(tmp_path: Path, config: dict[str, object], labels: int) -> None:
    """Two labels are what transformers means where it writes none."""
    said = {"architectures": ["BertForSequenceClassification"], **config}
    (tmp_path / "config.json").write_text(json.dumps(said), encoding="utf-8")
    with pytest.raises(UserError, match=f"found a classifier with {labels} labels"):
        reward_head(tmp_path)


def test_the_fingerprint_follows_what_can_change_a_reward(folder: Path, tmp_path: Path) -> None:
    """Weights, config, tokenizer and chat template; not the place, nor a read-me."""
    before = model_fingerprint(folder)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "README.md").write_text("hello", encoding="utf-8")
    assert model_fingerprint(copy) == before
    seen = {before}
    (copy / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    seen.add(model_fingerprint(copy))
    for name in ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"):
        data = bytearray((copy / name).read_bytes())
        data[-1] ^= 1
        (copy / name).write_bytes(bytes(data))
        seen.add(model_fingerprint(copy))
    assert len(seen) == 6


def test_replacing_a_folder_is_all_or_nothing(tmp_path: Path) -> None:
    """A new one appears whole; a failing block leaves the old one; nothing else stays behind."""
    target = tmp_path / "deep" / "m"
    with replace_folder(target) as temporary:
        (temporary / "a").write_text("1", encoding="utf-8")
        assert not target.exists()
    with pytest.raises(RuntimeError, match="stop"):
        write_and_stop(target)
    assert (target / "a").read_text(encoding="utf-8") == "1"
    with replace_folder(target) as temporary:
        (temporary / "b").write_text("3", encoding="utf-8")
    assert [p.name for p in target.iterdir()] == ["b"]
    assert [p.name for p in target.parent.iterdir()] == ["m"]


def write_and_stop(target: Path) -> None:
    """Fail half-way, as any writer can."""
    with replace_folder(target) as temporary:
        (temporary / "a").write_text("2", encoding="utf-8")
        raise RuntimeError("stop")


def test_a_saved_folder_is_readable_by_others(tmp_path: Path) -> None:
    """Temporary folders and safetensors files are private; a model in its place follows the umask."""
    before = os.umask(0o022)
    try:
        with replace_folder(tmp_path / "m") as temporary:
            (temporary / "a").write_text("1", encoding="utf-8")
            (temporary / "a").chmod(0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "m" / "a").stat().st_mode & 0o777 == 0o644
