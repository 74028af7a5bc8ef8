"""Files: nothing is left half-written, and every error of a reader says file and line."""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import io
import json
import os
import re
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scpo.errors import UserError
from scpo.io import (
    atomic_path,
    read_json,
    read_jsonl,
    replace_folder,
    require_dir,
    require_file,
    sha256_file,
    sha256_json,
    shorten,
    shown,
    write_json,
    write_jsonl,
    write_text,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def names(folder: Path) -> list[str]:
    """Everything in a folder, hidden files too."""
    return sorted(p.name for p in folder.iterdir())


def test_a_failed_write_leaves_nothing_and_keeps_the_old_file(tmp_path: Path) -> None:
    def interrupted() -> None:
        with atomic_path(tmp_path / "new") as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names(tmp_path) == []
    old = tmp_path / "old.json"
    write_json(old, {"a": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(old, {"a": float("nan")})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_jsonl(old, [{"a": 1}, {"a": float("inf")}])
    assert names(tmp_path) == ["old.json"]
    assert read_json(old) == {"a": 1}


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_text(path, "old")
    with open(path) as reader:
        with atomic_path(path) as temporary:
            temporary.write_text("new")
            assert path.read_text() == "old"
            assert temporary.parent == path.parent  # else the move could be a copy between file systems
        assert path.read_text() == "new"
        assert reader.read() == "old"  # who opened the old file before reads it to its end


def test_folders_are_made_and_permissions_are_those_of_open(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    write_text(path, "é")
    assert path.read_bytes() == "é".encode()
    plain = tmp_path / "plain"
    plain.open("w").close()
    assert os.stat(path).st_mode == os.stat(plain).st_mode


@given(JSON)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_json_comes_back_as_it_was_written(tmp_path: Path, value: object) -> None:
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == value


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=4))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_json_lines_come_back_with_their_numbers(tmp_path: Path, rows: list[dict[str, object]]) -> None:
    """Texts with line separators of all kinds included: only a newline ends a line."""
    write_jsonl(tmp_path / "x.jsonl", list(rows))
    assert list(read_jsonl(tmp_path / "x.jsonl")) == list(enumerate(rows, start=1))


@given(st.binary(max_size=60) | st.text('{}[]",:0\\ud8e\n', max_size=40).map(str.encode))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_are_rows_or_one_line_that_names_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    rows, message = [], None
    try:
        rows = list(read_jsonl(path))
    except UserError as error:
        message = str(error)
    assert message is None or (message.startswith(f"{path}: line ") and len(message.splitlines()) == 1)
    assert all(isinstance(row, dict) for _, row in rows)


def test_blank_lines_count_and_a_byte_order_mark_does_not(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\n  \n{"a": 2}')
    assert list(read_jsonl(path)) == [(1, {"a": 1}), (4, {"a": 2})]


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        (b'{"a": 1}\n{"a": ', 2, "truncated"),
        (b'{"a": 1}\n\n[1, 2]\n', 3, r"expected a JSON object, found \[1, 2\]"),
        (b'{"a": 1}\n"text"\n', 2, "expected a JSON object"),
        (b'{"a": 1}\nnull\n', 2, "expected a JSON object, found None"),
        (b'{"a": 1}\n{"a": "\xff"}\n', 2, "expected UTF-8 text"),
        (gzip.compress(b'{"a": 1}\n', mtime=0), 1, "compressed or damaged"),
        ('{"a": 1}'.encode("utf-16"), 1, "expected UTF-8 text"),
        (b'{"a": 1}\n{"a": ' + b"9" * 5000 + b"}\n", 2, "expected a JSON object"),
        (b'{"a": 1}\n' + b"[" * 100_000 + b"\n", 2, "expected a JSON object"),
        (b'{"a": 1}\n{"a": {"b": ["\\ud83d"]}}\n', 2, "half of a surrogate pair"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, content: bytes, line: int, says: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    rows = read_jsonl(path)
    with pytest.raises(UserError, match=rf"x\.jsonl: line {line}: .*{says}") as error:
        list(rows)
    assert len(str(error.value)) < 400


def test_an_escaped_emoji_is_a_whole_pair(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'{"a": "\\ud83d\\ude00"}\n')
    assert list(read_jsonl(tmp_path / "x.jsonl")) == [(1, {"a": "\U0001f600"})]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"9" * 5000, b"[" * 100_000])
def test_a_bad_document_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"x\.json: expected a JSON document"):
        read_json(path)


def test_missing_files_and_folders_say_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "survey.jsonl").touch()
    with pytest.raises(UserError, match=r"survey\.json: no such file; .* holds: survey\.jsonl"):
        require_file(tmp_path / "survey.json")
    with pytest.raises(UserError, match=r"no such file$"):
        require_file(tmp_path / "nowhere" / "x")
    with pytest.raises(UserError, match="expected a file, found a folder"):
        list(read_jsonl(tmp_path))
    with pytest.raises(UserError, match="expected a data folder, found a file"):
        require_dir(tmp_path / "survey.jsonl", "a data folder")
    with pytest.raises(UserError, match="found nothing"):
        require_dir(tmp_path / "nowhere")
    assert require_dir(tmp_path) == tmp_path
    assert require_file(tmp_path / "survey.jsonl") == tmp_path / "survey.jsonl"


def test_hashes(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    assert sha256_file(tmp_path / "x") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_json({"b": 1, "a": "é"}) == hashlib.sha256('{"a":"é","b":1}'.encode()).hexdigest()
    assert sha256_json({"b": 1, "a": "é"}) == sha256_json(dict(sorted({"a": "é", "b": 1}.items())))
    assert sha256_json([1, 2]) != sha256_json([2, 1])
    with pytest.raises(ValueError, match="JSON compliant"):
        sha256_json(float("nan"))


def test_shorten_gives_one_line() -> None:
    assert shorten("a\n\tb  c") == "a b c"
    assert shorten("x" * 60) == "x" * 60
    assert shorten("x" * 61) == "x" * 57 + "..."


def test_text_is_not_escaped(tmp_path: Path) -> None:
    write_json(tmp_path / "x", {"a": "São"})
    assert "São" in (tmp_path / "x").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "x").read_text(encoding="utf-8")) == {"a": "São"}


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link, chain = tmp_path / "real" / "x", tmp_path / "link", tmp_path / "chain"
    link.symlink_to("real/x")
    chain.symlink_to(link)
    for text in ("new", "old"):  # the target is made, then replaced
        write_text(chain, text)
        assert (link.is_symlink(), chain.is_symlink(), target.read_text()) == (True, True, text)
    assert names(tmp_path / "real") == ["x"]
    with replace_folder(tmp_path / "folder") as new:
        (new / "a").touch()
    (tmp_path / "to_folder").symlink_to("folder")
    with replace_folder(tmp_path / "to_folder") as new:
        (new / "b").touch()
    assert (tmp_path / "to_folder").is_symlink()
    assert names(tmp_path / "folder") == ["b"]


def test_a_pipe_and_a_device_are_written_and_stay(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
    reader.start()
    write_jsonl(pipe, [{"a": 1}])
    reader.join(10)
    assert got == ['{"a": 1}\n']
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    write_text(Path("/dev/null"), "x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert names(tmp_path) == ["pipe"]


def test_an_open_stream_is_written_and_not_replaced(tmp_path: Path) -> None:
    with open(tmp_path / "held", "w+") as held:
        write_text(Path(f"/dev/fd/{held.fileno()}"), "text")
        assert held.read() == "text"
        assert os.fstat(held.fileno()).st_ino == (tmp_path / "held").stat().st_ino


def _impossible(folder: Path) -> dict[str, Path]:
    (folder / "file").touch()
    (folder / "dangling").symlink_to(folder / "nowhere" / "x")
    (folder / "dangling folder").symlink_to(folder / "nowhere")
    (folder / "circle").symlink_to(folder / "circle")
    return {
        "parent is a file": folder / "file" / "x",
        "grandparent is a file": folder / "file" / "x" / "y",
        "a name too long": folder / ("x" * 300),
        "a parent too long": folder / ("x" * 300) / "y",
        "proc": Path("/proc/scpo-test"),
        "dangling link": folder / "dangling",
        "parent is a dangling link": folder / "dangling folder" / "x",
        "circle": folder / "circle",
        "parent in a circle": folder / "circle" / "x",
    }


CASES = (
    *("parent is a file", "grandparent is a file", "a name too long", "a parent too long", "proc", "dangling link"),
    *("parent is a dangling link", "circle", "parent in a circle"),
)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_place_that_cannot_be_written_is_one_line_before_the_work(tmp_path: Path, case: str, what: str) -> None:
    path = _impossible(tmp_path)[case]
    before = names(tmp_path)
    began: list[Path] = []

    def work(manager: Callable[[Path], contextlib.AbstractContextManager[Path]]) -> None:
        with manager(path) as temporary:
            began.append(temporary)

    with pytest.raises(UserError) as error:
        work(atomic_path if what == "file" else replace_folder)
    assert str(path) in str(error.value)
    assert not str(error.value).count("\n")
    assert not began, "found out after the work"
    assert names(tmp_path) == before


def test_the_longest_name_that_fits_is_written(tmp_path: Path) -> None:
    for name in ("x" * 255, "é" * 127):
        write_text(tmp_path / name, "text")
        with replace_folder(tmp_path / f"f{name[1:]}"):
            pass
    assert len(names(tmp_path)) == 4


def test_a_folder_is_no_file_and_a_file_no_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"folder: expected a file to write, found a folder"):
        write_text(tmp_path / "folder", "x")
    with (
        pytest.raises(UserError, match=r"file: expected a folder to write to, found a file"),
        replace_folder(tmp_path / "file"),
    ):
        pass
    assert names(tmp_path) == ["file", "folder"]


def test_errors_of_the_block_stay_what_they_are_but_a_full_disk_is_told(tmp_path: Path) -> None:
    def block(error: BaseException) -> None:
        with atomic_path(tmp_path / "x"):
            raise error

    for other in (
        BrokenPipeError(errno.EPIPE, "gone"),
        FileNotFoundError(2, "no", "model.bin"),
        RuntimeError("Symlink"),
    ):
        with pytest.raises(type(other)):
            block(other)
    with pytest.raises(UserError, match=r"x: cannot be written \(No space left on device\)"):
        block(OSError(errno.ENOSPC, "full"))
    with pytest.raises(UserError, match=r"/dev/full: cannot be written \(No space left on device\)"):
        write_text(Path("/dev/full"), "x")
    assert names(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_no_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match=r"x: cannot be written \(Permission denied\)"):
        write_text(tmp_path / "x", "")


def test_an_open_stream_is_read_as_a_file_is(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf{"a": 1}\n\n{"a": "\\ud83d"}\n'
    (tmp_path / "x").write_bytes(content)
    for source, name in ((io.BytesIO(content), "stdin"), (tmp_path / "x", str(tmp_path / "x"))):
        rows = read_jsonl(source)
        assert next(rows) == (1, {"a": 1})
        with pytest.raises(UserError, match=rf"^{re.escape(name)}: line 3: expected Unicode text"):
            next(rows)


def test_messages_show_no_control_characters() -> None:
    assert shorten("a\x1b[2Jb\u202e") == r"a\x1b[2Jb\u202e"
    assert shown(["\x1b"]) == r"['\x1b']"
    assert shown(10**5000) == "a number of thousands of digits"


def test_a_name_too_long_to_read_is_one_line() -> None:
    with pytest.raises(UserError, match="cannot be read"):
        require_file(Path("x" * 300))
