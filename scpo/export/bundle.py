"""The exported folder: what steers is folded into the weights, and its rewards are checked with transformers alone."""

from __future__ import annotations

import gc
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from scpo.conditioning import write_steering
from scpo.data.encode import Formatter
from scpo.errors import UserError, did_you_mean
from scpo.export.card import EXAMPLE_PROMPT, EXAMPLE_RESPONSES, Card, write_card
from scpo.export.data import NEUTRAL, Text, base_model, read_facts
from scpo.export.form import Form, bake, form_of, plain_inputs
from scpo.export.source import Source, read_source
from scpo.io import read_json, replace_folder, shown, write_json, write_text
from scpo.model.files import resolve_model
from scpo.model.reward import ModelOptions, RewardNetwork, without_bars
from scpo.model.score import score_texts
from scpo.model.steering_files import load_steered
from scpo.model.trained import TRAINED_ON
from scpo.run.folder import versions

FloatArray = npt.NDArray[np.float32]

MARK = "export.json"
"""What makes a folder an earlier export, which may be replaced."""

TOLERANCE = 1e-4
"""Largest difference of a reward loaded with transformers alone; relative for rewards above 1."""


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        folder: where.
        source: the run and group.
        form: how texts reach the model.
        checked: texts whose rewards were compared.
        difference: the largest of their differences.
        notes: what the user should know.
    """

    folder: Path
    source: Source
    form: Form
    checked: int
    difference: float
    notes: tuple[str, ...]


def export(
    run: Path, group: str | None, out: Path, *, force: bool = False, command: str = "", hub_id: str | None = None
) -> Exported:
    """Write a run's model for one group, or without a group, as a plain AutoModelForSequenceClassification folder.

    The weights are float32 whatever the run was trained in: rewards rounded to bfloat16 tie, and a small change of a group
    would be lost in rounded weights.

    Args:
        run: the folder of a finished training run.
        group: a name or an alias; needed for one model per group, refused where the model is not told groups.
        out: the folder to write; absent or empty, or with `force` an earlier export.
        command: what the user typed, for the card.
        hub_id: the id under which the folder will be uploaded, for the card.

    Raises:
        UserError: see :func:`scpo.export.source.read_source`; a folder that must not be replaced; damaged weights; rewards
            that transformers alone does not reproduce. Nothing is written then.
    """
    check_out(out, force)
    source = read_source(run, group)
    facts = read_facts(source)
    model, notes = load_steered(resolve_model(source.folder), _options(source))
    form = form_of(model.formatter, source.sentence)
    example = tuple((EXAMPLE_PROMPT, response, ()) for response in EXAMPLE_RESPONSES)
    texts = fitting(model, source, (*example, *NEUTRAL, *facts.texts))
    ours = our_rewards(model, source, texts)
    known = dict(zip([(prompt, response) for prompt, response, _ in texts], ours.tolist(), strict=True))
    rewards = [known.get((EXAMPLE_PROMPT, response)) for response in EXAMPLE_RESPONSES]
    with replace_folder(out) as folder:
        save(model, source, form, folder)
        card = Card(source, facts, form, [r for r in rewards if r is not None], base_model(source), command, hub_id)
        write_text(folder / "README.md", write_card(card))
        del model  # a large model need not be held twice
        gc.collect()
        difference = check_rewards(folder, form, texts, ours)
    notes += _warnings(source)
    return Exported(Path(out), source, form, len(texts), difference, tuple(notes))


def check_out(out: Path, force: bool) -> None:
    """Raise UserError unless the folder is absent or empty, or, with `force`, an earlier export."""
    out = Path(out)
    if out.is_dir():
        names = sorted(p.name for p in out.iterdir())
        ours = is_export(out)
        if names and not (ours and force):
            what = "an earlier export; --force replaces it, with all that was changed in it"
            others = f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}; choose another --out"
            raise UserError(f"{out}: expected a new or empty folder, found {what if ours else others}")
    elif out.exists():
        raise UserError(f"{out}: expected a folder to write to, found a file; choose another --out")


def is_export(folder: Path) -> bool:
    """True for a folder that :func:`export` wrote."""
    if not (folder / MARK).is_file():
        return False
    found = read_json(folder / MARK)
    return isinstance(found, dict) and found.get("schema") == 1 and "config_hash" in found and "input" in found


def _options(source: Source) -> ModelOptions:
    settings = source.config["model"]
    return ModelOptions(
        max_length=source.steering["max_length"],
        overlong=source.steering["overlong"],
        template=source.steering["template"],
        attention=settings.get("attention"),
        allow_pickle=False,
    )


def fitting(model: RewardNetwork, source: Source, texts: tuple[Text, ...]) -> tuple[Text, ...]:
    """The texts that are short enough to be read whole; longer ones are cut, which transformers does in its own way."""
    prompts, responses, histories = zip(*texts, strict=True)
    ours = model.formatter
    formatter = Formatter(ours.tokenizer, max_length=ours.max_length, overlong="drop", template=ours.template)
    named = [source.group if source.sentence is not None else None] * len(texts)
    too_long = formatter.encode(prompts, responses, histories, named).dropped
    kept = tuple(text for text, long in zip(texts, too_long, strict=True) if not long)
    if not kept:
        raise UserError(
            f"{source.run}: model.max_length={ours.max_length} is too short for any text to be compared; nothing was written"
        )
    return kept


def our_rewards(model: RewardNetwork, source: Source, texts: tuple[Text, ...]) -> FloatArray:
    """Rewards (n,) of the steered model, as `scpo score` gives them."""
    prompts, responses, histories = zip(*texts, strict=True)
    told = source.group if source.mode not in ("none", "separate") else None
    return score_texts(model, prompts, responses, histories, [told] * len(texts))


def save(model: RewardNetwork, source: Source, form: Form, folder: Path) -> None:
    """Fold the group into the network and write weights, tokenizer and what scpo itself needs to read them.

    The network is changed in place: it is not to be asked for rewards any more.
    """
    if model.steering is not None and source.group is not None:
        model.steering.fold(model.network, source.group)
    tokenizer, config = model.formatter.tokenizer, model.network.config
    # A reward is no probability: without this word transformers' pipeline would put it through a sigmoid.
    config.problem_type = "regression"
    bake(tokenizer, form)
    tokenizer.padding_side = "right"
    tokenizer.model_max_length = form.max_length
    for key in ("is_local", "local_files_only"):  # how we read it here is not how others must
        tokenizer.init_kwargs.pop(key, None)
    with without_bars():
        model.network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    _write_own(source, form, folder)


def _write_own(source: Source, form: Form, folder: Path) -> None:
    """What `scpo` reads beside the model: how it was trained, on what, and that this is an export."""
    told = [source.group] if source.group is not None else list(source.steering["groups"])
    # Words before the prompt are still the caller's to write; all else that a group changes lies in the weights now.
    mode = "prefix" if form.before else "none"
    config = {**source.config, "model": {**source.config["model"], "dtype": "float32"}}
    config["model"] |= {"max_length": form.max_length, "overlong": source.steering["overlong"]}
    config["conditioning"] = {**config["conditioning"], "template": source.steering["template"]}
    write_steering(folder, config, told, mode, default=source.steering["default"] or mode == "none")
    if (source.folder / TRAINED_ON).is_file():
        shutil.copyfile(source.folder / TRAINED_ON, folder / TRAINED_ON)
    write_json(
        folder / MARK,
        {
            "schema": 1,
            "group": source.group,
            "conditioning": source.mode,
            "input": form.kind,
            "text_before_prompt": form.before,
            "in_chat_template": form.baked,
            "text_after_response": form.end,
            "max_length": form.max_length,
            "config_hash": source.status.get("config_hash"),
            "versions": versions(),
        },
    )


def plain_rewards(folder: Path, form: Form, texts: tuple[Text, ...]) -> FloatArray:
    """Rewards (n,) of a folder by transformers alone, in one padded batch."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    with without_bars():
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model = AutoModelForSequenceClassification.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        ).eval()
    prompts, responses, histories = zip(*texts, strict=True)
    inputs = plain_inputs(tokenizer, form, prompts, responses, histories)
    with torch.inference_mode():
        return np.asarray(model(**inputs).logits[:, 0].numpy())


def check_rewards(folder: Path, form: Form, texts: tuple[Text, ...], ours: FloatArray) -> float:
    """The largest difference between rewards by transformers alone and ours.

    Raises:
        UserError: above :data:`TOLERANCE`.
    """
    theirs = plain_rewards(folder, form, texts)
    apart = np.abs(theirs.astype(np.float64) - ours) / np.maximum(1.0, np.abs(ours))
    # "not <=" also holds for NaN.
    wrong = np.flatnonzero(~(apart <= TOLERANCE))
    if len(wrong):
        i = int(wrong[0])
        raise UserError(
            f"export: expected rewards of the exported folder within {TOLERANCE:g} of the run's model, found {theirs[i]:.6g} "
            f"instead of {ours[i]:.6g} ({len(wrong)} of {len(texts)} texts differ, such as prompt {shown(texts[i][0], 40)}); "
            "nothing was written; this model's inputs or head cannot be exported"
        )
    return float(np.abs(theirs.astype(np.float64) - ours).max())


def _warnings(source: Source) -> list[str]:
    """What the user should know of an export that is as it was asked for."""
    notes = []
    if source.group is None and not source.steering["default"]:
        notes.append(
            f"{source.run} was always told a group in training (no group dropout): its rewards without one were not trained "
            f"for; export a group with group=NAME.{did_you_mean('', source.steering['groups'])}"
        )
    if source.config["model"].get("dtype") != "float32":
        notes.append(
            "the weights are written in float32, the run was trained in bfloat16: rewards differ slightly from the run's"
        )
    return notes
