"""``scpo simulate``: a planted world in the raw layouts of PRISM and GlobalOpinionQA."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from scpo.cli.args import Parser
from scpo.data.simulate import Settings, simulate

EXAMPLE = """example:
  scpo simulate --out raw --seed 0 --annotators 300
  scpo prepare prism --raw raw/prism --out data

The truth of the world (utilities, noise, traits, shifts) is written to OUT/truth.
"""


def parser() -> argparse.ArgumentParser:
    """The options; their defaults and ranges are those of :class:`scpo.data.simulate.Settings`."""
    default = {field.name: field.default for field in fields(Settings)}
    result = Parser(
        prog="scpo simulate",
        description="Write a planted world whose truth is known, in PRISM's and GlobalOpinionQA's own raw layouts.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = result.add_argument
    add("--out", required=True, type=Path, metavar="RAW", help="folder to write: new, empty, or an earlier simulation")
    add("--seed", type=int, metavar="N", help="every byte follows from it (default %(default)s)")
    add("--annotators", type=int, metavar="N", help="20 to 1500, PRISM's own size (default %(default)s)")
    add(
        "--mislabelled",
        type=float,
        metavar="SHARE",
        help="share of comparisons with reversed scores, 0 to 0.5 (default %(default)s)",
    )
    add(
        "--extreme",
        type=float,
        metavar="SHARE",
        help="share of comparisons that put the globally worst first, 0 to 0.5 (default %(default)s)",
    )
    add("--noise", type=float, metavar="SD", help="noise of one score in slider points, 0 to 100 (default %(default)s)")
    add(
        "--shift",
        type=float,
        metavar="SCALE",
        help="how far groups differ, 0 to 5; 0 makes all alike (default %(default)s)",
    )
    add(
        "--lengths",
        metavar="short|prism",
        help="lengths of responses: 30 to 60 words, or PRISM's own (default %(default)s)",
    )
    add(
        "--questions",
        type=int,
        metavar="N",
        help="questions of the GlobalOpinionQA part, 10 to 5000 (default %(default)s)",
    )
    result.set_defaults(**default)
    return result


def main(argv: Sequence[str]) -> int:
    """Run the command; a user's mistake leaves as UserError.

    Returns:
        0; the summary table is on stdout, progress on stderr.
    """
    options = vars(parser().parse_args(argv))
    summary = simulate(options.pop("out"), progress=lambda line: print(line, file=sys.stderr, flush=True), **options)
    print(table(summary))
    return 0


def table(summary: dict[str, Any]) -> str:
    """The counts, and per group what a perfect judge reaches; groups by number of pairs."""
    counts = summary["counts"]
    lines = [f"{summary['out']}", ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in counts.items()), ""]
    lines.append(f"{'group':<16}{'annotators':>11}{'pairs':>8}{'own utility':>13}{'global weights':>16}")
    with_pairs = [(group, row) for group, row in summary["ceiling"].items() if row["n_pairs"]]
    rows = sorted(with_pairs, key=lambda item: (-item[1]["n_pairs"], item[0]))
    for group, row in rows:
        cells = [f"{row[key]:.3f}" for key in ("group", "global")]
        lines.append(f"{group:<16}{row['n_clusters']:>11}{row['n_pairs']:>8}{cells[0]:>13}{cells[1]:>16}")
    lines += ["", "own utility, global weights: share of the pairs that they order as the (noisy) scores do"]
    return "\n".join(lines)
