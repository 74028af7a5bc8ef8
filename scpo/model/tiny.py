"""`model=tiny`: a small encoder built from scratch, with a tokenizer trained on the data at hand.

For demos and tests: it needs no download, trains in a minute on a CPU, and reads words well enough to learn traits of text.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scpo.errors import UserError

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Any:
    """A byte-level BPE tokenizer that joins two texts as ``[CLS] a [SEP] b [SEP]``; the same texts give the same one."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Sorted and unique, so that the order of rows, or a text that stands in many rows, changes nothing.
    tokenizer.train_from_iterator(sorted(set(texts)), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_input_names=["input_ids", "attention_mask"],
    )


def build(
    folder: Path,
    texts: Iterable[str],
    *,
    seed: int = 0,
    vocab_size: int = 4096,
    hidden_size: int = 128,
    layers: int = 2,
    heads: int = 4,
    max_length: int = 512,
) -> None:
    """Write a randomly initialised reward model (ModernBERT with mean pooling) and its tokenizer as a Hugging Face folder.

    Args:
        folder: where to write; replaced as a whole.
        texts: what the tokenizer is trained on; only training texts belong here.
        seed: of the weights.
        vocab_size, hidden_size, layers, heads: the size; the defaults give 0.9 million parameters.
        max_length: the longest input in tokens.
    """
    import torch
    from transformers import ModernBertConfig, ModernBertForSequenceClassification

    from scpo.io import replace_folder
    from scpo.model.reward import without_bars

    if hidden_size % heads:
        raise UserError(f"model: expected hidden_size divisible by heads, found {hidden_size} and {heads}")
    tokenizer = train_tokenizer(texts, vocab_size)
    settings: dict[str, Any] = {"num_labels": 1, "classifier_pooling": "mean"}
    config = ModernBertConfig(
        **settings,
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=max_length,
        attention_dropout=0.0,
        pad_token_id=tokenizer.pad_token_id,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ModernBertForSequenceClassification(config)
    with replace_folder(folder) as temporary, without_bars():
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
