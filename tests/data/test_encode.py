"""The formatter: what each kind of input looks like, one BOS, and every policy for long texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import SENTENCES, chat_tokenizer, pair_tokenizer, plain_tokenizer
from tokenizers import processors

from scpo.data.encode import Encoded, Formatter, check_template, input_kind
from scpo.errors import UserError

PAIR, PLAIN, CHAT, NO_SYSTEM = pair_tokenizer(), plain_tokenizer(), chat_tokenizer(), chat_tokenizer(system=False)
ALL = {"pair": PAIR, "plain": PLAIN, "chat": CHAT, "chat without system": NO_SYSTEM}
HISTORY = [{"role": "user", "content": "the lake"}, {"role": "assistant", "content": "is cold"}]

WORDS = sorted({word for sentence in SENTENCES for word in sentence.replace(",", "").replace(":", "").split()})
texts = st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join)
any_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<>[]"), max_size=60)


def shown(tokenizer: Any, prompt: str, response: str, **named: Any) -> str:
    formatter = Formatter(tokenizer)
    encoded = formatter.encode([prompt], [response], **named)
    return formatter.show(encoded.text(0).tolist())


@pytest.mark.parametrize(
    ("name", "plain", "full"),
    [
        (
            "pair",
            "[CLS] why is rice cold? [SEP] no one knows [SEP]",
            "[CLS] The reader lives in Chile. user : the lake assistant : is cold why is rice cold? [SEP] no one knows [SEP]",
        ),
        (
            "plain",
            "<s>why is rice cold?\n\nno one knows</s>",
            "<s>The reader lives in Chile.\n\nuser: the lake\n\nassistant: is cold\n\nwhy is rice cold?\n\nno one knows</s>",
        ),
        (
            "chat",
            "<s><|user|>why is rice cold?<|end|><|assistant|>no one knows<|end|>",
            "<s><|system|>The reader lives in Chile.<|end|><|user|>the lake<|end|><|assistant|>is cold<|end|>"
            "<|user|>why is rice cold?<|end|><|assistant|>no one knows<|end|>",
        ),
        (
            "chat without system",
            "<s><|user|>why is rice cold?<|end|><|assistant|>no one knows<|end|>",
            "<s><|user|>The reader lives in Chile.\n\nthe lake<|end|><|assistant|>is cold<|end|>"
            "<|user|>why is rice cold?<|end|><|assistant|>no one knows<|end|>",
        ),
    ],
)
def test_what_the_model_reads(name: str, plain: str, full: str) -> None:
    """Without and with history and group; every special token once."""
    tokenizer = ALL[name]
    assert shown(tokenizer, "why is rice cold?", "no one knows") == plain
    with_all = shown(tokenizer, "why is rice cold?", "no one knows", histories=[HISTORY], groups=["Chile"])
    assert with_all == full


def test_the_kind_is_read_from_the_tokenizer() -> None:
    assert [input_kind(t) for t in ALL.values()] == ["pair", "plain", "chat", "chat"]
    assert [Formatter(t).system_role for t in ALL.values()] == [False, False, True, False]
    assert [Formatter(t).uses_types for t in ALL.values()] == [True, False, False, False]


def test_a_template_that_leaves_the_system_message_out_does_not_count_as_showing_it() -> None:
    tokenizer = chat_tokenizer()
    loop = "{% for m in messages if m['role'] != 'system' %}"
    tokenizer.chat_template = "{{ bos_token }}" + loop + "{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    assert not Formatter(tokenizer).system_role
    assert shown(tokenizer, "a", "b", groups=["Chile"]) == "<s>user: The reader lives in Chile.\n\na\nassistant: b\n"


def test_the_callers_history_is_not_changed() -> None:
    history = [dict(turn) for turn in HISTORY]
    Formatter(NO_SYSTEM).encode(["a"], ["b"], [history], ["Chile"])
    Formatter(NO_SYSTEM, max_length=16).encode(["a " * 40], ["b"], [history], [None])
    assert history == HISTORY


def test_token_types_tell_prompt_from_response() -> None:
    encoded = Formatter(PAIR).encode(["rice", ""], ["the lake", "cold"])
    assert encoded.types is not None
    assert encoded.types.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]
    assert encoded.ids.dtype == np.int32
    assert encoded.lengths.tolist() == [6, 4]


def test_a_decoder_whose_tokenizer_gives_types_has_one_for_the_end_of_text_too() -> None:
    tokenizer = plain_tokenizer()
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    encoded = Formatter(tokenizer).encode(["rice"], ["cold"])
    assert encoded.types is not None
    assert encoded.types.tolist() == [0] * len(encoded.ids)
    assert encoded.text(0)[-1] == tokenizer.eos_token_id


def test_an_end_of_text_that_the_tokenizer_writes_is_not_doubled() -> None:
    tokenizer = plain_tokenizer()
    tokenizer._tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    ids = Formatter(tokenizer).encode(["rice"], ["cold"]).text(0).tolist()
    assert (ids.count(1), ids.count(2)) == (1, 1)
    assert ids == Formatter(PLAIN).encode(["rice"], ["cold"]).text(0).tolist()


def test_two_bos_tokens_are_refused() -> None:
    """PITFALLS 13 to 16: the template writes one, and the tokenizer or the template another."""
    tokenizer = chat_tokenizer()
    tokenizer.chat_template = "{{ bos_token }}" + tokenizer.chat_template
    with pytest.raises(UserError, match="two BOS tokens"):
        Formatter(tokenizer)
    plain = plain_tokenizer()
    plain._tokenizer.post_processor = processors.TemplateProcessing(single="<s> <s> $A", special_tokens=[("<s>", 1)])
    with pytest.raises(UserError, match="two BOS tokens"):
        Formatter(plain)


def test_a_text_that_begins_with_a_struck_out_word_stops_nothing() -> None:
    """People write "<s>", which is HTML; that is no fault of the tokenizer."""
    assert len(Formatter(PLAIN).encode(["<s>rice</s> bread"], ["cold"]).ids) > 5


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("side", ["left", "right"])
def test_ids_depend_neither_on_batch_mates_nor_on_the_tokenizers_padding(name: str, side: str) -> None:
    """PITFALLS 5 to 8, 11."""
    tokenizer = {"pair": pair_tokenizer, "plain": plain_tokenizer}.get(name, chat_tokenizer)()
    tokenizer.padding_side = tokenizer.truncation_side = side
    prompts, responses = list(SENTENCES[:4]), list(SENTENCES[4:])
    together = Formatter(tokenizer).encode(prompts, responses)
    pad = tokenizer.pad_token_id
    for i in range(4):
        alone = Formatter(tokenizer).encode(prompts[i : i + 1], responses[i : i + 1])
        np.testing.assert_array_equal(together.text(i), alone.text(0))
        assert pad not in alone.ids


def parts(kind: str, tokenizer: Any, ids: list[int]) -> tuple[str, str]:
    """Prompt and response out of token ids, read back by the marks that stand around them; words only."""
    text = tokenizer.decode(ids, skip_special_tokens=False)
    if kind == "pair":
        first, second, _ = text.removeprefix("[CLS]").split("[SEP]")
        return first.strip(), second.strip()
    if kind == "plain":
        first, second = text.removeprefix("<s>").removesuffix("</s>").split("\n\n")
        return first, second
    user, assistant = text.removeprefix("<s><|user|>").split("<|end|><|assistant|>")
    return user, assistant.removesuffix("<|end|>")


@pytest.mark.parametrize("name", ["pair", "plain", "chat"])
@given(prompt=texts, response=texts, max_length=st.integers(16, 60))
@settings(max_examples=60, deadline=None)
def test_truncate_keeps_the_end_of_the_prompt_and_the_beginning_of_the_response(
    name: str, prompt: str, response: str, max_length: int
) -> None:
    tokenizer = ALL[name]
    whole = Formatter(tokenizer, max_length=100_000).encode([prompt], [response])
    formatter = Formatter(tokenizer, max_length=max_length)
    cut = formatter.encode([prompt], [response])
    assert cut.lengths[0] <= max_length
    assert cut.truncated.tolist() == [whole.lengths[0] > max_length]
    if not cut.truncated[0]:
        np.testing.assert_array_equal(cut.ids, whole.ids)
        return
    kept_prompt, kept_response = parts(name, tokenizer, cut.text(0).tolist())
    assert prompt.endswith(kept_prompt)
    assert response.startswith(kept_response)
    # Neither is cut below half of the room while the other is above; nearly all of the room is used.
    room = max_length - (whole.lengths[0] - count(tokenizer, prompt) - count(tokenizer, response))
    kept = {prompt: count(tokenizer, kept_prompt), response: count(tokenizer, kept_response)}
    for text, other in ((prompt, response), (response, prompt)):
        if text != kept_prompt and text != kept_response and kept[text] < room // 2 - 3:
            assert kept[other] <= room // 2 + 3
    assert cut.lengths[0] >= max_length - 5


def count(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


@pytest.mark.parametrize("name", ALL)
@given(prompt=any_text, response=any_text, max_length=st.integers(24, 40), group=st.sampled_from([None, "Chile"]))
@settings(max_examples=40, deadline=None)
def test_no_text_of_any_script_exceeds_the_bound(
    name: str, prompt: str, response: str, max_length: int, group: str | None
) -> None:
    """Bytes of one character, unknown words and empty texts included. A BOS stays first and an end of text last."""
    tokenizer = ALL[name]
    encoded = Formatter(tokenizer, max_length=max_length, template="{group}:").encode(
        [prompt], [response], groups=[group]
    )
    ids = encoded.text(0).tolist()
    assert len(ids) <= max_length
    first, last = (tokenizer.cls_token_id, tokenizer.sep_token_id) if name == "pair" else (1, ids[-1])
    assert (ids[0], ids[-1]) == (first, last)
    if name == "plain":
        assert ids[-1] == tokenizer.eos_token_id
    if encoded.types is not None:
        assert len(encoded.types) == len(ids)


def test_the_oldest_history_goes_first_and_the_group_stays() -> None:
    turns = [{"role": "user", "content": f"turn {i}"} for i in range(20)]
    formatter = Formatter(PLAIN, max_length=110, template="From {group}.")
    encoded = formatter.encode(["the lake"], ["is cold"], [turns], ["Chile"])
    text = formatter.show(encoded.text(0).tolist())
    assert encoded.truncated[0]
    assert text.startswith("<s>From Chile.\n\nuser: turn ")
    assert text.endswith("user: turn 19\n\nthe lake\n\nis cold</s>")
    assert "turn 0\n" not in text
    # One more turn would not have fitted.
    assert 110 - len(encoded.ids) < count(PLAIN, "user: turn 10\n\n") + 1


def test_drop_leaves_the_text_out_and_says_so() -> None:
    formatter = Formatter(PAIR, max_length=16, overlong="drop")
    encoded = formatter.encode(["rice", "rice " * 20, "lake"], ["cold"] * 3)
    assert encoded.dropped.tolist() == [False, True, False]
    assert not encoded.truncated.any()
    assert encoded.lengths.tolist() == [5, 0, 5]
    assert encoded.types is not None
    assert encoded.types.tolist() == [0, 0, 0, 1, 1] * 2
    np.testing.assert_array_equal(encoded.text(2), Formatter(PAIR).encode(["lake"], ["cold"]).text(0))


def test_error_names_the_text_and_the_two_ways_out() -> None:
    formatter = Formatter(PAIR, max_length=16, overlong="error")
    with pytest.raises(UserError, match=r"text 1: expected at most 16 tokens, found 24 .*overlong=truncate"):
        formatter.encode(["rice", "rice " * 20], ["cold"] * 2)
    assert len(formatter.encode(["rice"], ["cold"])) == 1


def test_a_bound_too_short_for_the_template_is_a_users_mistake() -> None:
    formatter = Formatter(PLAIN, max_length=16, template="A long way to say that the reader lives in {group}.")
    with pytest.raises(UserError, match="max_length=16 is too short for the template"):
        formatter.encode(["the lake"], ["is cold"], groups=["Chile"])


def test_cut_to_the_same_tokens_is_seen() -> None:
    """PITFALLS 19, 20: after truncation two responses can be equal; such pairs must be found."""
    start = "rice and bread " * 20
    encoded = Formatter(PAIR, max_length=20).encode(["lake"] * 3, [start + "now", start + "then", "rice"])
    assert encoded.same(0, 1)
    assert not encoded.same(0, 2)


def test_no_texts() -> None:
    empty = Formatter(PAIR).encode([], [])
    assert isinstance(empty, Encoded)
    assert len(empty) == 0
    assert empty.offsets.tolist() == [0]


def test_the_fingerprint_changes_with_what_shapes_the_ids() -> None:
    base = Formatter(CHAT).fingerprint()
    assert base == Formatter(chat_tokenizer()).fingerprint()
    others = [
        Formatter(CHAT, max_length=100),
        Formatter(CHAT, overlong="drop"),
        Formatter(CHAT, template="{group}"),
        Formatter(NO_SYSTEM),
        Formatter(PLAIN),
    ]
    assert len({base, *(f.fingerprint() for f in others)}) == 6


@pytest.mark.parametrize(
    "template", ["no field", "{group} {age}", "{", "{}", "{group", "{group.__class__}", "{group[0]}"]
)
def test_a_template_names_the_group_plainly(template: str) -> None:
    with pytest.raises(UserError, match=r"conditioning\.template: expected a text with \{group\}"):
        Formatter(PAIR, template=template)


def test_settings_are_checked() -> None:
    check_template("{a} of {{b}}", {"a"}, "x")
    with pytest.raises(UserError, match=r"model\.overlong: expected one of truncate, drop, error, found 'cut'"):
        Formatter(PAIR, overlong="cut")
    with pytest.raises(UserError, match=r"model\.max_length: expected at least 16 tokens, found 15"):
        Formatter(PAIR, max_length=15)
