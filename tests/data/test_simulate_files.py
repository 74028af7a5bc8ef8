"""Running the simulation: determinism, settings, the output folder and the command line."""

from __future__ import annotations

import io
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.cli.simulate import main
from scpo.data.simulate import Settings, simulate
from scpo.data.simulate.draw import spans
from scpo.errors import UserError


def snapshot(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_same_seed_same_bytes_and_another_seed_another_world(tmp_path: Path) -> None:
    small = {"annotators": 25, "questions": 12}
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        simulate(tmp_path / name, seed=seed, **small)
    first, second, third = (snapshot(tmp_path / name) for name in "abc")
    assert sorted(first) == [
        "goqa/global_opinions.csv",
        "prism/conversations.jsonl",
        "prism/survey.jsonl",
        "prism/utterances.jsonl",
        "truth/options.parquet",
        "truth/utterances.parquet",
        "truth/world.json",
    ]
    assert first == second
    assert all(first[name] != third[name] for name in first)


def test_another_process_with_another_hash_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    simulate(tmp_path / "here", annotators=20, questions=10)
    code = "import sys; from scpo.cli.simulate import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "--out", str(tmp_path / "there"), "--annotators", "20", "--questions", "10"]
    subprocess.run(command, check=True, capture_output=True, env={"PYTHONHASHSEED": "77"})
    assert snapshot(tmp_path / "here") == snapshot(tmp_path / "there")


# Settings, folders, command line


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("annotators", 19, "19"),
        ("annotators", 1501, "1501"),
        ("annotators", 50.0, "50.0"),
        ("seed", -1, "-1"),
        ("seed", True, "True"),
        ("mislabelled", 0.51, "0.51"),
        ("extreme", -0.01, "-0.01"),
        ("noise", math.nan, "nan"),
        ("noise", 101, "101"),
        ("shift", math.inf, "inf"),
        ("questions", 9, "9"),
        ("lengths", "shrt", "'shrt'. Did you mean 'short'?"),
    ],
)
def test_settings_out_of_range_are_named(tmp_path: Path, name: str, value: Any, found: str) -> None:
    with pytest.raises(UserError, match=f"^{name}: expected .*found {re.escape(found)}") as error:
        simulate(tmp_path / "raw", **{name: value})
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_settings_at_their_bounds_are_accepted() -> None:
    Settings(0, 20, 0.0, 0.0, 0.0, 0.0, "prism", 10)
    Settings(2**63 - 1, 1500, 0.5, 0.5, 100.0, 5.0, "short", 5000)


SMALL: dict[str, Any] = {"annotators": 20, "questions": 10}


def test_an_earlier_simulation_is_replaced_whole(tmp_path: Path) -> None:
    out = tmp_path / "raw"
    out.mkdir()  # an empty folder is fine
    simulate(out, **SMALL)
    (out / "prism/survey.jsonl").unlink()  # so is one with files missing
    before = snapshot(out)
    simulate(out, seed=1, **SMALL)
    assert len(snapshot(out)) == 7
    assert snapshot(out)["prism/utterances.jsonl"] != before["prism/utterances.jsonl"]
    assert [p.name for p in tmp_path.iterdir()] == ["raw"]


@pytest.mark.parametrize("case", ["other file", "real corpus", "other world", "changed", "file", "inside a file"])
def test_files_of_others_are_never_touched(tmp_path: Path, case: str) -> None:
    out = tmp_path / "raw"
    expected = "found"
    if case == "file":
        out.write_text("mine")
    elif case == "inside a file":
        out.write_text("mine")
        out = out / "deeper"
        expected = "raw is a file"
    elif case == "other world":
        (out / "truth").mkdir(parents=True)
        (out / "truth/world.json").write_text('{"files": {}}')
        expected = "earlier simulation, found truth/world.json"
    elif case == "real corpus":
        (out / "prism").mkdir(parents=True)
        (out / "prism/survey.jsonl").write_text("mine")
        expected = "found prism/survey.jsonl"
    else:
        simulate(out, **SMALL)
        changed = out / ("notes.txt" if case == "other file" else "prism/survey.jsonl")
        changed.write_text("mine")
        expected = "found also notes.txt" if case == "other file" else "prism/survey.jsonl changed"
    before = snapshot(tmp_path)
    with pytest.raises(UserError, match=expected) as error:
        simulate(out, seed=1, **SMALL)
    assert "another --out" in str(error.value)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("stage", ["scoring", "writing GlobalOpinionQA's file"])
def test_an_interrupted_run_leaves_the_old_world(tmp_path: Path, stage: str) -> None:
    out = tmp_path / "raw"
    simulate(out, **SMALL)
    before = snapshot(tmp_path)

    def interrupt(line: str) -> None:
        if line == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(out, seed=1, progress=interrupt, **SMALL)
    assert snapshot(tmp_path) == before
    assert [p.name for p in tmp_path.iterdir()] == ["raw"]


def test_command_prints_the_table_on_stdout_and_progress_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path / "raw"), "--annotators", "20", "--questions", "10", "--seed", "2"]) == 0
    captured = capsys.readouterr()
    assert "drawing 20 annotators" in captured.err
    row = next(line.split() for line in io.StringIO(captured.out) if line.startswith("Chile"))
    ceiling = json.loads((tmp_path / "raw/truth/world.json").read_text())["ceiling"]["Chile"]
    assert row[1:] == ["1", str(ceiling["n_pairs"]), f"{ceiling['group']:.3f}", f"{ceiling['global']:.3f}"]
    assert "Tanzania" not in captured.out


def test_command_passes_every_option(tmp_path: Path) -> None:
    values = (
        "--seed 9 --annotators 21 --mislabelled 0.2 --extreme 0.1 --noise 3 --shift 2 --lengths prism --questions 11"
    )
    main(["--out", str(tmp_path / "raw"), *values.split()])
    settings = json.loads((tmp_path / "raw/truth/world.json").read_text())["settings"]
    assert settings == {
        "seed": 9,
        "annotators": 21,
        "mislabelled": 0.2,
        "extreme": 0.1,
        "noise": 3.0,
        "shift": 2.0,
        "lengths": "prism",
        "questions": 11,
    }


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "scpo simulate --out raw" in capsys.readouterr().out


def test_help_loads_no_numpy() -> None:
    code = "import sys, scpo.cli.simulate; sys.exit(any(m in sys.modules for m in ('numpy', 'pandas', 'pyarrow')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@given(st.lists(st.integers(1, 5), min_size=1, max_size=20))
def test_spans_cut_runs(sizes: list[int]) -> None:
    codes = np.repeat(np.arange(len(sizes)), sizes)
    starts, ends = spans(codes)
    assert [codes[a:b].tolist() for a, b in zip(starts, ends, strict=True)] == [[i] * n for i, n in enumerate(sizes)]
