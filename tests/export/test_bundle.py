"""Exported folders give, by transformers alone, the rewards of the run, in every mode and for every kind of backbone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exported import LENGTH, make_run, weights_of
from steered import MODES
from tiny_backbones import DECODERS, ENCODERS, PROMPTS, RESPONSES
from tiny_models import chat_tokenizer
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, pipeline
from world import tree

from scpo import RewardModel
from scpo.errors import UserError
from scpo.export import bundle
from scpo.export.bundle import MARK, export
from scpo.export.card import EXAMPLE_PROMPT, EXAMPLE_RESPONSES
from scpo.io import read_json

ALL = [*MODES, "prefix", "separate", "none"]


def alone(folder: Path, kind: str, before: str = "") -> list[float]:
    """Rewards of the five texts by transformers alone, one by one, written down apart from the code under test."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    rewards = []
    for prompt, response in zip(PROMPTS, RESPONSES, strict=True):
        if kind == "pair":
            inputs = tokenizer(before + prompt, response, return_tensors="pt")
        elif kind == "plain":
            inputs = tokenizer(before + prompt + "\n\n" + response + "</s>", return_tensors="pt")
        else:
            turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]
            inputs = tokenizer.apply_chat_template(turns, tokenize=True, return_dict=True, return_tensors="pt")
        with torch.inference_mode():
            rewards.append(model(**inputs).logits[0, 0].item())
    return rewards


def ours(run: Path, group: str | None) -> np.ndarray[Any, Any]:
    return RewardModel.from_pretrained(run / "model").score_rows(PROMPTS, RESPONSES, [group] * len(PROMPTS))


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_every_mode_gives_the_runs_rewards_by_transformers_alone(tmp_path: Path, kind: str, mode: str) -> None:
    run = make_run(tmp_path / "run", kind, mode)
    before = tree(run)
    group = None if mode == "none" else "Israel"
    folder = tmp_path / "out"
    done = export(run, group, folder)
    want = ours(run, group)
    assert done.difference < 1e-4
    words = "The reader lives in Israel.\n\n" if mode == "prefix" else ""
    found = alone(folder, "pair" if kind == "bert" else "plain", words)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
    # The same through scpo, which finds its own settings beside the model.
    again = RewardModel.from_pretrained(folder)
    assert again.groups == (("Israel",) if mode == "prefix" else ())
    told = "Israel" if mode == "prefix" else None
    np.testing.assert_allclose(again.score_rows(PROMPTS, RESPONSES, [told] * 5), want, rtol=1e-4, atol=1e-4)
    # The groups of these models differ by far more than is allowed here.
    if mode != "none":
        assert np.abs(ours(run, "Chile") - want).max() > 1e-2
    assert tree(run) == before


@pytest.mark.parametrize("kind", sorted({*ENCODERS, *DECODERS} - {"llama", "bert"}))
def test_every_backbone_takes_all_that_is_learned(tmp_path: Path, kind: str) -> None:
    run = make_run(tmp_path / "run", kind, "all")
    for group in ("Chile", None):
        export(run, group, tmp_path / str(group))
        found = alone(tmp_path / str(group), "pair" if kind in ENCODERS else "plain")
        np.testing.assert_allclose(found, ours(run, group), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("system", [True, False])
def test_the_chat_template_names_the_group(tmp_path: Path, system: bool) -> None:
    run = make_run(tmp_path / "run", "llama", "prefix", tokenizer=chat_tokenizer(system))
    export(run, "S. Africa", tmp_path / "named")
    export(run, None, tmp_path / "default")
    np.testing.assert_allclose(alone(tmp_path / "named", "chat"), ours(run, "South Africa"), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(alone(tmp_path / "default", "chat"), ours(run, None), rtol=1e-4, atol=1e-4)
    assert np.abs(ours(run, None) - ours(run, "South Africa")).max() > 1e-2
    again = RewardModel.from_pretrained(tmp_path / "named")
    np.testing.assert_allclose(again.score_rows(PROMPTS, RESPONSES), ours(run, "South Africa"), rtol=1e-4, atol=1e-4)
    assert read_json(tmp_path / "named" / MARK)["in_chat_template"] == "The reader lives in South Africa."


def test_the_folder_is_a_plain_one_and_holds_what_its_user_needs(tmp_path: Path) -> None:
    """48, 53: a classifier with one output, safetensors, a pad token in both places, and no path of this machine."""
    run = make_run(tmp_path / "run", "llama", "embedding")
    done = export(run, "Chile", tmp_path / "out", command=f"scpo export run={run} group=Chile --out {tmp_path / 'out'}")
    names = {p.name for p in (tmp_path / "out").iterdir()}
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", MARK} <= names
    config = AutoConfig.from_pretrained(tmp_path / "out")
    assert config.architectures == ["LlamaForSequenceClassification"]
    assert config.num_labels == 1
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert config.pad_token_id == tokenizer.pad_token_id == 0
    assert tokenizer.model_max_length == LENGTH
    assert tokenizer.padding_side == "right"
    # How the run's own folder was read here is not how others must read this one.
    assert not {"is_local", "local_files_only"} & set(read_json(tmp_path / "out" / "tokenizer_config.json"))
    assert {t.dtype for t in AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").parameters()} == {
        torch.float32
    }
    for path in (p for p in (tmp_path / "out").rglob("*") if p.is_file()):
        assert str(tmp_path).encode() not in path.read_bytes(), path
    # A pipeline shows the reward itself and not its sigmoid, which could not be below 0.
    show = pipeline("text-classification", model=str(tmp_path / "out"))
    text = PROMPTS[1] + "\n\n" + RESPONSES[1] + "</s>"
    assert show(text)[0]["score"] == pytest.approx(alone(tmp_path / "out", "plain")[1], abs=1e-4)
    assert done.checked == 6  # two of the card's, four of nobody's; the data are gone


def test_a_tokenizer_that_pads_on_the_left_is_turned_round(tmp_path: Path) -> None:
    """5, 6: an encoder that counts positions would read another text."""
    run = make_run(tmp_path / "run", "bert", "none")
    path = run / "model" / "tokenizer_config.json"
    path.write_text(json.dumps({**read_json(path), "padding_side": "left"}), encoding="utf-8")
    export(run, None, tmp_path / "out")
    assert AutoTokenizer.from_pretrained(tmp_path / "out").padding_side == "right"


def test_a_run_in_bfloat16_is_written_in_float32_and_said_so(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "llama", "head", overrides=("model.dtype=bfloat16",))
    done = export(run, "Chile", tmp_path / "out")
    assert any("bfloat16" in note for note in done.notes)
    assert AutoConfig.from_pretrained(tmp_path / "out").dtype == torch.float32


def test_a_default_that_was_not_trained_is_said(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "llama", "head", default=False)
    (note,) = export(run, None, tmp_path / "out").notes
    assert "was always told a group" in note
    assert "It was not trained for that" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert export(run, "Chile", tmp_path / "named").notes == ()


def test_other_rewards_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", "bert", "head")
    monkeypatch.setattr("scpo.model.steering.Steering.fold", lambda *_: None)
    with pytest.raises(
        UserError, match=r"expected rewards of the exported folder within 0\.0001 .* nothing was written"
    ):
        export(run, "Chile", tmp_path / "out" / "here")
    assert not list((tmp_path / "out").iterdir())


def test_a_reward_that_is_no_number_is_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", "bert", "none")
    monkeypatch.setattr(bundle, "plain_rewards", lambda *a: np.full(len(a[2]), np.nan, dtype=np.float32))
    with pytest.raises(UserError, match="found nan"):
        export(run, None, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_only_an_earlier_export_is_replaced_and_only_when_forced(tmp_path: Path) -> None:
    run, out = make_run(tmp_path / "run", "bert", "head"), tmp_path / "out"
    out.mkdir()
    export(run, "Chile", out)
    (out / "README.md").write_text("my own words", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"expected a new or empty folder, found an earlier export; --force replaces it"
    ):
        export(run, "Israel", out)
    assert (out / "README.md").read_text(encoding="utf-8") == "my own words"
    export(run, "Israel", out, force=True)
    assert read_json(out / MARK)["group"] == "Israel"
    for foreign in (run, run / "model"):
        with pytest.raises(UserError, match=r"expected a new or empty folder, found .*; choose another --out"):
            export(run, "Israel", foreign, force=True)
    with pytest.raises(UserError, match="found a file"):
        export(run, "Israel", out / "README.md", force=True)


def test_what_it_was_trained_on_goes_along(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "bert", "separate")
    (weights_of(run, "Israel") / "steering" / "trained_on.json").write_text('{"its": "own"}', encoding="utf-8")
    export(run, "Israel", tmp_path / "out")
    assert read_json(tmp_path / "out" / "steering" / "trained_on.json") == {"its": "own"}


def test_the_cards_code_runs_and_prints_the_runs_rewards(tmp_path: Path) -> None:
    """In another process that has only the folder: a pair, one text with its end, and a chat, each with a named group."""
    runs = {
        "pair": make_run(tmp_path / "pair-run", "bert", "prefix"),
        "plain": make_run(tmp_path / "plain-run", "gpt2", "prefix"),
        "chat": make_run(tmp_path / "chat-run", "llama", "prefix", tokenizer=chat_tokenizer()),
    }
    scripts = []
    for kind, run in runs.items():
        export(run, "South Africa", tmp_path / kind)
        card = (tmp_path / kind / "README.md").read_text(encoding="utf-8")
        (block,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
        assert "scpo" not in block
        scripts += [f"os.chdir({str(tmp_path / kind)!r})\nexec({block!r}, {{}})"]
    result = subprocess.run(
        [sys.executable, "-c", "import os\n" + "\n".join(scripts)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )
    for (kind, run), line in zip(runs.items(), result.stdout.splitlines(), strict=True):
        want = RewardModel.from_pretrained(run / "model").score(EXAMPLE_PROMPT, EXAMPLE_RESPONSES, "South Africa")
        assert json.loads(line) == pytest.approx(want.tolist(), rel=1e-4, abs=1e-4)
        card = (tmp_path / kind / "README.md").read_text(encoding="utf-8")
        assert f"It prints {want[0]:.4f}, {want[1]:.4f}, to rounding." in card
