"""The console script: help, version, exit codes and the one line of a mistake."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from world import Command, World

from scpo import __version__
from scpo.cli import main as module
from scpo.cli.main import COMMANDS, main


def real(*argv: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "scpo.cli.main", *argv],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_help_and_version(scpo: Command) -> None:
    for argv in ([], ["--help"], ["-h"], ["help"]):
        done = scpo(*argv)
        assert done.code == 0
        assert all(name in done.out for name in COMMANDS)
        assert "example:" in done.out
    assert scpo("--version").out == f"scpo {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_an_example(scpo: Command, command: str) -> None:
    done = scpo(command, "--help")
    assert done.code == 0
    assert "example" in done.out
    assert f"scpo {command}" in done.out


def test_unknown_command_says_did_you_mean(scpo: Command) -> None:
    assert "found 'trian'. Did you mean 'train'?" in scpo("trian").line


def test_wrong_arguments_are_exit_code_2(scpo: Command) -> None:
    for argv in (["score"], ["prepare"], ["simulate", "--annotators", "many"], ["table"]):
        assert scpo(*argv).code == 2


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (KeyboardInterrupt(), 130, "scpo: interrupted; nothing was written\n"),
        (ValueError("two\nlines"), 1, "scpo: unexpected ValueError: two lines (SCPO_DEBUG=1 shows where)\n"),
    ],
)
def test_other_ends(scpo: Command, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, text: str) -> None:
    def fail(argv: list[str]) -> int:
        raise error

    monkeypatch.setattr(module, "main", fail)
    done = scpo("table", "x")
    assert (done.code, done.err) == (code, text)


def test_an_interrupted_training_goes_on_and_nothing_else_does(scpo: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(argv: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "main", stop)
    for command, text in (
        ("train", "the same command goes on from its last checkpoint"),
        ("prepare", "nothing was written"),
    ):
        done = scpo(command, "--out", "train")
        assert (done.code, done.err) == (130, f"scpo: interrupted; {text}\n")


def test_the_debug_variable_lets_errors_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCPO_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["scpo", "table", "nowhere"])
    with pytest.raises(module.UserError):
        module.entry()


def test_exit_codes_of_real_processes(tmp_path: Path) -> None:
    done = real("table", "nowhere", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("scpo: nowhere: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    debug = real("table", "nowhere", cwd=tmp_path, SCPO_DEBUG="1")
    assert debug.returncode == 1
    assert "Traceback" in debug.stderr
    assert "UserError" in debug.stderr
    grammar = real("train", "selection.tau=[", cwd=tmp_path)
    assert grammar.returncode == 2, grammar.stderr
    assert grammar.stderr.startswith("scpo: ")
    assert grammar.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_is_gone_leaves_no_traceback(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stdout:
        done = subprocess.run(
            [sys.executable, "-m", "scpo.cli.main", "--help"],
            cwd=tmp_path,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.stderr == ""


def test_main_returns_the_code(capsys: pytest.CaptureFixture[str], world: World) -> None:
    assert main(["table", str(world.run)]) == 0
    assert "|" in capsys.readouterr().out
