"""``scpo score``: JSON lines of prompt and response in, the same lines with a reward out, or with the best of several."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scpo.cli.args import Parser
from scpo.errors import UserError
from scpo.io import atomic_path, read_jsonl, require_file, shown

if TYPE_CHECKING:
    from scpo.mixture import Mix, Steer
    from scpo.serve import RewardModel

EPILOG = """example:
  scpo score --model runs/scpo-1a2b3c4d/model --group Chile --in pairs.jsonl --out scored.jsonl
  scpo score --model RUN/model --group Chile=0.7,Canada=0.3 --in pairs.jsonl --out scored.jsonl
  scpo score --model RUN/model --group Chile,Canada --aggregate min --in pairs.jsonl --out scored.jsonl

Each line of the input is an object with "prompt" and "response", and, if you like, "history" (a list of {"role", "content"}),
"group" (instead of --group: a name, null, weights such as {"Chile": 0.7, "Canada": 0.3}, or with --aggregate a list) and
anything else but "reward", which is copied. The output has the same lines in the same order, with "reward": a number, or null
for a text that is too long for a model trained with overlong=drop.

A line with "responses" (a list) instead of "response" gets "rewards", a list, and "best", the place of the highest, counted
from 0: the first of equals, or null where none has a reward.

One group gives its raw reward. Rewards over several groups are first put on one scale, each group's mean and deviation on the
validation texts, because what a unit of reward is worth differs from group to group.
"""

CHUNK = 1024
"""Lines read, scored and written together: memory stays bounded, and batches by length still fill."""

MIN_LENGTH = 16
"""Fewest tokens that a text may be cut to; see :class:`scpo.data.encode.Formatter`."""

DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class Line:
    """A checked line of the input.

    Attributes:
        row: the line.
        responses: its responses; one where it has a "response".
        several: it has "responses".
        mix: what steers it.
    """

    row: dict[str, Any]
    responses: list[str]
    several: bool
    mix: Mix


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    p = Parser(
        "scpo score",
        description="Score responses with a reward model: one of scpo's, or any of Hugging Face's.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--model", required=True, help="RUN/model, a model folder, or a Hub id")
    p.add_argument(
        "--group",
        help="the community that steers, weights of several (Chile=0.7,Canada=0.3), or with --aggregate several "
        "(Chile,Canada); a line's own group goes before it",
    )
    p.add_argument(
        "--aggregate", choices=("mean", "min"), help="one reward from several groups: their mean, or their least"
    )
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
    group = read_group(args.group, args.aggregate)
    if str(args.source) != "-":
        require_file(args.source)
    from scpo.serve import RewardModel, check_device

    check_device(args.device, "--device")
    model = RewardModel.from_pretrained(
        args.model,
        device=args.device,
        dtype=args.dtype,
        max_length=args.max_length,
        batch_tokens=args.batch_tokens,
        allow_pickle=args.allow_pickle,
    )
    lines = checked_lines(args.source, group, args.aggregate, model)
    if str(args.out) == "-":
        count = write(lines, model, sys.stdout)
    else:
        with atomic_path(args.out) as temporary, open(temporary, "w", encoding="utf-8") as stream:
            count = write(lines, model, stream)
    sys.stderr.write(f"{count} rewards written to {args.out}\n")
    return 0


def read_group(text: str | None, aggregate: str | None) -> Steer:
    """``--group``: a name; weights where it holds "="; with an aggregate a list. Canonical names hold neither "=" nor ","."""
    if text is None:
        return None
    if "=" not in text:
        return text if aggregate is None else [name.strip() for name in text.split(",")]
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, sign, weight = (piece.strip() for piece in part.rpartition("="))
        try:
            number = float(weight)
        except ValueError:
            number = math.nan
        if not sign or not name or math.isnan(number):
            raise UserError(f"--group: expected weights such as Chile=0.7,Canada=0.3, found {part!r}")
        if name in weights:
            raise UserError(f"--group: expected each group once, found {name!r} twice")
        weights[name] = number
    return weights


def write(lines: Iterator[Line], model: RewardModel, stream: Any) -> int:
    """Score chunk after chunk and write each at once."""
    count = left_out = 0
    while chunk := list(itertools.islice(lines, CHUNK)):
        per_line = [len(line.responses) for line in chunk]
        with warnings.catch_warnings(record=True) as told:
            rewards = model.score_rows(
                [line.row["prompt"] for line in chunk for _ in line.responses],
                [response for line in chunk for response in line.responses],
                [line.mix for line in chunk for _ in line.responses],
                [line.row.get("history") or [] for line in chunk for _ in line.responses],
            ).tolist()
        for warning in told:
            sys.stderr.write(f"{warning.message}\n")
        # NaN is no JSON, and means a text that the length policy left out.
        known = [None if math.isnan(reward) else reward for reward in rewards]
        start = 0
        for line, n in zip(chunk, per_line, strict=True):
            stream.write(json.dumps({**line.row, **results(line, known[start : start + n])}, ensure_ascii=False) + "\n")
            start += n
        stream.flush()
        count += len(known)
        left_out += known.count(None)
    if left_out:
        sys.stderr.write(f"{left_out} of {count} texts are longer than the model reads: their reward is null\n")
    return count


def results(line: Line, rewards: list[float | None]) -> dict[str, Any]:
    """The fields that a line gets."""
    if not line.several:
        return {"reward": rewards[0]}
    known = [reward for reward in rewards if reward is not None]
    return {"rewards": rewards, "best": rewards.index(max(known)) if known else None}


def checked_lines(source: Path, group: Steer, aggregate: str | None, model: RewardModel) -> Iterator[Line]:
    """The lines of the input; anything wrong stops with file, line and field."""
    stdin = str(source) == "-"
    for number, row in read_jsonl(sys.stdin.buffer if stdin else source):
        place = f"{'stdin' if stdin else source}: line {number}"
        several = "responses" in row
        check_fields(place, row, several)
        steer, given = row.get("group", group), aggregate
        if "group" in row:
            if steer is not None and not isinstance(steer, str | dict | list):
                raise UserError(
                    f"{place}: field 'group': expected a name, found {shown(steer)}; null, weights of groups, or "
                    "with --aggregate a list of names may stand there too"
                )
            # The aggregate is for lists; a line that names one group, or weighs several, has said all.
            given = aggregate if isinstance(steer, list) else None
        try:
            mix = model.steer(steer, given)
        except UserError as error:
            raise UserError(f"{place}: {error}{hint(steer, row)}") from error
        yield Line(row, row["responses"] if several else [row["response"]], several, mix)


def hint(group: Steer, row: dict[str, Any]) -> str:
    """What to do about a group that was not understood, in the words of the command line."""
    if group is None:
        return " (a field 'group', or --group)"
    if isinstance(group, str) and "," in group and "group" not in row:
        return "; several groups need --aggregate mean or min, or weights (Chile=0.7,Canada=0.3)"
    return ""


def check_fields(place: str, row: dict[str, Any], several: bool) -> None:
    """Raise UserError for a field that is missing, of another kind, or in the way of the result."""
    for name in ("prompt", "responses" if several else "response"):
        if name not in row:
            also = "" if name == "prompt" else " (or a list of them in 'responses')"
            raise UserError(f"{place}: expected the field {name!r}, found {', '.join(map(repr, row)) or 'none'}{also}")
        if name != "responses" and not isinstance(row[name], str):
            raise UserError(f"{place}: field {name!r}: expected text, found {shown(row[name])}")
    if several:
        texts = row["responses"]
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise UserError(f"{place}: field 'responses': expected a list of one or more texts, found {shown(texts)}")
        if "response" in row:
            raise UserError(f"{place}: expected 'response' or 'responses', found both")
    for name in ("rewards", "best") if several else ("reward",):
        if name in row:
            raise UserError(
                f"{place}: field {name!r}: expected a line without it, found {shown(row[name])}; the new {name} would "
                "take its place: rename it"
            )
    history = row.get("history") or []
    if not isinstance(history, list) or not all(_is_turn(turn) for turn in history):
        raise UserError(f'{place}: field \'history\': expected a list of {{"role", "content"}}, found {shown(history)}')


def _is_turn(turn: Any) -> bool:
    return isinstance(turn, dict) and isinstance(turn.get("role"), str) and isinstance(turn.get("content"), str)
