"""A training run from its config to its folder: what it holds, what it repeats, how it ends and goes on."""

from __future__ import annotations

import copy
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from world import World, compose, own_rows, tree

from scpo.errors import UserError
from scpo.io import read_json
from scpo.run import execute as run
from scpo.run import parts, rewards
from scpo.run.execute import execute

MODEL = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
TOP = {
    *(
        "config.yaml",
        "status.json",
        "metrics.json",
        "predictions.parquet",
        "model",
        "report.html",
        "report.md",
        "plots",
    ),
    *("logs", ".lock"),
}
KEYS = {
    *("schema", "macro", "micro", "worst_group", "gap", "by_group", "by_subcommunity", "baselines", "train"),
}


def no_seconds(metrics: dict[str, Any]) -> dict[str, Any]:
    """The metrics without the only number that a clock gives."""
    result = copy.deepcopy(metrics)
    assert result["train"].pop("seconds") >= 0
    return result


def forbidden(what: str) -> Callable[..., Any]:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"{what} was loaded")

    return fail


@pytest.mark.parametrize("mode", ["separate", "none", "prefix"])
@pytest.mark.parametrize("arm", ["full", "scpo"])
def test_the_folder_holds_what_the_design_says(world: World, tmp_path: Path, mode: str, arm: str) -> None:
    config = world.config(f"conditioning={mode}", f"selection={arm}")
    metrics = execute(config, tmp_path / "run", "scpo train")
    folder = tmp_path / "run"
    assert {p.name for p in folder.iterdir()} <= TOP
    assert {p.name for p in folder.iterdir()} >= TOP - {"logs"}
    assert not [p for p in folder.rglob("*") if p.name.endswith((".tmp", ".old", ".ckpt"))]
    assert not any(p.name == "adapter_config.json" for p in folder.rglob("*"))

    status = read_json(folder / "status.json")
    assert status["state"] == "finished"
    assert yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8")) == config
    assert read_json(folder / "metrics.json") == metrics
    assert set(metrics) >= KEYS
    assert metrics["schema"] == 1
    assert list(metrics["by_group"]) == ["Chile", "South Africa"]
    assert metrics["train"]["pairs"] > 0
    assert metrics["train"]["candidates_encoded"] <= 2 * metrics["train"]["pairs"]
    for name, group in metrics["by_group"].items():
        assert group["reference"]["distinctive"] == 0.0, name
        assert group["reference"]["shared"] == 1.0, name
        assert (group["kept_ratio"] == 1.0) == (arm == "full")
        assert group["distinctive"]["n_pairs"] + group["shared"]["n_pairs"] == group["n_pairs"]
    assert "NaN" not in (folder / "metrics.json").read_text(encoding="utf-8")

    check_predictions(world, own_rows(folder), mode)
    check_model(folder / "model", mode)
    for page in ("report.md", "report.html"):
        text = (folder / page).read_text(encoding="utf-8")
        assert "Chile" in text
        assert "South Africa" in text
    assert any((folder / "plots").iterdir())


def check_predictions(world: World, found: pd.DataFrame, mode: str) -> None:
    """Exactly the test candidates, each once, with both rewards."""
    table = pd.read_parquet(world.data / "comparisons.parquet")
    want = table[(table["split"] == "test") & table["group"].isin(["Chile", "South Africa"])]
    assert sorted(found["candidate_id"]) == sorted(want["candidate_id"])
    assert found["candidate_id"].is_unique
    assert np.isfinite(found["reward"]).all()
    assert np.isfinite(found["reference_reward"]).all()
    if mode == "none":
        assert found["conditioned_on"].isna().all()
    else:
        assert (found["conditioned_on"] == found["group"]).all()
    joined = found.merge(want, on="candidate_id", suffixes=("", "_want"))
    for column in ("comparison_id", "cluster_id", "group", "score"):
        assert (joined[column] == joined[f"{column}_want"]).all(), column


def check_model(folder: Path, mode: str) -> None:
    """Plain folders that transformers loads by itself, and the file that says how to steer."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    steering = read_json(folder / "steering" / "steering.json")
    assert steering["mode"] == mode
    names = {"separate": {"Chile": "Chile", "South Africa": "South_Africa"}}.get(
        mode, {"Chile": ".", "South Africa": "."}
    )
    assert steering["groups"] == names
    assert {p.name for p in folder.iterdir()} - {"steering"} == (set(names.values()) if mode == "separate" else MODEL)
    for name in set(names.values()):
        plain = folder / name
        assert {p.name for p in plain.iterdir() if p.is_file()} == MODEL
        model, loading = AutoModelForSequenceClassification.from_pretrained(plain, output_loading_info=True)
        assert not loading["missing_keys"], "the head is saved with the body"
        tokenizer = AutoTokenizer.from_pretrained(plain)
        with torch.no_grad():
            logits = model.eval()(**tokenizer("how are you?", "well", return_tensors="pt")).logits
        assert logits.shape == (1, 1)


def test_prediction_is_what_transformers_alone_computes(world: World, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    execute(world.config("conditioning=none"), tmp_path / "run", "")
    found = own_rows(tmp_path / "run").head(5)
    table = pd.read_parquet(world.data / "comparisons.parquet").set_index("candidate_id").loc[found["candidate_id"]]
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    batch = tokenizer(list(table["prompt"]), list(table["response"]), padding=True, return_tensors="pt")
    with torch.no_grad():
        alone = model(**batch).logits[:, 0].numpy()
    np.testing.assert_allclose(found["reward"], alone, atol=1e-5)


def test_a_finished_run_is_read_and_no_model_is_loaded(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = world.config()
    first = execute(config, tmp_path / "run", "one")
    before = tree(tmp_path / "run")
    monkeypatch.setattr(parts, "load_model", forbidden("the starting model"))
    monkeypatch.setattr(rewards, "load_model", forbidden("the reference model"))
    assert execute(config, tmp_path / "run", "two") == first
    assert tree(tmp_path / "run") == before
    with pytest.raises(AssertionError, match="the starting model was loaded"):
        execute(config, tmp_path / "other", "")  # the guard works


def test_the_second_run_takes_the_reference_rewards_from_the_cache(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = f"cache_dir={tmp_path / 'cache'}"
    with monkeypatch.context() as patch:
        patch.setattr(rewards, "load_model", forbidden("the reference model"))
        with pytest.raises(AssertionError, match="the reference model was loaded"):
            execute(world.config(cache), tmp_path / "a", "")
    execute(world.config(cache), tmp_path / "a", "")
    monkeypatch.setattr(rewards, "load_model", forbidden("the reference model"))
    execute(world.config(cache, "seed=1"), tmp_path / "b", "")


def test_the_same_run_gives_the_same_numbers(world: World, tmp_path: Path) -> None:
    config = world.config("groups.names=[Chile]")
    first = execute(config, tmp_path / "a", "")
    assert no_seconds(execute(config, tmp_path / "b", "")) == no_seconds(first)
    one, two = (own_rows(tmp_path / n)["reward"] for n in "ab")
    assert (one == two).all()


def test_other_data_at_the_same_place_run_again(world: World, tmp_path: Path) -> None:
    from scpo.data.manifest import finish
    from scpo.data.prism import read_prism

    data = tmp_path / "data"
    shutil.copytree(world.data, data, ignore=shutil.ignore_patterns("reference"))
    config = world.config(f"data.dir={data}", "groups.names=[Chile]")
    execute(config, tmp_path / "run", "")
    old = own_rows(tmp_path / "run")
    shutil.rmtree(data)
    finish(read_prism(world.raw / "prism"), data, seed=5)
    execute(config, tmp_path / "run", "")
    new = own_rows(tmp_path / "run")
    assert set(new["cluster_id"]) != set(old["cluster_id"])


def test_another_config_does_not_touch_a_finished_run(world: World, tmp_path: Path) -> None:
    execute(world.config("groups.names=[Chile]"), tmp_path / "run", "")
    before = tree(tmp_path / "run")
    with pytest.raises(UserError, match="holds a finished run of another config"):
        execute(world.config("groups.names=[Chile]", "seed=1"), tmp_path / "run", "")
    assert tree(tmp_path / "run") == before


def test_a_killed_run_goes_on_with_the_part_that_is_missing(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = world.config("groups.names=[Chile,South Africa,Israel]")
    undisturbed = execute(config, tmp_path / "whole", "")
    trained: list[str] = []
    train = parts.train_part

    def killed(*args: Any) -> None:
        trained.append(args[2].name)
        if len(trained) == 3:
            raise KeyboardInterrupt
        train(*args)

    monkeypatch.setattr(parts, "train_part", killed)
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        execute(config, folder, "")
    assert read_json(folder / "status.json")["state"] == "interrupted"
    assert not (folder / "metrics.json").exists()
    # A process that is killed outright has no time to write its state.
    status = {**read_json(folder / "status.json"), "state": "running", "finished": None, "error": None}
    (folder / "status.json").write_text(json.dumps(status), encoding="utf-8")
    trained.clear()
    monkeypatch.setattr(parts, "train_part", lambda *args: (trained.append(args[2].name), train(*args)))
    resumed = execute(config, folder, "")
    assert trained == ["Israel"]
    assert no_seconds(resumed) == no_seconds(undisturbed)
    assert read_json(folder / "status.json")["state"] == "finished"
    assert not (folder / "work").exists()
    assert not (folder / "checkpoints").exists()


def test_a_failure_is_in_the_status(world: World, tmp_path: Path) -> None:
    config = world.config(
        "optim.lr=1e30", "trainer.max_steps=20", "trainer.gradient_clip_val=0", "groups.names=[Chile]"
    )
    with pytest.raises(UserError, match=r"finite") as error:
        execute(config, tmp_path / "run", "")
    status = read_json(tmp_path / "run" / "status.json")
    assert status["state"] == "failed"
    assert status["error"] == str(error.value)
    assert " over " in status["error"], "the pairs of the step are named by their candidates"
    assert not (tmp_path / "run" / "metrics.json").exists()


def test_without_a_reference_only_full_runs(world: World, tmp_path: Path) -> None:
    small = ["model.scratch.hidden_size=16", "model.scratch.vocab_size=600", "model.scratch.heads=2"]
    base = [f"data.dir={world.data}", "groups.names=[Chile]", "trainer.max_steps=2", "evaluation.resamples=100", *small]
    with pytest.raises(UserError) as error:
        execute(compose(*base, "selection=scpo"), tmp_path / "a", "")
    text = str(error.value)
    assert "selection=scpo needs a reference model" in text
    for way in ("experiment=global", "model.name_or_path", "reference.name_or_path", "selection=full"):
        assert way in text
    assert not (tmp_path / "a").exists()
    metrics = execute(compose(*base, "selection=full"), tmp_path / "b", "")
    chile = metrics["by_group"]["Chile"]
    assert chile["distinctive"] is None or chile["distinctive"]["accuracy"] is None
    assert chile["shared"] is None or chile["shared"]["accuracy"] is None
    assert metrics["baselines"]["reference"] is None
    assert metrics["gap"]["to_reference"] is None
    assert own_rows(tmp_path / "b")["reference_reward"].isna().all()
    # A reference beside a starting model from scratch serves every arm.
    metrics = execute(compose(*base, f"reference.name_or_path={world.model}"), tmp_path / "c", "")
    assert metrics["by_group"]["Chile"]["reference"]["distinctive"] == 0.0


def test_filter_wins_distinctive_pairs_and_loses_shared_ones(world: World, tmp_path: Path) -> None:
    """The published pattern, with all seven countries in one model: far outside the intervals over annotators."""
    found = {}
    for arm in ("full", "filter"):
        config = compose(
            *world.overrides("groups=prism7", "conditioning=none", f"selection={arm}", "trainer.max_steps=40"),
            "groups.names=[Chile,South Africa,New Zealand,Australia,Mexico,Israel,Canada]",
        )
        config["evaluation"]["resamples"] = 500
        found[arm] = execute(config, tmp_path / arm, "")["micro"]
        assert found[arm]["distinctive"]["n_pairs"] > 200
    full, filtered = found["full"], found["filter"]
    assert filtered["distinctive"]["ci"][0] > full["distinctive"]["ci"][1] + 0.1
    assert filtered["shared"]["ci"][1] < full["shared"]["ci"][0] - 0.1


def test_the_best_weights_are_kept_when_asked(world: World, tmp_path: Path) -> None:
    config = world.config(
        "callbacks=best",
        "callbacks.patience=1",
        "trainer.val_check_interval=2",
        "trainer.max_steps=8",
        "groups.names=[Chile]",
    )
    execute(config, tmp_path / "run", "")
    assert "Weights of the best validation step: Chile " in (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_the_best_weights_need_a_validation_set(world: World, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"callbacks.monitor=val/accuracy: needs validation pairs"):
        execute(world.config("callbacks=best", "split=paper", "groups.names=[Chile]"), tmp_path / "run", "")


def test_the_papers_split_trains(world: World, tmp_path: Path) -> None:
    config = world.config("split=paper", "groups.names=[Mexico]")
    metrics = execute(config, tmp_path / "run", "")
    table = pd.read_parquet(world.data / "comparisons.parquet")
    found = own_rows(tmp_path / "run")
    assert list(metrics["by_group"]) == ["Mexico"]
    prepared = table[(table["split"] == "test") & (table["group"] == "Mexico")]
    assert set(found["cluster_id"]) != set(prepared["cluster_id"]), "another split than the prepared one"


def test_an_attribute_steers(world: World, tmp_path: Path) -> None:
    config = world.config("conditioning=prefix", "groups.names=[Jewish]", "groups.attribute=religion")
    metrics = execute(config, tmp_path / "run", "")
    assert list(metrics["by_group"]) == ["Jewish"]
    steering = read_json(tmp_path / "run" / "model" / "steering" / "steering.json")
    assert list(steering["groups"]) == ["Jewish"]
    found = own_rows(tmp_path / "run")
    assert set(found["conditioned_on"]) == {"Jewish"}
    assert all(dict(a)["group"] not in ("Jewish", None) for a in found["attributes"]), "the country is kept beside it"


def test_a_tau_that_keeps_nothing_names_the_groups(world: World, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"selection=scpo keeps no training pair of Chile.*; raise selection.tau"):
        execute(world.config("selection.tau=1e-30"), tmp_path / "run", "")


def test_several_devices_are_several_processes_whatever_the_strategy_is_called(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """trainer.devices=2 alone, with strategy auto, must not let Lightning start the command a second time (69)."""
    calls: list[tuple[Path, int]] = []

    def record(run_dir: Path, count: int) -> None:
        calls.append((run_dir, count))
        raise UserError("launched")

    monkeypatch.setattr(run, "launch", record)
    monkeypatch.setattr(run, "train_parts", forbidden("this process"))
    config = world.config("trainer.devices=2", "groups.names=[Chile]")
    assert config["trainer"]["strategy"] == "auto"
    with pytest.raises(UserError, match="launched"):
        execute(config, tmp_path / "run", "")
    assert calls == [(tmp_path / "run", 2)]


def test_a_worker_hands_its_mistake_to_the_parent(world: World, tmp_path: Path) -> None:
    from scpo.run.worker import main

    config = {**world.config(), "data": {**world.config()["data"], "dir": str(tmp_path / "nowhere"), "simulate": None}}
    (tmp_path / "work").mkdir()
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    assert main(tmp_path) == 2
    assert "nowhere" in read_json(tmp_path / "work" / "worker_error.json")["error"]


def test_goqa_trains_and_every_metric_is_finite(world: World, tmp_path: Path) -> None:
    config = compose(
        "data=goqa",
        f"data.dir={world.goqa}",
        "groups.names=[United States,Japan]",
        f"model.name_or_path={world.model}",
        "trainer.max_steps=2",
        "evaluation.resamples=100",
    )
    metrics = execute(config, tmp_path / "run", "")
    assert 0 <= metrics["macro"]["accuracy"] <= 1
    assert all(math.isfinite(x) for x in metrics["macro"]["ci"])
