"""``scpo export``: a run's model as a plain Hugging Face folder with a model card."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scpo.cli.args import Parser
from scpo.errors import UserError, did_you_mean

EPILOG = """example:
  scpo export run=runs/scpo-1a2b3c4d group=Chile --out export/chile
  scpo export run=runs/steered 'group=South Africa' --out export/za --push my-name/reward-south-africa
  scpo export run=runs/steered --out export/default

With conditioning=separate the group's own model is written, and a group is needed. With conditioning=none there is one model,
and no group is taken. Otherwise the group's change is folded into the weights, or its words into the chat template; without
group=NAME the model is written as it is when told no group.

The folder is AutoModelForSequenceClassification's: model.safetensors, config.json, the tokenizer, and README.md, the model
card, with code that runs. Its rewards are compared with the run's, loaded with transformers alone, before it is kept.
"""

KEYS = ("run", "group")


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    p = Parser(
        "scpo export",
        description="Write a run's model as a plain Hugging Face folder with a model card.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("settings", nargs="*", metavar="key=value", help="run=RUN, and group=G where the model is told one")
    p.add_argument("--out", required=True, type=Path, metavar="DIR", help="a new or empty folder")
    p.add_argument("--force", action="store_true", help="replace an earlier export in DIR")
    p.add_argument("--push", metavar="ID", help="upload DIR to the Hub as ID (owner/name)")
    p.add_argument("--private", action="store_true", help="with --push: make a new repository private")
    return p


def main(argv: list[str]) -> int:
    """Export, and upload where asked."""
    args = parser().parse_intermixed_args(argv)
    settings = read_settings(args.settings)
    if "run" not in settings:
        raise UserError("expected the run to export (run=RUN), found none; 'scpo export --help' explains")
    if args.private and args.push is None:
        raise UserError("--private: expected --push ID with it, found none")

    from scpo.export.bundle import export
    from scpo.export.push import check_id, push
    from scpo.run.measure import command_line

    if args.push is not None:
        check_id(args.push)
    done = export(
        Path(settings["run"]),
        settings.get("group"),
        args.out,
        force=args.force,
        command=command_line(["export", *argv]),
        hub_id=args.push,
    )
    for note in done.notes:
        sys.stderr.write(f"{note}\n")
    whose = f"for {done.source.group}" if done.source.group is not None else "without a group"
    sys.stdout.write(
        f"{done.folder}: model {whose}; {done.checked} rewards by transformers alone equal the run's (largest difference "
        f"{done.difference:.1e})\n"
    )
    sys.stdout.flush()
    if args.push is not None:
        sys.stdout.write(f"uploaded: {push(done.folder, args.push, private=args.private)}\n")
    return 0


def read_settings(words: list[str]) -> dict[str, str]:
    """``run=RUN group=G``, in Hydra's spelling: a value may stand in quotes, and null is no value."""
    settings: dict[str, str] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or key not in KEYS:
            hint = did_you_mean(key, KEYS) if sign else f" Did you mean 'run={word}'?"
            raise UserError(f"expected run=RUN or group=G, found {word!r}.{hint}")
        if key in settings:
            raise UserError(f"expected {key} once, found it twice")
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        if not value:
            raise UserError(f"{key}: expected a value, found none")
        settings[key] = value
    return {key: value for key, value in settings.items() if not (key == "group" and value == "null")}
