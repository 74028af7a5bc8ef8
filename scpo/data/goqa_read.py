"""Rows of GlobalOpinionQA from a csv or a frame, with the row and column in every error."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from scpo.errors import UserError, did_you_mean
from scpo.io import require_file, shorten, shown

COLUMNS = ("question", "selections", "options", "source")
SOURCES = ("GAS", "WVS")


def find_csv(raw: Path) -> Path:
    """The csv itself, or the only fitting csv of a folder; where it holds none, of its subfolder `goqa` or `data`.

    `scpo simulate` writes into `goqa`; a copy of the Hub's repository may have its files in `data`.

    Raises:
        UserError: no such file, or not exactly one csv with the four columns.
    """
    if not raw.is_dir():
        return require_file(raw)
    places = (raw, raw / "goqa", raw / "data")
    found = next((files for files in (sorted(place.glob("*.csv")) for place in places) if files), [])
    if len(found) > 1:
        fitting = [path for path in found if set(COLUMNS) <= set(_header(path))]
        found = fitting or found
    if len(found) != 1:
        names = ", ".join(path.name for path in found[:5]) or ", ".join(sorted(p.name for p in raw.iterdir())[:5])
        raise UserError(
            f"{raw}: expected exactly one csv of GlobalOpinionQA, found {len(found)} "
            f"(in the folder: {names or 'nothing'}); name the file"
        )
    return found[0]


def frame_rows(frame: pd.DataFrame, where: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of a frame, counted from 0."""
    _check_columns([str(column) for column in frame.columns], where)
    for number, values in enumerate(zip(*(frame[column] for column in COLUMNS), strict=True)):
        yield number, dict(zip(COLUMNS, values, strict=True))


def csv_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of the csv with the number a spreadsheet shows: the header is row 1."""
    number = 0
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            header: list[str] | None = None
            for number, cells in enumerate(csv.reader(stream, strict=True), start=1):
                if any("\0" in cell for cell in cells):
                    raise UserError(f"{path}: row {number}: expected text, found a zero byte; is the file damaged?")
                if header is None:
                    _check_columns(cells, str(path))
                    header = cells
                elif cells:
                    if len(cells) != len(header):
                        raise UserError(
                            f"{path}: row {number}: expected {len(header)} cells, found {len(cells)}; is the file truncated?"
                        )
                    yield number, dict(zip(header, cells, strict=True))
            if header is None:
                raise UserError(f"{path}: expected a csv with the columns {', '.join(COLUMNS)}, found an empty file")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: expected UTF-8 text, found binary data after row {number}; is the file compressed or damaged?"
        ) from error
    except csv.Error as error:
        raise UserError(
            f"{path}: after row {number}: expected a csv, found damage ({error}); is the file truncated?"
        ) from error


def read_question(value: object, at: str) -> str:
    """The text of a question without outer spaces; ``""`` where it is missing."""
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return ""
    if not isinstance(value, str):
        raise UserError(f"{at}: expected the text of a question, found {shown(value)} ({type(value).__name__})")
    return value.strip()


def read_source(value: object, at: str) -> str:
    """GAS (Pew's Global Attitudes Survey) or WVS (World Values Survey)."""
    text = value.strip().upper() if isinstance(value, str) else ""
    if text not in SOURCES:
        raise UserError(f"{at}: expected GAS or WVS, found {shown(value)}; is the file truncated?")
    return text


def _check_columns(found: list[str], where: str) -> None:
    for column in COLUMNS:
        if found.count(column) != 1:
            problem = "found none" if column not in found else f"found {found.count(column)}"
            shown = ", ".join(repr(shorten(name, 30)) for name in found[:10]) or "none"
            raise UserError(
                f"{where}: expected one column {column!r}, {problem}; the columns are {shown}."
                + did_you_mean(column, set(found) - set(COLUMNS))
            )


def _header(path: Path) -> list[str]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            return next(csv.reader(stream, strict=True), [])
    except (UnicodeDecodeError, csv.Error):
        return []
