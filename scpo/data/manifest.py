"""The last step of preparing: split, count, and write `comparisons.parquet` with its manifest, both or neither."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scpo.data.split import Fractions, assign_split, check_split
from scpo.errors import UserError
from scpo.io import read_json, replace_folder, shown, write_json

if TYPE_CHECKING:
    import pandas as pd

    from scpo.data.prepared import Prepared

TABLE, MANIFEST = "comparisons.parquet", "manifest.json"
CARRIED = "reference"
"""What scoring puts beside the table starts with this; it is keyed by content and survives a second prepare."""


def finish(
    prepared: Prepared,
    out: Path,
    *,
    split: str = "stratified",
    seed: int = 0,
    fractions: Fractions = (0.75, 0.10, 0.15),
    val_fraction: float = 0.0,
    max_fault_share: float = 0.2,
    min_clusters: int = 5,
) -> dict[str, Any]:
    """Assign the split and write the folder ``out``; return the manifest.

    Args:
        prepared: what a reader returned.
        out: folder to write; may hold an earlier result, which is replaced as a whole.
        split, seed, fractions, val_fraction: see :func:`scpo.data.split.assign_split`.
        max_fault_share: bound on the share of a group's comparisons lost to faults of the data.
        min_clusters: groups with fewer clusters are marked ``"small": true``; nothing is dropped.

    Raises:
        UserError: nothing left, too many faults, a folder with other files, or a split that cannot be made.
    """
    from scpo.data.schema import write_comparisons

    check_out(out)
    if not 0 <= max_fault_share <= 1:
        raise UserError(f"max fault share: expected 0 to 1, found {max_fault_share:g}")
    prepared.ledger.check(max_fault_share, "prepare")
    if prepared.frame.empty:
        raise UserError(f"prepare: expected at least one comparison to keep, found none ({lost(prepared)})")
    how: dict[str, Any] = {"method": split, "seed": seed}
    how |= {"val_fraction": val_fraction} if split == "paper" else {"fractions": list(fractions)}
    users = prepared.extra.get("survey_users")
    parts = assign_split(
        prepared.frame, split, seed=seed, fractions=fractions, survey_users=users, val_fraction=val_fraction
    )
    frame = prepared.frame.assign(split=parts)
    check_split(frame, by_cluster=split != "row")
    manifest = describe(frame, prepared, how, min_clusters)
    with replace_folder(out, keep=CARRIED) as folder:
        write_comparisons(frame, folder / TABLE)
        write_json(folder / MANIFEST, manifest)
    return manifest


def lost(prepared: Prepared) -> str:
    """What the ledger dropped, in one line."""
    groups = sorted(prepared.ledger.dropped)
    found = [f"{g}: {', '.join(f'{r} {n}' for r, n in sorted(prepared.ledger.dropped[g].items()))}" for g in groups]
    return "; ".join(found[:10]) or "the source has no rows"


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a prepared folder.

    Raises:
        UserError: it is missing, of another kind, or a key that later steps read is missing or of another type.
    """
    path = Path(folder) / MANIFEST
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("schema") != 1 or not isinstance(manifest.get("groups"), dict):
        raise UserError(f"{path}: expected a manifest of 'scpo prepare' (schema 1), found another document")
    expected: dict[str, Callable[[Any], bool]] = {
        "groups": lambda groups: all(isinstance(counts, dict) for counts in groups.values()),
        "counts": _is_ledger,
        "extra": _is_extra,
        "content_hash": lambda value: isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None,
    }
    for key, fits in expected.items():
        if not fits(manifest.get(key)):
            found = shown(manifest[key]) if key in manifest else "nothing"
            raise UserError(
                f"{path}: key {key}: expected what 'scpo prepare' writes, found {found}; run 'scpo prepare' again"
            )
    return manifest


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_ledger(value: Any) -> bool:
    """The form of :meth:`scpo.data.ledger.Ledger.as_dict`."""
    if not isinstance(value, dict) or not all(isinstance(value.get(key), dict) for key in ("kinds", "by_group")):
        return False
    return all(isinstance(kind, str) for kind in value["kinds"].values()) and all(
        isinstance(entry, dict)
        and _is_count(entry.get("kept"))
        and isinstance(entry.get("dropped"), dict)
        and all(map(_is_count, entry["dropped"].values()))
        for entry in value["by_group"].values()
    )


def _is_extra(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    users, world = value.get("survey_users", []), value.get("simulate", {})
    return isinstance(users, list) and all(isinstance(user, str) for user in users) and isinstance(world, dict)


def check_content(frame: pd.DataFrame, manifest: dict[str, Any], where: str) -> None:
    """Raise UserError unless the table is the one that the manifest was written with.

    Args:
        frame: all rows of comparisons.parquet, in order, as :func:`scpo.data.schema.read_comparisons` gives them.
        manifest: see :func:`read_manifest`.
        where: the folder or file, for the message.
    """
    if content_hash(frame) != manifest["content_hash"]:
        raise UserError(
            f"{where}: the table was changed since 'scpo prepare' wrote it (content_hash in {MANIFEST} does not fit); "
            "change the raw data and run 'scpo prepare' again"
        )


def describe(frame: pd.DataFrame, prepared: Prepared, split: dict[str, Any], min_clusters: int) -> dict[str, Any]:
    """The manifest: where the rows come from, what was dropped and why, and what each group has in each part.

    It holds no time and no machine's name, so the same source and options give the same bytes.
    """
    from scpo import __version__

    groups = group_counts(frame)
    for counts in groups.values():
        counts["small"] = counts["clusters"] < min_clusters
    return {
        "schema": 1,
        "dataset": str(frame["dataset"].iloc[0]),
        "library": {"scpo": __version__},
        "source": prepared.source,
        "options": prepared.options,
        "split": split | {"missing": missing_parts(groups, frame)},
        "min_clusters": min_clusters,
        "counts": prepared.ledger.as_dict(),
        "groups": groups,
        "totals": count_rows(frame),
        "content_hash": content_hash(frame),
        "extra": prepared.extra,
    }


def group_counts(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Per group: comparisons, candidates, clusters, annotators, pairs, tied pairs; the first five again per part."""
    counts: dict[str, dict[str, Any]] = {}
    for group, rows in frame.groupby("group"):
        parts = {part: count_rows(rows[rows["split"] == part]) for part in ("train", "val", "test")}
        counts[str(group)] = count_rows(rows) | {"splits": parts}
    return counts


def count_rows(rows: pd.DataFrame) -> dict[str, Any]:
    """Numbers of comparisons, candidates, clusters, annotators, pairs (unequal scores) and tied pairs."""
    import pandas as pd

    from scpo.data.pairs import all_pairs

    codes, names = pd.factorize(rows["comparison_id"])
    pairs = all_pairs(codes, rows["score"].to_numpy(dtype=float))
    tied = int((pairs.gap == 0).sum())
    return {
        "comparisons": len(names),
        "candidates": len(rows),
        "clusters": int(rows["cluster_id"].nunique()),
        "annotators": int(rows["annotator_id"].nunique()),
        "pairs": len(pairs) - tied,
        "tied_pairs": tied,
    }


def missing_parts(groups: dict[str, dict[str, Any]], frame: pd.DataFrame) -> dict[str, list[str]]:
    """Groups without a pair in a part, by part; a validation set that was not asked for is left out."""
    used = [part for part in ("train", "val", "test") if part != "val" or "val" in set(frame["split"])]
    return {part: [g for g, counts in groups.items() if not counts["splits"][part]["pairs"]] for part in used}


TEXT_COLUMNS = (
    "dataset", "comparison_id", "candidate_id", "prompt", "response", "group", "annotator_id", "cluster_id", "split",
)  # fmt: skip
OBJECT_COLUMNS = ("history", "attributes")


def content_hash(frame: pd.DataFrame) -> str:
    """Hex SHA-256 of the rows' values, in order; it does not depend on how a parquet library stores them.

    Column by column, texts as their lengths and one long text: JSON row by row takes four times as long.
    """
    import numpy as np

    digest = hashlib.sha256()

    def add(name: str, *parts: bytes) -> None:
        for part in (name.encode(), *parts):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)

    for name in TEXT_COLUMNS:
        column = frame[name]
        missing = column.isna().to_numpy()
        texts = ["" if gone else text for text, gone in zip(column.tolist(), missing, strict=True)]
        lengths = np.where(missing, -1, [len(text) for text in texts]).astype("<i8")
        add(name, lengths.tobytes(), "".join(texts).encode("utf-8", "surrogatepass"))
    # Plus 0.0: -0.0 and 0.0 are one score; and one NaN for every null.
    scores = frame["score"].to_numpy(dtype=np.float64, na_value=np.nan) + 0.0
    add("score", np.where(np.isnan(scores), np.nan, scores).astype("<f8").tobytes())
    for name in OBJECT_COLUMNS:
        text = json.dumps(frame[name].tolist(), sort_keys=True, ensure_ascii=False, allow_nan=False)
        add(name, text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def check_out(out: Path) -> None:
    """Raise UserError unless ``out`` is absent, empty, or holds nothing but an earlier result with its manifest."""
    out = Path(out)
    if not out.exists() and not out.is_symlink():
        return
    if not out.is_dir():
        raise UserError(f"{out}: expected a folder to write to, found a file")
    names = sorted(p.name for p in out.iterdir())
    ours = (TABLE, MANIFEST) if _is_result(out, names) else ()
    foreign = [name for name in names if name not in ours and not name.startswith(CARRIED)]
    if foreign:
        shown = ", ".join(foreign[:5]) + (", ..." if len(foreign) > 5 else "")
        raise UserError(f"{out}: expected an empty folder or an earlier result, found {shown}; choose another --out")


def _is_result(out: Path, names: list[str]) -> bool:
    """Whether table and manifest are an earlier result: others call their tables and manifests by these names too."""
    if MANIFEST not in names:
        return False
    try:
        read_manifest(out)
    except UserError:
        return False
    return True
