"""The model card: what the exported model is, on what and how well it was trained, its limits, and how to use it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scpo.evaluation.formats import INSUFFICIENT, NONE, clean, estimate, markdown_table, markdown_text, percent, size
from scpo.evaluation.plots import printable
from scpo.evaluation.report import average_table, method_sentences, summary_sentences
from scpo.export.data import DataFacts
from scpo.export.form import Form, code
from scpo.export.source import Source

EXAMPLE_PROMPT = "How is rice cooked?"
EXAMPLE_RESPONSES = ("Rinse it, then simmer it in water.", "I do not know.")


@dataclass(frozen=True)
class Card:
    """What a card is written from.

    Attributes:
        source: the run and group.
        facts: of its data.
        form: how texts reach the model.
        rewards: of the example's responses; empty where the model reads too few tokens for them.
        base_model: Hub id of the starting model, or None.
        command: of the export.
        hub_id: where the folder goes, or None.
    """

    source: Source
    facts: DataFacts
    form: Form
    rewards: list[float]
    base_model: str | None
    command: str
    hub_id: str | None

    @property
    def group(self) -> str | None:
        """What the exported model is told."""
        return self.source.group


def write_card(card: Card) -> str:
    """README.md as the Hub reads it: a YAML header, then Markdown."""
    title = f"Reward model for {card.group}" if card.group is not None else "Reward model"
    parts = [f"# {markdown_text(title)}", *_about(card), *_use(card), *_data(card), *_accuracy(card)]
    parts += [*_steering(card), *_limits(card), *_made(card)]
    return f"---\n{header(card)}---\n\n" + "\n\n".join(parts) + "\n"


def header(card: Card) -> str:
    """The YAML header."""
    import yaml

    corpus = card.facts.corpus
    fields: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["reward-model", "text-classification", "scpo"],
        "license": corpus.spdx,
        "base_model": card.base_model,
        "datasets": [corpus.hub] if corpus.hub else None,
    }
    return str(yaml.safe_dump({k: v for k, v in fields.items() if v is not None}, sort_keys=False, allow_unicode=True))


def _about(card: Card) -> list[str]:
    source, groups = card.source, ", ".join(card.source.steering["groups"])
    how = {
        "separate": "trained for this group alone",
        "none": f"one model for {groups}, which is not told the group",
        "prefix": f"one model for {groups}, which reads the group's name in the input",
    }.get(source.mode, f"one model for {groups}, with something learned for each group (conditioning {source.mode})")
    folded = {
        "embedding": "the group's vector is added to the embedding matrix",
        "head": "the group's reward head stands in the place of the shared one",
        "adapter": "the group's LoRA is merged into the weights",
    }
    said = [
        "A sequence classifier with one output: the reward of a response to a prompt. Rewards order the responses to one "
        "prompt, higher is better; their level means nothing, and rewards of different models are not in one unit.",
        f"Exported from a run of scpo: {how}.",
    ]
    if source.learned:
        said.append(
            f"This folder is the model as it is when told {card.group}: {folded[source.mode]}. It is told no other group."
        )
    elif source.sentence is not None:
        said.append(f"This folder is for {card.group}, named in the input as: {source.sentence}")
    elif source.mode not in ("separate", "none"):
        trained = "" if source.steering["default"] else " It was not trained for that: it was always told a group."
        said.append(f"This folder is the model as it is when told no group.{trained}")
    return [markdown_text(text) for text in said]


def input_sentences(form: Form) -> list[str]:
    """How a text must be built, in words."""
    said = []
    if form.kind == "chat":
        said.append(
            "Texts go through the chat template, which writes the special tokens: tokenise its result without adding them "
            "again. Earlier turns are earlier messages."
        )
        if form.baked is not None:
            where = "as a system message" if form.system else "at the beginning of the first message"
            said.append(
                f"The chat template names the group by itself, {where}, unless the messages begin with a system message: then "
                "the group is not named."
            )
    elif form.kind == "pair":
        said.append(
            "The tokenizer joins two texts. The prompt is the first, the response the second, in this order: one text of both "
            "gives other rewards."
        )
    else:
        end = " and then the end-of-text token, on which the reward is read" if form.end else ""
        said.append(
            f"One text: the prompt, a blank line, the response{end}. The code writes it so; a text without any of them gives "
            "other rewards."
        )
    if form.kind != "chat":
        said.append(
            'Earlier turns go before the prompt, one after the other as "role: content", with blank lines between.'
        )
    if form.before:
        said.append("The group is named before everything else, followed by a blank line; the code holds the words.")
    said.append(
        f"At most {form.max_length} tokens. In training longer texts lost the beginning of the prompt and the end of the "
        "response; transformers would cut them elsewhere, so the code refuses them. Padding is on the right."
    )
    return said


def _use(card: Card) -> list[str]:
    block = f"```python\n{code(card.form, card.hub_id or '.', EXAMPLE_PROMPT, EXAMPLE_RESPONSES)}\n```"
    parts = ["## How to use", *(markdown_text(text) for text in input_sentences(card.form)), block]
    if card.rewards:
        parts.append(f"It prints {', '.join(f'{r:.4f}' for r in card.rewards)}, to rounding.")
    return parts


def _data(card: Card) -> list[str]:
    source, facts = card.source, card.facts
    rows = []
    for group, cell in source.metrics["by_group"].items():
        chosen = (source.metrics.get("selection") or {}).get(group, {})
        counts = [chosen.get("training pairs"), chosen.get("kept"), facts.clusters.get(group)]
        shown = [NONE if n is None else f"{n:,}" for n in counts]
        rows.append([group, *shown, f"{cell['n_pairs']:,}", f"{cell['n_clusters']:,}"])
    columns = ["group", "training pairs", "trained on", "training clusters", "test pairs", "test clusters"]
    split = source.config["split"]["method"]
    apart = (
        "single comparisons were split, so that one can be on both sides" if split == "row" else "none is on both sides"
    )
    said = [
        f"{facts.corpus.title}. Source: {facts.origin}.",
        f"Licence of the data: {facts.corpus.licence} The licence of the starting model holds as well.",
    ]
    below = [
        f"Clusters are {facts.corpus.unit}; {apart} of the split ({split}). Training pairs were selected by "
        f"selection={source.config['selection']['name']}. What the starting model was trained on is not in this table."
    ]
    if "init" in source.config:
        below.append("Adapted: the network and all other groups are those of an earlier run, on data of its own.")
    return [
        "## Data",
        *(markdown_text(text) for text in said),
        markdown_table(columns, rows).rstrip(),
        *(markdown_text(text) for text in below),
    ]


HEADER = ["group", "all", "n", "distinctive", "n", "shared", "n", "reference"]


def accuracy_rows(by_group: Mapping[str, Any], group: str | None) -> list[list[str]]:
    """One row per group, the exported one first; n is pairs / clusters, small cells keep their n and lose their number."""
    rows = []
    for name in sorted(by_group, key=lambda g: g != group):
        cell = by_group[name]
        subsets = [text for s in ("all", "distinctive", "shared") for text in (estimate(cell[s]), size(cell[s]))]
        if not cell["n_pairs"]:
            subsets[0] = INSUFFICIENT
        reference = percent(cell["reference"]["all"]) if printable(cell["all"]) else NONE
        rows.append([f"{name} (this model)" if name == group else name, *subsets, reference])
    return rows


def whose_numbers(card: Card) -> str:
    """Which of the run's numbers are this folder's."""
    source, measured = card.source, card.source.metrics["by_group"]
    if source.mode == "none":
        return "All numbers are of this model."
    if card.group is None:
        return "In this table the model was told each pair's own group: none of its rows is this folder's, which is told none."
    others = (
        "models of their own"
        if source.mode == "separate"
        else "the same network told that row's own group, not this folder"
    )
    if card.group not in measured:
        return f"This run has no test pairs of {card.group}: this model is not measured. The rows are {others}."
    return f"This model is the row of {card.group}. The other rows, and the averages below, are of {others}."


def _accuracy(card: Card) -> list[str]:
    metrics = card.source.metrics
    caption, averages_header, averages = average_table(metrics)
    return [
        "## Accuracy",
        markdown_text(
            "Share of test pairs, in percent, in which the response that was preferred gets the strictly higher reward; a tie "
            "is wrong. In brackets: 95 % interval. n: pairs / clusters. Distinctive pairs are those that the reference model "
            "ranks the wrong way round, so it scores 0 there; higher on them is not simply better. Shared pairs are the rest."
        ),
        markdown_text(whose_numbers(card)),
        markdown_table(HEADER, accuracy_rows(metrics["by_group"], card.group)).rstrip(),
        *(markdown_text(text) for text in summary_sentences(metrics)),
        markdown_text(f"Averages, worst group and gap of the run. {caption}"),
        markdown_table(averages_header, averages).rstrip(),
    ]


def _steering(card: Card) -> list[str]:
    check = card.source.metrics.get("steering")
    if not check:
        return []
    parts = ["## Does it follow the group?", markdown_text(check["sentence"])]
    told = check["matrix"].get(card.group) if card.group is not None else (check["default_row"] or {}).get("default")
    if told:
        rows = [
            [name, INSUFFICIENT if cell["insufficient"] else percent(cell["accuracy"]), size(cell)]
            for name, cell in told.items()
        ]
        parts += [
            "This model on a sample of each group's test pairs, in percent; n: pairs / clusters.",
            markdown_table(["whose pairs", "accuracy", "n"], rows).rstrip(),
        ]
    return parts


def _limits(card: Card) -> list[str]:
    source, metrics = card.source, card.source.metrics
    said = [
        f"Who was asked: {card.facts.corpus.asked}",
        "Agreement with preference pairs is not alignment with a community, and accuracy on these texts says little of others.",
        *method_sentences(metrics),
        "Percentile intervals are too narrow below about 20 clusters.",
        f"Not tested: other data than the test split, other languages, texts of more than {card.form.max_length} tokens, "
        "people outside of the groups above, and what a policy learns that is trained on this reward.",
    ]
    if source.config["evaluation"]["split"] != "test":
        said.append(f"Evaluated on split {source.config['evaluation']['split']}, not on the test split.")
    return ["## Limits", "\n".join(f"- {markdown_text(text)}" for text in said)]


def _made(card: Card) -> list[str]:
    source = card.source
    config, status = source.config, source.status
    trained = ", ".join(f"{name} {version}" for name, version in status.get("versions", {}).items())
    settings = ", ".join(
        f"{key} {config[key]['name']}" for key in ("selection", "conditioning", "balance", "loss") if key in config
    )
    start = card.base_model or "a model folder, or from scratch"
    bounds = [
        f"{config['trainer'][f'max_{unit}']} {unit}"
        for unit in ("steps", "epochs")
        if config["trainer"][f"max_{unit}"] != -1
    ]
    said = [
        f"Settings: {settings}. Starting model: {start}. Trained for at most {' and '.join(bounds)} per model.",
        f"Seeds: training {config['seed']}, split {config['split']['seed']}. Hash of the configuration: "
        f"{str(status.get('config_hash'))[:16]}. Trained {str(status.get('finished'))[:10]}.",
        f"Versions: {trained}.",
    ]
    files = (
        "`export.json` says the form of the input for programs; `steering/` is for scpo: how the model was trained, and hashes "
        "of its training comparisons, which an evaluation leaves out."
    )
    commands = [c for c in (status.get("command"), card.command) if c]
    block = "```\n" + "\n".join(public_command(c) for c in commands) + "\n```"
    return ["## How it was made", *([block] if commands else []), *(markdown_text(s) for s in said), files]


def public_command(command: str) -> str:
    """A command without the folders of the machine that it was typed on: of an absolute path the last part stays."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    return clean(shlex.join([_without_folder(word) for word in words]))


def _without_folder(word: str) -> str:
    return re.sub(r"(^|[=,\['\"])(?:/|~|[A-Za-z]:\\)[^,\]=]*?([^/\\,\]=]+)[/\\]*(?=$|[,\]])", r"\1.../\2", word)
