"""Loading and saving: what comes back is what was saved, here, in another process and by transformers alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_backbones import BACKBONES, DECODERS, PROMPTS, RESPONSES, build_backbone
from tiny_models import plain_tokenizer
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from scpo.data.batching import collate
from scpo.errors import UserError
from scpo.model.reward import ModelOptions, RewardNetwork, load_model
from scpo.model.score import score_texts

OPTIONS = ModelOptions(max_length=64)

SCORE_IN_ANOTHER_PROCESS = """
import json, sys
from pathlib import Path
from scpo.model.reward import ModelOptions, load_model
from scpo.model.score import score_texts
model, notes = load_model(Path(sys.argv[1]), ModelOptions(**json.loads(sys.argv[2])))
rewards = score_texts(model, *json.loads(sys.argv[3]))
print(json.dumps([[float(r) for r in rewards], notes]))
"""


def elsewhere(folder: Path, **options: Any) -> tuple[np.ndarray, list[str]]:
    """Rewards and notes of a folder in a fresh process."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            SCORE_IN_ANOTHER_PROCESS,
            str(folder),
            json.dumps({"max_length": 64, **options}),
            json.dumps([PROMPTS, RESPONSES]),
        ],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "17"},
    )
    rewards, notes = json.loads(done.stdout.strip().splitlines()[-1])
    return np.array(rewards, dtype=np.float32), notes


def edit_config(folder: Path, **changes: Any) -> None:
    """Change keys of a folder's config.json; None removes one."""
    path = folder / "config.json"
    config = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}), encoding="utf-8")


def edit_weights(folder: Path, drop: str = "", **changes: Any) -> None:
    """Change or drop weights of a folder."""
    path = folder / "model.safetensors"
    weights = {k: v for k, v in load_file(path).items() if not drop or drop not in k}
    save_file({**weights, **changes}, path, metadata={"format": "pt"})


def moved(model: RewardNetwork, seed: int = 0) -> RewardNetwork:
    """A model whose weights have all moved, as by training."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=generator).to(p.dtype) * 0.02)
    return model


@pytest.mark.parametrize("kind", list(BACKBONES))
def test_a_saved_model_is_the_same_model(kind: str, tmp_path: Path) -> None:
    """44, 46, 48, 49, 53: through load_model and through transformers alone; with one label, its class and its pad id."""
    model = moved(load_model(build_backbone(kind, tmp_path / "start"), OPTIONS)[0])
    rewards = score_texts(model, PROMPTS, RESPONSES)
    model.save(tmp_path / "saved")
    np.testing.assert_array_equal(score_texts(model, PROMPTS, RESPONSES), rewards)
    again, notes = load_model(tmp_path / "saved", OPTIONS, require_head=True)
    assert notes == []
    np.testing.assert_array_equal(score_texts(again, PROMPTS, RESPONSES), rewards)
    config = AutoConfig.from_pretrained(tmp_path / "saved")
    assert config.architectures == [f"{BACKBONES[kind].stem}ForSequenceClassification"]
    assert config.num_labels == 1
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert config.pad_token_id == tokenizer.pad_token_id == model.pad_id
    network, info = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    encoded = model.formatter.encode(PROMPTS, RESPONSES)
    with torch.no_grad():
        logits = network.eval()(**collate(encoded, np.arange(len(encoded)), model.pad_id)).logits
    np.testing.assert_allclose(logits.squeeze(1).numpy(), rewards, rtol=1e-5, atol=1e-5)
    assert not list((tmp_path / "saved").glob("adapter_*"))


@pytest.mark.parametrize("kind", ["modernbert", "llama"])
def test_a_saved_model_is_the_same_in_another_process(kind: str, tmp_path: Path) -> None:
    """54: to the last bit, on one thread."""
    model = moved(load_model(build_backbone(kind, tmp_path / "start"), OPTIONS)[0])
    model.save(tmp_path / "saved")
    rewards, notes = elsewhere(tmp_path / "saved")
    assert notes == []
    np.testing.assert_array_equal(rewards, score_texts(model, PROMPTS, RESPONSES))


@pytest.mark.parametrize("kind", ["modernbert", "roberta", "deberta", "llama"])
def test_a_float32_head_over_bfloat16_survives_saving(kind: str, tmp_path: Path) -> None:
    """T2: transformers would round the head to bfloat16 while it loads the backbone."""
    options = ModelOptions(max_length=64, dtype="bfloat16")
    model = moved(load_model(build_backbone(kind, tmp_path / "start"), options)[0])
    head = {
        n: p
        for n, p in model.classifier.named_parameters()
        if not n.startswith(model.classifier.base_model_prefix + ".")
    }
    assert any(not torch.equal(p, p.bfloat16().float()) for p in head.values())
    rewards = score_texts(model, PROMPTS, RESPONSES)
    model.save(tmp_path / "saved")
    again = load_model(tmp_path / "saved", options, require_head=True)[0]
    loaded = dict(again.classifier.named_parameters())
    assert all(torch.equal(loaded[name], p) and loaded[name].dtype == torch.float32 for name, p in head.items())
    np.testing.assert_array_equal(score_texts(again, PROMPTS, RESPONSES), rewards)


def test_a_float32_head_survives_in_shards(tmp_path: Path) -> None:
    """Large models are saved in several files."""
    options = ModelOptions(max_length=64, dtype="bfloat16")
    model = moved(load_model(build_backbone("llama", tmp_path / "start"), options)[0])
    model.network.save_pretrained(tmp_path / "saved", max_shard_size="5KB")
    model.formatter.tokenizer.save_pretrained(tmp_path / "saved")
    assert len(list((tmp_path / "saved").glob("*.safetensors"))) > 2
    again = load_model(tmp_path / "saved", options)[0]
    assert torch.equal(again.network.score.weight, model.network.score.weight)


@pytest.mark.parametrize("kind", ["modernbert", "bert", "deberta", "llama"])
def test_a_new_head_is_announced_in_one_line_and_follows_the_seed(kind: str, tmp_path: Path) -> None:
    """46, 54: the same in another process, another with another seed."""
    folder = build_backbone(kind, tmp_path / "bare", head=False)
    model, notes = load_model(folder, OPTIONS)
    assert len(notes) == 1
    assert f"{folder}: no reward head; a new one was made with seed 0" in notes[0]
    rewards = score_texts(model, PROMPTS, RESPONSES)
    torch.manual_seed(99)
    np.testing.assert_array_equal(score_texts(load_model(folder, OPTIONS)[0], PROMPTS, RESPONSES), rewards)
    other = load_model(folder, ModelOptions(max_length=64, seed=1))[0]
    assert abs(score_texts(other, PROMPTS, RESPONSES) - rewards).max() > 1e-3
    if kind == "modernbert":
        far, said = elsewhere(folder)
        assert said == notes
        np.testing.assert_array_equal(far, rewards)


def test_loading_leaves_the_global_random_numbers_alone(tmp_path: Path) -> None:
    """A model that is loaded in between must not change what follows."""
    folder = build_backbone("llama", tmp_path / "bare", head=False)
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    load_model(folder, OPTIONS)
    assert torch.equal(torch.rand(4), expected)


def test_a_model_in_eval_mode_has_no_dropout(tmp_path: Path) -> None:
    """The released code trained and scored with dropout on."""
    folder = build_backbone("bert", tmp_path / "m", hidden_dropout_prob=0.5, classifier_dropout=0.5)
    model = load_model(folder, OPTIONS)[0]
    assert not model.training
    first, second = (score_texts(model, PROMPTS, RESPONSES) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_a_causal_model_is_no_reference(tmp_path: Path) -> None:
    """48: a config that says CausalLM has no reward head, whatever lies in its weights."""
    folder = build_backbone("llama", tmp_path / "m")
    edit_config(folder, architectures=["LlamaForCausalLM"])
    with pytest.raises(
        UserError, match=r"expected a reward model with a trained head, found a model without one; train it"
    ):
        load_model(folder, OPTIONS, require_head=True)


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_a_backbone_is_no_reference(kind: str, tmp_path: Path) -> None:
    """Its head would be random."""
    folder = build_backbone(kind, tmp_path / "bare", head=False)
    with pytest.raises(UserError, match="trained head, found a model without one"):
        load_model(folder, OPTIONS, require_head=True)


@pytest.mark.parametrize("labels", [2, 3])
def test_a_classifier_of_several_labels_is_refused(labels: int, tmp_path: Path) -> None:
    """With two labels transformers writes neither their number nor their names."""
    folder = build_backbone("bert", tmp_path / "m", num_labels=labels)
    with pytest.raises(
        UserError, match=f"num_labels 1, found a classifier with {labels} labels; its outputs are not rewards"
    ):
        load_model(folder, OPTIONS)


@pytest.mark.parametrize("kind", ["modernbert", "llama"])
def test_a_missing_layer_is_refused(kind: str, tmp_path: Path) -> None:
    """44, 47: transformers would fill it at random and go on."""
    folder = build_backbone(kind, tmp_path / "m")
    edit_weights(folder, drop="layers.1.")
    with pytest.raises(UserError, match=r"weights are missing \(such as model\.layers\.1\."):
        load_model(folder, OPTIONS)


def test_a_missing_head_under_a_name_that_promises_one_is_refused(tmp_path: Path) -> None:
    """45, 47: its rewards would be of a random head."""
    folder = build_backbone("llama", tmp_path / "m")
    edit_weights(folder, drop="score")
    with pytest.raises(UserError, match=r"1 weights are missing \(such as score\.weight\)"):
        load_model(folder, OPTIONS)


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    """One line that names the folder."""
    folder = build_backbone("llama", tmp_path / "m")
    edit_weights(folder, **{"score.weight": torch.zeros(1, 24)})
    with pytest.raises(
        UserError, match=r"m: 1 weights have another shape .* score\.weight: expected \(1, 16\), found \(1, 24\)"
    ) as caught:
        load_model(folder, OPTIONS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"not safetensors at all", b"\x10\x00\x00\x00\x00\x00\x00\x00{}"])
def test_broken_weights_are_refused(content: bytes, tmp_path: Path) -> None:
    """A download that was cut off, or a pointer file."""
    folder = build_backbone("llama", tmp_path / "m")
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(UserError, match="m: cannot be loaded") as caught:
        load_model(folder, OPTIONS)
    assert "\n" not in str(caught.value)


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    """No fallback to another model's."""
    folder = build_backbone("llama", tmp_path / "m")
    for path in folder.glob("*token*"):
        path.unlink()
    with pytest.raises(UserError, match=r"expected a tokenizer beside the model, found none of tokenizer.json"):
        load_model(folder, OPTIONS)


def test_a_broken_tokenizer_is_named(tmp_path: Path) -> None:
    """One line."""
    folder = build_backbone("llama", tmp_path / "m")
    (folder / "tokenizer.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match="its tokenizer cannot be loaded") as caught:
        load_model(folder, OPTIONS)
    assert "\n" not in str(caught.value)


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    """A model type that transformers does not know needs code of its own, which is not run."""
    folder = build_backbone("llama", tmp_path / "m")
    edit_config(folder, model_type="nosuchtype", auto_map={"AutoConfig": "code.Config"})
    with pytest.raises(UserError, match="m: ") as caught:
        load_model(folder, OPTIONS)
    assert "\n" not in str(caught.value)


def test_float16_is_refused(tmp_path: Path) -> None:
    """31: rewards overflow."""
    folder = build_backbone("llama", tmp_path / "m")
    with pytest.raises(UserError, match=r"model\.dtype: expected float32 or bfloat16, found 'float16'"):
        load_model(folder, ModelOptions(dtype="float16"))


def test_a_text_longer_than_the_positions_is_refused_beforehand(tmp_path: Path) -> None:
    """With the number that would do."""
    folder = build_backbone("bert", tmp_path / "m")
    with pytest.raises(
        UserError, match=r"max_length is 65, but this model reads at most 64 tokens; set model.max_length=64"
    ):
        load_model(folder, ModelOptions(max_length=65))


def test_roberta_uses_its_positions_from_the_pad_id_on(tmp_path: Path) -> None:
    """Of 66 positions 65 are left after a pad id of 0, and 64 after the usual 1."""
    long = " ".join(["lake"] * 200)
    for pad, usable in ((0, 65), (1, 64)):
        folder = build_backbone("roberta", tmp_path / f"m{pad}", pad_token_id=pad)
        with pytest.raises(UserError, match=f"reads at most {usable} tokens"):
            load_model(folder, ModelOptions(max_length=usable + 1))
        model = load_model(folder, ModelOptions(max_length=usable))[0]
        assert model.formatter.encode([long], [long]).lengths.tolist() == [usable]
        assert np.isfinite(score_texts(model, [long], [long])).all()


@pytest.mark.parametrize("kind", ["bert", "modernbert", "deberta", "llama", "gpt2"])
def test_the_longest_text_can_be_read(kind: str, tmp_path: Path) -> None:
    """All positions of other models are usable."""
    model = load_model(build_backbone(kind, tmp_path / "m"), OPTIONS)[0]
    long = " ".join(["lake"] * 200)
    assert model.formatter.encode([long], [long]).lengths.max() == 64
    assert np.isfinite(score_texts(model, [long], [long])).all()


@pytest.mark.parametrize("kind", DECODERS[:1])
def test_a_failed_save_leaves_the_old_folder(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing half-written beside it."""
    model = load_model(build_backbone(kind, tmp_path / "start"), OPTIONS)[0]
    model.save(tmp_path / "saved")
    before = (tmp_path / "saved" / "model.safetensors").read_bytes()

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError("disk full")

    moved(model)
    monkeypatch.setattr(model.formatter.tokenizer, "save_pretrained", fail)
    with pytest.raises(OSError, match="disk full"):
        model.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "model.safetensors").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["saved", "start"]


def test_a_pad_token_beyond_the_vocabulary_fits_the_embeddings(tmp_path: Path) -> None:
    """2: a tokenizer with a pad token that its model has no row for."""
    tokenizer = plain_tokenizer()
    vocab = len(tokenizer)
    tokenizer.add_special_tokens({"pad_token": "<|new_pad|>"})
    folder = build_backbone("llama", tmp_path / "m", tokenizer=tokenizer, vocab_size=vocab, pad_token_id=None)
    model, notes = load_model(folder, OPTIONS)
    assert model.pad_id == vocab
    assert notes == [
        f"{folder}: its tokenizer has {vocab + 1} tokens and the model {vocab}; the rest got embeddings of zero"
    ]
    assert np.isfinite(score_texts(model, PROMPTS, RESPONSES)).all()
