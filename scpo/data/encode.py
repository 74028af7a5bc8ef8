"""The one formatter: (group, prompt, history, response) to token ids, for scoring, training, evaluation and serving alike.

Three kinds of input, decided by the tokenizer and never by a model's name:

* `chat`: the tokenizer has a chat template. The text is rendered by it and tokenised without special tokens (the template
  writes them), so that no second BOS can appear.
* `pair`: the tokenizer joins two texts with a separator (encoders). Prompt and response are its two texts.
* `plain`: neither. Prompt, blank line, response, and the end-of-text token, on which a decoder's reward is read.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from scpo.errors import UserError
from scpo.io import sha256_json

FORMAT_VERSION = 1
"""Raised when the same inputs would give other token ids, so that cached rewards are not reused."""

OVERLONG = ("truncate", "drop", "error")

Turn = Mapping[str, str]


@dataclass(frozen=True)
class Encoded:
    """Token ids of n texts, stored flat.

    Attributes:
        ids: (n_tokens,) int32; text i is ``ids[offsets[i]:offsets[i + 1]]``.
        types: (n_tokens,) uint8 token type ids, or None where the model takes none.
        offsets: (n + 1,) int64.
        truncated: (n,) bool, texts that were cut to `max_length`.
        dropped: (n,) bool, texts over `max_length` under the policy `drop`; they have no tokens.
    """

    ids: npt.NDArray[np.int32]
    types: npt.NDArray[np.uint8] | None
    offsets: npt.NDArray[np.int64]
    truncated: npt.NDArray[np.bool_]
    dropped: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """(n,) tokens of each text."""
        return np.diff(self.offsets)

    def text(self, i: int) -> npt.NDArray[np.int32]:
        """Token ids of text i."""
        return self.ids[self.offsets[i] : self.offsets[i + 1]]

    def codes(self) -> npt.NDArray[np.int64]:
        """(n,) equal numbers for texts with equal token ids."""
        known: dict[bytes, int] = {}
        types = self.types if self.types is not None else np.zeros(0, dtype=np.uint8)
        found = (
            known.setdefault(
                self.text(i).tobytes() + types[self.offsets[i] : self.offsets[i + 1]].tobytes(), len(known)
            )
            for i in range(len(self))
        )
        return np.fromiter(found, np.int64, len(self))

    def joined(self, other: Encoded) -> Encoded:
        """These texts, then the other's."""
        types = None if self.types is None or other.types is None else np.concatenate([self.types, other.types])
        return Encoded(
            np.concatenate([self.ids, other.ids]),
            types,
            np.concatenate([self.offsets, self.offsets[-1] + other.offsets[1:]]),
            np.concatenate([self.truncated, other.truncated]),
            np.concatenate([self.dropped, other.dropped]),
        )

    def same(self, i: int, j: int) -> bool:
        """True where two texts have equal token ids."""
        return bool(np.array_equal(self.text(i), self.text(j)))


class Formatter:
    """Turns texts into token ids for one tokenizer.

    Args:
        tokenizer: a fast transformers tokenizer whose pad token is set and is not the end-of-text token.
        max_length: the most tokens a text may have.
        overlong: what happens to longer ones. `truncate`: the prompt loses its beginning (oldest history first) and the
            response its end; each may use what the other leaves of `max_length`, and neither is cut below half of it while
            the other is above. `drop`: the candidate is left out and counted. `error`: stop.
        template: how the group is named in the input, with the field ``{group}``; used only where a group is given.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        max_length: int = 512,
        overlong: str = "truncate",
        template: str = "The reader lives in {group}.",
    ) -> None:
        if overlong not in OVERLONG:
            raise UserError(f"model.overlong: expected one of {', '.join(OVERLONG)}, found {overlong!r}")
        if max_length < 16:
            raise UserError(f"model.max_length: expected at least 16 tokens, found {max_length}")
        check_template(template, {"group"}, "conditioning.template")
        self.tokenizer = tokenizer
        self.max_length = int(max_length)
        self.overlong = overlong
        self.template = template
        self.kind = input_kind(tokenizer)
        self.uses_types = "token_type_ids" in tokenizer.model_input_names
        self.system_role = self.kind == "chat" and _renders_system(tokenizer)
        self._check_bos()

    def fingerprint(self) -> str:
        """Hex hash of all that shapes token ids, but for the tokenizer's own files."""
        return sha256_json([FORMAT_VERSION, self.kind, self.max_length, self.overlong, self.template, self.system_role])

    def encode(
        self,
        prompts: Sequence[str],
        responses: Sequence[str],
        histories: Sequence[Sequence[Turn]] | None = None,
        groups: Sequence[str | None] | None = None,
        names: Sequence[str] | None = None,
    ) -> Encoded:
        """Token ids of n texts; all arguments have length n. `names` stand for the texts in messages.

        Raises:
            UserError: a text is over `max_length` under the policy `error`.
        """
        n = len(prompts)
        histories = histories if histories is not None else [()] * n
        groups = groups if groups is not None else [None] * n
        rows = list(zip(prompts, responses, histories, groups, strict=True))
        ids, types = self._tokenise([self._render(*row) for row in rows])
        truncated, dropped = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        for i in [i for i, x in enumerate(ids) if len(x) > self.max_length]:
            if self.overlong == "error":
                name = names[i] if names is not None else f"text {i}"
                raise UserError(
                    f"{name}: expected at most {self.max_length} tokens, found {len(ids[i])} "
                    f"(prompt {prompts[i][:40]!r}...); raise model.max_length or set model.overlong=truncate"
                )
            if self.overlong == "drop":
                dropped[i], ids[i], types[i] = True, [], []
            else:
                truncated[i] = True
                ids[i], types[i] = self._truncate(*rows[i])
        offsets = np.zeros(n + 1, dtype=np.int64)
        np.cumsum([len(x) for x in ids], out=offsets[1:])
        flat = np.fromiter((t for x in ids for t in x), np.int32, int(offsets[-1]))
        flat_types = np.fromiter((t for x in types for t in x), np.uint8, int(offsets[-1])) if self.uses_types else None
        return Encoded(flat, flat_types, offsets, truncated, dropped)

    def show(self, ids: Sequence[int]) -> str:
        """One text with its special tokens visible, for the sample that is printed before training."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))

    def _render(self, prompt: str, response: str, history: Sequence[Turn], group: str | None) -> tuple[str, str]:
        """The tokenizer's two texts for `pair`; one text and "" for the others."""
        named = None if group is None else self.template.format(group=group)
        if self.kind == "chat":
            turns = [{"role": t["role"], "content": t["content"]} for t in history]
            turns += [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]
            if named is not None and self.system_role:
                turns.insert(0, {"role": "system", "content": named})
            elif named is not None:
                turns[0] = {**turns[0], "content": f"{named}\n\n{turns[0]['content']}"}
            return str(self.tokenizer.apply_chat_template(turns, tokenize=False)), ""
        lines = [] if named is None else [named]
        lines += [f"{t['role']}: {t['content']}" for t in history]
        first = "\n\n".join([*lines, prompt])
        return (first, response) if self.kind == "pair" else (f"{first}\n\n{response}", "")

    def _tokenise(self, texts: Sequence[tuple[str, str]]) -> tuple[list[list[int]], list[list[int]]]:
        """Token ids and type ids (empty lists where the model takes none), not truncated."""
        if not texts:
            return [], []
        firsts = [first for first, _ in texts]
        seconds = [second for _, second in texts] if self.kind == "pair" else None
        out = self.tokenizer(
            firsts, seconds, add_special_tokens=self.kind != "chat", truncation=False, padding=False, verbose=False
        )
        ids = [list(x) for x in out["input_ids"]]
        if self.kind == "plain":
            eos = self.tokenizer.eos_token_id
            ids = [x if eos is None or (x and x[-1] == eos) else [*x, eos] for x in ids]
        if not self.uses_types:
            return ids, [[] for _ in ids]
        # The end-of-text token that was added above is of the first type.
        types = [[*t, *[0] * (len(x) - len(t))] for x, t in zip(ids, out["token_type_ids"], strict=True)]
        return ids, types

    def _check_bos(self) -> None:
        """Raise UserError where texts begin with two BOS tokens. Looked at once: a text may itself begin with "<s>"."""
        bos = self.tokenizer.bos_token_id
        if self.kind == "pair" or bos is None:
            return
        ids, _ = self._encode_one("a", "a", (), None)
        if ids[:2] == [bos, bos]:
            raise UserError(
                f"the tokenizer of {self.tokenizer.name_or_path or 'the model'} begins a text with two BOS tokens; its chat "
                "template writes one twice, or its post-processor does: remove one of them"
            )

    def _truncate(
        self, prompt: str, response: str, history: Sequence[Turn], group: str | None
    ) -> tuple[list[int], list[int]]:
        """Cut one text to `max_length`: oldest history turns, then the beginning of the prompt and the end of the response."""
        history = list(history)
        ids, types = self._encode_one(prompt, response, history, group)
        while history and len(ids) > self.max_length:
            history = history[1:]
            ids, types = self._encode_one(prompt, response, history, group)
        spans = [self._spans(prompt), self._spans(response)]
        budget = self.max_length - (len(ids) - len(spans[0]) - len(spans[1]))
        while len(ids) > self.max_length:
            keep_response = min(len(spans[1]), max(budget - len(spans[0]), budget - budget // 2))
            keep_prompt = min(len(spans[0]), budget - keep_response)
            if budget < 2:
                raise UserError(
                    f"model.max_length={self.max_length} is too short for the template of this model; raise it"
                )
            start = spans[0][len(spans[0]) - keep_prompt][0] if keep_prompt else len(prompt)
            end = spans[1][keep_response - 1][1] if keep_response else 0
            ids, types = self._encode_one(prompt[start:], response[:end], history, group)
            # Cut text can tokenise to a few more tokens than the same text inside the whole.
            budget -= max(1, len(ids) - self.max_length)
        return ids, types

    def _encode_one(
        self, prompt: str, response: str, history: Sequence[Turn], group: str | None
    ) -> tuple[list[int], list[int]]:
        ids, types = self._tokenise([self._render(prompt, response, history, group)])
        return ids[0], types[0]

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Character span of each token of a text."""
        out = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return [(int(a), int(b)) for a, b in out["offset_mapping"]]


def input_kind(tokenizer: Any) -> Literal["chat", "pair", "plain"]:
    """How a tokenizer's model reads a prompt and a response (see the module's text)."""
    if getattr(tokenizer, "chat_template", None):
        return "chat"
    alone = tokenizer("a", add_special_tokens=False)["input_ids"]
    both = tokenizer("a", "a", add_special_tokens=True)["input_ids"]
    sep, cls = tokenizer.sep_token_id, tokenizer.cls_token_id
    separated = sep is not None and cls is not None and sep in both and len(both) > 2 * len(alone)
    return "pair" if separated else "plain"


def check_template(template: str, fields: set[str], where: str) -> None:
    """Raise UserError unless the template is a format string that uses exactly these fields, plainly."""
    if not isinstance(template, str):
        raise UserError(f"{where}: expected a text with {_braced(fields)}, found {template!r}")
    try:
        parsed = [part[1:] for part in string.Formatter().parse(template) if part[1] is not None]
    except ValueError as error:
        raise UserError(f"{where}: expected a text with {_braced(fields)}, found {template!r} ({error})") from error
    # A format specification could blow a name up to any length, and a conversion would quote it.
    if {name for name, _, _ in parsed} != fields or any(spec or conversion for _, spec, conversion in parsed):
        raise UserError(f"{where}: expected a text with {_braced(fields)}, found {template!r}")


def _braced(fields: set[str]) -> str:
    return " and ".join(f"{{{name}}}" for name in sorted(fields))


def _renders_system(tokenizer: Any) -> bool:
    """True where the chat template accepts and shows a system message; some refuse it, some leave it out."""
    from jinja2 import TemplateError

    turns = [
        {"role": "system", "content": "qzx"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
    ]
    try:
        return "qzx" in tokenizer.apply_chat_template(turns, tokenize=False)
    except TemplateError:
        return False
