"""`scpo prepare` as a user runs it: files in, a folder and tables out, one line for a mistake, nothing half-written."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from world import Command, World

from scpo.cli.prepare import aligned, main
from scpo.data.manifest import read_manifest
from scpo.data.schema import read_comparisons
from scpo.errors import UserError
from scpo.io import read_json

USERS = 20


def raw_prism(folder: Path, one_candidate: int = 0) -> Path:
    """Twenty annotators in Chile and Israel, two turns each; the last has no country; some turns have one candidate."""
    folder.mkdir(parents=True)
    countries = [None if i == USERS - 1 else ("Chile", "Israel")[i % 2] for i in range(USERS)]
    survey = [{"user_id": f"u{i}", "location": {"reside_country": country}} for i, country in enumerate(countries)]
    utterances = [
        {
            "utterance_id": f"ut{i}-{turn}-{k}",
            "interaction_id": f"int{i}-{turn}",
            "conversation_id": f"c{i}",
            "user_id": f"u{i}",
            "turn": turn,
            "within_turn_id": k,
            "user_prompt": f"question {turn}",
            "model_response": f"answer {k}",
            "score": 10 + 10 * k * (i != 2 or turn != 0),  # one tie
            "if_chosen": k == 1,
        }
        for i in range(USERS)
        for turn in range(2)
        for k in range(1 if turn == 1 and i < one_candidate else 2)
    ]
    for name, rows in (("survey", survey), ("utterances", utterances)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def test_prism_from_raw_to_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw, out = raw_prism(tmp_path / "raw", one_candidate=2), tmp_path / "data"
    assert main(["prism", "--raw", str(raw), "--out", str(out), "--history", "--seed", "3"]) == 0
    shown = capsys.readouterr()
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["group", "kept", "dropped", "candidates", "pairs", "tied", "clusters", "train", "val", "test"] in lines
    # Chile: users 0, 2, .. 18, user 0 with one candidate in a turn, user 2 with one tie.
    assert next(line for line in lines if line[:1] == ["Chile"])[:7] == ["Chile", "19", "1", "38", "18", "1", "10"]
    assert next(line for line in lines if line[:1] == ["total"])[:3] == ["total", "36", "4"]
    assert ["(no", "group)", "fault", "no", "country", "2"] in lines
    assert "conversations: 19 kept, 1 dropped (no country)" in shown.out
    assert shown.err.startswith(f"prepare: reading {raw}\n")
    manifest = read_manifest(out)
    assert manifest["options"]["history"] is True
    assert manifest["split"]["seed"] == 3
    frame = read_comparisons(out)
    assert len(frame) == 72
    assert frame["history"].map(len).max() == 2


def test_paper_split_and_carved_validation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = raw_prism(tmp_path / "raw")
    main(["prism", "--raw", str(raw), "--out", str(tmp_path / "a"), "--split", "paper"])
    main(["prism", "--raw", str(raw), "--out", str(tmp_path / "b"), "--split", "paper", "--val-fraction", "0.2"])
    plain, carved = (read_comparisons(tmp_path / name) for name in "ab")
    assert set(plain["split"]) == {"train", "test"}
    assert set(carved["split"]) == {"train", "val", "test"}
    assert ((plain["split"] == "test") == (carved["split"] == "test")).all()
    assert read_manifest(tmp_path / "a")["split"]["val_fraction"] == 0


def test_goqa_and_its_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        f"\"Q{i}?\",\"defaultdict(<class 'list'>, {{'Britain': [0.2, 0.7, 0.1]}})\",\"['A', 'B', 'DK/Refused']\",GAS"
        for i in range(8)
    ]
    (tmp_path / "g.csv").write_text("\n".join(["question,selections,options,source", *rows]) + "\n", encoding="utf-8")
    arguments = [
        "goqa",
        "--raw",
        str(tmp_path / "g.csv"),
        "--out",
        str(tmp_path / "data"),
        "--template",
        "In {group}: {question}",
    ]
    assert main([*arguments, "--non-answers", "keep"]) == 0
    frame = read_comparisons(tmp_path / "data")
    assert len(frame) == 24
    assert set(frame["prompt"]) == {f"In United Kingdom: Q{i}?" for i in range(8)}
    assert read_manifest(tmp_path / "data")["split"]["method"] == "question"
    assert main(arguments) == 0
    assert len(read_comparisons(tmp_path / "data")) == 16


def test_table_with_other_column_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"prompt": f"Q{i}", "chosen": "A", "rejected": "B", "country": "Chile", "age": "old"} for i in range(8)]
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    out = tmp_path / "data"
    assert (
        main(
            ["table", "--raw", str(path), "--out", str(out), "--group-column", "country", "--attribute-columns", "age"]
        )
        == 0
    )
    frame = read_comparisons(out)
    assert set(frame["group"]) == {"Chile"}
    assert frame["attributes"][0] == {"age": "old"}
    with pytest.raises(UserError, match="group missing"):
        main(["table", "--raw", str(path), "--out", str(out)])


def test_too_many_faults_show_the_table_and_leave_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw, out = raw_prism(tmp_path / "raw", one_candidate=16), tmp_path / "data"
    arguments = ["prism", "--raw", str(raw), "--out", str(out)]
    with pytest.raises(UserError, match=r"more than 20% of the comparisons were lost .*raise --max-fault-share"):
        main(arguments)
    shown = capsys.readouterr()
    assert ["Chile", "fault", "one", "candidate", "8"] in [line.split() for line in shown.err.splitlines()]
    assert not shown.out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["raw"]
    assert main([*arguments, "--max-fault-share", "0.5"]) == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--split", "stratifeid"], "Did you mean 'stratified'"),
        (["--val-fraction", "0.9"], "sum 1|train > 0"),
        (["--test-fraction", "0"], "test > 0"),
        (["--group-by", "agee"], "Did you mean 'age'"),
        (["--group-by", "age"], "age for at least one annotator"),
    ],
)
def test_wrong_options_leave_nothing(tmp_path: Path, options: list[str], says: str) -> None:
    raw = raw_prism(tmp_path / "raw")
    with pytest.raises(UserError, match=says):
        main(["prism", "--raw", str(raw), "--out", str(tmp_path / "data"), *options])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["raw"]


def test_the_raw_folder_is_never_the_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = raw_prism(tmp_path / "raw")
    before = sorted(p.name for p in raw.iterdir())
    with pytest.raises(UserError, match=r"found survey.jsonl, utterances.jsonl; choose another --out"):
        main(["prism", "--raw", str(raw), "--out", str(raw)])
    assert sorted(p.name for p in raw.iterdir()) == before
    assert "candidates" not in capsys.readouterr().err  # found out before the long reading


@pytest.mark.parametrize("arguments", [["--help"], ["prism", "--help"], ["goqa", "--help"], ["table", "--help"]])
def test_help_has_an_example(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 0
    assert "  scpo prepare " in capsys.readouterr().out


def test_the_command_line_starts_without_heavy_imports() -> None:
    heavy = "{'torch', 'pandas', 'datasets', 'pyarrow'}"
    code = f"import sys, scpo.cli.prepare as p; p.parser(); print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_columns_line_up() -> None:
    assert aligned(["name", "n", ""], [["a", "5", ""], ["long name", "12", "x"]]) == (
        "name        n\na           5\nlong name  12  x\n"
    )


@pytest.fixture(name="script")
def _script() -> ModuleType:
    path = Path(__file__).parents[2] / "data_prep" / "prism.py"
    spec = importlib.util.spec_from_file_location("data_prep_prism", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_data_prep_script(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = raw_prism(tmp_path / "raw")
    assert script.run([str(raw), str(tmp_path / "data")]) == 0
    assert read_manifest(tmp_path / "data")["split"]["method"] == "paper"
    assert "annotators of the survey: 20, the full release has 1500" in capsys.readouterr().err
    assert script.run([str(tmp_path / "absent"), str(tmp_path / "data")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: ")
    assert script.run([]) == 2


def test_names_from_the_data_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The kind of a sample is text of the file, and a reason of the table."""
    cells = [
        f"\"defaultdict(<class 'list'>, {{'{name}': [0.3, 0.7]}})\"" for name in ("Chile", "India (\x1b[2J sample)")
    ]
    rows = [f"Q{i}?,{cell},\"['A', 'B']\",GAS" for i in range(8) for cell in cells]
    (tmp_path / "g.csv").write_text("\n".join(["question,selections,options,source", *rows]) + "\n", encoding="utf-8")
    assert main(["goqa", "--raw", str(tmp_path / "g.csv"), "--out", str(tmp_path / "data")]) == 0
    out = capsys.readouterr().out
    assert "\\x1b[2j sample" in out
    assert out.replace("\n", "").isprintable()


def test_files_called_like_ours_are_refused_before_the_long_reading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw, out = raw_prism(tmp_path / "raw"), tmp_path / "data"
    out.mkdir()
    (out / "comparisons.parquet").write_bytes(b"somebody's own")
    with pytest.raises(UserError, match=r"found comparisons\.parquet; choose another --out"):
        main(["prism", "--raw", str(raw), "--out", str(out)])
    assert (out / "comparisons.parquet").read_bytes() == b"somebody's own"
    assert "candidates" not in capsys.readouterr().err


def test_a_simulated_corpus_is_known_as_one(world: World, scpo: Command, tmp_path: Path) -> None:
    """It has another corpus's layout; a model card must not say that people wrote it, nor deny it of people's words."""
    for source, raw in (("prism", world.raw / "prism"), ("goqa", world.raw / "goqa")):
        assert scpo("prepare", source, "--raw", raw, "--out", tmp_path / source).code == 0
        assert read_json(tmp_path / source / "manifest.json")["extra"]["simulated"] is True
    alone = tmp_path / "alone"
    shutil.copytree(world.raw / "goqa", alone)
    assert scpo("prepare", "goqa", "--raw", alone, "--out", tmp_path / "other").code == 0
    assert "simulated" not in read_json(tmp_path / "other" / "manifest.json")["extra"]
