"""``scpo score``: JSON lines of prompt and response in, the same lines with a reward out."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scpo.errors import UserError
from scpo.io import atomic_path, read_jsonl, shorten

EPILOG = """example:
  scpo score --model runs/scpo-1a2b3c4d/model --group Chile --in pairs.jsonl --out scored.jsonl

Each line of the input is an object with "prompt" and "response", and, if you like, "history" (a list of {"role", "content"}),
"group" (instead of --group) and anything else, which is copied. The output has the same lines in the same order, with "reward".
"""

CHUNK = 1024
"""Lines read, scored and written together: memory stays bounded, and batches by length still fill."""


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    p = argparse.ArgumentParser(
        "scpo score",
        description="Score responses with a reward model: one of scpo's, or any of Hugging Face's.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--model", required=True, help="RUN/model, a model folder, or a Hub id")
    p.add_argument("--group", help="the community that steers; a line's own group goes before it")
    p.add_argument("--in", dest="source", required=True, type=Path, metavar="X.jsonl", help="JSON lines; - reads stdin")
    p.add_argument("--out", required=True, type=Path, metavar="Y.jsonl", help="JSON lines; - writes stdout")
    p.add_argument("--batch-tokens", type=int, default=8192, help="most padded tokens of a forward pass (default 8192)")
    p.add_argument("--max-length", type=int, help="most tokens of a text (default: as trained, else 512)")
    p.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, mps (default cpu)")
    p.add_argument(
        "--allow-pickle", action="store_true", help="read weights that are not safetensors (trusted sources only)"
    )
    return p


def main(argv: list[str]) -> int:
    """Score a file."""
    args = parser().parse_args(argv)
    if args.batch_tokens < 1:
        raise UserError(f"--batch-tokens: expected at least 1, found {args.batch_tokens}")
    if str(args.source) != "-" and not args.source.is_file():
        raise UserError(f"{args.source}: no such file; --in takes JSON lines with prompt and response")
    check_device(args.device)
    scorer = Scorer(args)
    if str(args.out) == "-":
        count = write(args, scorer, sys.stdout)
    else:
        with atomic_path(args.out) as temporary, open(temporary, "w", encoding="utf-8") as stream:
            count = write(args, scorer, stream)
    sys.stderr.write(f"{count} rewards written to {args.out}\n")
    return 0


def check_device(name: str) -> None:
    """Raise UserError unless torch has this device here."""
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device: expected cpu, or a device of this machine, found {name!r}") from error


def write(args: argparse.Namespace, scorer: Scorer, stream: Any) -> int:
    """Score chunk after chunk and write each at once."""
    rows = checked_rows(args.source, args.group)
    count = 0
    while chunk := list(itertools.islice(rows, CHUNK)):
        for row, reward in zip(chunk, scorer.rewards(chunk), strict=True):
            stream.write(json.dumps({**row[1], "reward": reward}, ensure_ascii=False) + "\n")
        stream.flush()
        count += len(chunk)
    return count


Row = tuple[str, dict[str, Any], str | None]
"""Where a line stands, for messages; the line; the group that steers it."""


def checked_rows(source: Path, default_group: str | None) -> Iterator[Row]:
    """The lines of the input with their place and group; anything wrong stops with file, line and field."""
    stdin = str(source) == "-"
    for number, row in _stdin() if stdin else read_jsonl(source):
        place = f"{'stdin' if stdin else source}: line {number}"
        for name in ("prompt", "response"):
            if name not in row:
                raise UserError(f"{place}: expected the field {name!r}, found {', '.join(map(repr, row)) or 'none'}")
            if not isinstance(row[name], str):
                raise UserError(f"{place}: field {name!r}: expected text, found {shorten(repr(row[name]))}")
        history = row.get("history") or []
        if not isinstance(history, list) or not all(_is_turn(turn) for turn in history):
            raise UserError(
                f'{place}: field \'history\': expected a list of {{"role", "content"}}, found {shorten(repr(history))}'
            )
        group = row.get("group", default_group)
        if group is not None and not isinstance(group, str):
            raise UserError(f"{place}: field 'group': expected a name, found {shorten(repr(group))}")
        yield place, row, group


def _stdin() -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(sys.stdin, start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"stdin: line {number}: expected a JSON object ({error})") from error
            if not isinstance(row, dict):
                raise UserError(f"stdin: line {number}: expected a JSON object, found {shorten(repr(row))}")
            yield number, row


def _is_turn(turn: Any) -> bool:
    return isinstance(turn, dict) and isinstance(turn.get("role"), str) and isinstance(turn.get("content"), str)


class Scorer:
    """The models behind ``--model``: one for all groups, or one per group, each loaded when its first line comes."""

    def __init__(self, args: argparse.Namespace) -> None:
        from scpo.conditioning import read_steering
        from scpo.model.files import resolve_model

        self.args = args
        path = Path(args.model).expanduser()
        self.steering = read_steering(path) if path.is_dir() else None
        separate = self.steering is not None and self.steering["mode"] == "separate"
        self.model = path if separate else resolve_model(args.model, allow_pickle=args.allow_pickle)
        self.loaded: dict[Path, Any] = {}

    def group(self, place: str, name: str | None) -> str | None:
        """The model's own spelling of a group."""
        from scpo.groups import resolve

        if name is None:
            if self.steering is not None and self.steering["mode"] == "separate":
                raise UserError(
                    f"{place}: expected a group (a field 'group', or --group), found none; {self.model} holds one model per "
                    f"group: {', '.join(self.steering['groups'])}"
                )
            return None
        if self.steering is None:
            raise UserError(f"{place}: group {name!r}: {self.model} is a plain reward model that takes no group")
        if self.steering["mode"] == "none":
            raise UserError(f"{place}: group {name!r}: {self.model} was trained without groups (conditioning=none)")
        try:
            return resolve([name], self.steering["groups"], "the model")[0]
        except UserError as error:
            raise UserError(f"{place}: {error}") from error

    def rewards(self, rows: list[Row]) -> list[float]:
        """Rewards of rows, in their order."""
        from scpo.conditioning import folder_of, named_groups
        from scpo.model.score import score_texts

        mode = self.steering["mode"] if self.steering is not None else "none"
        groups = [self.group(place, group) for place, _, group in rows]
        folders = [folder_of(self.model, self.steering, group) for group in groups]
        result = [0.0] * len(rows)
        for folder in dict.fromkeys(folders):
            places = [i for i, f in enumerate(folders) if f == folder]
            named = [groups[i] for i in places]
            rewards = score_texts(
                self.load(folder),
                [rows[i][1]["prompt"] for i in places],
                [rows[i][1]["response"] for i in places],
                [rows[i][1].get("history") or [] for i in places],
                named if mode == "prefix" else named_groups(mode, [str(g) for g in named]),
                batch_tokens=self.args.batch_tokens,
            )
            for i, reward in zip(places, rewards.tolist(), strict=True):
                result[i] = reward
        return result

    def load(self, folder: Path) -> Any:
        """The model of a folder, loaded once."""
        if folder not in self.loaded:
            from scpo.model.reward import ModelOptions, load_model

            known = self.steering or {}
            options = ModelOptions(
                max_length=self.args.max_length or known.get("max_length", 512),
                template=known.get("template", "{group}"),
                allow_pickle=self.args.allow_pickle,
            )
            model, notes = load_model(folder, options, require_head=True)
            for note in notes:
                sys.stderr.write(f"{note}\n")
            self.loaded[folder] = model.to(self.args.device)
        return self.loaded[folder]
