"""Learned steering on disk: equal rewards after reading, with peft alone, in another process; and every damaged folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from steered import GROUPS, MODES, PLAIN, rewards, save_steered, steered, steering_of
from tiny_backbones import BACKBONES, PROMPTS, RESPONSES, build_backbone
from world import compose

from scpo.conditioning import write_steering
from scpo.errors import UserError
from scpo.groups import slug
from scpo.model.files import steered_fingerprint
from scpo.model.reward import RewardNetwork, load_model
from scpo.model.score import score_texts
from scpo.model.steering_files import describe, load_steered, save_steering


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return compose()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["llama", "deberta", "modernbert"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_read_gives_the_rewards_of_what_was_saved(tmp_path: Path, kind: str, mode: str, dtype: str) -> None:
    """44, 52: under every group and without one, to the last bit; without the steering it is a plain folder."""
    options = replace(PLAIN, dtype=dtype)
    model = steered(build_backbone(kind, tmp_path / "start"), mode, options)
    folder = save_steered(model, tmp_path / "model", mode)
    again, notes = load_steered(folder, options)
    assert notes == []
    assert not again.training
    assert steering_of(again).groups == GROUPS
    assert replace(steering_of(again).options, seed=0) == MODES[mode]
    for row in (None, -1, 0, 1, 2):
        np.testing.assert_array_equal(rewards(again, row), rewards(model, row))
    plain = load_model(folder, options, require_head=True)[0]
    np.testing.assert_array_equal(rewards(plain, None), rewards(model, None))
    assert not (folder / "adapter_config.json").exists()


def test_another_process_gives_the_same_rewards(tmp_path: Path) -> None:
    """54: nothing random is filled in."""
    expected, folders = {}, {}
    start = build_backbone("llama", tmp_path / "start")
    for mode in MODES:
        model = steered(start, mode)
        folders[mode] = str(save_steered(model, tmp_path / mode, mode))
        expected[mode] = rewards(model, 1).tolist()
    code = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from scpo.model.reward import ModelOptions\n"
        "from scpo.model.score import score_texts\n"
        "from scpo.model.steering_files import load_steered\n"
        "folders, prompts, responses = json.loads(sys.argv[1])\n"
        "load = lambda f: load_steered(Path(f), ModelOptions(max_length=64))[0]\n"
        "told = ['Israel'] * len(prompts)\n"
        "out = {m: score_texts(load(f), prompts, responses, None, told).tolist() for m, f in folders.items()}\n"
        "print(json.dumps(out))\n"
    )
    argument = json.dumps([folders, PROMPTS, RESPONSES])
    done = subprocess.run([sys.executable, "-c", code, argument], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for mode, values in expected.items():
        np.testing.assert_allclose(found[mode], values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", list(BACKBONES))
def test_peft_alone_loads_a_groups_adapter(tmp_path: Path, kind: str) -> None:
    """Onto the plain classifier, which keeps its own head (47)."""
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForSequenceClassification

    model = steered(build_backbone(kind, tmp_path / "start"), "adapter")
    folder = save_steered(model, tmp_path / "model", "adapter")
    for row, group in enumerate(GROUPS):
        network = AutoModelForSequenceClassification.from_pretrained(folder)
        adapter = folder / "steering" / "adapters" / slug(group)
        config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
        assert config["fan_in_fan_out"] is (kind == "gpt2")  # peft mends a wrong one, with a warning
        with_adapter = peft.PeftModel.from_pretrained(network, adapter).eval()
        plain = RewardNetwork(with_adapter.merge_and_unload(), model.formatter).eval()
        np.testing.assert_allclose(rewards(plain, None), rewards(model, row), rtol=1e-5, atol=1e-5)


def test_a_folder_of_another_mode_is_loaded_as_it_is(tmp_path: Path, config: dict[str, Any]) -> None:
    """A plain folder, and one whose groups stand in the text."""
    folder = build_backbone("llama", tmp_path / "m")
    assert load_steered(folder, PLAIN)[0].steering is None
    assert describe(load_steered(folder, PLAIN)[0]) is None
    save_steering(load_model(folder, PLAIN)[0], folder)
    assert not (folder / "steering").exists()
    write_steering(folder, config, GROUPS, "prefix")
    assert load_steered(folder, PLAIN)[0].steering is None


# ---- folders that do not belong together


Change = Callable[[Path], None]


def document(change: Callable[[dict[str, Any]], None]) -> Change:
    """Edit steering.json."""

    def edit(folder: Path) -> None:
        path = folder / "steering" / "steering.json"
        found = json.loads(path.read_text(encoding="utf-8"))
        change(found)
        path.write_text(json.dumps(found), encoding="utf-8")

    return edit


def tensors(change: Callable[[dict[str, torch.Tensor]], Any], name: str = "steering.safetensors") -> Change:
    """Edit a file of weights; what it says of itself stays."""

    def edit(folder: Path) -> None:
        path = folder / "steering" / name
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
        found = load_file(path)
        change(found)
        save_file({k: v.contiguous() for k, v in found.items()}, path, metadata=metadata)

    return edit


def head_of_model(folder: Path) -> None:
    """Train the shared head on."""
    path = folder / "model.safetensors"
    found = load_file(path)
    found["score.weight"] += 0.1
    save_file(found, path, metadata={"format": "pt"})


def raw(name: str, size: int) -> Change:
    """Cut a file off."""
    return lambda folder: (folder / "steering" / name).write_bytes((folder / "steering" / name).read_bytes()[:size])  # type: ignore[return-value]


def peft_config(key: str, value: Any) -> Change:
    def edit(folder: Path) -> None:
        path = folder / "steering" / "adapters" / "Israel" / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {key: value}), encoding="utf-8")

    return edit


def learned(**values: Any) -> Change:
    return document(lambda d: d["learned"].update(values))


def swapped(found: dict[str, Any]) -> None:
    found["groups"] = dict(reversed(found["groups"].items()))


VECTORS, WEIGHTS, BASIS = "embedding.vectors", "heads.weights", "heads.basis"
ISRAEL = "adapters/Israel/adapter_model.safetensors"
LORA = "base_model.model.model.layers.0.mlp.down_proj.lora_{}.weight"
BAD: list[tuple[str, Change, str]] = [
    (
        "embedding",
        document(lambda d: d["groups"].pop("Chile")),
        r'expected rows of the groups \["Israel", "South Africa"',
    ),
    ("embedding", document(lambda d: d["groups"].update(Kenya=".")), r'rows of the groups .*"Kenya"\]'),
    ("embedding", document(swapped), r'expected rows of the groups \["South Africa", "Israel", "Chile"\]'),
    (
        "adapter",
        document(lambda d: d["groups"].pop("Israel")),
        r"adapters/Israel: expected adapters of Chile, South_Africa",
    ),
    ("adapter", document(lambda d: d["groups"].update(Kenya=".")), "Kenya/adapter_model.safetensors: .* no such file"),
    (
        "embedding",
        tensors(lambda t: t.update({VECTORS: t[VECTORS][:2]})),
        r"embedding.vectors: expected \(3, 16\) \(first the number of groups.*found \(2, 16\)",
    ),
    ("head", tensors(lambda t: t.update({WEIGHTS: t[WEIGHTS][:, :8]})), r"heads.weights: expected \(3, 16\).*\(3, 8\)"),
    ("low-rank", tensors(lambda t: t.update({BASIS: t[BASIS][:, :8]})), r"heads.basis: expected \(2, 16\).*\(2, 8\)"),
    ("low-rank", learned(head_rank=3), r"heads.weights: expected \(3, 3\).*found \(3, 2\)"),
    ("low-rank", learned(head_rank=0), r"heads.weights: expected \(3, 16\).*found \(3, 2\)"),
    ("head", learned(head_rank=2), r"heads.weights: expected \(3, 2\).*found \(3, 16\)"),
    ("embedding", learned(head_rank=0), r"expected the weights 'heads.weights' \(3, 16\), found none"),
    ("all", learned(embedding=False), r"expected only heads.*found 'embedding.vectors' beyond them"),
    ("all", learned(embedding=False, head_rank=None), r"steering.safetensors: expected no such file"),
    ("all", learned(adapter_rank=None), r"adapters/Chile: expected adapters of no group"),
    ("embedding", learned(embedding=False), r"learned: expected an embedding, a head or an adapter, found none"),
    ("adapter", learned(adapter_rank=3), r"Chile/adapter_config.json: r: expected 3, .* found 2"),
    ("adapter", learned(adapter_alpha=8.0), r"Chile/adapter_config.json: lora_alpha: expected 8.0, .* found 4.0"),
    ("adapter", learned(adapter_targets=["q_proj"]), r"expected the adapters of this model, found '.*' beyond them"),
    ("adapter", learned(adapter_targets=["qproj"]), r"no linear module .* is named 'qproj'\. Did you mean 'q_proj'"),
    ("adapter", learned(adapter_rank="two"), r"learned.adapter_rank: expected what scpo train writes, found 'two'"),
    ("adapter", learned(adapter_alpha=None), r"learned.adapter_alpha: expected what scpo train writes, found None"),
    ("adapter", learned(adapter_targets=[1]), r"learned.adapter_targets: expected"),
    ("head", learned(head_rank=True), r"learned.head_rank: expected"),
    ("head", learned(embedding=None), r"learned.embedding: expected"),
    (
        "head",
        document(lambda d: d.update(learned=None)),
        r"mode 'head': expected what was learned for each group, found nothing",
    ),
    ("adapter", peft_config("lora_alpha", 16), r"Israel/adapter_config.json: lora_alpha: expected 4.0"),
    (
        "embedding",
        lambda f: (f / "steering" / "steering.safetensors").unlink(),
        "steering.safetensors: .* no such file",
    ),
    (
        "adapter",
        lambda f: shutil.rmtree(f / "steering" / "adapters" / "Israel"),
        "Israel/adapter_model.safetensors: .* no",
    ),
    (
        "adapter",
        lambda f: shutil.rmtree(f / "steering" / "adapters"),
        "Chile/adapter_model.safetensors: .* no such file",
    ),
    ("embedding", raw("steering.safetensors", 100), "steering.safetensors: damaged, not read"),
    ("embedding", raw("steering.safetensors", 0), "steering.safetensors: damaged, not read"),
    ("adapter", raw(ISRAEL, 300), "Israel/adapter_model.safetensors: damaged, not read"),
    ("embedding", tensors(lambda t: t[VECTORS].fill_(float("nan"))), "embedding.vectors: expected finite numbers"),
    ("adapter", tensors(lambda t: t[LORA.format("B")].fill_(float("inf")), ISRAEL), "down_proj.up: expected finite"),
    (
        "adapter",
        tensors(lambda t: t.pop(LORA.format("A")), ISRAEL),
        r"Israel.*: expected the weights '.*down_proj.down' \(2, 32\), found none",
    ),
    ("head", tensors(lambda t: t.update(more=torch.zeros(1))), "expected only heads.weights, found 'more' beyond them"),
    ("head", head_of_model, r"was trained beside a reward head [0-9a-f]{8}, and the model's is [0-9a-f]{8}"),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A good folder of each mode."""
    root = tmp_path_factory.mktemp("saved")
    start = build_backbone("llama", root / "start")
    return {mode: save_steered(steered(start, mode), root / mode, mode) for mode in MODES}


@pytest.mark.parametrize(("mode", "change", "message"), BAD)
def test_a_folder_that_does_not_belong_together_is_refused(
    saved: dict[str, Path], tmp_path: Path, mode: str, change: Change, message: str
) -> None:
    """46, 50: in one line that says which file or key; never with weights made up."""
    folder = tmp_path / "model"
    shutil.copytree(saved[mode], folder)
    load_steered(folder, PLAIN)
    before = steered_fingerprint(folder)
    change(folder)
    with pytest.raises(UserError, match=message) as caught:
        load_steered(folder, PLAIN)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value) or "adapter_targets" in str(caught.value)
    assert steered_fingerprint(folder) != before, "a cache would give the rewards of the folder that it was"


def test_unknown_groups_are_named_when_scoring(saved: dict[str, Path]) -> None:
    model = load_steered(saved["head"], PLAIN)[0]
    with pytest.raises(UserError, match=r"\(Chile, Israel, South Africa\), found 'Kenya'"):
        score_texts(model, ["a"], ["b"], None, ["Kenya"])


def test_saving_again_leaves_nothing_of_before(tmp_path: Path) -> None:
    """A group that is gone has no adapters left; a steering that was there is replaced as a whole."""
    start = build_backbone("llama", tmp_path / "start")
    folder = save_steered(steered(start, "all"), tmp_path / "model", "all")
    assert {p.name for p in (folder / "steering" / "adapters").iterdir()} == {"Chile", "Israel", "South_Africa"}
    other = load_model(start, PLAIN)[0]
    other.add_steering(["Kenya"], MODES["adapter"])
    other.save(folder)
    save_steering(other, folder)
    assert {p.name for p in (folder / "steering").iterdir()} == {"adapters"}
    assert [p.name for p in (folder / "steering" / "adapters").iterdir()] == ["Kenya"]
