"""The predictions table: its columns, reading, writing and checking. Every number of an evaluation comes from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from scpo.data.schema import ATTRIBUTES_TYPE, read_table, write_table
from scpo.errors import UserError, did_you_mean

PREDICTIONS = pa.schema(
    [
        pa.field("candidate_id", pa.string(), nullable=False),
        pa.field("comparison_id", pa.string(), nullable=False),
        pa.field("cluster_id", pa.string(), nullable=False),
        pa.field("annotator_id", pa.string()),
        pa.field("group", pa.string(), nullable=False),
        pa.field("attributes", ATTRIBUTES_TYPE, nullable=False),
        pa.field("score", pa.float64()),
        pa.field("reference_reward", pa.float32()),
        pa.field("conditioned_on", pa.string()),
        # Nullable in the file, refused by check_predictions: that message can name the rows, Arrow's cannot.
        pa.field("reward", pa.float32()),
    ]
)

RESPONSE_LENGTH = pa.field("response_length", pa.int64())
"""Optional last column (characters of the response): with it the length baseline, too, follows from the table alone."""

WHAT = "a predictions table (one row per test candidate and conditioned_on)"


def with_length(has_length: bool) -> pa.Schema:
    """The schema, with the optional column where it is used."""
    return PREDICTIONS.append(RESPONSE_LENGTH) if has_length else PREDICTIONS


def write_predictions(frame: pd.DataFrame, path: Path) -> None:
    """Check and write ``predictions.parquet`` atomically; ``response_length`` is kept where the frame has it.

    Raises:
        UserError: see :func:`check_predictions`.
    """
    check_predictions(frame, str(path))
    write_table(frame, path, with_length(RESPONSE_LENGTH.name in frame.columns))


def read_predictions(path: Path) -> pd.DataFrame:
    """Read and check ``predictions.parquet``.

    Raises:
        UserError: missing, damaged or not parquet; a missing or mistyped column; see :func:`check_predictions`.
    """
    path = Path(path)
    has_length = False
    if path.is_file():
        try:
            has_length = RESPONSE_LENGTH.name in pq.read_schema(path).names
        except (pa.ArrowException, OSError):
            has_length = False  # read_table below words the error
    frame = read_table(path, with_length(has_length), WHAT)
    check_predictions(frame, str(path))
    return frame


def check_predictions(frame: pd.DataFrame, where: str) -> None:
    """Raise UserError unless the table can be evaluated.

    Checked: columns; at least one row; finite float32 rewards; reference rewards all present and finite or all null;
    (candidate_id, conditioned_on) once; one group and one cluster per comparison.
    """
    for field in PREDICTIONS:
        if field.name not in frame.columns:
            known = [str(c) for c in frame.columns]
            raise UserError(
                f"{where}: expected {WHAT} with a column {field.name!r}, found the columns {', '.join(known)}."
                + did_you_mean(field.name, known)
            )
    if frame.empty:
        raise UserError(f"{where}: expected at least one prediction, found none; are there test candidates?")
    _check_rewards(frame, where)
    _check_keys(frame, where)


def _check_rewards(frame: pd.DataFrame, where: str) -> None:
    bad = ~np.isfinite(float32(frame, "reward", where))
    if bad.any():
        raise UserError(
            f"{where}: column reward: expected finite float32 numbers, found NaN, infinity or nothing in {bad.sum()} of "
            f"{len(frame)} rows: {_name_rows(frame, bad)}; did the training or the precision overflow?"
        )
    reference = float32(frame, "reference_reward", where)
    bad = ~np.isfinite(reference)
    if bad.any() and not np.isnan(reference).all():
        raise UserError(
            f"{where}: column reference_reward: expected finite numbers in all rows or null in all, found {bad.sum()} of "
            f"{len(frame)} rows without: {_name_rows(frame, bad)}; score the reference model again"
        )


def _check_keys(frame: pd.DataFrame, where: str) -> None:
    repeated = frame.duplicated(["candidate_id", "conditioned_on"]).to_numpy()
    if repeated.any():
        row = int(repeated.argmax())
        first = frame.iloc[row]
        condition = "null" if pd.isna(first["conditioned_on"]) else repr(first["conditioned_on"])
        raise UserError(
            f"{where}: expected one row per candidate_id and conditioned_on, found candidate_id {first['candidate_id']!r} "
            f"with conditioned_on {condition} again in row {row}; remove the repeated rows"
        )
    codes, comparisons = pd.factorize(frame["comparison_id"])
    _, first_row = np.unique(codes, return_index=True)
    for column in ("group", "cluster_id"):
        values, _ = pd.factorize(frame[column])
        wrong = values != values[first_row][codes]
        if wrong.any():
            row = int(wrong.argmax())
            other = frame[column].iloc[first_row[codes[row]]]
            raise UserError(
                f"{where}: row {row}: expected one {column} per comparison, found {frame[column].iloc[row]!r} and {other!r} "
                f"in comparison {comparisons[codes[row]]!r}; make the comparison_id differ"
            )


def float32(frame: pd.DataFrame, column: str, where: str) -> npt.NDArray[np.float32]:
    """A numeric column as float32, (n_rows,); null becomes NaN, too large numbers infinity."""
    try:
        with np.errstate(over="ignore"):
            return frame[column].to_numpy(dtype=np.float64, na_value=np.nan).astype(np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{where}: column {column}: expected numbers, found {' '.join(str(error).split())[:120]}"
        ) from error


def _name_rows(frame: pd.DataFrame, bad: npt.NDArray[np.bool_], limit: int = 5) -> str:
    rows = np.flatnonzero(bad)
    shown = ", ".join(f"row {r} (candidate_id {frame['candidate_id'].iloc[r]!r})" for r in rows[:limit])
    return shown + (", ..." if len(rows) > limit else "")
