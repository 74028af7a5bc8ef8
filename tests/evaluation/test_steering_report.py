from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from prediction_worlds import following_world, pair, random_swaps, table, told

from scpo.evaluation.heatmap import heat_map, heat_map_svg, shade
from scpo.evaluation.report import terminal_table, write_report
from scpo.evaluation.steering import steering_check
from scpo.evaluation.steering_report import steering_section
from scpo.evaluation.summary import summarise
from scpo.run.folder import RunFolder
from scpo.run.measure import measure

SVG = "{http://www.w3.org/2000/svg}"
SMALL: dict[str, Any] = {"resamples": 50, "min_clusters": 1, "min_pairs": 1}


def metrics_of(frame: pd.DataFrame, **options: Any) -> dict[str, Any]:
    return summarise(frame, **options) | {"steering": steering_check(frame, **options)}


def check_of(frame: pd.DataFrame, **options: Any) -> dict[str, Any]:
    result = steering_check(frame, **(SMALL | options))
    assert result is not None
    return result


def many_groups(n: int) -> pd.DataFrame:
    names = [f"N{i:02d}" for i in range(n)]
    rows: list[dict] = []
    for name in names:
        by = {t: [1.0, 0.0] if t == name else [0.0, 1.0] for t in names}
        rows += told(name, f"{name}u", f"{name}q", [2, 1], by)
    return table(rows)


def test_the_report_says_the_verdict_first(tmp_path: Path) -> None:
    metrics = metrics_of(following_world(), **SMALL)
    write_report(tmp_path, metrics, context={})
    names = sorted(p.name for p in (tmp_path / "plots").iterdir())
    assert names == ["accuracy.png", "accuracy.svg", "steering.png", "steering.svg"]
    assert (tmp_path / "plots/steering.png").read_bytes().startswith(b"\x89PNG")
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    section = markdown.split("## Does the model follow its group?\n\n")[1].split("\n## ")[0]
    assert section.startswith("The model follows its group: told the right group it ranks 100.0 %")
    lines = section.splitlines()
    assert "| A | 100.0 (own) | 50.0 |" in lines
    assert "| B | 0.0 | 100.0 (own) |" in lines
    assert "| no group told | 0.0 | 0.0 |" in lines
    assert "| n: pairs / clusters | 2 / 2 | 2 / 2 |" in lines
    assert r"| advantage over the other groups (points) | \+75.0 \[50.0, 100.0\] | 4 / 4 | 4 | 2 |" in lines
    assert any(line.startswith("| best candidate changes (%) | 75.0 \\[") for line in lines)
    assert "](plots/steering.png)" in section
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert html.index("Does the model follow its group?") < html.index("The model follows its group: told")
    assert html.count("<svg ") == 2
    assert terminal_table(metrics).splitlines()[-1] == metrics["steering"]["sentence"]


def test_a_model_without_a_group_has_no_section(tmp_path: Path) -> None:
    frame = table(pair("A", "u", "q", 1.0, conditioned_on=None))
    metrics = metrics_of(frame, **SMALL)
    assert metrics["steering"] is None
    write_report(tmp_path, metrics, context={})
    assert "follow its group" not in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert sorted(p.name for p in (tmp_path / "plots").iterdir()) == ["accuracy.png", "accuracy.svg"]
    assert terminal_table(metrics) == terminal_table(summarise(frame, **SMALL))


def test_the_heat_map_has_a_number_in_every_cell_and_outlines_the_own_group() -> None:
    check = check_of(following_world())
    root = ET.fromstring(heat_map_svg(check))
    texts = [t.text for t in root.iter(f"{SVG}text")]
    assert [t for t in texts if t in {"100.0", "50.0", "0.0"}] == ["100.0", "50.0", "0.0", "100.0", "0.0", "0.0"]
    assert "no group told" in texts
    own = [(r.get("x"), r.get("y")) for r in root.iter(f"{SVG}rect") if r.get("class") == "own"]
    assert own == [("150", "118"), ("198", "144")]
    labels = [t.text for t in root.iter(f"{SVG}title")]
    assert "told A, pairs of B: 50.0" in labels


def test_shades_are_those_of_the_distance_from_the_mean_of_the_column() -> None:
    plan = heat_map(check_of(following_world()))
    fills = {(c.row, c.column): c.fill for c in plan.cells}
    # Column A: 1, 0, 0 (no group), mean 1/3; column B: 0.5, 1, 0, mean 0.5. The widest distance is 2/3.
    assert plan.half == pytest.approx(2 / 3)
    assert fills[0, 0] == shade(1.0)[0]
    assert fills[0, 1] == shade(0.0)[0]
    assert fills[1, 1] == shade(0.75)[0]
    assert fills[2, 1] == shade(-0.75)[0]
    light = [sum(int(shade(v / 10)[0][i : i + 2], 16) for i in (1, 3, 5)) for v in range(-10, 11)]
    assert light == sorted(light, reverse=True)  # reads without colour


def test_equal_rewards_have_one_shade_and_small_noise_stays_pale() -> None:
    frame = following_world()
    frame["reward"] = frame["candidate_id"].str.endswith("0").astype(float)
    plan = heat_map(check_of(frame))
    assert {c.fill for c in plan.cells} == {shade(0.0)[0]}
    assert plan.half == 0.05


@pytest.mark.parametrize(("n", "numbers"), [(14, True), (15, False)])
def test_above_14_groups_there_are_colours_only_and_no_matrix_table(n: int, numbers: bool) -> None:
    check = check_of(many_groups(n))
    root = ET.fromstring(heat_map_svg(check))
    cells = [t for t in root.iter(f"{SVG}text") if t.text in {"100.0", "0.0"}]
    assert len(cells) == (n * n if numbers else 0)
    assert sum(r.get("class") == "own" for r in root.iter(f"{SVG}rect")) == n
    captions = [caption for caption, _, _ in steering_section(check).tables]
    assert any("rows: group told" in c for c in captions) == numbers


def test_small_groups_show_no_number_and_what_was_not_used_is_said() -> None:
    frame = following_world()
    frame.loc[frame["group"] == "B", "cluster_id"] = "w"
    frame = frame[~((frame["candidate_id"] == "q4/1") & (frame["conditioned_on"] == "A"))]
    section = steering_section(check_of(frame, min_clusters=2))
    tables = {caption.split(";")[0].split(",")[0]: rows for caption, _, rows in section.tables}
    by_group = {r[0]: r for r in tables["By group"]}
    assert by_group["B"] == ["B", "insufficient data", *["–"] * 6, "1 / 1", "1"]
    assert by_group["A"][1:3] == ["100.0", "0.0"]
    matrix = {r[0]: r for r in tables["Accuracy in percent"]}
    assert matrix["A"] == ["A", "100.0 (own)", "insufficient data"]
    labels = [r[0] for r in tables["Macro averages"]]
    assert labels[0] == "advantage over the other groups (points)"
    assert "advantage over the other groups (points), small groups too" in labels
    assert tables["Macro averages"][0][2] == "2 / 2"
    assert "3 of 4 sampled comparisons used" in section.paragraphs[-1]
    assert "Not used: 1 with a candidate not scored under every condition." in section.paragraphs[-1]
    assert "Insufficient data for: B" in section.paragraphs[-1]
    svg = heat_map_svg(check_of(frame, min_clusters=2))
    assert "told A, pairs of B: –" in svg


def test_names_are_escaped(tmp_path: Path) -> None:
    evil = '<script>alert("x")</script>|`$'
    frame = following_world().replace({"B": evil})
    write_report(tmp_path, metrics_of(frame, **SMALL), context={})
    assert "<script>" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script>" not in (tmp_path / "report.md").read_text(encoding="utf-8")
    ET.fromstring((tmp_path / "plots/steering.svg").read_text(encoding="utf-8"))


def test_the_metrics_of_a_run_hold_the_check(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "data": {"name": "simulated", "min_gap": 1.0},
        "evaluation": {"tau": None, "beta": None, "min_clusters": 2, "min_pairs": 3, "resamples": 30},
        "seed": 5,
    }
    frame = random_swaps(1)
    groups = ["G2", "G0", "G1", "Nowhere"]
    metrics = measure(config, frame, RunFolder(tmp_path, config), groups=groups)
    expected = steering_check(frame, min_gap=1.0, min_clusters=2, min_pairs=3, resamples=30, seed=5, groups=groups)
    assert json.loads((tmp_path / "metrics.json").read_text(encoding="utf-8"))["steering"] == expected
    assert metrics["steering"] == expected
    assert list(metrics["steering"]["matrix"]) == ["G2", "G0", "G1"]
