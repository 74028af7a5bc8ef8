from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from prediction_worlds import pair, random_world, table

from scpo.data.ledger import Ledger
from scpo.evaluation.plots import bar_chart_svg, bars
from scpo.evaluation.report import summary_sentences, terminal_table, write_report
from scpo.evaluation.summary import summarise

EVIL = '<script>alert("x")</script>|`$'
VOID = {"meta", "br", "img", "hr", "rect", "line", "path"}


class Page(HTMLParser):
    """Checks that tags close in order, and gathers tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data


def world() -> pd.DataFrame:
    """A: 3 of 4 right on 40 pairs; B: 1 of 4 right on 40; C: 2 pairs only. The reference has half of all right."""
    rows = []
    for group, share in (("A", 3), ("B", 1)):
        for i in range(40):
            margin = 1.0 if i % 4 < share else -1.0
            rows += pair(
                group, f"{group}u{i % 20}", f"{group}{i}", margin, 1.0 if i % 2 else -1.0, attributes={"age": "old|er"}
            )
    return table([*rows, *pair("C", "Cu", "C0", 1.0, 1.0), *pair("C", "Cv", "C1", 1.0, 1.0)])


def context() -> dict:
    ledger = Ledger()
    ledger.keep("A", 40)
    ledger.drop("A", "empty prompt", n=3)
    ledger.drop(None, "without a country", n=2)
    return {
        "title": f"Title {EVIL}",
        "config": {"optim": {"lr": 1e-6}, "evil": EVIL, "seed": 0, "flag": True},
        "command": f"scpo train \\\n  x={EVIL}",
        "versions": {"torch": "2.13.0"},
        "data_losses": ledger.as_dict(),
        "selection": {"A": {"pairs": 100, "kept": 70}, "B": {"pairs": 50}},
        "notes": [f"A note {EVIL}."],
    }


def test_report_files_and_escaping(tmp_path: Path) -> None:
    frame = world()
    frame.loc[frame["group"] == "B", ["group", "conditioned_on"]] = EVIL
    metrics = summarise(frame, resamples=100)
    path = write_report(tmp_path, metrics, context=context())
    assert path == tmp_path / "report.html"
    names = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file())
    assert names == ["plots/accuracy.png", "plots/accuracy.svg", "report.html", "report.md"]
    assert (tmp_path / "plots/accuracy.png").read_bytes().startswith(b"\x89PNG")
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert "script" not in {tag for tag, _ in page.tags}
    for _, attributes in page.tags:
        assert not {"src", "href", "onload", "onclick"} & set(attributes)
    assert not re.search(r"url\(|@import", text)
    assert re.findall(r"https?://[^\"' <]+", text) == ["http://www.w3.org/2000/svg"]
    for sentence in ("40 pairs", "empty prompt", "without a country", "scpo train", "2.13.0", "1e-06", "optim.lr"):
        assert sentence in page.text
    assert page.text.count(EVIL) >= 5
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "<script>" not in markdown.replace(context()["command"].splitlines()[1], "")
    tables = [line for line in markdown.splitlines() if line.startswith("|")]
    assert tables
    assert all(line.endswith("|") for line in tables)
    assert r"old\|er" in markdown
    assert "![" in markdown


def test_the_summary_says_best_worst_gap_reference_and_whom_it_cannot_speak_of() -> None:
    said = " ".join(summary_sentences(summarise(world(), resamples=500)))
    assert "On average over 3 groups the model ranks 66.7 %" in said  # (0.75 + 0.25 + 1) / 3
    assert "(82 pairs, 42 clusters)" in said
    assert "Best: A, 75.0 % (40 pairs, 20 clusters). Worst: B, 25.0 % (40 pairs, 20 clusters)." in said
    assert "50.0 points, 95 % interval [" in said
    assert "among 2 groups with enough data" in said
    assert "Against the reference model (66.7 % on the same 82 pairs, 42 clusters): +0.0 points" in said
    assert "not distinguishable from noise" in said
    assert "Insufficient data for: C (2 pairs, 2 clusters)" in said


def test_verdicts_follow_the_interval() -> None:
    def verdict(model: float, reference: float) -> str:
        rows = [
            r
            for i in range(40)
            for r in pair("A", f"u{i}", f"q{i}", model if i % 8 else -model, reference if i % 8 else -reference)
        ]
        return " ".join(summary_sentences(summarise(table(rows), resamples=200)))

    assert ", more than noise" in verdict(1.0, -1.0)
    assert "worse by more than noise" in verdict(-1.0, 1.0)
    assert "not distinguishable" in verdict(1.0, 1.0)
    assert "Only A has enough data for a number of its own: 87.5 % (40 pairs, 40 clusters)." in verdict(1.0, 1.0)
    none = summarise(table(pair("A", "u", "q", 1.0)), resamples=10)
    assert "no reference rewards" in " ".join(summary_sentences(none))
    assert "No group has enough data" in " ".join(summary_sentences(none))


def test_small_cells_show_no_number_anywhere(tmp_path: Path) -> None:
    """C has 2 of 2 right: the 100 % must not be printed for it."""
    metrics = summarise(world(), resamples=50)
    assert metrics["by_group"]["C"]["all"]["accuracy"] == 1.0
    write_report(tmp_path, metrics, context={})
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    row = next(line for line in html.splitlines() if line.startswith('<tr><th scope="row">C</th>'))
    assert "insufficient data" in row
    assert "100" not in row
    line = next(line for line in terminal_table(metrics).splitlines() if line.startswith("C "))
    assert "insufficient data" in line
    assert "100" not in line
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "100" not in next(line for line in markdown.splitlines() if line.startswith("| C |"))


def test_chart_is_valid_sorted_and_says_n() -> None:
    metrics = summarise(world(), resamples=50)
    assert [b["name"] for b in bars(metrics)] == ["A", "B", "C"]
    root = ET.fromstring(bar_chart_svg(metrics))
    space = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    assert "A 75.0 [" in (root.findtext(f"{space}title") or "")
    texts = [t.text for t in root.iter(f"{space}text")]
    assert "75.0 (40 / 20)" in texts
    assert "insufficient data (2 / 2)" in texts
    widths = [float(r.get("width", 0)) for r in root.iter(f"{space}rect")][1:]
    assert widths == pytest.approx([330 * 0.75, 330 * 0.25], abs=0.1)


def test_terminal_table_has_groups_averages_and_baselines() -> None:
    metrics = summarise(random_world(0), resamples=50, groups=["G0", "G1", "G2", "Nowhere"], kept_ratio={"G0": 0.357})
    lines = terminal_table(metrics).splitlines()
    first = [line.split("  ")[0].strip() for line in lines[2:11]]
    assert first == ["G0", "G1", "G2", "Nowhere", "[macro average]", "[micro average]", *FIRST_OF_BASELINES]
    assert "35.7" in lines[2]
    assert lines[2].split()[-2:] == [f"{metrics['by_group']['G0']['n_pairs']:,}", "6"]
    assert "insufficient data" in lines[5]
    assert max(len(line) for line in lines[:11]) <= 160


FIRST_OF_BASELINES = ["[baseline: chance]", "[baseline: longer response]", "[baseline: reference]"]


def test_a_run_without_any_pair_still_gets_its_report(tmp_path: Path) -> None:
    frame = table(pair("A", "u", "q", 1.0)).assign(score=1.0)
    metrics = summarise(frame, groups=["A", "B"], resamples=10)
    write_report(tmp_path, metrics, context={})
    assert "There are no test pairs" in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "insufficient data" in terminal_table(metrics)
