"""Mistakes of the options are one line, as all others, in every command that has options of its own."""

from __future__ import annotations

import pytest
from world import Command

from scpo.cli.args import Parser
from scpo.errors import UserError


def test_an_error_is_raised_and_nothing_printed(capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser("scpo x")
    parser.add_argument("--n", type=int, required=True)
    kinds = parser.add_subparsers(required=True)
    kinds.add_parser("a").add_argument("--m", choices=("1", "2"))
    for argv, says in (
        ([], "the following arguments are required: --n"),
        (["--n", "x", "a"], "argument --n: invalid int value: 'x'"),
        (["--n", "1", "b"], "invalid choice: 'b'"),
        (["--n", "1", "a", "--odd"], "unrecognized arguments: --odd"),
    ):
        with pytest.raises(UserError, match=rf"^scpo x: .*{says}.*; 'scpo x --help' explains$"):
            parser.parse_args(argv)
    with pytest.raises(UserError, match=r"^scpo x a: argument --m: .*; 'scpo x a --help' explains$"):
        parser.parse_args(["--n", "1", "a", "--m", "3"])
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("prepare",), "required: prism|goqa|table"),
        (("prepare", "prims", "--raw", "x", "--out", "y"), "invalid choice: 'prims'"),
        (("prepare", "prism", "--out", "y"), "one of the arguments --raw --hub is required"),
        (("prepare", "prism", "--raw", "x", "--hub", "--out", "y"), "not allowed with argument"),
        (("prepare", "goqa", "--raw", "x", "--out", "y", "--samples", "some"), "--samples: invalid choice: 'some'"),
        (("score", "--odd"), "required: --model, --in, --out"),
        (("table",), "required: RUNS"),
        (("table", "x", "--odd"), "unrecognized arguments: --odd"),
        (("simulate",), "required: --out"),
        (("simulate", "--out", "x", "--seed", "one"), "--seed: invalid int value: 'one'"),
    ],
)
def test_every_command_says_it_in_one_line(scpo: Command, argv: tuple[str, ...], says: str) -> None:
    line = scpo(*argv).line
    assert says in line
    assert f"'scpo {argv[0]}" in line
