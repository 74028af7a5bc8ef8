"""Reference rewards: scored once, cached by content, rebuilt when damaged, shared by concurrent jobs. No model is loaded."""

from __future__ import annotations

import logging
import multiprocessing
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.errors import UserError
from scpo.reference import FloatArray, model_key, reference_rewards, text_key

if TYPE_CHECKING:
    from scpo.model.reward import ModelOptions

TURNS = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


def options(**changes: Any) -> ModelOptions:
    # Imported here, so that a second process of a test starts without torch.
    from scpo.model.reward import ModelOptions

    return ModelOptions(**{"max_length": 128, **changes})


class Score:
    """A stand-in for a model: the reward is the length of prompt, response and history; remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, frame: pd.DataFrame) -> FloatArray:
        self.calls.append(frame["response"].tolist())
        return expected(frame)


def expected(frame: pd.DataFrame) -> FloatArray:
    rows = zip(frame["prompt"], frame["response"], frame["history"], strict=True)
    return np.array([len(p) + 10 * len(r) + 100 * len(h) + 0.1 for p, r, h in rows], dtype=np.float32)


def frame(*rows: tuple[str, str, list[dict[str, str]]]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=["prompt", "response", "history"])


TEXTS = frame(("p", "aa", []), ("p", "b", []), ("p", "b", TURNS), ("p", "aa", []), ("pp", "", []))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the cache looks at of a model folder: its files."""
    model = tmp_path / "model"
    model.mkdir()
    for name in ("model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"):
        (model / name).write_text(f"content of {name}")
    return model


def cache_file(cache: Path) -> Path:
    (path,) = cache.glob("*.parquet")
    return path


def test_equal_texts_are_scored_once_and_every_row_gets_its_reward(folder: Path, tmp_path: Path) -> None:
    score = Score()
    rewards = reference_rewards(TEXTS, folder, options(), tmp_path / "cache", score)
    assert score.calls == [["aa", "b", "b", ""]]
    assert rewards.dtype == np.float32
    np.testing.assert_array_equal(rewards, expected(TEXTS))


def test_the_second_run_loads_no_model_and_gives_the_same_bits(folder: Path, tmp_path: Path) -> None:
    score = Score()
    first = reference_rewards(TEXTS, folder, options(), tmp_path / "cache", score)
    second = reference_rewards(TEXTS.iloc[::-1], folder, options(), tmp_path / "cache", score)
    assert len(score.calls) == 1
    np.testing.assert_array_equal(second[::-1], first)


def test_only_new_texts_are_scored_and_old_ones_stay(folder: Path, tmp_path: Path) -> None:
    """Other data with some of the same texts."""
    score = Score()
    reference_rewards(TEXTS, folder, options(), tmp_path / "cache", score)
    other = frame(("p", "b", []), ("p", "new", []))
    np.testing.assert_array_equal(
        reference_rewards(other, folder, options(), tmp_path / "cache", score), expected(other)
    )
    assert score.calls[1:] == [["new"]]
    reference_rewards(pd.concat([TEXTS, other]), folder, options(), tmp_path / "cache", score)
    assert len(score.calls) == 2


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"])
def test_another_file_of_the_model_is_another_model(folder: Path, tmp_path: Path, name: str) -> None:
    """PITFALLS 28, 29: weights, tokenizer and chat template are part of the key, wherever the folder lies."""
    before = model_key(folder, options())
    moved = folder.rename(tmp_path / "moved")
    assert model_key(moved, options()) == before
    score = Score()
    for content in ("content of one", "content of two", "content of one"):
        (moved / name).write_text(content)
        reference_rewards(TEXTS, moved, options(), tmp_path / "cache", score)
    assert len(score.calls) == 2
    (moved / name).unlink()
    assert model_key(moved, options()) != before


@pytest.mark.parametrize("change", [{"max_length": 64}, {"overlong": "drop"}, {"dtype": "bfloat16"}])
def test_another_length_or_precision_is_another_reward(folder: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    score = Score()
    for one in (options(), options(**change), options()):
        reference_rewards(TEXTS, folder, one, tmp_path / "cache", score)
    assert len(score.calls) == 2


def test_what_does_not_change_a_reward_without_a_group_is_no_part_of_the_key(folder: Path) -> None:
    same = options(template="From {group}.", seed=3, gradient_checkpointing=True)
    assert model_key(folder, same) == model_key(folder, options())


@pytest.mark.parametrize("damage", ["truncated", "empty", "foreign", "flipped", "other model", "null"])
def test_a_damaged_cache_is_rebuilt_with_a_warning(
    folder: Path, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache, score = tmp_path / "cache", Score()
    reference_rewards(TEXTS, folder, options(), cache, score)
    path = cache_file(cache)
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        content = content[: len(content) // 2]
    elif damage == "empty":
        content = bytearray()
    elif damage == "foreign":
        content = bytearray(b"not a parquet file at all")
    elif damage == "flipped":
        content[content.index(text_key("p", "b", [])) + 5] ^= 4
    else:
        table = pq.read_table(path)
        if damage == "other model":
            table = table.replace_schema_metadata({**table.schema.metadata, b"model_key": b"another"})
        else:
            nulls = pa.array([None] * len(table), type=pa.binary(16))
            table = table.set_column(0, pa.field("text", nulls.type), nulls)
        pq.write_table(table, path)
        content = bytearray(path.read_bytes())
    path.write_bytes(bytes(content))
    with caplog.at_level(logging.WARNING):
        rewards = reference_rewards(TEXTS, folder, options(), cache, score)
    np.testing.assert_array_equal(rewards, expected(TEXTS))
    assert len(score.calls) == 2
    (record,) = caplog.records
    assert str(path) in record.getMessage()
    assert "damaged" in record.getMessage()
    caplog.clear()
    reference_rewards(TEXTS, folder, options(), cache, score)
    assert len(score.calls) == 2
    assert not caplog.records


def test_no_single_flipped_bit_gives_a_wrong_reward(folder: Path, tmp_path: Path) -> None:
    """All over the file, its headers included: the reward is right, whether it is read or computed again."""
    cache = tmp_path / "cache"
    reference_rewards(TEXTS, folder, options(), cache, expected)
    path = cache_file(cache)
    good = path.read_bytes()
    logging.getLogger("scpo.reference").disabled = True
    try:
        for i in range(0, len(good), 7):
            path.write_bytes(good[:i] + bytes([good[i] ^ (1 << i % 8)]) + good[i + 1 :])
            rewards = reference_rewards(TEXTS, folder, options(), cache, expected)
            np.testing.assert_array_equal(rewards, expected(TEXTS), err_msg=f"byte {i}")
    finally:
        logging.getLogger("scpo.reference").disabled = False


def test_a_text_that_the_policy_drops_has_no_reward_and_is_not_asked_again(folder: Path, tmp_path: Path) -> None:
    calls = []

    def score(rows: pd.DataFrame) -> FloatArray:
        calls.append(len(rows))
        return np.array([1.0, np.nan], dtype=np.float32)

    texts = frame(("p", "a", []), ("p", "too long", []))
    for _ in range(2):
        rewards = reference_rewards(texts, folder, options(), tmp_path / "cache", score)
        np.testing.assert_array_equal(rewards, np.array([1.0, np.nan], dtype=np.float32))
    assert calls == [2]


def test_a_failed_scoring_leaves_the_cache_as_it_was(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"

    def fails(rows: pd.DataFrame) -> FloatArray:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reference_rewards(TEXTS, folder, options(), cache, fails)
    assert list(cache.glob("*.parquet")) == []
    reference_rewards(TEXTS, folder, options(), cache, expected)
    before = cache_file(cache).read_bytes()
    with pytest.raises(KeyboardInterrupt):
        reference_rewards(frame(("new", "new", [])), folder, options(), cache, fails)
    with pytest.raises(ValueError, match="zip"):
        reference_rewards(frame(("new", "new", [])), folder, options(), cache, lambda rows: np.zeros(3, np.float32))
    assert cache_file(cache).read_bytes() == before
    assert {p.suffix for p in cache.iterdir()} <= {".parquet", ".lock"}


def _job(folder: Path, cache: Path, log: Path, barrier: Any) -> None:
    def slow(rows: pd.DataFrame) -> FloatArray:
        with open(log, "a") as stream:
            stream.write("scored\n")
        time.sleep(0.3)
        return expected(rows)

    barrier.wait(timeout=60)
    one: Any = SimpleNamespace(max_length=128, overlong="truncate", dtype="float32")
    rewards = reference_rewards(TEXTS, folder, one, cache, slow)
    assert (rewards == expected(TEXTS)).all()


def test_two_processes_at_once_score_once(folder: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    log = tmp_path / "log"
    jobs = [context.Process(target=_job, args=(folder, tmp_path / "cache", log, barrier)) for _ in range(2)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(60)
    assert [job.exitcode for job in jobs] == [0, 0]
    assert log.read_text() == "scored\n"


def test_no_rows(folder: Path, tmp_path: Path) -> None:
    assert reference_rewards(TEXTS.iloc[:0], folder, options(), tmp_path / "cache", Score()).shape == (0,)


texts = st.text(max_size=8)
rows = st.tuples(texts, texts, st.lists(st.tuples(st.sampled_from(["user", "assistant"]), texts), max_size=2))


@given(rows, rows)
def test_keys_are_equal_exactly_where_texts_are(one: Any, two: Any) -> None:
    keys = [text_key(p, r, [{"role": a, "content": b} for a, b in h]) for p, r, h in (one, two)]
    assert (keys[0] == keys[1]) == (one == two)
    assert [len(k) for k in keys] == [16, 16]


def test_moving_a_border_between_texts_changes_the_key() -> None:
    assert text_key("ab", "c", []) != text_key("a", "bc", [])
    assert text_key("a", "b", TURNS) != text_key("a", "b", [])
    assert text_key("a", "b", TURNS) != text_key("a", "b", TURNS[::-1])


def test_a_file_in_the_place_of_the_cache_folder_stops_before_scoring(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("precious")
    score = Score()
    for cache in (tmp_path / "cache", tmp_path / "cache" / "below"):
        with pytest.raises(UserError, match=r"cache.*expected a folder for cached reference rewards"):
            reference_rewards(TEXTS, folder, options(), cache, score)
    assert score.calls == []
    assert (tmp_path / "cache").read_text() == "precious"


def test_a_lock_that_cannot_be_made_stops_before_scoring(folder: Path, tmp_path: Path) -> None:
    cache, score = tmp_path / "cache", Score()
    (cache / f"{model_key(folder, options())[:24]}.parquet.lock").mkdir(parents=True)
    with pytest.raises(UserError, match=r"parquet\.lock: the cache of reference rewards cannot be locked"):
        reference_rewards(TEXTS, folder, options(), cache, score)
    assert score.calls == []


@pytest.mark.parametrize("kind", ["folder", "full folder", "dangling link"])
def test_an_entry_that_is_no_file_is_moved_aside_and_rebuilt(
    folder: Path, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache, score = tmp_path / "cache", Score()
    path = cache / f"{model_key(folder, options())[:24]}.parquet"
    if kind == "dangling link":
        cache.mkdir()
        path.symlink_to(tmp_path / "nowhere" / "x")
    else:
        path.mkdir(parents=True)
        if kind == "full folder":
            (path / "thesis.txt").write_text("precious")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            np.testing.assert_array_equal(reference_rewards(TEXTS, folder, options(), cache, score), expected(TEXTS))
    assert len(score.calls) == 1
    assert ["damaged" in record.getMessage() for record in caplog.records] == [True]
    assert path.is_file()
    if kind == "full folder":
        assert [p.read_text() for p in cache.rglob("thesis.txt")] == ["precious"]
