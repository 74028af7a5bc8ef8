"""The input of an exported model: the group's words in the chat template, and token ids equal to the formatter's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import CHAT_TEMPLATE, chat_tokenizer, pair_tokenizer, plain_tokenizer
from transformers import AutoTokenizer

from scpo.data.encode import Formatter
from scpo.export.data import NEUTRAL
from scpo.export.form import bake, baked_template, code, form_of, plain_inputs

SENTENCE = "The reader lives in {group}."
HISTORY = [{"role": "user", "content": "is the lake cold"}, {"role": "assistant", "content": "in the morning"}]
TEXTS = [*NEUTRAL, ("should the town build a bridge?", "yes or no", HISTORY)]
KINDS = {
    "chat": lambda: chat_tokenizer(),
    "chat without system": lambda: chat_tokenizer(system=False),
    "pair": lambda: pair_tokenizer(),
    "plain": lambda: plain_tokenizer(),
}


@pytest.mark.parametrize("group", ["South Africa", None])
@pytest.mark.parametrize("kind", KINDS)
def test_plain_inputs_are_the_formatters_token_ids(tmp_path: Path, kind: str, group: str | None) -> None:
    tokenizer: Any = KINDS[kind]()
    formatter = Formatter(tokenizer, max_length=200, template=SENTENCE)
    prompts, responses, histories = zip(*TEXTS, strict=True)
    want = formatter.encode(prompts, responses, histories, [group] * len(TEXTS))
    form = form_of(formatter, SENTENCE.format(group=group) if group else None)
    bake(tokenizer, form)
    tokenizer.save_pretrained(tmp_path)
    inputs = plain_inputs(AutoTokenizer.from_pretrained(tmp_path), form, prompts, responses, histories)
    for i in range(len(TEXTS)):
        kept = inputs["attention_mask"][i].bool()
        assert inputs["input_ids"][i][kept].tolist() == want.text(i).tolist()
        if want.types is not None:
            assert (
                inputs["token_type_ids"][i][kept].tolist() == want.types[want.offsets[i] : want.offsets[i + 1]].tolist()
            )
    assert (group is None) == (form.baked is None and form.before == "")


def test_a_template_with_a_group_leaves_a_callers_system_message_alone() -> None:
    tokenizer = chat_tokenizer()
    turns = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    before = tokenizer.apply_chat_template(turns, tokenize=False)
    tokenizer.chat_template = baked_template(CHAT_TEMPLATE, "Chile it is.", system=True)
    assert tokenizer.apply_chat_template(turns, tokenize=False) == before
    assert (
        tokenizer.apply_chat_template(turns[1:], tokenize=False) == "<s><|system|>Chile it is.<|end|><|user|>hi<|end|>"
    )


def test_several_templates_all_name_the_group() -> None:
    tokenizer = chat_tokenizer()
    form = form_of(Formatter(tokenizer), "Chile it is.")
    tokenizer.chat_template = {"default": CHAT_TEMPLATE, "tool_use": "T" + CHAT_TEMPLATE}
    bake(tokenizer, form)
    for name, start in (("default", "<s>"), ("tool_use", "T<s>")):
        shown = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], chat_template=name, tokenize=False)
        assert shown == f"{start}<|system|>Chile it is.<|end|><|user|>hi<|end|>"


# All that can stand at the beginning of a template and could be trimmed by the lines before it.
STARTS = ["", "\n", "  ", "\n\n  ", "  {% if true %}\n x{% endif %}", "{#- c -#}\n ", "{{- bos_token }}", "-\t"]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("system", [True, False])
def test_what_a_template_begins_with_is_kept(start: str, system: bool) -> None:
    tokenizer = chat_tokenizer()
    user = {"role": "user", "content": "hi"}
    named: list[dict[str, str]] = [{"role": "system", "content": "S"}, user]
    if not system:
        named = [{"role": "user", "content": "S\n\nhi"}]
    tokenizer.chat_template = start + CHAT_TEMPLATE
    want = tokenizer.apply_chat_template(named, tokenize=False)
    tokenizer.chat_template = baked_template(start + CHAT_TEMPLATE, "S", system)
    assert tokenizer.apply_chat_template([user], tokenize=False) == want


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=30))
def test_any_words_come_out_of_the_template_as_they_are(words: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    template = baked_template("{{ messages[0]['content'] }}", words, system=True)
    conversation = [{"role": "user", "content": "x"}]
    shown, _ = render_jinja_template(conversations=[conversation], chat_template=template)
    assert shown == [words]


def test_code_names_the_group_and_ends_the_text_only_where_that_is_the_callers_to_do() -> None:
    codes = {}
    for kind in KINDS:
        form = form_of(Formatter(KINDS[kind](), max_length=64), "In Chile.")
        codes[kind] = code(form, "owner/name", "p", ["r"])
        compile(codes[kind], kind, "exec")
        assert 'name = "owner/name"' in codes[kind]
        assert "> 64:" in codes[kind]
    assert [k for k in KINDS if "before = " in codes[k]] == ["pair", "plain"]
    assert 'before = "In Chile.\\n\\n"' in codes["pair"]
    assert [k for k in KINDS if "eos_token" in codes[k]] == ["plain"]
    assert [k for k in KINDS if "add_special_tokens=False" in codes[k]] == ["chat", "chat without system"]


def test_a_tokenizer_that_ends_its_texts_is_not_helped() -> None:
    from tokenizers import processors

    tokenizer = plain_tokenizer()
    form = form_of(Formatter(tokenizer), None)
    assert form.end == "</s>"
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A <s> $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    formatter = Formatter(tokenizer)
    form = form_of(formatter, None)
    assert form.end == ""
    ids = plain_inputs(tokenizer, form, ["a"], ["b"], [()])["input_ids"][0].tolist()
    assert ids == formatter.encode(["a"], ["b"]).text(0).tolist()
