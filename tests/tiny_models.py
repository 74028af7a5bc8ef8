"""Small tokenizers for tests, trained on a few sentences: one per kind of input that the formatter knows."""

from __future__ import annotations

import re
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SENTENCES = (
    "the lake is cold in the morning and warm in the evening",
    "should the town build a bridge or keep the ferry",
    "a kind answer names both sides and says what is not known",
    "bread, salt and olives are enough for a long walk",
    "the reader lives in the valley where the river is wide",
    "please tell me how old trees are counted and why",
    "no one agrees on the best way to cook rice",
    "user and assistant speak in turn: first one, then the other",
)

# Spaces between the parts show up as tokens; the turn markers are special tokens, as in public chat models.
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CHAT_TEMPLATE_WITHOUT_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    + CHAT_TEMPLATE
)


def pair_tokenizer() -> PreTrainedTokenizerFast:
    """``[CLS] a [SEP] b [SEP]`` with token types 0 and 1, as BERT's: known words whole, others by letter."""
    # The vocabulary is written out: training word pieces breaks ties in an order that differs from run to run.
    words = sorted({word for sentence in SENTENCES for word in re.findall(r"\w{2,}", sentence)})
    letters = [chr(c) for c in range(33, 127)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in letters), *words]
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def plain_tokenizer() -> PreTrainedTokenizerFast:
    """``<s> text``, bytes, as a decoder's: a BOS from the post-processor, an EOS that only the formatter writes."""
    tokenizer = _byte_level(["<pad>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return _decoder_like(tokenizer)


def chat_tokenizer(system: bool = True) -> PreTrainedTokenizerFast:
    """A decoder's tokenizer whose chat template writes the BOS, as its post-processor also would.

    Args:
        system: False for a template that refuses the system role.
    """
    roles = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
    tokenizer = _byte_level(["<pad>", "<s>", "</s>", *roles])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
    )
    chat = _decoder_like(tokenizer)
    chat.chat_template = CHAT_TEMPLATE if system else CHAT_TEMPLATE_WITHOUT_SYSTEM
    return chat


def _byte_level(special: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


def _decoder_like(tokenizer: Tokenizer) -> Any:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        model_input_names=["input_ids", "attention_mask"],
    )
