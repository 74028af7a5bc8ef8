"""Files: atomic writes, content hashes, JSON lines with row numbers in every error."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from scpo.errors import UserError

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` and move it there if the block ends well; leave nothing otherwise.

    A symbolic link is written through. What cannot be replaced by a file (a device, a pipe, an open stream such as
    /dev/stdout) is yielded itself, to be opened and written as it is.

    Raises:
        UserError: a folder stands there, or the file cannot be made or written there.
    """
    path = Path(path)
    if _is_stream(path):
        with _told(path, path):
            yield path
        return
    with _told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        target = path.resolve()
        # A part of the name only: a temporary name must fit where the name itself does.
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:40]}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        with _told(path, temporary):
            yield temporary
        with _told(path):
            # mkstemp makes files private; give the finished file the permissions that open() would have given it.
            temporary.chmod(0o666 & ~_umask())
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def replace_folder(folder: Path, keep: str | None = None) -> Iterator[Path]:
    """Yield an empty folder that takes the place of ``folder`` if the block ends well; leave nothing otherwise.

    Args:
        folder: replaced as a whole.
        keep: entries of the old folder whose name begins so are copied into the new one.

    Raises:
        UserError: a file stands there, or the folder cannot be made or replaced.
    """
    given = Path(folder)
    with _told(given):
        if given.exists() and not given.is_dir():
            raise UserError(f"{given}: expected a folder to write to, found a file")
        given.parent.mkdir(parents=True, exist_ok=True)
        folder = given.resolve()
        work = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:40]}.", suffix=".tmp"))
    new, old = work / "new", work / "old"
    try:
        new.mkdir()
        with _told(given, work):
            yield new
        with _told(given):
            # Libraries write some files for their owner alone; a finished folder is as readable as open() makes files.
            for file in new.rglob("*"):
                file.chmod((0o777 if file.is_dir() else 0o666) & ~_umask())
            if folder.is_dir():
                for entry in folder.iterdir():
                    if keep is not None and entry.name.startswith(keep):
                        (shutil.copytree if entry.is_dir() else shutil.copy2)(entry, new / entry.name)
                os.replace(folder, old)
            try:
                os.replace(new, folder)
            except OSError:
                if old.is_dir():
                    os.replace(old, folder)
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def _told(path: Path, written: Path | None = None) -> Iterator[None]:
    """Turn an OSError into a UserError about ``path``.

    With ``written``, the block is a caller's: only errors about that file, what lies in it, or a full disk are meant.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:  # RuntimeError: pathlib's word for a circle of links
        code = error.errno if isinstance(error, OSError) else None
        if written is not None:
            name = error.filename if isinstance(error, OSError) else None
            ours = isinstance(name, str | Path) and Path(name).is_relative_to(written)
            if not ours and code not in _NO_SPACE:
                raise
        elif code is None and not str(error).startswith("Symlink loop"):
            raise
        reason = os.strerror(code) if code is not None else "its links run in a circle"
        raise UserError(f"{path}: cannot be written ({reason}); choose another place") from error


def _is_stream(path: Path) -> bool:
    """True for a device or a pipe, and for an open file of a process by its name below /proc; UserError for a folder."""
    with _told(path):
        try:
            mode = os.stat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return False
    if stat.S_ISDIR(mode):
        raise UserError(f"{path}: expected a file to write, found a folder; name a file in it")
    if not stat.S_ISREG(mode):
        return True
    # /dev/stdout sent to a file is a regular file, but the shell holds it open: a new file in its place would miss it.
    link = path
    while link.is_symlink():
        link = Path(os.path.realpath(link.parent)) / link.name
        if link.parts[:2] == ("/", "proc"):
            return True
        link = link.parent / os.readlink(link)
    return False


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


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
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, thousands of digits or brackets
        raise UserError(f"{path}: expected a JSON document, found something else ({error})") from error


def require_file(path: Path) -> Path:
    """``path`` if it is a file, else a UserError that lists the files beside it."""
    path = Path(path)
    try:
        is_file = path.is_file()
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    if is_file:
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


def read_jsonl(source: Path | Iterable[bytes], name: str = "stdin") -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield ``(line_number, object)`` of a JSON lines file; line numbers count from 1.

    Args:
        source: the file, or its lines as bytes (an open binary stream such as ``sys.stdin.buffer``).
        name: of an open stream, in messages.

    Raises:
        UserError: missing file, bytes that are not UTF-8, a line that is not a JSON object, or text with half of a
            surrogate pair, which no tokenizer takes and no table can store.
    """
    if not isinstance(source, str | Path):
        yield from _json_lines(source, name)
        return
    path = require_file(source)
    try:
        with open(path, "rb") as stream:
            yield from _json_lines(stream, str(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def _json_lines(stream: Iterable[bytes], name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, raw in enumerate(stream, start=1):
        if not raw.strip():
            continue
        try:
            row = json.loads(raw.decode("utf-8-sig" if number == 1 else "utf-8"))
        except UnicodeDecodeError as error:
            raise UserError(
                f"{name}: line {number}: expected UTF-8 text, found binary data (byte {error.start}); "
                "is the file compressed or damaged?"
            ) from error
        except (ValueError, RecursionError) as error:  # not JSON, or thousands of digits or brackets
            raise UserError(
                f"{name}: line {number}: expected a JSON object, found {shorten(raw.decode('utf-8'))} ({error}); "
                "is the file truncated?"
            ) from error
        if not isinstance(row, dict):
            raise UserError(f"{name}: line {number}: expected a JSON object, found {shorten(repr(row))}")
        if _SURROGATE.search(raw) and not _is_unicode(row):
            raise UserError(
                f"{name}: line {number}: expected Unicode text, found half of a surrogate pair (an escape such as "
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
    """The text on one line, cut to ``limit`` characters; control and other invisible characters as escapes."""
    text = visible(" ".join(text.split()))
    return text if len(text) <= limit else text[: limit - 3] + "..."


def shown(value: object, limit: int = 60) -> str:
    """A value of any kind for a message, on one line."""
    try:
        return shorten(repr(value), limit)
    except ValueError:  # Python refuses to spell whole numbers of more than 4300 digits
        return "a number of thousands of digits"


def visible(text: str) -> str:
    """Control, bidirectional and other invisible characters as escapes such as ``\\x1b``.

    So a name cannot steer a terminal or turn a page's text round. The two joiners of Persian, Indic scripts and emoji
    (U+200C and U+200D) only shape their neighbours and stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\u200c\u200d" else c.encode("unicode_escape").decode() for c in text)


def write_jsonl(path: Path, rows: Iterator[Mapping[str, Any]] | list[Mapping[str, Any]]) -> None:
    """Write JSON lines atomically."""
    with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
