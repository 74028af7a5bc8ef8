"""The model card: every number with its n, whose numbers they are, licences, and nothing that is nobody's business."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from exported import GROUPS, make_run

from scpo.export.card import Card, header, public_command, write_card
from scpo.export.data import CORPORA, DataFacts, base_model, origin
from scpo.export.form import Form
from scpo.export.source import Source, read_source
from scpo.io import read_json, write_json

PAIR = Form(kind="pair", before="", baked=None, system=False, end="", max_length=120)
FACTS = DataFacts(CORPORA["prism"], "survey.jsonl (SHA-256 0123456789abcdef)", {"Chile": 41, "Israel": 42})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("runs")
    return {mode: make_run(root / mode, "bert", mode) for mode in ("separate", "none", "prefix", "head")}


def card(source: Source, form: Form = PAIR, facts: DataFacts = FACTS, **changes: Any) -> Card:
    return dataclasses.replace(Card(source, facts, form, [0.5, -1.25], None, "scpo export", None), **changes)


def row(text: str, name: str) -> list[list[str]]:
    """The cells of every row of a table that begins so."""
    lines = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_numbers_per_group_are_the_planted_ones(runs: dict[str, Path]) -> None:
    """40 pairs of 10 clusters, 30 of them right; the reference is right about 10, so 20 of the other 30 are ours."""
    text = write_card(card(read_source(runs["head"], "Chile")))
    data, accuracy = row(text, "Chile")[0], row(text, r"Chile (this model)")[0]
    assert data == ["Chile", "1,234", "567", "41", "40", "10"]
    assert accuracy[1:] == [
        r"75.0 \[75.0, 75.0\]", "40 / 10",
        r"66.7 \[66.7, 66.7\]", "30 / 10",
        "insufficient data", "10 / 10",  # ten pairs are too few
        "25.0",
    ]  # fmt: skip
    small = row(text, "South Africa")
    assert small[0] == ["South Africa", "1,236", "569", "–", "4", "1"]
    assert small[1][1:] == [
        "insufficient data",
        "4 / 1",
        "insufficient data",
        "3 / 1",
        "insufficient data",
        "1 / 1",
        "–",
    ]
    assert row(text, "gap, best minus worst (points)")[0][1:] == [r"0.0 \[0.0, 0.0\]", "80 / 20", "2"]
    assert "This model is the row of Chile. The other rows, and the averages below, are of the same network" in text


def test_steering_shows_this_model_on_the_others_pairs(runs: dict[str, Path]) -> None:
    """Told Chile, the model is right about one of four pairs of the others."""
    text = write_card(card(read_source(runs["head"], "Chile"))).partition("## Does it follow the group?")[2]
    assert read_json(runs["head"] / "metrics.json")["steering"]["sentence"][:40] in text
    rows = {name: row(text, name)[0][1:] for name in GROUPS}
    assert rows == {
        "Chile": ["75.0", "40 / 10"],
        "Israel": ["25.0", "40 / 10"],
        "South Africa": ["insufficient data", "4 / 1"],
    }


def test_whose_numbers_they_are(runs: dict[str, Path], tmp_path: Path) -> None:
    texts = {
        "none": write_card(card(read_source(runs["none"]))),
        "default": write_card(card(read_source(runs["head"]))),
        "separate": write_card(card(read_source(runs["separate"], "Israel"))),
    }
    assert "All numbers are of this model." in texts["none"]
    assert "(this model)" not in texts["none"]
    assert "none of its rows is this folder's, which is told none" in texts["default"]
    assert "are of models of their own" in texts["separate"]
    rows = [
        line.split("|")[1].strip()
        for line in texts["separate"].partition("## Accuracy")[2].splitlines()
        if "/ 1" in line
    ]
    assert rows[:3] == [r"Israel (this model)", "Chile", "South Africa"]
    assert "## Does it follow the group?" not in texts["none"]
    source = read_source(runs["head"], "Israel")
    cells = {k: v for k, v in source.metrics["by_group"].items() if k != "Israel"}
    adapted = dataclasses.replace(
        source, metrics={**source.metrics, "by_group": cells}, config={**source.config, "init": "nearest"}
    )
    text = write_card(card(adapted))
    assert "This run has no test pairs of Israel: this model is not measured." in text
    assert "Adapted: the network and all other groups are those of an earlier run" in text


def test_the_header_is_what_the_hub_reads(runs: dict[str, Path]) -> None:
    from huggingface_hub import ModelCard

    text = write_card(card(read_source(runs["head"], "Chile"), base_model="owner/base"))
    data = ModelCard(text).data.to_dict()
    assert data == {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["reward-model", "text-classification", "scpo"],
        "license": "cc-by-nc-4.0",
        "base_model": "owner/base",
        "datasets": ["HannahRoseKirk/prism-alignment"],
    }
    named = yaml.safe_load(header(card(read_source(runs["none"]), facts=DataFacts(CORPORA["simulated"], "x"))))
    assert not {"license", "datasets", "base_model"} & set(named)


@pytest.mark.parametrize(
    ("corpus", "words"),
    [
        ("prism", "human-written text CC BY 4.0; model responses CC BY-NC 4.0"),
        ("goqa", "CC BY-NC-SA 4.0"),
        ("simulated", "planted by a program"),
        ("table", "not known, fill in"),
    ],
)
def test_licence_and_who_was_asked(runs: dict[str, Path], corpus: str, words: str) -> None:
    text = write_card(card(read_source(runs["none"]), facts=DataFacts(CORPORA[corpus], "x")))
    assert f"Licence of the data: {words}" in text or corpus == "simulated"
    assert words in text
    assert f"Who was asked: {CORPORA[corpus].asked}" in text.replace("\\", "")


def test_nothing_private_is_written(runs: dict[str, Path]) -> None:
    """Attributes, notes and folders of the machine stay out; seeds, versions and the hash are in."""
    for mode in runs:
        source = read_source(runs[mode], None if mode == "none" else "Chile")
        text = write_card(card(source, command=f"scpo export run={runs[mode]} --out /home/me/out"))
        for secret in ("secret", "/home", str(runs[mode]), "a note"):
            assert secret not in text
        assert "scpo train data.dir=.../mine\n" in text
        assert "scpo export run=.../" in text
        assert "--out .../out" in text
        assert "Seeds: training 0, split 0" in text
        assert "scpo 0.0.7" in text
        assert source.status["config_hash"][:16] in text


def test_names_cannot_turn_into_markup(runs: dict[str, Path]) -> None:
    source = read_source(runs["none"])
    cells = {"<b>|x": source.metrics["by_group"]["Chile"], **source.metrics["by_group"]}
    text = write_card(card(dataclasses.replace(source, metrics={**source.metrics, "by_group": cells})))
    assert "<b>" not in text
    assert r"&lt;b&gt;\|x" in text


@pytest.mark.parametrize(
    ("command", "public"),
    [
        ("scpo train data.dir=/home/me/data/prism seed=1", "scpo train data.dir=.../prism seed=1"),
        ("scpo export run=~/runs/a --out /tmp/x/", "scpo export run=.../a --out .../x"),
        ("scpo train 'groups.names=[Chile,South Africa]'", "scpo train 'groups.names=[Chile,South Africa]'"),
        ("scpo train -m a=/x/y,/x/z b=[/q/r]", "scpo train -m a=.../y,.../z 'b=[.../r]'"),
        ("scpo train data.dir='\"/home/me/my data\"'", "scpo train 'data.dir=\".../my data\"'"),
        (
            "scpo train model.name_or_path=owner/name data.dir=data/x",
            "scpo train model.name_or_path=owner/name data.dir=data/x",
        ),
        ("scpo train name=a\n\n```", "scpo train name=a '```'"),
        ("scpo train 'odd", "scpo train ''\"'\"'odd'"),
    ],
)
def test_commands_lose_the_folders_of_the_machine(command: str, public: str) -> None:
    assert public_command(command) == public


def test_origins() -> None:
    assert origin({"hub": "a/b", "revision": "abc"}) == "a/b on the Hugging Face Hub, revision abc"
    found = origin({"files": {"/home/me/x.csv": "0123456789abcdef99", "y.jsonl": "f" * 64}})
    assert found == f"x.csv (SHA-256 0123456789abcdef); y.jsonl (SHA-256 {'f' * 16})"
    assert origin({"rows": 3}) == "not known"


def test_a_base_model_is_an_id_and_no_folder(runs: dict[str, Path], tmp_path: Path) -> None:
    source = read_source(runs["none"])

    def base(name: Any) -> str | None:
        model = {**source.config["model"], "name_or_path": name}
        status = {**source.status, "cwd": str(tmp_path)}
        return base_model(dataclasses.replace(source, config={**source.config, "model": model}, status=status))

    (tmp_path / "runs").mkdir()
    names = [None, "owner/name", "runs/gone", "/abs/path", "a/b/c", "../up", "one"]
    assert [base(name) for name in names] == [None, "owner/name", None, None, None, None, None]


def test_the_split_by_row_is_not_called_clean(runs: dict[str, Path]) -> None:
    source = read_source(runs["none"])
    split = {**source.config["split"], "method": "row"}
    text = write_card(card(dataclasses.replace(source, config={**source.config, "split": split})))
    assert "single comparisons were split, so that one can be on both sides" in text
    assert "none is on both sides" in write_card(card(source))


def test_a_reward_that_was_not_compared_is_not_promised(runs: dict[str, Path]) -> None:
    source = read_source(runs["none"])
    assert "It prints 0.5000, -1.2500, to rounding." in write_card(card(source))
    assert "It prints" not in write_card(card(source, rewards=[]))


def test_write_json_of_the_helper_is_what_a_run_writes(runs: dict[str, Path], tmp_path: Path) -> None:
    """The planted metrics pass the check of every other reader of runs."""
    from scpo.evaluation.runs import collect

    write_json(tmp_path / "x.json", {})
    assert [run.name for run in collect(runs["head"].parent).runs if run.name == "head"] == ["head"]
