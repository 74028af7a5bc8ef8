"""Rows of a JSON lines, parquet or csv file, numbered from 1."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scpo.errors import UserError
from scpo.io import read_jsonl, require_file, shorten

Row = Mapping[str, Any]


def numbered_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield ``(number, row)`` by the file's suffix; empty cells of a csv are null, lists and objects in it are JSON.

    Raises:
        UserError: no such file, another suffix, or a file that does not parse.
    """
    path = require_file(path)
    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".ndjson", ".json"):
        yield from read_jsonl(path)
    elif suffix == ".parquet":
        yield from parquet_rows(path)
    elif suffix == ".csv":
        yield from csv_rows(path)
    else:
        raise UserError(f"{path}: expected a .jsonl, .parquet or .csv file, found the suffix {suffix!r}")


def parquet_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Rows of a parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        check_header(pq.read_schema(path).names, path)
        rows = pq.read_table(path).to_pylist(maps_as_pydicts="strict")
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:  # such as dates out of Python's range
        raise UserError(f"{path}: expected a parquet file ({' '.join(str(error).split())[:200]})") from error
    yield from enumerate(rows, start=1)


def csv_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Rows of a csv file with a header; cells that start like a JSON list or object are read as one if they are one."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            check_header(reader.fieldnames or [], path)
            for number, row in enumerate(reader, start=1):
                if None in row or None in row.values():
                    raise UserError(
                        f"{path}: row {number}: expected {len(reader.fieldnames or [])} cells, found another number "
                        f"({shorten(repr(list(row.values())))}); is the file truncated or a comma unquoted?"
                    )
                yield number, {name: cell_value(cell) for name, cell in row.items()}
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: expected UTF-8 text, found binary data (byte {error.start})") from error
    except csv.Error as error:
        raise UserError(f"{path}: line {reader.line_num}: expected csv, found a damaged row ({error})") from error


def check_header(names: Sequence[str], path: Path) -> None:
    """Raise UserError for a column name that stands twice: one of the two columns would be lost."""
    repeated = [name for name, n in Counter(names).items() if n > 1]
    if repeated:
        raise UserError(
            f"{path}: expected each column once, found {names.count(repeated[0])} columns {shorten(repeated[0])!r}; "
            "rename or remove one"
        )


def cell_value(cell: str) -> Any:
    """Null for an empty cell; the list or object that a cell spells; else its text."""
    if not cell:
        return None
    if cell[0] in "[{":
        try:
            return json.loads(cell)
        except (ValueError, RecursionError):  # not JSON, or thousands of digits or brackets
            return cell
    return cell
