"""The comparisons table: its columns, reading, writing and checking.

In memory it is a pandas frame with one row per candidate; `history` holds lists of ``{"role", "content"}`` and
`attributes` holds dicts of str to str. Rows of one comparison stand together, in the order of the source.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from scpo.errors import UserError, did_you_mean
from scpo.groups import check_names
from scpo.io import atomic_path, require_file

SPLITS = ("train", "val", "test")
HISTORY_TYPE = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
ATTRIBUTES_TYPE = pa.map_(pa.string(), pa.string())

COMPARISONS = pa.schema(
    [
        pa.field("dataset", pa.string(), nullable=False),
        pa.field("comparison_id", pa.string(), nullable=False),
        pa.field("candidate_id", pa.string(), nullable=False),
        pa.field("prompt", pa.string(), nullable=False),
        pa.field("history", HISTORY_TYPE, nullable=False),
        pa.field("response", pa.string(), nullable=False),
        pa.field("score", pa.float64()),
        pa.field("group", pa.string(), nullable=False),
        pa.field("annotator_id", pa.string()),
        pa.field("cluster_id", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("attributes", ATTRIBUTES_TYPE, nullable=False),
    ]
)


def to_arrow(frame: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    """The frame as an Arrow table of exactly this schema; dicts become maps."""
    arrays = []
    for field in schema:
        values = frame[field.name]
        if pa.types.is_map(field.type):
            arrays.append(pa.array([sorted(v.items()) for v in values], type=field.type))
        elif pa.types.is_list(field.type):
            arrays.append(pa.array(list(values), type=field.type))
        else:
            arrays.append(pa.array(values, type=field.type, from_pandas=True))
    table = pa.Table.from_arrays(arrays, schema=schema)
    table.validate(full=True)
    return table


def write_table(frame: pd.DataFrame, path: Path, schema: pa.Schema) -> None:
    """Write a frame as parquet, atomically, with page checksums."""
    with atomic_path(path) as temporary:
        pq.write_table(to_arrow(frame, schema), temporary, compression="zstd", write_page_checksum=True)


def read_table(path: Path, schema: pa.Schema, what: str) -> pd.DataFrame:
    """Read a parquet file that must hold the schema's columns; extra columns are left out.

    Raises:
        UserError: the file is missing, not parquet, damaged, or lacks a column or holds it with another type.
    """
    require_file(path)
    try:
        found = pq.read_schema(path)
        for field in schema:
            if field.name not in found.names:
                raise UserError(
                    f"{path}: expected {what} with a column {field.name!r}, found the columns {', '.join(found.names)}."
                    + did_you_mean(field.name, found.names)
                )
        columns = [field.name for field in schema]
        table = pq.read_table(path, columns=columns, page_checksum_verification=True).select(columns).cast(schema)
        frame = table.to_pandas(maps_as_pydicts="strict")
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: a null in a column that takes none
        raise UserError(f"{path}: expected {what} as a parquet file ({' '.join(str(error).split())[:200]})") from error
    for field in schema:
        if pa.types.is_list(field.type):
            frame[field.name] = [[dict(turn) for turn in turns] for turns in frame[field.name]]
    return frame


def write_comparisons(frame: pd.DataFrame, path: Path) -> None:
    """Check and write ``comparisons.parquet``."""
    check_comparisons(frame, str(path))
    write_table(frame, path, COMPARISONS)


def read_comparisons(folder: Path) -> pd.DataFrame:
    """Read and check ``DATA/comparisons.parquet``."""
    path = Path(folder) / "comparisons.parquet"
    if not Path(folder).is_dir():
        raise UserError(f"{folder}: no such data folder; make one with 'scpo prepare ... --out {folder}'")
    frame = read_table(path, COMPARISONS, "a comparisons table (written by 'scpo prepare')")
    check_comparisons(frame, str(path))
    return frame


def check_comparisons(frame: pd.DataFrame, where: str) -> None:
    """Raise UserError unless candidate ids are unique, splits known, groups named, and each comparison in one of both.

    Whether a cluster may stand in two splits depends on the split; see :func:`scpo.data.split.check_split`.
    """
    if frame.empty:
        raise UserError(f"{where}: expected at least one comparison, found none")
    repeated = frame["candidate_id"][frame["candidate_id"].duplicated()]
    if len(repeated):
        raise UserError(f"{where}: expected unique candidate ids, found {repeated.iloc[0]!r} more than once")
    unknown = set(frame["split"]) - set(SPLITS)
    if unknown:
        raise UserError(f"{where}: column split: expected train, val or test, found {sorted(unknown)[0]!r}")
    if frame["group"].eq("").any():
        row = int(frame["group"].eq("").to_numpy().argmax())
        raise UserError(f"{where}: row {row}: expected the name of a group, found an empty string")
    check_names(frame["group"].unique(), where)
    endless = np.isinf(frame["score"].to_numpy(dtype=np.float64, na_value=np.nan))
    if endless.any():
        row = int(endless.argmax())
        raise UserError(
            f"{where}: row {row}: column score: expected a finite number or null, found {frame['score'].iloc[row]} "
            f"(candidate {frame['candidate_id'].iloc[row]!r})"
        )
    parts = frame.drop_duplicates(["comparison_id", "split", "group"])["comparison_id"]
    if parts.duplicated().any():
        name = parts[parts.duplicated()].iloc[0]
        raise UserError(f"{where}: expected each comparison in one split and one group, found {name!r} in two")
