"""``scpo table RUNS``: the finished runs below a folder as one table."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scpo.cli.args import Parser
from scpo.io import write_text

EXAMPLE = """example:
  scpo train -m selection=full,filter,weight,inverse,scpo seed=0,1,2 run_dir=runs/arms
  scpo table runs/arms
  scpo table runs/arms --format latex --out arms.tex
"""


def main(argv: list[str]) -> int:
    """Print or write the table; runs that are not finished are named on stderr.

    Raises:
        UserError: no such folder, no finished run.
    """
    parser = Parser(
        prog="scpo table",
        description="Collect the runs below a folder: mean and standard deviation over seeds, per arm and per group.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", metavar="RUNS", type=Path, help="a folder of runs, such as the run_dir of a multirun")
    parser.add_argument("--format", default="markdown", help="markdown (default), latex, csv or json")
    parser.add_argument("--out", metavar="FILE", type=Path, help="write to this file and not to stdout")
    arguments = parser.parse_args(argv)

    from scpo.evaluation.formats import clean
    from scpo.evaluation.runs import collect
    from scpo.evaluation.tables import build_table, check_format, render

    check_format(arguments.format)
    found = collect(arguments.runs)
    for name, state in found.left_out:
        sys.stderr.write(f"left out: {clean(name)}: {clean(state)}\n")
    text = render(build_table(found.runs), arguments.format)
    if arguments.out is not None:
        write_text(arguments.out, text)
        sys.stderr.write(f"{len(found.runs)} runs, table written to {arguments.out}\n")
    else:
        sys.stdout.write(text)
    return 0
