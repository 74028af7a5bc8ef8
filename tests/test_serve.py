"""RewardModel: every mode gives its run's rewards by name, alias, weights and aggregate, or says in one line why not."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tiny_backbones import build_backbone
from world import World

import scpo.model.score
from scpo.conditioning import MODES, STEERING
from scpo.errors import UserError
from scpo.io import read_json, write_json
from scpo.run.execute import execute
from scpo.serve import NoDefaultWarning, RewardModel

PROMPT = "should the town build a bridge or keep the ferry?"
RESPONSES = [
    "yes, and soon: my clear answer is that it is settled.",
    "no.",
    "perhaps it depends on many unknown things.",
]
TWO = ("Chile", "South Africa")


@pytest.fixture(scope="module")
def run_of(world: World, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A run of two groups for each mode, trained when first asked for."""
    done: dict[str, Path] = {}

    def run(mode: str) -> Path:
        if mode not in done:
            done[mode] = tmp_path_factory.mktemp(mode) / "run"
            # A rate at which two steps tell the groups apart.
            config = world.config(
                f"conditioning={mode}", "selection=full", "optim.lr=0.01", "evaluation.steering_sample=5"
            )
            execute(config, done[mode], "")
        return done[mode]

    return run


@pytest.fixture
def model_of(run_of: Callable[[str], Path]) -> Callable[[str], RewardModel]:
    return lambda mode: RewardModel.from_pretrained(run_of(mode) / "model")


@pytest.fixture
def changed(run_of: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """A copy of a mode's model with other entries in its steering file."""

    def make(mode: str, **entries: Any) -> Path:
        folder = tmp_path / "model"
        shutil.copytree(run_of(mode) / "model", folder, dirs_exist_ok=True)
        write_json(folder / STEERING, {**read_json(folder / STEERING), **entries})
        return folder

    return make


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(UserError) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("mode", MODES)
def test_rewards_are_those_of_the_run(
    mode: str, run_of: Callable[[str], Path], model_of: Callable[[str], RewardModel], world: World
) -> None:
    """Every row of the predictions, under the group that it was conditioned on: own, other or none."""
    saved = pd.read_parquet(run_of(mode) / "predictions.parquet")
    table = pd.read_parquet(world.data / "comparisons.parquet").set_index("candidate_id").loc[saved["candidate_id"]]
    told = [group if isinstance(group, str) else None for group in saved["conditioned_on"]]
    assert set(told) == {"separate": {*TWO}, "none": {None}}.get(mode, {*TWO, None})
    model = model_of(mode)
    found = model.score_rows(list(table["prompt"]), list(table["response"]), told, list(table["history"]))
    assert found.dtype == np.float32
    assert found == pytest.approx(saved["reward"].to_numpy(), abs=1e-5)
    assert model.mode == mode
    assert model.groups == (() if mode == "none" else TWO)
    assert model.has_default == (mode != "separate")
    if mode != "none":
        swapped = {"Chile": "South Africa", "South Africa": "Chile", None: "Chile"}
        other = model.score_rows(list(table["prompt"]), list(table["response"]), [swapped[group] for group in told])
        assert np.abs(other - found).max() > 1e-3


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "none"])
def test_mixtures_and_aggregates_by_hand(
    mode: str, run_of: Callable[[str], Path], model_of: Callable[[str], RewardModel]
) -> None:
    model = model_of(mode)
    scale = read_json(run_of(mode) / "model" / STEERING)["scale"]
    raw = {group: model.score(PROMPT, RESPONSES, group) for group in TWO}
    chile, africa = ((raw[g].astype(np.float64) - scale[g][0]) / scale[g][1] for g in TWO)
    # Rounding of the rewards is divided by the deviation too.
    close = 1e-5 * max(1, *(1 / scale[group][1] for group in TWO))
    assert np.abs(chile - africa).max() > 10 * close
    found = model.score(PROMPT, RESPONSES, {"Chile": 7, "ZAF": 3})
    assert found == pytest.approx(0.7 * chile + 0.3 * africa, abs=close)
    for aggregate, want in (("mean", (chile + africa) / 2), ("min", np.minimum(chile, africa))):
        assert model.score(PROMPT, RESPONSES, TWO, aggregate=aggregate) == pytest.approx(want, abs=close)
    assert model.score(PROMPT, RESPONSES, {"CL": 1}).tolist() == raw["Chile"].tolist()
    assert model.score(PROMPT, RESPONSES, "S. Africa").tolist() == raw["South Africa"].tolist()


def test_rows_may_each_have_their_own(model_of: Callable[[str], RewardModel]) -> None:
    model = model_of("embedding")
    history = [{"role": "user", "content": "where is the lake"}, {"role": "assistant", "content": "in the valley"}]
    told: list[Any] = ["Chile", None, {"Chile": 1, "South Africa": 1}, list(TWO), model.steer("ZA")]
    found = model.score_rows([PROMPT] * 5, [RESPONSES[0]] * 5, told, [history, None, (), [], history], aggregate="min")
    want = [
        model.score(PROMPT, RESPONSES[:1], "Chile", history=history),
        model.score(PROMPT, RESPONSES[:1]),
        model.score(PROMPT, RESPONSES[:1], TWO, aggregate="mean"),
        model.score(PROMPT, RESPONSES[:1], TWO, aggregate="min"),
        model.score(PROMPT, RESPONSES[:1], "South Africa", history=history),
    ]
    assert found == pytest.approx(np.concatenate(want), abs=1e-3)
    assert len(set(np.round(found, 2))) == 5
    assert found[0] != pytest.approx(model.score(PROMPT, RESPONSES[:1], "Chile")[0], abs=1e-5), "the history is read"
    assert model.score(PROMPT, []).shape == model.score_rows([], [], []).shape == (0,)


def test_a_text_is_scored_once_for_each_group(
    model_of: Callable[[str], RewardModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[int] = []
    inner = scpo.model.score.score_encoded

    def counted(model: Any, encoded: Any, **more: Any) -> Any:
        scored.append(len(encoded))
        return inner(model, encoded, **more)

    monkeypatch.setattr(scpo.model.score, "score_encoded", counted)
    mixed = {"Chile": 0.5, "South Africa": 0.5}
    told: list[Any] = ["Chile", "CL", mixed, mixed, {"Chile": 1, "South Africa": 0}, None]
    for mode in ("embedding", "prefix"):
        scored.clear()
        model_of(mode).score_rows([PROMPT] * 6, [RESPONSES[0]] * 6, told)
        assert scored == [3], "Chile, South Africa and no group"


def test_another_process_gives_the_same(
    run_of: Callable[[str], Path], model_of: Callable[[str], RewardModel], tmp_path: Path
) -> None:
    code = (
        "import sys, json, scpo\n"
        "assert not {'torch', 'numpy', 'transformers'} & set(sys.modules)\n"
        "folder, prompt, responses, group = json.loads(sys.argv[1])\n"
        "print(json.dumps(scpo.RewardModel.from_pretrained(folder).score(prompt, responses, group).tolist()))\n"
    )
    for mode in ("adapter", "separate"):
        mix = {"Chile": 0.7, "South Africa": 0.3}
        argument = json.dumps([str(run_of(mode) / "model"), PROMPT, RESPONSES, mix])
        done = subprocess.run(
            [sys.executable, "-c", code, argument], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == pytest.approx(model_of(mode).score(PROMPT, RESPONSES, mix).tolist(), abs=1e-5)


def test_one_model_per_group_is_loaded_when_it_is_needed(changed: Callable[..., Path]) -> None:
    folder = changed("separate")
    shutil.rmtree(folder / "South_Africa")
    model = RewardModel.from_pretrained(folder)
    assert np.isfinite(model.score(PROMPT, RESPONSES, "Chile")).all()
    assert "South_Africa" in refusal(lambda: model.score(PROMPT, RESPONSES, "South Africa"))
    line = refusal(lambda: model.score(PROMPT, RESPONSES))
    assert "expected a group, found none" in line
    assert '{"Chile": 0.7, "South Africa": 0.3}' in line


def test_no_group_without_group_dropout_is_told_once(
    changed: Callable[..., Path], model_of: Callable[[str], RewardModel]
) -> None:
    model = RewardModel.from_pretrained(changed("head", default=False))
    assert not model.has_default
    with pytest.warns(NoDefaultWarning, match="always told a group") as told:
        found = model.score(PROMPT, RESPONSES)
    assert told[0].filename == __file__, "the warning points at the call"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.score(PROMPT, RESPONSES)
        assert found.tolist() == model_of("head").score(PROMPT, RESPONSES).tolist()
        RewardModel.from_pretrained(changed("head", default=False)).score(PROMPT, RESPONSES, "Chile")


def test_mixing_needs_a_scale(changed: Callable[..., Path]) -> None:
    for scale in (None, {"Chile": [0.0, 1.0]}, {"Chile": [0.0, 1.0], "South Africa": [1.0, 0.0]}):
        model = RewardModel.from_pretrained(changed("embedding", scale=scale))
        for call in (
            lambda m=model: m.score(PROMPT, RESPONSES, TWO, aggregate="min"),
            lambda m=model: m.score(PROMPT, RESPONSES, {"Chile": 1, "South Africa": 1}),
        ):
            assert "train the run again, or pass a single group" in refusal(call)
        assert np.isfinite(model.score(PROMPT, RESPONSES, "South Africa")).all()


def test_an_unknown_group_names_its_row_and_what_to_do(model_of: Callable[[str], RewardModel]) -> None:
    model = model_of("head")
    line = refusal(lambda: model.score_rows([PROMPT] * 2, RESPONSES[:2], ["Chile", {"Kenya": 1.0}]))
    assert line.startswith("row 1: groups: ")
    assert "found 'Kenya'" in line
    assert "no group (None) or 'scpo adapt model=" in line


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_a_plain_model_takes_no_group(kind: str, tmp_path: Path) -> None:
    model = RewardModel.from_pretrained(build_backbone(kind, tmp_path / "plain"), max_length=32)
    assert (model.mode, model.groups, model.has_default) == ("none", (), True)
    found = model.score(PROMPT, RESPONSES)
    assert len(set(found.tolist())) == len(RESPONSES)
    assert model.score(PROMPT, RESPONSES[::-1]).tolist() == pytest.approx(found[::-1].tolist(), abs=1e-5)
    assert "plain reward model that takes no group" in refusal(lambda: model.score(PROMPT, RESPONSES, "Chile"))


def test_the_best_of_several(model_of: Callable[[str], RewardModel]) -> None:
    model = model_of("embedding")
    rewards = model.score(PROMPT, RESPONSES, "Chile")
    top = int(rewards.argmax())
    best = model.best_of_n(PROMPT, RESPONSES, "CL")
    assert (best.index, best.response, best.reward) == (top, RESPONSES[top], float(rewards[top]))
    assert best.rewards.tolist() == rewards.tolist()
    assert best.tied == ()
    low = RESPONSES[int(rewards.argmin())]
    again = model.best_of_n(PROMPT, [low, RESPONSES[top], low, RESPONSES[top], RESPONSES[top]], "Chile")
    assert (again.index, again.tied) == (1, (3, 4))
    least = model.score(PROMPT, RESPONSES, TWO, aggregate="min")
    assert model.best_of_n(PROMPT, RESPONSES, TWO, aggregate="min").index == int(least.argmax())
    assert "expected at least one, found none" in refusal(lambda: model.best_of_n(PROMPT, [], "Chile"))


def test_texts_that_are_too_long_have_no_reward_and_are_never_best(changed: Callable[..., Path]) -> None:
    model = RewardModel.from_pretrained(changed("embedding", overlong="drop", max_length=32))
    long = "well " * 100
    found = model.score(PROMPT, [long, RESPONSES[1]], TWO, aggregate="mean")
    assert np.isnan(found).tolist() == [True, False]
    best = model.best_of_n(PROMPT, [long, RESPONSES[1], long], "Chile")
    assert (best.index, best.tied, math.isnan(best.rewards[0])) == (1, (), True)
    assert "found 2, all of them too long" in refusal(lambda: model.best_of_n(PROMPT, [long, long + "x"], "Chile"))


def test_arguments_of_another_form_are_named(model_of: Callable[[str], RewardModel]) -> None:
    model = model_of("embedding")
    for call, text in (
        (lambda: model.score(PROMPT, "yes"), "responses: expected a list of texts, found 'yes'"),
        (lambda: model.score(PROMPT, None), "responses: expected a list of texts, found None"),
        (lambda: model.score(PROMPT, ["a", 3]), "row 1: response: expected text, found 3"),
        (lambda: model.score(None, ["a"]), "row 0: prompt: expected text, found None"),
        (lambda: model.score(PROMPT, ["a"], history=["x"]), "row 0: history: expected a list of"),
        (lambda: model.score_rows(["p"], ["a", "b"]), "found 1 prompts, 2 responses, 1 groups, 1 histories"),
        (lambda: model.score_rows(["p"], ["a"], ["Chile", None]), "2 groups"),
        (lambda: model.score_rows(["p"], ["a"], [TWO]), "row 0: group: expected aggregate=mean or aggregate=min"),
        (lambda: model.score_rows(["p"], ["a"], aggregate="median"), "aggregate: expected mean or min"),
    ):
        assert text in refusal(call)


def test_options_out_of_range_are_named(world: World, tmp_path: Path) -> None:
    for options, text in (
        ({"device": "abacus"}, "device: expected cpu, cuda, cuda:N or mps, found 'abacus'"),
        ({"dtype": "float16"}, "dtype: expected float32 or bfloat16, found 'float16'"),
        ({"max_length": 15}, "max_length: expected at least 16 tokens, as a whole number, found 15"),
        ({"batch_tokens": 0}, "batch_tokens: expected at least 1, as a whole number, found 0"),
    ):
        assert text in refusal(lambda options=options: RewardModel.from_pretrained(world.model, **options))
    assert "expected a model folder or a Hub id" in refusal(lambda: RewardModel.from_pretrained(tmp_path / "nowhere"))


def test_precision_is_the_trained_one_and_another_is_told(
    model_of: Callable[[str], RewardModel], changed: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    """PITFALLS 33."""
    full = model_of("embedding").score(PROMPT, RESPONSES, "Chile")
    assert caplog.text == ""
    half = RewardModel.from_pretrained(changed("embedding", trained_dtype="bfloat16")).score(PROMPT, RESPONSES, "Chile")
    assert caplog.text == ""
    chosen = RewardModel.from_pretrained(changed("embedding", trained_dtype="float32"), dtype="bfloat16")
    assert "scored in bfloat16, trained in float32" in caplog.text
    assert chosen.score(PROMPT, RESPONSES, "Chile").tolist() == half.tolist() != full.tolist()
    assert half == pytest.approx(full, abs=0.5)


def test_batches_change_nothing(run_of: Callable[[str], Path], model_of: Callable[[str], RewardModel]) -> None:
    alone = RewardModel.from_pretrained(run_of("adapter") / "model", batch_tokens=1)
    told: list[Any] = ["Chile", "South Africa", None]
    want = model_of("adapter").score_rows([PROMPT] * 3, RESPONSES, told)
    assert alone.score_rows([PROMPT] * 3, RESPONSES, told) == pytest.approx(want, abs=1e-5)


def test_each_of_several_processes_scores_its_own_texts(
    model_of: Callable[[str], RewardModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes of a policy's training have completions of their own: none may take a share of another's."""
    model = model_of("none")
    want = model.score(PROMPT, RESPONSES)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_reduce", None)
    np.testing.assert_array_equal(model.score(PROMPT, RESPONSES), want)


def test_arguments_of_another_kind_are_refused(
    run_of: Callable[[str], Path], model_of: Callable[[str], RewardModel]
) -> None:
    model, folder = model_of("adapter"), run_of("adapter") / "model"
    nested: Any = [["Chile"], "South Africa"]
    alike: Any = {"Chile": 0.5, "South Africa": 0.5}
    kinds: tuple[Any, ...] = (2.5, "x", None)
    assert "expected names of groups" in refusal(lambda: model.score(PROMPT, RESPONSES, nested, aggregate="min"))
    assert "one group for each row" in refusal(lambda: model.score_rows([PROMPT] * 2, RESPONSES[:2], alike))
    assert "weight of 'Chile'" in refusal(lambda: model.score(PROMPT, RESPONSES, {"Chile": 10**400}))
    for wrong in kinds:
        assert "batch_tokens: expected at least 1, as a whole number" in refusal(
            lambda wrong=wrong: RewardModel.from_pretrained(folder, batch_tokens=wrong)
        )
    said = refusal(lambda: RewardModel.from_pretrained(folder, max_length=kinds[0]))
    assert "max_length: expected at least 16 tokens, as a whole number, found 2.5" in said
    assert "expected a model's folder" in refusal(lambda: RewardModel.from_pretrained(kinds[2]))


def test_the_package_offers_it_by_name() -> None:
    import scpo

    assert scpo.RewardModel is RewardModel
    with pytest.raises(AttributeError, match="'scpo' has no attribute 'RewardMode'"):
        scpo.RewardMode  # noqa: B018
