"""The resolved config of a run: its hash, and one check of everything that can be checked before anything is loaded."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from scpo.conditioning import LEARNED, MODES
from scpo.errors import UserError
from scpo.io import sha256_json

Config = dict[str, Any]

NOT_HASHED = ("run_dir", "cache_dir", "fail_fast", "logger")
NOT_HASHED_INSIDE = (
    ("batch", "workers"),
    ("model", "threads"),
    ("trainer", "log_every_n_steps"),
    ("trainer", "threads"),
)
"""Keys that change where a run is written, how fast, or how a sweep ends, but no number."""

ACCELERATORS = ("cpu", "gpu", "mps", "auto", "cuda")
PRECISIONS = ("32-true", "32", "bf16-mixed")
"""A backbone in pure bfloat16 is model.dtype=bfloat16, which leaves the head in float32; bf16-true would not."""
SCHEDULES = (
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
)
"""Those of transformers' schedules that need no more settings than ours."""


def config_hash(config: Config) -> str:
    """Hex hash of the config without the keys of `NOT_HASHED` and `NOT_HASHED_INSIDE`."""
    kept = {k: dict(v) if isinstance(v, dict) else v for k, v in config.items() if k not in NOT_HASHED}
    for section, key in NOT_HASHED_INSIDE:
        if isinstance(kept.get(section), dict):
            kept[section].pop(key, None)
    return sha256_json(_finite(kept))


def _finite(value: Any) -> Any:
    """The value with NaN and infinity as text, so that a config that will be refused still has a hash and a folder."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def check_train_config(config: Config) -> None:
    """Raise one UserError that names every wrong value of a training config."""
    from scpo.balance import METHODS
    from scpo.data.encode import OVERLONG, check_template
    from scpo.lit import MONITORS
    from scpo.selection import ARMS, check_beta, check_tau

    check = _Checks()
    trainer, callbacks, selection = config["trainer"], config["callbacks"], config["selection"]
    check.one_of("selection.name", selection["name"], ARMS)
    check.that(lambda: check_tau(number("selection.tau", selection["tau"])))
    check.that(lambda: check_beta(number("selection.beta", selection["beta"])))
    check.one_of("balance.name", config["balance"]["name"], METHODS)
    check.bounds("balance.effective_beta", config["balance"]["effective_beta"], 0, 1, high_open=True)
    check.one_of("conditioning.name", config["conditioning"]["name"], MODES)
    check.that(lambda: check_template(config["conditioning"]["template"], {"group"}, "conditioning.template"))
    _check_conditioning(config["conditioning"], check)
    check.bounds("balance.eta", config["balance"]["eta"], 0, None, low_open=True)
    check.bounds("balance.adjustment", config["balance"]["adjustment"], 0, None)
    check.bounds("optim.lr", config["optim"]["lr"], 0, None, low_open=True)
    check.bounds("optim.weight_decay", config["optim"]["weight_decay"], 0, None)
    betas = config["optim"].get("betas", [0.9, 0.999])
    if not isinstance(betas, list) or len(betas) != 2:
        check.add(f"optim.betas: expected two numbers such as [0.9,0.999], found {betas!r}")
    else:
        for beta in betas:
            check.bounds("optim.betas", beta, 0, 1, high_open=True)
    check.one_of("schedule.name", config["schedule"]["name"], SCHEDULES)
    check.bounds("schedule.warmup", config["schedule"]["warmup"], 0, 1)
    check.bounds("loss.margin", config["loss"]["margin"], 0, None)
    check.bounds("loss.centering", config["loss"]["centering"], 0, None)
    check.bounds("batch.pairs", config["batch"]["pairs"], 1, None, whole=True)
    check.bounds("batch.tokens", config["batch"]["tokens"], 1, None, whole=True)
    if config["batch"]["together"] not in (None, "prompt"):
        check.add(f"batch.together: expected prompt or null, found {config['batch']['together']!r}")
    check.bounds("batch.workers", config["batch"]["workers"], 0, None, whole=True)
    check.bounds("seed", config["seed"], 0, 2**32 - 1, whole=True)
    for key in ("max_steps", "max_epochs"):
        check.bounds(f"trainer.{key}", trainer[key], -1, None, whole=True)
        if trainer[key] == 0:
            check.add(f"trainer.{key}: expected -1 (no cap) or at least 1, found 0")
    if trainer["max_steps"] == -1 and trainer["max_epochs"] == -1:
        check.add("trainer.max_steps and trainer.max_epochs: expected a cap in one of them, found -1 in both")
    check.bounds("trainer.gradient_clip_val", trainer["gradient_clip_val"], 0, None)
    check.one_of("trainer.accelerator", trainer["accelerator"], ACCELERATORS)
    check.one_of("trainer.strategy", trainer["strategy"], known_strategies())
    _check_devices(trainer["devices"], check)
    if str(trainer["precision"]).startswith("16"):
        check.add(
            f"trainer.precision: expected 32-true or bf16-mixed, found {trainer['precision']!r}: float16 rewards overflow"
        )
    else:
        check.one_of("trainer.precision", str(trainer["precision"]), PRECISIONS)
    if trainer["threads"] is not None:
        check.bounds("trainer.threads", trainer["threads"], 1, None, whole=True)
    check.bounds("trainer.log_every_n_steps", trainer["log_every_n_steps"], 1, None, whole=True)
    if trainer["val_check_interval"] is not None:
        check.bounds("trainer.val_check_interval", trainer["val_check_interval"], 1, None, whole=True)
    check.bounds("callbacks.every_n_steps", callbacks["every_n_steps"], 1, None, whole=True)
    if callbacks["monitor"] is not None:
        check.one_of("callbacks.monitor", callbacks["monitor"], MONITORS)
    if callbacks["patience"] is not None:
        check.bounds("callbacks.patience", callbacks["patience"], 1, None, whole=True)
        if callbacks["monitor"] is None:
            check.add("callbacks.patience: needs callbacks.monitor (val/accuracy, val/accuracy_micro or val/loss)")
    if config["data"]["train_comparisons"] is not None:
        check.bounds("data.train_comparisons", config["data"]["train_comparisons"], 1, None, whole=True)
    check.one_of("model.overlong", config["model"]["overlong"], OVERLONG)
    check.one_of("model.dtype", config["model"]["dtype"], ("float32", "bfloat16"))
    check.bounds("model.max_length", config["model"]["max_length"], 16, None, whole=True)
    _check_shared(config, check)
    check.raise_all()


def _check_conditioning(conditioning: Config, check: _Checks) -> None:
    name = conditioning["name"]
    check.bounds("conditioning.group_dropout", conditioning["group_dropout"], 0, 1, high_open=True)
    check.bounds("conditioning.lr_scale", conditioning["lr_scale"], 0, None, low_open=True)
    for key in ("freeze", "embedding"):
        if not isinstance(conditioning[key], bool):
            check.add(f"conditioning.{key}: expected true or false, found {conditioning[key]!r}")
    for key, least in (("head_rank", 0), ("adapter_rank", 1)):
        if conditioning[key] is not None:
            check.bounds(f"conditioning.{key}", conditioning[key], least, 4096, whole=True)
    check.bounds("conditioning.adapter_alpha", conditioning["adapter_alpha"], 0, None, low_open=True)
    targets = conditioning["adapter_targets"]
    if not isinstance(targets, str) and not (
        isinstance(targets, list) and targets and all(isinstance(t, str) for t in targets)
    ):
        check.add(f"conditioning.adapter_targets: expected all-linear or names of modules, found {targets!r}")
    own = {"embedding": conditioning["embedding"] is True, "head": conditioning["head_rank"] is not None}
    own["adapter"] = conditioning["adapter_rank"] is not None
    if name not in LEARNED and any(own.values()):
        given = next(key for key, there in own.items() if there)
        check.add(f"conditioning={name}: learns nothing for each group; choose conditioning={given}")
    elif not own.get(name, True):
        check.add(
            f"conditioning={name}: expected what the mode is named for, found it switched off; choose another mode"
        )


def known_strategies() -> list[str]:
    """Lightning's strategies that work in processes started by torch's launcher: all but those that start their own."""
    from lightning.pytorch.strategies import StrategyRegistry

    starts_own = ("spawn", "fork", "notebook")
    return ["auto", *(n for n in StrategyRegistry.available_strategies() if not any(word in n for word in starts_own))]


def _check_devices(devices: Any, check: _Checks) -> None:
    several = devices if isinstance(devices, list) and devices else [devices]
    if len(set(map(str, several))) < len(several):
        check.add(f"trainer.devices: expected each device once, found {devices!r}")
    whole = all(isinstance(d, int) and not isinstance(d, bool) and d >= 0 for d in several)
    if devices not in ("auto", -1) and (not whole or devices == 0):
        check.add(
            f"trainer.devices: expected a number of at least 1, a list of device numbers or auto, found {devices!r}"
        )


def check_evaluate_config(config: Config) -> None:
    """Raise one UserError that names every wrong value of an evaluation config."""
    from scpo.selection import check_beta, check_tau

    check = _Checks()
    if config["run"] is None and config["model"]["name_or_path"] is None:
        check.add("give run=RUN (a run folder) or model.name_or_path=ID_OR_PATH with data.dir=DATA")
    if config["run"] is not None and config["model"]["name_or_path"] is not None:
        check.add("give run=RUN or model.name_or_path=ID_OR_PATH, not both")
    if config["run"] is None and config["data"]["dir"] is None:
        check.add("data.dir: expected the folder of a comparisons table (scpo prepare ... --out DATA), found null")
    check.bounds("batch.tokens", config["batch"]["tokens"], 1, None, whole=True)
    if "selection" in config:  # a run's own
        check.that(lambda: check_tau(number("selection.tau", config["selection"]["tau"])))
        check.that(lambda: check_beta(number("selection.beta", config["selection"]["beta"])))
    _check_shared(config, check)
    check.raise_all()


def check_accelerator(trainer: Config) -> None:
    """Raise UserError where the trainer's accelerator is not on this machine."""
    import torch

    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    there = {"gpu": cuda or mps, "cuda": cuda, "mps": mps}
    kind = trainer["accelerator"]
    if not there.get(kind, True):
        found = ", ".join(["cpu", *(["cuda"] if cuda else []), *(["mps"] if mps else [])])
        raise UserError(f"trainer.accelerator={kind}: none on this machine, which has: {found}; choose trainer=cpu")
    devices = trainer["devices"]
    if (kind == "cpu" or not (cuda or mps)) and (isinstance(devices, list) or devices == -1):
        raise UserError(f"trainer.devices: expected a number of processes on a CPU, found {devices!r}")


def _check_shared(config: Config, check: _Checks) -> None:
    from scpo.selection import check_beta, check_tau

    evaluation, split = config["evaluation"], config["split"]
    paths = {f"{name}.name_or_path": config[name]["name_or_path"] for name in ("model", "reference")}
    paths |= {"data.dir": config["data"]["dir"], "run": config.get("run"), "cache_dir": config["cache_dir"]}
    for key, value in paths.items():
        if value is not None and not isinstance(value, str):
            check.add(f"{key}: expected a path or an id as text, found {value!r}")
    check.one_of("evaluation.split", evaluation["split"], ("test", "val", "train", "all"))
    check.bounds("evaluation.steering_sample", evaluation["steering_sample"], 0, None, whole=True)
    check.bounds("evaluation.min_clusters", evaluation["min_clusters"], 1, None, whole=True)
    check.bounds("evaluation.min_pairs", evaluation["min_pairs"], 1, None, whole=True)
    check.bounds("evaluation.resamples", evaluation["resamples"], 100, 1_000_000, whole=True)
    if evaluation["tau"] is not None:
        check.that(lambda: check_tau(number("evaluation.tau", evaluation["tau"])), "evaluation.tau: ")
    if evaluation["beta"] is not None:
        check.that(lambda: check_beta(number("evaluation.beta", evaluation["beta"])), "evaluation.beta: ")
    check.bounds("data.min_gap", config["data"]["min_gap"], 0, None)
    check.one_of("split.method", split["method"], ("prepared", "stratified", "paper", "question", "row"))
    check.bounds("split.val_fraction", split["val_fraction"], 0, 1, high_open=True)
    check.bounds("split.seed", split["seed"], 0, 2**32 - 1, whole=True)
    if not isinstance(split["fractions"], list) or len(split["fractions"]) != 3:
        check.add(f"split.fractions: expected three numbers (train, val, test), found {split['fractions']!r}")
    else:
        for fraction in split["fractions"]:
            check.bounds("split.fractions", fraction, 0, 1)
    names = config["groups"]["names"]
    if names is not None and (not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names)):
        check.add(f"groups.names: expected a list of group names such as [Chile,South Africa], found {names!r}")


def number(key: str, value: Any) -> float:
    """``value`` as a float, or a UserError that names its key."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{key}: expected a number, found {value!r}")
    return float(value)


class _Checks:
    """Gathers what is wrong, so that a user mends a config once and not value by value."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def add(self, message: str) -> None:
        self.wrong.append(message)

    def that(self, check: Callable[[], None], prefix: str = "") -> None:
        try:
            check()
        except UserError as error:
            self.wrong.append(f"{prefix}{error}")

    def one_of(self, key: str, value: Any, known: Any) -> None:
        if value not in known:
            self.add(f"{key}: expected one of {', '.join(map(str, known))}, found {value!r}")

    def bounds(
        self,
        key: str,
        value: Any,
        low: float,
        high: float | None,
        *,
        low_open: bool = False,
        high_open: bool = False,
        whole: bool = False,
    ) -> None:
        right_type = isinstance(value, int) if whole else isinstance(value, int | float)
        if isinstance(value, bool) or not right_type or not math.isfinite(value):
            self.add(f"{key}: expected a {'whole ' if whole else 'finite '}number, found {value!r}")
            return
        too_low = value <= low if low_open else value < low
        too_high = high is not None and (value >= high if high_open else value > high)
        if too_low or too_high:
            ends = f"{'above' if low_open else 'at least'} {low}"
            ends += "" if high is None else f" and {'below' if high_open else 'at most'} {high}"
            self.add(f"{key}: expected {ends}, found {value}")

    def raise_all(self) -> None:
        if self.wrong:
            raise UserError("; ".join(self.wrong))
