"""One's own preference data: a JSON lines, parquet or csv file with a column that names the group.

Two shapes: TRL's preference columns (prompt, chosen, rejected, as strings or as lists of {role, content}; the prompt may
also stand only inside chosen and rejected), or prompt, responses, scores. Shape of the messages: :mod:`scpo.data.turns`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scpo.data.ledger import Ledger
from scpo.data.table_file import Row, numbered_rows
from scpo.data.turns import Exchange, exchanges
from scpo.errors import UserError, did_you_mean
from scpo.io import sha256_file, shorten

if TYPE_CHECKING:
    from scpo.data.prepared import Prepared

COLUMNS = (
    "prompt", "chosen", "rejected", "responses", "scores", "group", "annotator", "attributes", "history", "cluster", "id",
)  # fmt: skip
EXPECTED = "(chosen, rejected[, prompt], group) or (prompt, responses, scores, group)"


class Fields(NamedTuple):
    """The file's name of each column that is in use, and the shape."""

    names: dict[str, str]
    attribute_columns: tuple[str, ...]
    ignored: tuple[str, ...]
    paired: bool


def read_table_file(
    path: Path,
    *,
    columns: Mapping[str, str] | None = None,
    attribute_columns: Sequence[str] = (),
    dataset: str = "table",
) -> Prepared:
    """Read a preference file.

    Args:
        path: `.jsonl` (or `.json` with one object per line), `.parquet` or `.csv`.
        columns: the file's names of columns that are called otherwise, such as ``{"group": "country"}``.
        attribute_columns: further columns that become attributes of the annotator.
        dataset: name for the `dataset` column.

    Returns:
        One comparison per row, `row<number>` by id unless there is a column `id`. The cluster is the column `cluster`,
        else `annotator`, else the prompt's hash, so that equal prompts never stand on both sides of a split. A chosen
        response scores 1, a rejected one 0.

    Raises:
        UserError: a missing column (with the columns found and the first row), or a value of the wrong type.
    """
    path = Path(path)
    rows = list(numbered_rows(path))
    fields = find_fields([row for _, row in rows], dict(columns or {}), tuple(attribute_columns), path)
    prepared = build(rows, fields, path, dataset)
    prepared.source = {"files": {path.name: sha256_file(path)}}
    return prepared


def find_fields(
    rows: Sequence[Row], renamed: Mapping[str, str], attribute_columns: tuple[str, ...], path: Path
) -> Fields:
    """Which column of the file plays which part; UserError shows expected and found columns and the first row."""
    if not rows:
        raise UserError(f"{path}: expected rows with the columns {EXPECTED}, found an empty file")
    found = list(dict.fromkeys(str(key) for row in rows for key in row))
    for part, name in renamed.items():
        if part not in COLUMNS:
            raise UserError(
                f"columns: expected one of {', '.join(COLUMNS)}, found {part!r}." + did_you_mean(part, COLUMNS)
            )
        if name not in found:
            raise UserError(
                f"{path}: expected a column {name!r} for {part}, {shown(found, rows)}.{did_you_mean(name, found)}"
            )
    for name in attribute_columns:
        if name not in found:
            raise UserError(f"{path}: expected a column {name!r}, {shown(found, rows)}.{did_you_mean(name, found)}")
    names = {part: renamed.get(part, part) for part in COLUMNS if renamed.get(part, part) in found}
    paired = "chosen" in names or "rejected" in names
    needed = ("chosen", "rejected", "group") if paired else ("prompt", "responses", "scores", "group")
    missing = [part for part in needed if part not in names]
    if missing:
        hint = did_you_mean(renamed.get(missing[0], missing[0]), found)
        raise UserError(
            f"{path}: expected the columns {EXPECTED}; {', '.join(missing)} missing, {shown(found, rows)}.{hint} "
            f"A column of another name is given by --{missing[0]}-column NAME"
        )
    if paired:
        names = {part: name for part, name in names.items() if part not in ("responses", "scores")}
    used = {*names.values(), *attribute_columns}
    return Fields(names, attribute_columns, tuple(name for name in found if name not in used), paired)


def shown(found: Sequence[str], rows: Sequence[Row]) -> str:
    """The columns and the first row, short."""
    return f"found the columns {', '.join(found)}; first row: {shorten(repr(dict(rows[0])), 200)}"


def build(rows: Sequence[tuple[int, Row]], fields: Fields, path: Path, dataset: str) -> Prepared:
    """Comparisons from numbered rows."""
    import pandas as pd

    from scpo.data.prepared import Prepared

    ledger = Ledger()
    records: list[dict[str, Any]] = []
    seen: dict[str, int] = {}
    no_group = lengths = 0
    for line, row in rows:
        place = f"{path}: row {line}"
        group = group_of(row, fields, place)
        if group is None:
            no_group += 1
            ledger.drop(None, "no group")
            continue
        exchange, reason = exchanges(values(row, fields), fields.paired, place, fields.names)
        if exchange is None:
            lengths += reason == "responses and scores of different length"
            ledger.drop(group, reason)
            continue
        if exchange.repeated:
            ledger.note(group, "prompt repeated in the responses: taken out")
        if len(set(exchange.responses)) < len(exchange.responses):
            ledger.note(group, "identical responses in a comparison")
        ledger.keep(group)
        annotator = label(row, "annotator", fields, place)
        name = label(row, "id", fields, place) or f"row{line}"
        if name in seen:
            raise UserError(f"{place}: column {fields.names.get('id')}: {name!r} was already used in row {seen[name]}")
        seen[name] = line
        note_ties(exchange.scores, group, ledger)
        shared = {
            "dataset": dataset,
            "comparison_id": name,
            "prompt": exchange.prompt,
            "history": exchange.history,
            "group": group,
            "annotator_id": annotator,
            "cluster_id": label(row, "cluster", fields, place) or annotator or prompt_cluster(exchange.prompt),
            "attributes": attributes_of(row, fields, place),
        }
        for number, (response, score) in enumerate(zip(exchange.responses, exchange.scores, strict=True)):
            records.append(shared | {"candidate_id": f"{name}/{number}", "response": response, "score": score})
    if no_group == len(rows):
        raise UserError(
            f"{path}: column {fields.names['group']}: expected a group, found it missing in all {no_group} rows"
        )
    if lengths == len(rows):
        raise UserError(f"{path}: responses and scores have different lengths in all {lengths} rows")
    options = {"columns": dict(sorted(fields.names.items())), "attribute_columns": list(fields.attribute_columns)}
    extra = {"ignored_columns": list(fields.ignored)}
    names = "dataset comparison_id candidate_id prompt history response score group annotator_id cluster_id attributes"
    return Prepared(pd.DataFrame(records, columns=names.split()), ledger, {}, options, extra)


def values(row: Row, fields: Fields) -> dict[str, Any]:
    """The row under the columns' own names; absent cells are null."""
    return {part: row.get(name) for part, name in fields.names.items()}


def label(row: Row, part: str, fields: Fields, place: str) -> str | None:
    """A name given as text or as a whole number; null where it is absent or empty."""
    value = row.get(fields.names.get(part, ""))
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UserError(
            f"{place}: column {fields.names[part]}: expected text or a whole number, found {shorten(repr(value))}"
        )
    return str(value).strip() or None


def group_of(row: Row, fields: Fields, place: str) -> str | None:
    """The group by its canonical name; codes are read as countries only in a column that says so (CA may be California)."""
    from scpo.groups import canonical, tidy

    name = label(row, "group", fields, place)
    if name is None:
        return None
    return canonical(name) if len(name) > 3 or "country" in fields.names["group"].lower() else tidy(name)


def attributes_of(row: Row, fields: Fields, place: str) -> dict[str, str]:
    """The column `attributes` (an object) and the attribute columns; absent values are left out."""
    given = row.get(fields.names.get("attributes", ""))
    if given is not None and not isinstance(given, Mapping):
        raise UserError(
            f"{place}: column {fields.names['attributes']}: expected an object of attributes, found {shorten(repr(given))}"
        )
    found = dict(given or {}) | {name: row.get(name) for name in fields.attribute_columns}
    kept: dict[str, str] = {}
    for name, value in found.items():
        if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
            continue
        if not isinstance(value, str | int | float):
            raise UserError(f"{place}: attribute {name}: expected text or a number, found {shorten(repr(value))}")
        kept[str(name)] = str(value)
    return kept


def prompt_cluster(prompt: str) -> str:
    """The cluster of rows without annotator: equal prompts, spaces and case aside, fall together."""
    return "prompt-" + hashlib.sha256(" ".join(prompt.split()).casefold().encode("utf-8")).hexdigest()[:16]


def note_ties(scores: Iterable[float], group: str, ledger: Ledger) -> None:
    """Count tied pairs, and comparisons in which all scores are equal."""
    listed = list(scores)
    ledger.note(group, "tied pairs", sum(a == b for i, a in enumerate(listed) for b in listed[i + 1 :]))
    if len(set(listed)) == 1:
        ledger.note(group, "no pair: all scores equal")


__all__ = ["COLUMNS", "Exchange", "read_table_file"]
