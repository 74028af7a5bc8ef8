"""`scpo score`: the same lines in the same order with a reward, steered by line or by flag, or one clear line."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from world import Command, World

from scpo.cli import score as module
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


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_rewards_are_those_of_the_run(scpo: Command, separate: Path, world: World, tmp_path: Path) -> None:
    saved = pd.read_parquet(separate / "predictions.parquet")
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

    class Stream:
        def __iter__(self) -> Any:
            for i, row in enumerate(ROWS):
                seen.append((i, out.getvalue().count("\n")))
                yield json.dumps(row) + "\n"

    monkeypatch.setattr(module, "CHUNK", 2)
    monkeypatch.setattr("sys.stdin", Stream())
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
    assert "--device: " in scpo(*base, source, "--device", "abacus").line
    assert "'nowhere'" in scpo("score", "--model", "nowhere", "--in", source, "--out", out).line
    assert not out.exists()


def test_stdin_names_its_lines(scpo: Command, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('\n{"prompt": "p", "response": "r"}\n{"prompt": "p"}\n'))
    line = scpo("score", "--model", world.model, "--in", "-", "--out", "-").line
    assert line.startswith("scpo: stdin: line 3: expected the field 'response'")
    monkeypatch.setattr("sys.stdin", io.StringIO("nonsense\n"))
    assert (
        "stdin: line 1: expected a JSON object" in scpo("score", "--model", world.model, "--in", "-", "--out", "-").line
    )


def test_an_empty_file_gives_an_empty_file(scpo: Command, world: World, tmp_path: Path) -> None:
    source, out = lines(tmp_path / "x.jsonl", []), tmp_path / "y.jsonl"
    assert scpo("score", "--model", world.model, "--in", source, "--out", out).code == 0
    assert out.read_text(encoding="utf-8") == ""
