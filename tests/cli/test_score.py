"""`scpo score`: the same lines in the same order with a reward, steered by line or by flag, or one clear line."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from world import Command, World, own_rows

from scpo.cli import score as module
from scpo.conditioning import STEERING
from scpo.io import read_json, write_json
from scpo.run.execute import execute

ROWS = [
    {"prompt": "how are you?", "response": "well, " * n, "id": n, "note": {"kept": [n, None, "é"]}}
    for n in (40, 1, 17, 3, 90, 2)
]


@pytest.fixture(scope="module")
def separate(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("separate") / "run"
    execute(world.config(), folder, "")
    return folder


@pytest.fixture(scope="module")
def prefix(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prefix") / "run"
    # A rate at which two steps on so few words tell the groups apart.
    execute(world.config("conditioning=prefix", "selection=full", "optim.lr=0.01"), folder, "")
    return folder


def lines(path: Path, rows: Iterable[Mapping[str, Any] | str]) -> Path:
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    return path


def stdin(content: bytes) -> io.TextIOWrapper:
    """Standard input that holds these bytes."""
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_rewards_are_those_of_the_run(scpo: Command, separate: Path, world: World, tmp_path: Path) -> None:
    saved = own_rows(separate)
    table = pd.read_parquet(world.data / "comparisons.parquet").set_index("candidate_id")
    saved = pd.concat([saved[saved["group"] == g].head(6) for g in ("South Africa", "Chile")])
    rows = [
        {"prompt": table["prompt"][c], "response": table["response"][c], "group": g, "id": c}
        for c, g in zip(saved["candidate_id"], saved["group"], strict=True)
    ]
    rows = rows[::2] + rows[1::2]
    out = tmp_path / "y.jsonl"
    done = scpo("score", "--model", separate / "model", "--in", lines(tmp_path / "x.jsonl", rows), "--out", out)
    assert done.code == 0, done.err
    assert done.err.endswith(f"{len(rows)} rewards written to {out}\n")
    found = read(out)
    assert [{k: v for k, v in row.items() if k != "reward"} for row in found] == rows
    want = saved.set_index("candidate_id")["reward"]
    assert [row["reward"] for row in found] == pytest.approx([want[row["id"]] for row in rows], abs=1e-5)


def test_order_and_other_fields_are_kept_over_chunks(
    scpo: Command, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = lines(tmp_path / "x.jsonl", ROWS)
    whole, parts = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
    assert scpo("score", "--model", world.model, "--in", source, "--out", whole).code == 0
    found = read(whole)
    assert [{k: v for k, v in row.items() if k != "reward"} for row in found] == ROWS
    assert len({row["reward"] for row in found}) == len(ROWS)
    monkeypatch.setattr(module, "CHUNK", 2)
    assert scpo("score", "--model", world.model, "--in", source, "--out", parts, "--batch-tokens", "32").code == 0
    assert [r["reward"] for r in read(parts)] == pytest.approx([r["reward"] for r in found], abs=1e-5)


def test_lines_are_written_as_they_come(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first chunk is out before the third is read."""
    seen: list[tuple[int, int]] = []
    out = io.StringIO()

    def stream() -> Iterator[bytes]:
        for i, row in enumerate(ROWS):
            seen.append((i, out.getvalue().count("\n")))
            yield json.dumps(row).encode() + b"\n"

    monkeypatch.setattr(module, "CHUNK", 2)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=stream()))
    monkeypatch.setattr("sys.stdout", out)
    assert module.main(["--model", str(world.model), "--in", "-", "--out", "-"]) == 0
    assert seen == [(0, 0), (1, 0), (2, 2), (3, 2), (4, 4), (5, 4)]
    assert out.getvalue().count("\n") == len(ROWS)


def test_group_by_flag_by_line_and_by_alias(scpo: Command, prefix: Path, tmp_path: Path) -> None:
    text = {"prompt": "how are you?", "response": "well, thanks"}
    rows = [{**text, "group": "South Africa"}, {**text, "group": "ZAF"}, text, {**text, "group": None}]
    source, out = lines(tmp_path / "x.jsonl", rows), tmp_path / "y.jsonl"
    assert scpo("score", "--model", prefix / "model", "--group", "CL", "--in", source, "--out", out).code == 0
    africa, alias, chile, none = (row["reward"] for row in read(out))
    assert africa == pytest.approx(alias, abs=1e-6)
    assert chile != pytest.approx(africa, abs=1e-4)
    assert read(out)[1]["group"] == "ZAF", "a line is copied as it was"
    assert none != pytest.approx(chile, abs=1e-4), "a group of null is no group"
    no_flag = tmp_path / "z.jsonl"
    assert scpo("score", "--model", prefix / "model", "--in", source, "--out", no_flag).code == 0
    assert read(no_flag)[2]["reward"] == pytest.approx(none, abs=1e-6)


WRONG: list[tuple[dict[str, Any] | str, str]] = [
    ("not json", "line 2: expected a JSON object, found not json"),
    ("[1]", "line 2: expected a JSON object"),
    ({"prompt": "p"}, "line 2: expected the field 'response', found 'prompt'"),
    ({"prompt": "p", "response": 3}, "line 2: field 'response': expected text, found 3"),
    ({"prompt": None, "response": "r"}, "line 2: field 'prompt': expected text, found None"),
    ({"prompt": "p", "response": "r", "history": ["x"]}, "line 2: field 'history': expected a list"),
    ({"prompt": "p", "response": "r", "group": 5}, "line 2: field 'group': expected a name, found 5"),
    ({"prompt": "p", "response": "r", "group": "Chilly"}, "line 2: groups: "),
    ({"prompt": "p", "response": "r"}, "line 2: expected a group"),
    (
        {"prompt": "p", "response": "r", "group": "Chile", "reward": None},
        "line 2: field 'reward': expected a line without",
    ),
]


@pytest.mark.parametrize(("row", "text"), WRONG)
def test_a_wrong_line_is_named_and_nothing_is_written(
    scpo: Command, separate: Path, tmp_path: Path, row: dict[str, Any] | str, text: str
) -> None:
    good = {"prompt": "p", "response": "r", "group": "Chile"}
    source, out = lines(tmp_path / "x.jsonl", [good, row]), tmp_path / "y.jsonl"
    line = scpo("score", "--model", separate / "model", "--in", source, "--out", out).line
    assert line.startswith(f"scpo: {source}: {text}")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cwd", "x.jsonl"]


def test_a_failure_leaves_the_output_of_before(scpo: Command, separate: Path, tmp_path: Path) -> None:
    out = tmp_path / "y.jsonl"
    out.write_text("before", encoding="utf-8")
    source = lines(tmp_path / "x.jsonl", ["not json"])
    assert scpo("score", "--model", separate / "model", "--in", source, "--out", out).code == 2
    assert out.read_text(encoding="utf-8") == "before"


def test_plain_models_take_no_group(scpo: Command, world: World, tmp_path: Path) -> None:
    source, out = lines(tmp_path / "x.jsonl", ROWS), tmp_path / "y.jsonl"
    line = scpo("score", "--model", world.model, "--group", "Chile", "--in", source, "--out", out).line
    assert "group 'Chile'" in line
    assert "conditioning=none" in line
    assert "line 1" in line


def test_mistakes_of_the_options(scpo: Command, world: World, tmp_path: Path) -> None:
    source, out = lines(tmp_path / "x.jsonl", ROWS), tmp_path / "y.jsonl"
    base = ("score", "--model", world.model, "--out", out, "--in")
    assert "nowhere.jsonl: no such file" in scpo(*base, tmp_path / "nowhere.jsonl").line
    assert "--batch-tokens: expected at least 1" in scpo(*base, source, "--batch-tokens", "0").line
    for device in ("abacus", "meta", "cuda:-1", "cuda:", "cpu:0", "CPU", "cuda:1234", "hpu"):
        assert (
            f"--device: expected cpu, cuda, cuda:N or mps, found '{device}'"
            in scpo(*base, source, "--device", device).line
        )
    for length in ("0", "-1", "15"):
        assert (
            f"--max-length: expected at least 16 tokens, found {length}"
            in scpo(*base, source, f"--max-length={length}").line
        )
    assert "--dtype: invalid choice: 'float16'" in scpo(*base, source, "--dtype", "float16").line
    assert "--max-length: invalid int value" in scpo(*base, source, "--max-length", "x").line
    assert "required: --in, --out; 'scpo score --help'" in scpo("score", "--model", world.model).line
    assert "expected a file, found a folder" in scpo(*base, tmp_path).line
    assert "'nowhere'" in scpo("score", "--model", "nowhere", "--in", source, "--out", out).line
    assert not out.exists()


def test_stdin_names_its_lines(scpo: Command, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", stdin(b'\n{"prompt": "p", "response": "r"}\n{"prompt": "p"}\n'))
    line = scpo("score", "--model", world.model, "--in", "-", "--out", "-").line
    assert line.startswith("scpo: stdin: line 3: expected the field 'response'")
    for content, says in (
        (b"nonsense\n", "line 1: expected a JSON object"),
        (b'{"prompt": "p", "response": "\xff"}\n', "line 1: expected UTF-8 text"),
        (b'{"prompt": "p", "response": "\\ud83d"}\n', "line 1: expected Unicode text, found half of a surrogate pair"),
    ):
        monkeypatch.setattr("sys.stdin", stdin(content))
        line = scpo("score", "--model", world.model, "--in", "-", "--out", "-").line
        assert line.startswith(f"scpo: stdin: {says}")


def test_stdin_may_start_with_a_byte_order_mark(scpo: Command, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", stdin(b'\xef\xbb\xbf{"prompt": "p", "response": "r"}\n'))
    done = scpo("score", "--model", world.model, "--in", "-", "--out", "-")
    assert done.code == 0, done.err
    assert set(json.loads(done.out)) == {"prompt", "response", "reward"}


def test_an_empty_file_gives_an_empty_file(scpo: Command, world: World, tmp_path: Path) -> None:
    source, out = lines(tmp_path / "x.jsonl", []), tmp_path / "y.jsonl"
    assert scpo("score", "--model", world.model, "--in", source, "--out", out).code == 0
    assert out.read_text(encoding="utf-8") == ""


TEXT = {"prompt": "how are you?", "response": "well, thanks"}
TWO = {"Chile": 0.7, "South Africa": 0.3}


def test_mixtures_and_aggregates(scpo: Command, prefix: Path, tmp_path: Path) -> None:
    """By flag and by line, against the rewards of each group alone and the scale that is saved with the model."""
    model = prefix / "model"
    scale = read_json(model / STEERING)["scale"]
    out = tmp_path / "y.jsonl"

    def rewards(rows: list[dict[str, Any]], *flags: str) -> list[float]:
        source = lines(tmp_path / "x.jsonl", rows)
        done = scpo("score", "--model", model, "--in", source, "--out", out, *flags)
        assert done.code == 0, done.err
        return [row["reward"] for row in read(out)]

    one = rewards([{**TEXT, "group": "Chile"}, {**TEXT, "group": "ZA"}])
    chile, africa = ((r - scale[g][0]) / scale[g][1] for r, g in zip(one, TWO, strict=True))
    mixed, mean, least = 0.7 * chile + 0.3 * africa, (chile + africa) / 2, min(chile, africa)
    assert len({round(x, 3) for x in (*one, mixed, mean, least)}) == 5
    close = 1e-4
    assert rewards([TEXT], "--group", "Chile=0.7,South Africa=0.3") == pytest.approx([mixed], abs=close)
    assert rewards([TEXT], "--group", " CL = 7 , ZAF=3e0 ") == pytest.approx([mixed], abs=close)
    assert rewards([TEXT], "--group", "CL, ZAF", "--aggregate", "mean") == pytest.approx([mean], abs=close)
    assert rewards([TEXT], "--group", "CL,ZAF", "--aggregate", "min") == pytest.approx([least], abs=close)
    assert rewards([TEXT], "--group", "Chile=1") == pytest.approx(one[:1], abs=close)
    of_lines = [{**TEXT, "group": TWO}, {**TEXT, "group": "Chile"}, TEXT, {**TEXT, "group": ["CL", "ZA"]}]
    found = rewards(of_lines, "--group", "CL,ZAF", "--aggregate", "min")
    assert found == pytest.approx([mixed, one[0], least, least], abs=close)
    assert read(out)[0]["group"] == TWO, "a line is copied as it was"


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--group", "Chile=x,Canada=1"], "--group: expected weights such as Chile=0.7,Canada=0.3, found 'Chile=x'"),
        (["--group", "Chile=1,Canada"], "--group: expected weights such as Chile=0.7,Canada=0.3, found 'Canada'"),
        (["--group", "=1"], "--group: expected weights"),
        (["--group", "Chile=nan"], "--group: expected weights"),
        (["--group", "Chile=1,Chile=2"], "--group: expected each group once, found 'Chile' twice"),
        (["--group", "Chile=-1,South Africa=2"], "line 1: group: weight of 'Chile': expected a number from 0 up"),
        (["--group", "Chile=0,South Africa=0"], "line 1: group: expected at least one weight above 0"),
        (["--group", "Chile,South Africa"], "several groups need --aggregate mean or min, or weights"),
        (
            ["--group", "Chile=1,South Africa=1", "--aggregate", "min"],
            "line 1: aggregate=min: expected a list of groups",
        ),
        (["--aggregate", "min"], "line 1: aggregate=min: expected a list of groups, found None"),
        (["--aggregate", "max"], "--aggregate: invalid choice: 'max'"),
        (["--group", "Kenya"], "a mixture of known ones"),
    ],
)
def test_what_is_no_mixture_is_one_line(
    scpo: Command, prefix: Path, tmp_path: Path, flags: list[str], text: str
) -> None:
    source, out = lines(tmp_path / "x.jsonl", [TEXT]), tmp_path / "y.jsonl"
    assert text in scpo("score", "--model", prefix / "model", "--in", source, "--out", out, *flags).line
    assert not out.exists()


def test_a_name_with_a_comma_is_still_a_name(scpo: Command, prefix: Path, tmp_path: Path) -> None:
    source, out = lines(tmp_path / "x.jsonl", [TEXT, {**TEXT, "group": "ZAF"}]), tmp_path / "y.jsonl"
    base = ("score", "--model", prefix / "model", "--in", source, "--out", out, "--group")
    assert scpo(*base, "Africa, South").code == 0
    flag, line = (row["reward"] for row in read(out))
    assert flag == line


def test_the_best_of_several_responses(
    scpo: Command, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 2)
    texts = [row["response"] for row in ROWS]
    single = [{"prompt": "how are you?", "response": text} for text in texts]
    several = [
        {"prompt": "how are you?", "responses": texts, "id": 1},
        {"prompt": "how are you?", "responses": texts[:1]},
        {"prompt": "how are you?", "responses": [texts[1]] * 2, "group": "ZAF"},
    ]
    source, out = lines(tmp_path / "x.jsonl", [several[0], *single, *several[1:]]), tmp_path / "y.jsonl"
    done = scpo("score", "--model", prefix / "model", "--group", "Chile", "--in", source, "--out", out)
    assert done.err.endswith(f"{2 * len(texts) + 3} rewards written to {out}\n")
    first, *middle, one, tied = read(out)
    want = [row["reward"] for row in middle]
    assert {k: v for k, v in first.items() if k not in ("rewards", "best")} == several[0]
    assert first["rewards"] == pytest.approx(want, abs=1e-5)
    assert first["best"] == want.index(max(want))
    assert (one["best"], tied["best"]) == (0, 0)
    assert tied["rewards"][0] == tied["rewards"][1] != pytest.approx(want[1], abs=1e-4)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"prompt": "p", "responses": "r"}, "field 'responses': expected a list of one or more texts, found 'r'"),
        ({"prompt": "p", "responses": []}, "field 'responses': expected a list of one or more texts, found []"),
        ({"prompt": "p", "responses": ["r", None]}, "field 'responses': expected a list of one or more texts"),
        ({"prompt": "p", "responses": ["r"], "response": "r"}, "expected 'response' or 'responses', found both"),
        ({"prompt": "p", "responses": ["r"], "best": 0}, "field 'best': expected a line without it, found 0"),
        ({"prompt": "p", "responses": ["r"], "rewards": []}, "field 'rewards': expected a line without it, found []"),
        ({"responses": ["r"]}, "expected the field 'prompt', found 'responses'"),
    ],
)
def test_a_wrong_line_of_several_responses_is_named(
    scpo: Command, world: World, tmp_path: Path, row: dict[str, Any], text: str
) -> None:
    source = lines(tmp_path / "x.jsonl", [row])
    line = scpo("score", "--model", world.model, "--in", source, "--out", tmp_path / "y.jsonl").line
    assert line.startswith(f"scpo: {source}: line 1: {text}")


def test_no_group_without_group_dropout_is_told_once(
    scpo: Command, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "untrained"
    shutil.copytree(prefix / "model", folder)
    write_json(folder / STEERING, {**read_json(folder / STEERING), "default": False})
    monkeypatch.setattr(module, "CHUNK", 1)
    source = lines(tmp_path / "x.jsonl", [TEXT, TEXT, {**TEXT, "group": "Chile"}])
    done = scpo("score", "--model", folder, "--in", source, "--out", tmp_path / "y.jsonl")
    assert done.code == 0
    told, written = done.err.splitlines()
    assert "was always told a group in training" in told
    assert written.startswith("3 rewards written")


@pytest.fixture
def trained(world: World, tmp_path: Path) -> Callable[..., Path]:
    """The world's model with other entries in its steering file."""

    def make(**entries: Any) -> Path:
        folder = tmp_path / "model"
        shutil.copytree(world.model, folder, dirs_exist_ok=True)
        path = folder / STEERING
        write_json(path, {**read_json(path), **entries})
        return folder

    return make


def test_precision_is_the_trained_one_and_another_is_told(
    scpo: Command, trained: Callable[..., Path], tmp_path: Path
) -> None:
    """PITFALLS 33."""
    source = lines(tmp_path / "x.jsonl", ROWS)
    found = {}
    for name, dtype, option in (
        ("full", "float32", ()),
        ("half", "bfloat16", ()),
        ("chosen", "float32", ("--dtype", "bfloat16")),
        ("same", "bfloat16", ("--dtype", "bfloat16")),
    ):
        out = tmp_path / f"{name}.jsonl"
        done = scpo("score", "--model", trained(trained_dtype=dtype), "--in", source, "--out", out, *option)
        assert done.code == 0, done.err
        told = [line for line in done.err.splitlines() if "trained in" in line]
        assert len(told) == (name == "chosen")
        found[name] = [row["reward"] for row in read(out)]
    assert told == []
    assert found["half"] == found["chosen"] == found["same"] != found["full"]
    assert found["half"] == pytest.approx(found["full"], abs=0.1)


def test_the_policy_for_long_texts_is_the_trained_one(
    scpo: Command, trained: Callable[..., Path], tmp_path: Path
) -> None:
    long = {"prompt": "how are you?", "response": "well " * 200}
    source, out = lines(tmp_path / "x.jsonl", [ROWS[1], long]), tmp_path / "y.jsonl"
    base = ("--in", source, "--out", out)
    assert scpo("score", "--model", trained(overlong="truncate", max_length=32), *base).code == 0
    assert None not in [row["reward"] for row in read(out)]
    done = scpo("score", "--model", trained(overlong="drop", max_length=32), *base)
    assert done.err.splitlines()[-2] == "1 of 2 texts are longer than the model reads: their reward is null"
    assert [row["reward"] is None for row in read(out)] == [False, True]
    several = [
        {"prompt": "p", "responses": [long["response"], "well", "fine"]},
        {"prompt": "p", "responses": ["so " * 99]},
    ]
    lines(source, several)
    done = scpo("score", "--model", trained(overlong="drop", max_length=32), *base)
    first, none = read(out)
    assert first["rewards"][0] is None
    assert first["best"] == first["rewards"].index(max(first["rewards"][1:]))
    assert (none["rewards"], none["best"]) == ([None], None)
    lines(source, [ROWS[1], long])
    assert (
        "expected at most 32 tokens" in scpo("score", "--model", trained(overlong="error", max_length=32), *base).line
    )
    # The option goes before the file: the whole text fits.
    assert scpo("score", "--model", trained(overlong="error", max_length=32), *base, "--max-length", "400").code == 0


@pytest.mark.parametrize(
    ("key", "value"), [("trained_dtype", "float16"), ("overlong", "cut"), ("max_length", "512"), ("max_length", True)]
)
def test_a_damaged_steering_file_is_named(
    scpo: Command, trained: Callable[..., Path], tmp_path: Path, key: str, value: Any
) -> None:
    source = lines(tmp_path / "x.jsonl", ROWS)
    line = scpo("score", "--model", trained(**{key: value}), "--in", source, "--out", tmp_path / "y.jsonl").line
    assert "steering.json: " in line


def test_the_output_may_be_a_stream(world: World, tmp_path: Path) -> None:
    """/dev/stdout sent to a file: the shell holds that file open, so it is written and not replaced."""
    source, out = lines(tmp_path / "x.jsonl", ROWS), tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "scpo.cli.main", "score", "--model", str(world.model), "--in", str(source)]
    with open(out, "wb") as stream:
        before = os.fstat(stream.fileno()).st_ino
        done = subprocess.run(
            [*command, "--out", "/dev/stdout"], stdout=stream, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    assert out.stat().st_ino == before
    assert len(read(out)) == len(ROWS)
