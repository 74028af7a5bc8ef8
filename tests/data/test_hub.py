"""The Hub: a copy of a Hub repository gives the same rows as the raw files; no connection is a quick, clear error."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from scpo.data import hub
from scpo.data.goqa import read_goqa
from scpo.data.hub import GOQA_CONFIGS, PRISM_CONFIGS, PRISM_REPO, load_hub
from scpo.data.prism import read_prism, read_prism_rows
from scpo.errors import UserError

PRISM_CARD = """---
configs:
- config_name: survey
  data_files: survey.jsonl
- config_name: utterances
  data_files: utterances.jsonl
---
"""
GOQA_CARD = """---
configs:
- config_name: default
  data_files: data/global_opinions.csv
---
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


def prism_copy(folder: Path) -> Path:
    """Two annotators (one without religion), two turns, one null score."""
    survey = [
        {
            "user_id": "u1",
            "age": "18-24 years old",
            "religion": {"simplified": "Jewish"},
            "location": {"reside_country": "Chile"},
        },
        {"user_id": "u2", "age": None, "religion": None, "location": {"reside_country": "Korea, Republic of"}},
    ]
    scores: list[tuple[int, Any]] = [(0, 90), (1, 10), (0, None), (1, 55)]
    utterances = [
        {
            "utterance_id": f"ut{i}",
            "interaction_id": f"int{i // 2}",
            "conversation_id": f"c{i // 2}",
            "user_id": f"u{i // 2 + 1}",
            "turn": 0,
            "within_turn_id": k,
            "user_prompt": "hello",
            "model_response": f"answer {i}",
            "score": score,
            "if_chosen": k == 0,
        }
        for i, (k, score) in enumerate(scores)
    ]
    folder.mkdir()
    (folder / "README.md").write_text(PRISM_CARD, encoding="utf-8")
    for name, rows in (("survey", survey), ("utterances", utterances)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def test_a_copy_of_prism_gives_the_rows_of_its_files(tmp_path: Path) -> None:
    copy = prism_copy(tmp_path / "copy")
    data = load_hub(str(copy), PRISM_CONFIGS)
    assert set(data.source["files"]) == {"README.md", "survey.jsonl", "utterances.jsonl"}
    from_hub = read_prism_rows(data.tables["survey"], data.tables["utterances"], source=data.source)
    from_files = read_prism(copy)
    assert from_hub.frame.to_dict("records") == from_files.frame.to_dict("records")
    assert from_hub.ledger.as_dict() == from_files.ledger.as_dict()
    assert list(from_hub.frame["group"]) == ["Chile", "Chile", "South Korea", "South Korea"]
    assert list(from_hub.frame["score"]) == [90, 10, 1, 0]


def test_a_changed_copy_is_read_again(tmp_path: Path) -> None:
    copy = prism_copy(tmp_path / "copy")
    load_hub(str(copy), PRISM_CONFIGS)
    text = (copy / "utterances.jsonl").read_text(encoding="utf-8")
    (copy / "utterances.jsonl").write_text(text.replace('"score": 90', '"score": 80'), encoding="utf-8")
    assert load_hub(str(copy), ("utterances",)).tables["utterances"][0]["score"] == 80


def test_hub_rows_go_through_the_same_checks(tmp_path: Path) -> None:
    copy = prism_copy(tmp_path / "copy")
    text = (copy / "utterances.jsonl").read_text(encoding="utf-8")
    (copy / "utterances.jsonl").write_text(text.replace('"score": 55', '"score": 155'), encoding="utf-8")
    data = load_hub(str(copy), PRISM_CONFIGS)
    with pytest.raises(UserError, match="utterances: line 4: field score: expected a number from 1 to 100"):
        read_prism_rows(data.tables["survey"], data.tables["utterances"], source={})


def test_a_copy_of_globalopinionqa(tmp_path: Path) -> None:
    (tmp_path / "copy" / "data").mkdir(parents=True)
    (tmp_path / "copy" / "README.md").write_text(GOQA_CARD, encoding="utf-8")
    cells = ["Is it so?", "defaultdict(<class 'list'>, {'Britain': [0.25, 0.75]})", "['Yes', 'No']", "GAS"]
    quoted = ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)
    path = tmp_path / "copy" / "data" / "global_opinions.csv"
    path.write_text(f"question,selections,options,source\n{quoted}\n", encoding="utf-8")
    frame = read_goqa(load_hub(str(tmp_path / "copy"), GOQA_CONFIGS).frame(None)).frame
    assert list(zip(frame["group"], frame["response"], frame["score"], strict=True)) == [
        ("United Kingdom", "Yes", 0.25),
        ("United Kingdom", "No", 0.75),
    ]


def test_wrong_copies(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="found an empty folder"):
        load_hub(str(tmp_path / "empty"), PRISM_CONFIGS)
    with pytest.raises(UserError, match="found neither"):
        load_hub(str(tmp_path / "absent"), PRISM_CONFIGS)
    copy = prism_copy(tmp_path / "copy")
    with pytest.raises(UserError, match="config conversations: expected files that"):
        load_hub(str(copy), ("conversations",))
    with pytest.raises(UserError, match="expected no revision for a folder, found 'main'"):
        load_hub(str(copy), PRISM_CONFIGS, revision="main")
    (copy / "utterances.jsonl").write_bytes(b"\x1f\x8b\x08\x00")
    with pytest.raises(UserError, match="config utterances: expected files that") as caught:
        load_hub(str(copy), PRISM_CONFIGS)
    assert "\n" not in str(caught.value)


def test_an_unreachable_hub_says_what_to_do_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    # A port that nothing listens on: a refused connection, whether or not this machine has a network.
    api = huggingface_hub.HfApi(endpoint="http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
    start = time.monotonic()
    with pytest.raises(
        UserError, match=r"cannot be reached .*hf download .* --repo-type dataset .*--hub COPY or --raw COPY"
    ):
        load_hub(PRISM_REPO, PRISM_CONFIGS)
    assert time.monotonic() - start < hub.TIMEOUT + 5


def test_a_programming_error_is_not_taken_for_a_missing_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise TypeError("broken")

    monkeypatch.setattr(huggingface_hub, "HfApi", broken)
    with pytest.raises(TypeError, match="broken"):
        load_hub(PRISM_REPO, PRISM_CONFIGS)
