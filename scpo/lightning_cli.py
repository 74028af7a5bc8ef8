"""The LightningModule and the LightningDataModule of `scpo cli`: the library's own, from plain values instead of built objects.

A thin second door to the one config tree: the values become a config of `scpo train`, and the functions of `scpo train` build
model and data from it. What a value is left null for is what the tree's file says.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from scpo import conditioning
from scpo.data.datamodule import Chunk, PairSet, PreferenceData
from scpo.errors import UserError
from scpo.lit import RewardModule
from scpo.model.reward import RewardNetwork
from scpo.run.config import Config, check_accelerator, check_train_config
from scpo.run.fit import data_options, module_options
from scpo.run.inputs import build_start, load_data, named_start, reference_folder
from scpo.run.parts import Inputs, check_selection, drop_overlong, load_part, pair_set, prepare_inputs
from scpo.run.rewards import score_reference, set_threads

Values = dict[str, Any]

DATA_CHOICES = {"name": "data", "split": "split", "selection": "selection", "balance": "balance"}
MODEL_CHOICES = {"name": "model", "conditioning": "conditioning", "schedule": "schedule"}
"""Arguments that choose a file of a group of the tree."""

DATA_KEYS = {
    "dir": "data.dir",
    "min_gap": "data.min_gap",
    "train_comparisons": "data.train_comparisons",
    "attribute": "groups.attribute",
    "split_seed": "split.seed",
    "tau": "selection.tau",
    "beta": "selection.beta",
    "effective_beta": "balance.effective_beta",
    "eta": "balance.eta",
    "adjustment": "balance.adjustment",
    "reference": "reference.name_or_path",
    "reference_allow_pickle": "reference.allow_pickle",
    "cache_dir": "cache_dir",
    "batch_pairs": "batch.pairs",
    "batch_tokens": "batch.tokens",
    "batch_together": "batch.together",
    "workers": "batch.workers",
}
MODEL_KEYS = {
    **{
        key: f"model.{key}"
        for key in ("name_or_path", "max_length", "overlong", "dtype", "gradient_checkpointing", "lora")
    },
    **{key: f"model.{key}" for key in ("allow_pickle", "attention", "threads")},
    **{key: f"conditioning.{key}" for key in ("template", "group_dropout", "lr_scale", "freeze", "embedding")},
    **{key: f"conditioning.{key}" for key in ("head_rank", "adapter_rank", "adapter_alpha", "adapter_targets")},
    **{key: f"optim.{key}" for key in ("lr", "weight_decay", "betas")},
    "warmup": "schedule.warmup",
    "margin": "loss.margin",
    "centering": "loss.centering",
    "gradient_clip_val": "trainer.gradient_clip_val",
}
"""Arguments that set a key of the tree."""


@contextlib.contextmanager
def own_names() -> Iterator[None]:
    """Let the messages of a block name the arguments of `scpo cli` where they name keys of the tree."""
    names = {key: f"data.{name}" for name, key in DATA_KEYS.items()}
    names |= {key: f"model.{name}" for name, key in MODEL_KEYS.items()} | {"groups.names": "data.groups"}
    choices = {group: f"data.{name}" for name, group in {**DATA_CHOICES, "groups": "groups"}.items()}
    choices |= {group: f"model.{name}" for name, group in MODEL_CHOICES.items()}
    try:
        yield
    except UserError as error:
        text = re.sub(r"(?<![\w./])\w+\.\w+\b(?!\.)", lambda m: names.get(m[0], m[0]), str(error))
        text = re.sub(r"(?<![\w./])(\w+)(?==\w)", lambda m: choices.get(m[0], m[0]), text)
        raise UserError(text) from error


def compose(choices: dict[str, str], values: Values) -> Config:
    """The config of `scpo train` with these choices of groups and these values of keys; None leaves what the tree says.

    Args:
        choices: such as ``{"selection": "full"}``.
        values: by dotted key, such as ``{"optim.lr": 1e-4}``.
    """
    import hydra
    from omegaconf import OmegaConf

    from scpo.cli.hydra_app import conf_dir

    with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
        config = hydra.compose("train", [f"{group}={choice}" for group, choice in choices.items()])
    for key, value in values.items():
        if value is not None:
            # Values are set and not written as overrides, whose grammar would read into paths and names.
            OmegaConf.update(config, key, value)
    plain: Any = OmegaConf.to_container(config, resolve=True)
    return dict(plain)


class TableData(PreferenceData):
    """Comparisons of some groups: which are read, selected and balanced.

    The pairs are encoded when :class:`SteerableModule`, which brings the tokenizer, is made from these data.

    Args:
        name: whose settings are taken where they are null (conf/data).
        dir: folder of a comparisons table, written by scpo prepare.
        groups: names such as [Chile,South Africa], or a choice of conf/groups: prism7, goqa14, majority, all.
        attribute: an attribute of the annotator that takes the groups' place.
        split: how comparisons are split (conf/split).
        split_seed: of the split.
        min_gap: pairs need a score gap above this.
        train_comparisons: of each group, drawn by the seed, are trained on; null is all.
        selection: which pairs are trained on, and with what weight (conf/selection).
        tau: threshold of the filter, in (0, 1].
        beta: of the weight, above 0, in units of reward.
        balance: weight of the groups (conf/balance).
        effective_beta: of balance=effective.
        eta: step size of the groups' weights under balance=dro.
        adjustment: added to a group's loss under balance=dro, over the root of its pairs.
        reference: reference reward model, a folder or a Hub id; null is the starting model, if it has a reward head.
        reference_allow_pickle: read its weights if they are not safetensors (trusted sources only).
        cache_dir: of the reference rewards; null is <dir>/reference.
        batch_pairs: whole comparisons are added to an optimiser step until it holds as many pairs.
        batch_tokens: padded tokens of one forward pass.
        batch_together: "prompt" puts the comparisons of one prompt into one step.
        workers: data loader processes.
        seed: linked to seed_everything.
        trainer: linked to the trainer's settings.
    """

    def __init__(
        self,
        name: Literal["simulated", "prism", "goqa", "table"] = "simulated",
        dir: str | None = None,
        groups: list[str] | str = "prism7",
        attribute: str | None = None,
        split: Literal["prepared", "stratified", "paper", "question", "row"] = "prepared",
        split_seed: int | None = None,
        min_gap: float | None = None,
        train_comparisons: int | None = None,
        selection: Literal["full", "filter", "weight", "inverse", "scpo", "random"] = "scpo",
        tau: float | None = None,
        beta: float | None = None,
        balance: Literal["none", "inverse", "sqrt", "effective", "dro"] = "none",
        effective_beta: float | None = None,
        eta: float | None = None,
        adjustment: float | None = None,
        reference: str | None = None,
        reference_allow_pickle: bool | None = None,
        cache_dir: str | None = None,
        batch_pairs: int | None = None,
        batch_tokens: int | None = None,
        batch_together: Literal["prompt"] | None = None,
        workers: int | None = None,
        seed: int = 0,
        trainer: dict[str, Any] | None = None,
    ) -> None:
        given = dict(locals())
        # PreferenceData itself begins in `build`.
        self.choices: dict[str, str] = {group: given[name] for name, group in DATA_CHOICES.items()}
        self.values: Values = {key: given[name] for name, key in DATA_KEYS.items()}
        self.values |= {"seed": seed, **{f"trainer.{key}": value for key, value in (trainer or {}).items()}}
        if isinstance(groups, str) and is_choice("groups", groups):
            self.choices["groups"] = groups
        else:
            self.values["groups.names"] = [groups] if isinstance(groups, str) else list(groups)

    def build(self, choices: dict[str, str], values: Values) -> RewardNetwork:
        """Read, select and encode the pairs for a model of these choices and values; returns its network.

        Raises:
            UserError: all that `scpo train` raises, or several groups with conditioning=separate.
        """
        config = compose({**self.choices, **choices}, {**self.values, **values})
        with own_names():
            self._prepare(config)
        network, options = self.ready.model, data_options(config, self.ready.model)
        super().__init__(self.ready.train, self.ready.val, **options)
        self.test = _test_pairs(config, self.inputs, network)
        self._tested = PreferenceData(self.ready.train, self.test, **options)
        self.length = self.total_steps(config["trainer"]["max_epochs"], config["trainer"]["max_steps"])
        return network

    def _prepare(self, config: Config) -> None:
        """All that `scpo train` does before a training, for one part."""
        check_train_config(config)
        check_accelerator(config["trainer"])
        set_threads(config)
        named = named_start(config)
        reference = reference_folder(config, named)
        check_selection(config, reference)
        data = load_data(config)
        self.part, *more = conditioning.parts(config["conditioning"]["name"], data.groups)
        if more:
            raise UserError(
                f"conditioning=separate: expected one group, since scpo cli trains one model, found {len(data.groups)} "
                f"({', '.join(data.groups)}); name one in groups.names, or train all of them with scpo train"
            )
        with tempfile.TemporaryDirectory() as work:
            # A start from scratch follows from config and data alone; its files are not needed once it is loaded.
            start = named or build_start(config, data, Path(work))
            drop_overlong(config, data, start)
            self.inputs = prepare_inputs(config, data, start, score_reference(config, data, reference))
            self.config, self.ready = config, load_part(config, self.inputs, self.part)

    def test_dataloader(self) -> Any:
        """All test pairs, each once over all processes."""
        self._tested.trainer = self.trainer
        return self._tested.val_dataloader()


def _test_pairs(config: Config, inputs: Inputs, model: RewardNetwork) -> PairSet:
    """The pairs that an evaluation counts, those of equal texts included: they are ties."""
    pairs = inputs.data.pairs("test", config["data"]["min_gap"])
    return pair_set(config, inputs.data, model, pairs, np.ones(len(pairs)), keep_equal=True)[0]


def is_choice(group: str, name: str) -> bool:
    """True where the config tree has a file of this name in a group."""
    from scpo.cli.hydra_app import conf_dir

    return name in {path.stem for path in (conf_dir() / group).glob("*.yaml")}


class SteerableModule(RewardModule):
    """A reward model in one of the conditioning modes, its loss and its optimiser.

    Args:
        data: the comparisons; linked to the data.
        name: whose settings are taken where they are null (conf/model).
        name_or_path: starting model, a folder or a Hub id; null is what conf/model says.
        conditioning: how the group reaches the model (conf/conditioning); separate needs exactly one group.
        template: words of conditioning=prefix, with {group}.
        group_dropout: share of comparisons that are trained without their group.
        lr_scale: learning rate of what is learned for each group, over lr.
        freeze: train only what is learned for each group.
        embedding: a vector for each group on every token.
        head_rank: 0 is a head for each group, k are weights over k shared reward directions.
        adapter_rank: rank of a LoRA for each group.
        adapter_alpha: the LoRA's change is scaled by alpha / rank.
        adapter_targets: all-linear, or names of modules of the backbone.
        max_length: most tokens of a text.
        overlong: what happens to longer texts.
        dtype: of the backbone's weights.
        gradient_checkpointing: less memory, more time.
        lora: settings of one LoRA for all groups (conf/model); null is full training.
        allow_pickle: read weights that are not safetensors (trusted sources only).
        attention: attention implementation of transformers.
        threads: CPU threads.
        lr: learning rate.
        weight_decay: of AdamW.
        betas: of AdamW, two numbers.
        schedule: of the learning rate (conf/schedule).
        warmup: share of the steps.
        margin: rewards are asked to differ by margin times the score gap.
        centering: pulls rewards to 0.
        gradient_clip_val: largest norm of the gradient; 0 is no clipping. It takes the trainer's place.
    """

    def __init__(
        self,
        data: TableData,
        name: Literal["tiny", "minilm", "deberta", "tulu"] = "tiny",
        name_or_path: str | None = None,
        conditioning: Literal["separate", "none", "prefix", "embedding", "head", "adapter"] = "separate",
        template: str | None = None,
        group_dropout: float | None = None,
        lr_scale: float | None = None,
        freeze: bool | None = None,
        embedding: bool | None = None,
        head_rank: int | None = None,
        adapter_rank: int | None = None,
        adapter_alpha: float | None = None,
        adapter_targets: list[str] | str | None = None,
        max_length: int | None = None,
        overlong: Literal["truncate", "drop", "error"] | None = None,
        dtype: Literal["float32", "bfloat16"] | None = None,
        gradient_checkpointing: bool | None = None,
        lora: dict[str, Any] | None = None,
        allow_pickle: bool | None = None,
        attention: str | None = None,
        threads: int | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        betas: list[float] | None = None,
        schedule: Literal["linear", "cosine", "constant"] = "linear",
        warmup: float | None = None,
        margin: float | None = None,
        centering: float | None = None,
        gradient_clip_val: float | None = None,
    ) -> None:
        given = dict(locals())
        network = data.build(
            {group: given[name] for name, group in MODEL_CHOICES.items()},
            {key: given[name] for name, key in MODEL_KEYS.items()},
        )
        groups = data.inputs.data.groups
        super().__init__(network, groups, **module_options(data.config, groups, data, data.length))
        # What a checkpoint must share with the model that it is loaded into; plain values, so that it loads as weights only.
        told = groups if conditioning not in ("none", "prefix") else []
        words = data.config["conditioning"]["template"] if conditioning == "prefix" else None
        self.identity: Values = {"conditioning": conditioning, "groups": list(told), "template": words}
        self.train()

    def test_step(self, batch: list[Chunk], batch_idx: int) -> None:
        """Adds the batch's pairs to sums, as in validation."""
        self.validation_step(batch, batch_idx)

    def on_test_epoch_start(self) -> None:
        self.on_validation_epoch_start()

    def on_test_epoch_end(self) -> None:
        self.on_validation_epoch_end()

    def log_dict(self, dictionary: Any, *args: Any, **kwargs: Any) -> None:
        """The numbers of a test have validation's names with test/ for val/: measured alike, they are named alike."""
        if self.trainer.testing:
            dictionary = {f"test/{name.removeprefix('val/')}": value for name, value in dictionary.items()}
        super().log_dict(dictionary, *args, **kwargs)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what the model is told."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["scpo"]["identity"] = self.identity

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint of another model: loading is not strict, since frozen weights are not in it."""
        if "scpo" not in checkpoint:
            raise UserError("--ckpt_path: expected a checkpoint of scpo cli or scpo train, found another one")
        identity = checkpoint["scpo"].get("identity", self.identity)
        for key, value in self.identity.items():
            if identity[key] != value:
                place = "--data.groups" if key == "groups" else f"--model.{key}"
                raise UserError(f"--ckpt_path: trained with {key} {identity[key]!r}, and {place} says {value!r}")
        own, theirs = self.state_dict(), checkpoint["state_dict"]
        network = [name for name in theirs if name.startswith("model.")]
        wrong = [name for name in network if name not in own or own[name].shape != theirs[name].shape]
        if wrong:
            raise UserError(
                f"--ckpt_path: {len(wrong)} of its {len(network)} weights do not fit the model (such as {wrong[0]}); give "
                "the settings under model that it was trained with"
            )
        super().on_load_checkpoint(checkpoint)

    def _check_finite(self, losses: Any, chunk: Chunk, data: PairSet) -> None:
        datamodule: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        super()._check_finite(losses, chunk, datamodule.test if self.trainer.testing else data)
