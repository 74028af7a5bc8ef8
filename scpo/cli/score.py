"""``scpo score``: JSON lines of prompt and response in, the same lines with a reward out."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scpo.cli.args import Parser
from scpo.errors import UserError
from scpo.io import atomic_path, read_jsonl, require_file, shown

EPILOG = """example:
  scpo score --model runs/scpo-1a2b3c4d/model --group Chile --in pairs.jsonl --out scored.jsonl

Each line of the input is an object with "prompt" and "response", and, if you like, "history" (a list of {"role", "content"}),
"group" (instead of --group) and anything else but "reward", which is copied. The output has the same lines in the same
order, with "reward": a number, or null for a text that is too long for a model trained with overlong=drop.
"""

CHUNK = 1024
"""Lines read, scored and written together: memory stays bounded, and batches by length still fill."""

MIN_LENGTH = 16
"""Fewest tokens that a text may be cut to; see :class:`scpo.data.encode.Formatter`."""

DTYPES = ("float32", "bfloat16")


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    p = Parser(
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
    p.add_argument("--dtype", choices=DTYPES, help="of the model's body (default: as trained, else float32)")
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
    if args.max_length is not None and args.max_length < MIN_LENGTH:
        raise UserError(f"--max-length: expected at least {MIN_LENGTH} tokens, found {args.max_length}")
    if str(args.source) != "-":
        require_file(args.source)
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
    """Raise UserError unless this is a processor or an accelerator that torch has here."""
    if not re.fullmatch(r"cpu|mps|cuda(:[0-9]{1,3})?", name):
        raise UserError(f"--device: expected cpu, cuda, cuda:N or mps, found {name!r}")
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device: expected cpu, or a device of this machine, found {name!r}") from error


def write(args: argparse.Namespace, scorer: Scorer, stream: Any) -> int:
    """Score chunk after chunk and write each at once."""
    rows = checked_rows(args.source, args.group)
    count = left_out = 0
    while chunk := list(itertools.islice(rows, CHUNK)):
        for row, reward in zip(chunk, scorer.rewards(chunk), strict=True):
            # NaN is no JSON, and means a text that the length policy left out.
            known = None if math.isnan(reward) else reward
            left_out += known is None
            stream.write(json.dumps({**row[1], "reward": known}, ensure_ascii=False) + "\n")
        stream.flush()
        count += len(chunk)
    if left_out:
        sys.stderr.write(f"{left_out} of {count} texts are longer than the model reads: their reward is null\n")
    return count


Row = tuple[str, dict[str, Any], str | None]
"""Where a line stands, for messages; the line; the group that steers it."""


def checked_rows(source: Path, default_group: str | None) -> Iterator[Row]:
    """The lines of the input with their place and group; anything wrong stops with file, line and field."""
    stdin = str(source) == "-"
    for number, row in read_jsonl(sys.stdin.buffer if stdin else source):
        place = f"{'stdin' if stdin else source}: line {number}"
        for name in ("prompt", "response"):
            if name not in row:
                raise UserError(f"{place}: expected the field {name!r}, found {', '.join(map(repr, row)) or 'none'}")
            if not isinstance(row[name], str):
                raise UserError(f"{place}: field {name!r}: expected text, found {shown(row[name])}")
        if "reward" in row:
            raise UserError(
                f"{place}: field 'reward': expected a line without it, found {shown(row['reward'])}; the new reward would "
                "take its place: rename it"
            )
        history = row.get("history") or []
        if not isinstance(history, list) or not all(_is_turn(turn) for turn in history):
            raise UserError(
                f'{place}: field \'history\': expected a list of {{"role", "content"}}, found {shown(history)}'
            )
        group = row.get("group", default_group)
        if group is not None and not isinstance(group, str):
            raise UserError(f"{place}: field 'group': expected a name, found {shown(group)}")
        yield place, row, group


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
        self.options = options_of(self.steering, args)

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

            options = ModelOptions(**self.options, allow_pickle=self.args.allow_pickle)
            model, notes = load_model(folder, options, require_head=True)
            for note in notes:
                sys.stderr.write(f"{note}\n")
            self.loaded[folder] = model.to(self.args.device)
        return self.loaded[folder]


def options_of(steering: dict[str, Any] | None, args: argparse.Namespace) -> dict[str, Any]:
    """Length, policy for longer texts, template and precision: as trained (PITFALLS 33), unless an option says otherwise.

    Raises:
        UserError: a steering file with another value than `scpo train` writes.
    """
    from scpo.data.encode import OVERLONG

    known = steering or {}
    dtype, length, overlong = (
        known.get("trained_dtype"),
        known.get("max_length", 512),
        known.get("overlong", "truncate"),
    )
    for key, value, fits, expected in (
        ("trained_dtype", dtype, dtype is None or dtype in DTYPES, " or ".join(DTYPES)),
        ("overlong", overlong, overlong in OVERLONG, ", ".join(OVERLONG)),
        ("max_length", length, type(length) is int and length >= MIN_LENGTH, f"a whole number from {MIN_LENGTH}"),
    ):
        if not fits:
            raise UserError(f"{args.model}: steering/steering.json: {key}: expected {expected}, found {shown(value)}")
    used = args.dtype or dtype or "float32"
    if dtype is not None and used != dtype:
        sys.stderr.write(
            f"{args.model}: scored in {used}, trained in {dtype}: rewards differ slightly from the run's\n"
        )
    return {
        "max_length": args.max_length or length,
        "overlong": overlong,
        "template": known.get("template", "{group}"),
        "dtype": used,
    }
