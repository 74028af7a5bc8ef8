"""`scpo table`: finished runs as one table on stdout or in a file; the others are named."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from world import Command, World, compose

from scpo.io import read_json
from scpo.run.execute import execute


@pytest.fixture(scope="module")
def runs(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two arms, one of them with two seeds, and a failed run."""
    root = tmp_path_factory.mktemp("runs")
    for arm, seed in (("full", 0), ("full", 1), ("scpo", 0)):
        more = ("conditioning=none", f"selection={arm}", f"seed={seed}")
        execute(compose(*world.overrides(*more)), root / f"{arm}{seed}", "")
    failed = root / "failed"
    failed.mkdir()
    (failed / "status.json").write_text(json.dumps({"state": "failed", "error": "odd"}), encoding="utf-8")
    return root


def test_rows_are_arms_and_the_rest_is_named(scpo: Command, runs: Path) -> None:
    done = scpo("table", runs)
    assert done.code == 0
    assert done.err == "left out: failed: failed (odd)\n"
    rows = [line for line in done.out.splitlines() if line.startswith("|")]
    assert any("full" in row for row in rows)
    assert any("scpo" in row for row in rows)


def test_csv_holds_the_mean_over_seeds(scpo: Command, runs: Path) -> None:
    done = scpo("table", runs, "--format", "csv")
    parsed = list(csv.DictReader(io.StringIO(done.out)))
    want = [read_json(runs / name / "metrics.json")["macro"]["accuracy"] for name in ("full0", "full1")]
    mean = sum(want) / 2
    (full,) = [row for row in parsed if "full" in row.values()]
    assert float(full["all mean"]) == pytest.approx(mean, abs=5e-7)


@pytest.mark.parametrize("form", ["markdown", "latex", "csv", "json"])
def test_every_format_to_a_file(scpo: Command, runs: Path, tmp_path: Path, form: str) -> None:
    shown = scpo("table", runs, "--format", form)
    done = scpo("table", runs, "--format", form, "--out", tmp_path / "table")
    assert (done.code, done.out) == (0, "")
    assert done.err.endswith(f"3 runs, table written to {tmp_path / 'table'}\n")
    text = (tmp_path / "table").read_text(encoding="utf-8")
    assert text == shown.out
    if form == "json":
        json.loads(text)


def test_mistakes(scpo: Command, runs: Path, tmp_path: Path) -> None:
    assert "nowhere" in scpo("table", "nowhere").line
    assert "xls" in scpo("table", runs, "--format", "xls").line
    done = scpo("table", runs / "failed")
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith("scpo: ")
    assert scpo("table", tmp_path / "cwd").code == 2
