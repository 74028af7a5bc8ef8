"""What a model was trained on is told by cluster and text together, in hashes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from scpo.errors import UserError
from scpo.io import read_json, write_json
from scpo.model.trained import TRAINED_ON, trained_rows, write_trained_on


def table(*rows: tuple[str, str, str]) -> pd.DataFrame:
    """(cluster, comparison, response) of one data set."""
    frame = pd.DataFrame(rows, columns=["cluster_id", "comparison_id", "response"])
    return frame.assign(dataset="d")


def told(model: Path, frame: pd.DataFrame) -> list[bool]:
    found = trained_rows(model, frame)
    assert found is not None
    return found.tolist()


def test_all_rows_of_a_cluster_that_is_met_again_are_trained(tmp_path: Path) -> None:
    write_trained_on(tmp_path, "cluster_id", table(("a", "1", "x"), ("a", "1", "y"), ("a", "2", "z")))
    assert told(tmp_path, table(("a", "9", "z"), ("a", "8", "new"), ("b", "1", "x"))) == [True, True, False]


def test_the_same_id_with_other_texts_and_the_same_text_under_another_id_are_not(tmp_path: Path) -> None:
    write_trained_on(tmp_path, "cluster_id", table(("a", "1", "x")))
    assert told(tmp_path, table(("a", "1", "other"), ("b", "1", "x"))) == [False, False]
    assert told(tmp_path, table(("a", "1", "x")).assign(dataset="e")) == [False]


def test_empty_responses_tell_nobody_apart(tmp_path: Path) -> None:
    write_trained_on(tmp_path, "cluster_id", table(("a", "1", ""), ("a", "1", "x"), ("b", "2", " ")))
    assert told(tmp_path, table(("a", "3", ""), ("b", "4", ""), ("b", "4", " "))) == [False, False, False]
    assert told(tmp_path, table(("a", "1", "x"))) == [True]


def test_where_comparisons_were_split_they_are_what_is_known(tmp_path: Path) -> None:
    write_trained_on(tmp_path, "comparison_id", table(("a", "1", "x")))
    assert told(tmp_path, table(("a", "1", "x"), ("a", "1", "y"), ("a", "2", "x"))) == [True, True, False]


def test_hashes_only_and_a_model_without_the_file_says_nothing(tmp_path: Path) -> None:
    assert trained_rows(tmp_path, table(("a", "1", "x"))) is None
    write_trained_on(tmp_path, "cluster_id", table(("somebody", "1", "a secret")))
    text = (tmp_path / TRAINED_ON).read_text()
    assert "somebody" not in text
    assert "secret" not in text
    assert len(read_json(tmp_path / TRAINED_ON)["keys"]) == 1


@pytest.mark.parametrize("document", [[], {"unit": "row", "keys": []}, {"unit": "cluster_id"}])
def test_another_document_is_refused(tmp_path: Path, document: object) -> None:
    write_json(tmp_path / TRAINED_ON, document)
    with pytest.raises(UserError, match=r"trained_on.json: expected the list"):
        trained_rows(tmp_path, table(("a", "1", "x")))
