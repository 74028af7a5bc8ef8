"""`scpo prepare`: raw preference data in, a table of comparisons with a split and an account of what was dropped out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scpo.cli.args import Parser
from scpo.data.ledger import NO_GROUP, Ledger
from scpo.errors import UserError
from scpo.evaluation.formats import clean

if TYPE_CHECKING:
    from scpo.data.prepared import Prepared

DESCRIPTION = (
    "Read a corpus, count what is dropped and why, split it, and write DATA/comparisons.parquet with its manifest."
)
EXAMPLES = """examples:
  scpo prepare prism --raw RAW --out DATA            RAW holds survey.jsonl and utterances.jsonl, or conversations.jsonl
  scpo prepare prism --hub --out DATA --split paper  the paper's split, straight from the Hub
  scpo prepare goqa --raw global_opinions.csv --out DATA
  scpo prepare table --raw my.jsonl --out DATA --group-column country
"""
DEFAULT_VAL, TEST = 0.10, 0.15
TABLE_COLUMNS = (
    "prompt",
    "chosen",
    "rejected",
    "responses",
    "scores",
    "group",
    "annotator",
    "attributes",
    "history",
    "cluster",
    "id",
)


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    form = argparse.RawDescriptionHelpFormatter
    top = Parser("scpo prepare", description=DESCRIPTION, epilog=EXAMPLES, formatter_class=form)
    kinds = top.add_subparsers(dest="corpus", required=True, metavar="prism|goqa|table")

    def corpus(name: str, text: str, example: str, repo: str | None) -> argparse.ArgumentParser:
        sub = kinds.add_parser(name, help=text, description=text, epilog=f"example:\n  {example}", formatter_class=form)
        source = sub.add_mutually_exclusive_group(required=True)
        source.add_argument("--raw", type=Path, help="the raw file or folder")
        if repo:
            source.add_argument(
                "--hub",
                nargs="?",
                const=repo,
                metavar="ID_OR_PATH",
                help=f"a Hub dataset (default {repo}) or a folder with a copy of it",
            )
            sub.add_argument("--revision", help="branch, tag or commit of the Hub dataset")
        sub.add_argument("--out", type=Path, required=True, help="the folder to write")
        sub.add_argument(
            "--split",
            default="question" if name == "goqa" else "stratified",
            help="stratified|paper|question|row (default %(default)s)",
        )
        sub.add_argument("--seed", type=int, default=0, help="seed of the split (default 0)")
        sub.add_argument(
            "--val-fraction",
            type=float,
            help=f"share of clusters for validation (default {DEFAULT_VAL}; with --split paper: share of train, default 0)",
        )
        sub.add_argument(
            "--test-fraction",
            type=float,
            default=TEST,
            help="share of clusters for test (default %(default)s); not with --split paper",
        )
        sub.add_argument(
            "--max-fault-share",
            type=float,
            default=0.2,
            help="stop when a group loses more than this to faults (default 0.2)",
        )
        sub.add_argument(
            "--min-clusters", type=int, default=5, help="mark groups with fewer clusters as small (default 5)"
        )
        return sub

    prism = corpus(
        "prism",
        "PRISM: one comparison per interaction.",
        "scpo prepare prism --raw RAW --out DATA",
        "HannahRoseKirk/prism-alignment",
    )
    prism.add_argument(
        "--history", action="store_true", help="put earlier turns before the prompt (the paper does not)"
    )
    prism.add_argument(
        "--group-by", default="reside_country", help="reside_country, or an attribute such as age (default %(default)s)"
    )
    prism.add_argument(
        "--empty-responses", default="keep", choices=("keep", "drop"), help='"EMPTY STRING" responses (default keep)'
    )

    goqa = corpus(
        "goqa",
        "GlobalOpinionQA: one comparison per question and country.",
        "scpo prepare goqa --raw global_opinions.csv --out DATA",
        "Anthropic/llm_global_opinions",
    )
    goqa.add_argument(
        "--samples",
        default="national",
        choices=("national", "all"),
        help="which samples of a country (default national)",
    )
    goqa.add_argument(
        "--non-answers", default="drop", choices=("drop", "keep"), help="options such as DK/Refused (default drop)"
    )
    goqa.add_argument(
        "--template", default="{question}", help="the prompt; may hold {question} and {group} (default %(default)s)"
    )

    table = corpus(
        "table",
        "Your own preference data, with a column that names the group.",
        "scpo prepare table --raw my.jsonl --out DATA",
        None,
    )
    table.add_argument("--name", default="table", help="name of the data set in the table (default table)")
    for column in TABLE_COLUMNS:
        table.add_argument(f"--{column}-column", metavar="NAME", help=f"the file's name of the column {column}")
    table.add_argument(
        "--attribute-columns", default="", metavar="A,B", help="columns that are attributes of the annotator"
    )
    return top


def main(argv: list[str]) -> int:
    """Run ``scpo prepare ARGV``; returns 0. A user's mistake raises UserError."""
    args = parser().parse_args(argv)
    tell(f"reading {args.raw or args.hub}")
    from scpo.data.manifest import check_out, finish
    from scpo.data.simulate.truth import is_simulated

    check_out(args.out)
    prepared = read(args)
    rows = len(prepared.frame)
    tell(
        f"read {rows} candidates of {prepared.frame['comparison_id'].nunique() if rows else 0} comparisons; writing {args.out}"
    )
    try:
        if args.raw is not None and is_simulated(Path(args.raw), prepared.source.get("files", {}).values()):
            prepared.extra["simulated"] = True  # in another corpus's layout, but nobody wrote or judged it
        manifest = finish(
            prepared,
            args.out,
            split=args.split,
            seed=args.seed,
            fractions=fractions(args),
            val_fraction=args.val_fraction or 0.0,
            max_fault_share=args.max_fault_share,
            min_clusters=args.min_clusters,
        )
    except UserError:
        # What was lost, before the one line that says why that is too much.
        sys.stderr.write(losses_table(prepared.ledger))
        raise
    sys.stdout.write(report(manifest, prepared.ledger))
    sys.stdout.write(f"\nwritten: {args.out}\n")
    return 0


def read(args: argparse.Namespace) -> Prepared:
    """Call the corpus' reader on the raw files or on what the Hub has."""
    if args.corpus == "table":
        from scpo.data.table import read_table_file

        given = {column: getattr(args, f"{column}_column") for column in TABLE_COLUMNS}
        names = {column: name for column, name in given.items() if name is not None}
        attributes = [name.strip() for name in args.attribute_columns.split(",") if name.strip()]
        return read_table_file(args.raw, columns=names, attribute_columns=attributes, dataset=args.name)
    if args.corpus == "prism":
        return read_prism_source(args)
    from scpo.data.goqa import read_goqa

    options = {"samples": args.samples, "non_answers": args.non_answers, "template": args.template}
    if args.hub is None:
        return read_goqa(args.raw, **options)
    from scpo.data.hub import GOQA_CONFIGS, load_hub

    data = load_hub(args.hub, GOQA_CONFIGS, args.revision)
    prepared = read_goqa(data.frame(None), **options)
    prepared.source = data.source
    return prepared


def read_prism_source(args: argparse.Namespace) -> Prepared:
    """PRISM from files or from the Hub's two configs."""
    from scpo.data.prism import read_prism, read_prism_rows

    options = {"history": args.history, "group_by": args.group_by, "empty_responses": args.empty_responses}
    if args.hub is None:
        return read_prism(args.raw, **options)
    from scpo.data.hub import PRISM_CONFIGS, load_hub

    data = load_hub(args.hub, PRISM_CONFIGS, args.revision)
    survey, utterances = (data.tables[config] for config in PRISM_CONFIGS)
    return read_prism_rows(survey, utterances, source=data.source, name=args.hub, **options)


def fractions(args: argparse.Namespace) -> tuple[float, float, float]:
    """Shares of train, val and test from the options."""
    if args.split == "paper":
        return 1 - DEFAULT_VAL - TEST, DEFAULT_VAL, TEST
    val = DEFAULT_VAL if args.val_fraction is None else args.val_fraction
    return 1 - val - args.test_fraction, val, args.test_fraction


def report(manifest: dict[str, Any], ledger: Ledger) -> str:
    """The tables for the terminal: what each group has, and what was dropped and noted."""
    head = ["group", "kept", "dropped", "candidates", "pairs", "tied", "clusters", "train", "val", "test", ""]
    groups = manifest["groups"]
    everything = [(name, counts, lost_of(ledger, name), [counts]) for name, counts in groups.items()]
    everything.append(("total", manifest["totals"], total_lost(ledger), list(groups.values())))
    rows = []
    for name, counts, lost, members in everything:
        parts = [sum(member["splits"][part]["pairs"] for member in members) for part in ("train", "val", "test")]
        numbers = [
            counts["comparisons"],
            lost,
            *(counts[key] for key in ("candidates", "pairs", "tied_pairs", "clusters")),
        ]
        mark = f"fewer than {manifest['min_clusters']} clusters" if counts.get("small") else ""
        rows.append([name, *map(str, [*numbers, *parts]), mark])
    text = "comparisons kept and dropped, and pairs per part of the split\n" + aligned(head, rows)
    text += "\n" + losses_table(ledger)
    talks = manifest["extra"].get("conversations")
    if talks:
        gone = talks["by_group"].get(NO_GROUP, {}).get("dropped", {})
        kept = sum(g["kept"] for g in talks["by_group"].values())
        text += (
            f"\nconversations: {kept} kept" + "".join(f", {n} dropped ({reason})" for reason, n in gone.items()) + "\n"
        )
    without = manifest["split"]["missing"].get("test", [])
    if without:
        shown = ", ".join(without[:20]) + (f", ... ({len(without)} in all)" if len(without) > 20 else "")
        text += f"\nno test pairs: {shown}\n"
    return text


def losses_table(ledger: Ledger) -> str:
    """Reasons per group: faults and choices count comparisons, notes lose nothing."""
    rows = [
        [group, ledger.kinds[reason], reason, str(n)]
        for group in sorted(ledger.dropped)
        for reason, n in sorted(ledger.dropped[group].items())
    ]
    return (
        "dropped (faults of the data, choices) and notes\n" + aligned(["group", "kind", "reason", "n"], rows)
        if rows
        else ""
    )


def lost_of(ledger: Ledger, group: str) -> int:
    """Comparisons of a group that were dropped."""
    reasons = ledger.dropped[group].items() if group in ledger.dropped else ()
    return sum(n for reason, n in reasons if ledger.kinds[reason] != "note")


def total_lost(ledger: Ledger) -> int:
    """Comparisons that were dropped, those without a group included."""
    return sum(lost_of(ledger, group) for group in list(ledger.dropped))


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Plain columns, numbers to the right; names from the data cannot steer the terminal."""
    rows = [[clean(cell) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [head, *rows]) for i in range(len(head))]
    number = [bool(rows) and all(row[i].isdigit() for row in rows) for i in range(len(head))]
    lines = [
        "  ".join(c.rjust(w) if n else c.ljust(w) for c, w, n in zip(line, widths, number, strict=True))
        for line in [head, *rows]
    ]
    return "".join(line.rstrip() + "\n" for line in lines)


def tell(text: str) -> None:
    """One line of progress."""
    sys.stderr.write(f"prepare: {text}\n")
    sys.stderr.flush()
