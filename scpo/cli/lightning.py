"""LightningCLI over :mod:`scpo.lightning_cli`: what a user may set, what must hold, and where a training leaves its files."""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.loggers import CSVLogger

from scpo import conditioning
from scpo.errors import UserError, did_you_mean
from scpo.lightning_cli import SteerableModule, TableData, compose, own_names
from scpo.model.steering_files import describe
from scpo.run.fit import TRAINER_FLAGS, interrupts_kept
from scpo.run.parts import save_part
from scpo.run.predict import scales
from scpo.run.progress import TrainProgress

LINKED = ("accelerator", "devices", "strategy", "precision", "max_steps", "max_epochs")
LINKED_MORE = ("val_check_interval", "log_every_n_steps", "detect_anomaly", "deterministic")
"""The trainer's settings that a config of `scpo train` has as well."""

LINKED_TO = {"data.seed": "seed_everything", "data.trainer": "trainer", "model.data": "data"}
"""Arguments that are not the user's, and where their values come from."""

MUST_BE: dict[str, tuple[Any, str]] = {
    **{key: (value, "the data module deals its own plan") for key, value in TRAINER_FLAGS.items()},
    "gradient_clip_val": (None, "optimisation is manual; set model.gradient_clip_val"),
    "gradient_clip_algorithm": (None, "gradients are clipped by norm; set model.gradient_clip_val"),
    "accumulate_grad_batches": (
        1,
        "a step holds whole comparisons in chunks; set data.batch_pairs and data.batch_tokens",
    ),
    "limit_train_batches": (None, "the schedule has the length of the training; set trainer.max_steps"),
    "overfit_batches": (0.0, "it would change the data; set data.train_comparisons"),
    "inference_mode": (True, "nothing is trained in a validation"),
    "barebones": (False, "nothing would be logged or saved"),
}

EXAMPLE = """examples:
  scpo cli fit --config examples/cli/fit_embedding.yaml --data.dir data/prism --model.name_or_path runs/global/model
  scpo cli test --config examples/cli/fit_embedding.yaml --data.dir data/prism --model.name_or_path runs/global/model \\
    --ckpt_path runs/cli/version_0/checkpoints/last.ckpt
  scpo cli fit --print_config

null: what the file of the config tree says (conf/data, conf/model, ...). One config per conditioning mode lies in examples/cli.
"""


def known_keys() -> list[str]:
    """Everything that a config file or the command line may set."""
    classes = {"model": SteerableModule, "data": TableData, "trainer": L.Trainer}
    keys = [f"{section}.{name}" for section, c in classes.items() for name in inspect.signature(c).parameters]
    return [*(k for k in keys if k not in LINKED_TO), "seed_everything", "ckpt_path", "config"]


def tidy(message: str) -> str:
    """jsonargparse's message in one line and in our words, with the keys that are near an unknown one."""
    text = " ".join(message.split())
    unknown = re.search(r"unrecognized arguments: --([\w.]+)|does not accept option '([\w.]+)'", text)
    if unknown:
        name = unknown[1] or unknown[2]
        return f"{name}: unknown key.{did_you_mean(name, known_keys())}"
    key = re.match(r'Parser key "([\w.]+)": ', text)
    found = re.search(r"(?:Given|Got) value: (.*)$", text)
    if key is None or found is None:
        return text
    choices, types = re.search(r"Literal\[(.*?)\]", text), re.findall(r"Expected an? <class '(\w+)'>", text)
    words = {"NoneType": "null", "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false"}
    if choices:
        expected = f"one of {choices[1].replace(chr(39), '')}"
    elif types:
        expected = " or ".join(words.get(t, f"a {t}") for t in dict.fromkeys(types))
    else:
        return text
    return f"{LINKED_TO.get(key[1], key[1])}: expected {expected}, found {found[1]}"


class OneLineParser(LightningArgumentParser):
    """A parser whose mistakes are one line, like every other command's."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise the message."""
        raise UserError(f"scpo cli: {tidy(message)}; 'scpo cli fit --help' explains") from ex

    def format_help(self, *args: Any, **kwargs: Any) -> str:
        """jsonargparse's help, with examples below it."""
        return f"{super().format_help(*args, **kwargs)}\n{EXAMPLE}"


class ConfigCopy(SaveConfigCallback):
    """Writes the parsed config into the log folder; says so where an earlier run's stood there."""

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Write it."""
        self.overwrite = True
        path = Path(trainer.log_dir) / self.config_filename
        if not self.already_saved and trainer.is_global_zero and path.is_file():
            sys.stderr.write(
                f"{path} of an earlier run is overwritten; --trainer.default_root_dir=NEW keeps both runs apart\n"
            )
        super().setup(trainer, pl_module, stage)


class SteerableCLI(LightningCLI):
    """Builds data, module and trainer from a config file and the command line, and runs one of fit, validate and test."""

    def __init__(self, args: list[str]) -> None:
        tree = compose({}, {})["trainer"]
        defaults = {
            **{key: tree[key] for key in (*LINKED, *LINKED_MORE)},
            **{key: value for key, (value, _) in MUST_BE.items()},
            "check_val_every_n_epoch": None,
            "enable_progress_bar": False,  # Lightning's is on stdout
            "enable_model_summary": False,
            "default_root_dir": "runs",
        }
        super().__init__(
            SteerableModule,
            TableData,
            save_config_callback=ConfigCopy,
            trainer_defaults=defaults,
            seed_everything_default=0,
            parser_class=OneLineParser,
            parser_kwargs={
                "prog": "scpo cli",
                "description": "Train and measure one reward model, with Lightning's own CLI.",
            },
            args=args,
            auto_configure_optimizers=False,
            # A checkpoint holds no settings, so none of the config's can be lost to them without a word.
            load_from_checkpoint_support=False,
        )

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """What can be run, and the arguments that are not the user's."""
        known = LightningCLI.subcommands()
        return {name: known[name] for name in ("fit", "validate", "test")}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """What data and module share, and what the trainer knows of them."""
        parser.link_arguments("seed_everything", "data.seed")
        keys = (*LINKED, *LINKED_MORE)
        parser.link_arguments(
            tuple(f"trainer.{key}" for key in keys),
            "data.trainer",
            compute_fn=lambda *values: dict(zip(keys, values, strict=True)),
        )
        parser.link_arguments("data", "model.data", apply_on="instantiate")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse; Lightning would warn of arguments that were given here while the process has its own."""
        self.config = parser.parse_args(args)

    def _set_seed(self) -> None:
        """Lightning's without its announcement; no random seed passes the link to data.seed."""
        L.seed_everything(self.config[self.config.subcommand].seed_everything, workers=True, verbose=False)

    def before_instantiate_classes(self) -> None:
        """Refuse what would silently change a training, before anything is loaded."""
        config = self.config[self.config.subcommand]
        wrong = [
            f"trainer.{key}: expected {json.dumps(value)}, found {json.dumps(config.trainer[key], default=str)}: {why}"
            for key, (value, why) in MUST_BE.items()
            if config.trainer[key] != value
        ]
        if config.weights_only is not None and config.weights_only is not True:
            wrong.append("weights_only: expected true, found false: a checkpoint is read without running its code")
        path = config.ckpt_path
        if path is not None and not Path(path).is_file():
            # Lightning's words "last" and "best" would look into the new log folder and find nothing there.
            wrong.append(f"ckpt_path: expected a checkpoint file, found no file {path}")
        if wrong:
            raise UserError("; ".join(wrong))
        config.weights_only = True

    def instantiate_trainer(self, **kwargs: Any) -> Any:
        """The trainer, with the length of the training and a log folder of its own."""
        given, data = self._get(self.config_init, "trainer"), self.datamodule
        interval = given["val_check_interval"]
        if isinstance(interval, int):
            # A training shorter than the interval is still validated once, at its end.
            kwargs["val_check_interval"] = min(interval, max(1, data.length))
        elif interval is None and given["check_val_every_n_epoch"] is None:
            kwargs["check_val_every_n_epoch"] = 1
        if given["logger"] in (None, True):
            kwargs["logger"] = CSVLogger(given["default_root_dir"], name="cli")
        self.trainer_defaults["callbacks"] = [TrainProgress("all", sys.stderr)]
        return super().instantiate_trainer(max_steps=data.length, **kwargs)

    def fit(self, **kwargs: Any) -> None:
        """Train."""
        with interrupts_kept(), own_names():
            self.trainer.fit(**kwargs)

    def after_fit(self) -> None:
        """Leave the last checkpoint and a model folder, as a run of `scpo train` has it."""
        trainer: Any = self.trainer
        if trainer.fast_dev_run:
            return
        data, module = self.datamodule, self.model
        folder = Path(str(self.trainer.log_dir))
        last = folder / "checkpoints" / "last.ckpt"
        saved = any(isinstance(callback, ModelCheckpoint) for callback in trainer.callbacks)
        if saved:
            trainer.save_checkpoint(last)
        config, run, mode = data.config, data.inputs.data, data.config["conditioning"]["name"]
        model = module.model
        model.merge()
        model.eval()
        # The processes share the texts, so all of them must come here.
        scale = scales(config, run, model, run.groups, mode) if mode != "none" else {}
        if not trainer.is_global_zero:
            return
        save_part(config, run, model, data.part, data.ready.rows, folder / "model")
        conditioning.write_steering(folder / "model", config, run.groups, mode, scale or None, describe(model))
        sys.stdout.write((f"checkpoint: {last}\n" if saved else "") + f"model: {folder / 'model'}\n")

    def before_validate(self) -> None:
        """There must be something to measure."""
        if self.datamodule.val is None:
            raise UserError(
                "data.split: expected a split with validation pairs, found none; choose another, or scpo cli test"
            )
        self._say_untrained()

    def before_test(self) -> None:
        """Say what is measured."""
        self._say_untrained()

    def _say_untrained(self) -> None:
        if self._get(self.config_init, "ckpt_path") is None and self.trainer.is_global_zero:
            sys.stderr.write("no --ckpt_path: the starting model is measured\n")
