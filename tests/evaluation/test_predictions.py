from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prediction_worlds import COLUMNS, pair, random_world, row, table

from scpo.errors import UserError
from scpo.evaluation.predictions import check_predictions, read_predictions, write_predictions


def test_round_trip_keeps_rows_attributes_nulls_and_length(tmp_path: Path) -> None:
    frame = random_world(0)
    frame.loc[frame["group"] == "G1", "conditioned_on"] = None
    frame["annotator_id"] = None
    path = tmp_path / "predictions.parquet"
    write_predictions(frame, path)
    back = read_predictions(path)
    assert list(back.columns) == [*COLUMNS, "response_length"]
    assert back["attributes"].to_list() == frame["attributes"].to_list()
    assert back["candidate_id"].to_list() == frame["candidate_id"].to_list()
    assert back["response_length"].to_list() == frame["response_length"].to_list()
    assert back["reward"].dtype == np.float32
    assert back["conditioned_on"].isna().to_list() == (frame["group"] == "G1").to_list()
    assert back["annotator_id"].isna().all()


def test_without_lengths_the_file_has_exactly_the_columns_of_the_contract(tmp_path: Path) -> None:
    path = tmp_path / "predictions.parquet"
    write_predictions(table(pair("A", "u", "q", 1.0)), path)
    assert pq.read_schema(path).names == COLUMNS
    assert read_predictions(path)["reference_reward"].isna().all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39, None])
def test_a_reward_that_is_not_finite_in_float32_names_its_rows(tmp_path: Path, value: float | None) -> None:
    frame = table([*pair("A", "u", "q1", 1.0), *pair("A", "u", "q2", 1.0)])
    frame["reward"] = frame["reward"].astype(object)
    frame.loc[2, "reward"] = value
    path = tmp_path / "p.parquet"
    with pytest.raises(UserError, match=r"column reward: .*1 of 4 rows: row 2 \(candidate_id 'q2/c'\)"):
        write_predictions(frame, path)
    assert not path.exists()
    assert list(tmp_path.iterdir()) == []


def test_reading_checks_too(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    write_predictions(table(pair("A", "u", "q1", 1.0)), path)
    data = pq.read_table(path)
    column = data.schema.get_field_index("reward")
    pq.write_table(data.set_column(column, data.schema.field(column), pa.array([1.0, None], pa.float32())), path)
    with pytest.raises(UserError, match="row 1"):
        read_predictions(path)


def test_a_candidate_twice_under_one_condition_is_an_error_under_two_it_is_not() -> None:
    frame = table([*pair("A", "u", "q", 1.0), row("A", "u", "q", "q/c", 2.0, 5.0, conditioned_on="B")])
    check_predictions(frame, "p")
    with pytest.raises(UserError, match=r"'q/c' with conditioned_on 'B' again in row 3"):
        check_predictions(pd.concat([frame, frame.iloc[[2]]], ignore_index=True), "p")
    frame = table([*pair("A", "u", "q", 1.0, conditioned_on=None)] * 2)
    with pytest.raises(UserError, match="conditioned_on null again in row 2"):
        check_predictions(frame, "p")


@pytest.mark.parametrize("column", ["group", "cluster_id"])
def test_a_comparison_belongs_to_one_group_and_cluster(column: str) -> None:
    frame = table(pair("A", "u", "q", 1.0))
    frame.loc[1, column] = "other"
    with pytest.raises(UserError, match=f"row 1: expected one {column} per comparison, found 'other'"):
        check_predictions(frame, "p")


def test_reference_rewards_for_some_rows_only_are_an_error() -> None:
    frame = table(pair("A", "u", "q", 1.0, 0.5))
    frame.loc[1, "reference_reward"] = np.nan
    with pytest.raises(UserError, match=r"column reference_reward: .*row 1"):
        check_predictions(frame, "p")
    frame["reference_reward"] = np.inf
    with pytest.raises(UserError, match="column reference_reward"):
        check_predictions(frame, "p")


def test_missing_column_wrong_type_no_rows_and_damaged_files(tmp_path: Path) -> None:
    frame = table(pair("A", "u", "q", 1.0))
    with pytest.raises(UserError, match=r"column 'reward'.*Did you mean 'rewards'"):
        check_predictions(frame.rename(columns={"reward": "rewards"}), "p")
    with pytest.raises(UserError, match="column reward: expected numbers"):
        check_predictions(frame.assign(reward="high"), "p")
    with pytest.raises(UserError, match="at least one prediction"):
        check_predictions(frame.iloc[:0], "p")
    with pytest.raises(UserError, match="no such file"):
        read_predictions(tmp_path / "absent.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(UserError, match=r"bad\.parquet: expected a predictions table"):
        read_predictions(tmp_path / "bad.parquet")
