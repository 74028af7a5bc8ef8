"""How a text reaches an exported model with transformers alone: the group's words, the chat template, the code to copy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scpo.data.encode import Formatter, Turn


@dataclass(frozen=True)
class Form:
    """What the user of an exported folder must do to a prompt and a response.

    Attributes:
        kind: chat, pair or plain; see :mod:`scpo.data.encode`.
        before: the text that goes before every prompt, with its blank line; "" where nothing has to be said.
        baked: the group's words that the chat template writes by itself; None where it writes none.
        system: they stand in the system message (else at the beginning of the first message).
        end: the end-of-text token that has to be written after the response (`plain` only); "" where the tokenizer
            writes it itself or has none.
        max_length: most tokens of a text.
    """

    kind: str
    before: str
    baked: str | None
    system: bool
    end: str
    max_length: int


def form_of(formatter: Formatter, sentence: str | None) -> Form:
    """The form of a model's inputs when its group is named by `sentence` (None: it is not named in words)."""
    chat, tokenizer = formatter.kind == "chat", formatter.tokenizer
    end = ""
    if formatter.kind == "plain" and tokenizer.eos_token_id is not None:
        ids = tokenizer("a")["input_ids"]
        end = "" if ids and ids[-1] == tokenizer.eos_token_id else str(tokenizer.eos_token)
    return Form(
        kind=formatter.kind,
        before="" if sentence is None or chat else f"{sentence}\n\n",
        baked=sentence if chat else None,
        system=formatter.system_role,
        end=end,
        max_length=formatter.max_length,
    )


def bake(tokenizer: Any, form: Form) -> None:
    """Write the group's words into the tokenizer's chat template(s); nothing happens where there are none to write."""
    if form.baked is None:
        return
    template = tokenizer.chat_template
    if isinstance(template, dict):
        tokenizer.chat_template = {k: baked_template(v, form.baked, form.system) for k, v in template.items()}
    else:
        tokenizer.chat_template = baked_template(template, form.baked, form.system)


def baked_template(template: str, sentence: str, system: bool) -> str:
    """A chat template that names the group by itself, unless the caller's messages begin with a system message.

    Args:
        system: the template shows a system message; else the words go before the first message, and a blank line.
    """
    # JSON's escapes are Jinja's too; other letters must stay, as Jinja does not join halves of a surrogate pair.
    words = json.dumps(sentence, ensure_ascii=False)
    if system:
        messages = f"[{{'role': 'system', 'content': {words}}}] + messages"
    else:
        first = f"{{'role': messages[0]['role'], 'content': {words} + '\\n\\n' + messages[0]['content']}}"
        messages = f"[{first}] + messages[1:]"
    # transformers renders with trim_blocks: the newline is not written, and the old template still begins a line.
    return (
        "{% if messages and messages[0]['role'] != 'system' %}{% set messages = "
        + messages
        + " %}{% endif %}\n"
        + template
    )


def plain_inputs(
    tokenizer: Any, form: Form, prompts: Sequence[str], responses: Sequence[str], histories: Sequence[Sequence[Turn]]
) -> Any:
    """A padded batch of n texts as tensors, made as the card says and by nothing but the exported tokenizer."""
    rows = list(zip(prompts, responses, histories, strict=True))
    if form.kind == "chat":
        texts = [
            tokenizer.apply_chat_template(
                [*history, {"role": "user", "content": prompt}, {"role": "assistant", "content": response}],
                tokenize=False,
            )
            for prompt, response, history in rows
        ]
        return tokenizer(texts, add_special_tokens=False, padding=True, return_tensors="pt")
    firsts = [form.before + "\n\n".join([*(f"{t['role']}: {t['content']}" for t in h), p]) for p, _, h in rows]
    if form.kind == "pair":
        return tokenizer(firsts, list(responses), padding=True, return_tensors="pt")
    texts = [f"{first}\n\n{response}{form.end}" for first, response in zip(firsts, responses, strict=True)]
    return tokenizer(texts, padding=True, return_tensors="pt")


def code(form: Form, name: str, prompt: str, responses: Sequence[str]) -> str:
    """Python that needs only torch and transformers, and prints the rewards of the responses.

    Args:
        name: the folder, or its id on the Hub.
    """
    lines = [
        "import torch",
        "from transformers import AutoModelForSequenceClassification, AutoTokenizer",
        "",
        f"name = {json.dumps(name, ensure_ascii=False)}  # this folder, or the id of this model on the Hub",
        "tokenizer = AutoTokenizer.from_pretrained(name)",
        "model = AutoModelForSequenceClassification.from_pretrained(name).eval()",
        "",
    ]
    if form.before:
        lines += [
            f"before = {json.dumps(form.before, ensure_ascii=False)}  # names the group; goes before every prompt"
        ]
    lines += [
        f"prompt = {json.dumps(prompt, ensure_ascii=False)}",
        f"responses = {json.dumps(list(responses), ensure_ascii=False)}",
        "",
        *_inputs_code(form),
        f'if inputs["input_ids"].shape[1] > {form.max_length}:',
        f'    raise ValueError("the model reads at most {form.max_length} tokens: shorten the prompt or the response")',
        "with torch.inference_mode():",
        "    rewards = model(**inputs).logits[:, 0]  # one per response; higher is better",
        "print(rewards.tolist())",
    ]
    return "\n".join(lines)


def _inputs_code(form: Form) -> list[str]:
    first = "before + prompt" if form.before else "prompt"
    if form.kind == "chat":
        return [
            "texts = [",
            "    tokenizer.apply_chat_template(",
            '        [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}], tokenize=False',
            "    )",
            "    for response in responses",
            "]",
            "# The template writes the special tokens: the tokenizer must not write them again.",
            'inputs = tokenizer(texts, add_special_tokens=False, padding=True, return_tensors="pt")',
        ]
    if form.kind == "pair":
        pair = f"[{first}] * len(responses), responses"
        return [f'inputs = tokenizer({pair}, padding=True, return_tensors="pt")']
    end = " + tokenizer.eos_token" if form.end else ""
    return [
        f'texts = [{first} + "\\n\\n" + response{end} for response in responses]',
        'inputs = tokenizer(texts, padding=True, return_tensors="pt")',
    ]
