"""Files: atomic writes, content hashes, JSON lines with row numbers in every error."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scpo.errors import UserError

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` and move it there if the block ends well; leave nothing otherwise."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes files private; give the finished file the permissions that open() would have given it.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write text atomically as UTF-8."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically. NaN and infinity are refused: an undefined number is null."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read one JSON document."""
    try:
        return json.loads(require_file(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, thousands of digits or brackets
        raise UserError(f"{path}: expected a JSON document, found something else ({error})") from error


def require_file(path: Path) -> Path:
    """``path`` if it is a file, else a UserError that lists the files beside it."""
    path = Path(path)
    if path.is_file():
        return path
    if path.is_dir():
        raise UserError(f"{path}: expected a file, found a folder")
    beside = sorted(p.name for p in path.parent.iterdir())[:10] if path.parent.is_dir() else []
    where = f"; {path.parent} holds: {', '.join(beside) or 'nothing'}" if path.parent.is_dir() else ""
    raise UserError(f"{path}: no such file{where}")


def require_dir(path: Path, what: str = "a folder") -> Path:
    """``path`` if it is a folder, else a UserError."""
    path = Path(path)
    if not path.is_dir():
        found = "a file" if path.exists() else "nothing"
        raise UserError(f"{path}: expected {what}, found {found}")
    return path


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_json(value: Any) -> str:
    """Hex SHA-256 of a value's canonical JSON (sorted keys, no spaces)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield ``(line_number, object)`` of a JSON lines file; line numbers count from 1.

    Raises:
        UserError: missing file, bytes that are not UTF-8, a line that is not a JSON object, or text with half of a
            surrogate pair, which no tokenizer takes and no table can store.
    """
    path = require_file(path)
    with open(path, "rb") as stream:
        for number, raw in enumerate(stream, start=1):
            if not raw.strip():
                continue
            try:
                row = json.loads(raw.decode("utf-8-sig" if number == 1 else "utf-8"))
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{path}: line {number}: expected UTF-8 text, found binary data (byte {error.start}); "
                    "is the file compressed or damaged?"
                ) from error
            except (ValueError, RecursionError) as error:  # not JSON, or thousands of digits or brackets
                raise UserError(
                    f"{path}: line {number}: expected a JSON object, found {shorten(raw.decode('utf-8'))} ({error}); "
                    "is the file truncated?"
                ) from error
            if not isinstance(row, dict):
                raise UserError(f"{path}: line {number}: expected a JSON object, found {shorten(repr(row))}")
            if _SURROGATE.search(raw) and not _is_unicode(row):
                raise UserError(
                    f"{path}: line {number}: expected Unicode text, found half of a surrogate pair (an escape such as "
                    "\\ud83d alone: the text was cut inside a character); remove it"
                )
            yield number, row


def _is_unicode(row: dict[str, Any]) -> bool:
    try:
        json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def shorten(text: str, limit: int = 60) -> str:
    """The text on one line, cut to ``limit`` characters."""
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def write_jsonl(path: Path, rows: Iterator[Mapping[str, Any]] | list[Mapping[str, Any]]) -> None:
    """Write JSON lines atomically."""
    with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
