"""One small simulated world, prepared once, with one tiny global run on it: what the tests of runs and commands start from.

With pytest-xdist the first worker that needs it makes it, in the folder that all workers share, while the others wait.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from filelock import FileLock

from scpo.evaluation.accuracy import steered_rows

TWO = "groups.names=[Chile,South Africa]"
FEW = ("trainer.max_steps=2", "evaluation.resamples=100", TWO)
"""Overrides of a run that ends in a second."""


@dataclass(frozen=True)
class World:
    """Folders: raw files, their tables of comparisons, and a finished run on United States and United Kingdom."""

    root: Path

    @property
    def raw(self) -> Path:
        return self.root / "raw"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def goqa(self) -> Path:
        return self.root / "goqa"

    @property
    def run(self) -> Path:
        return self.root / "global"

    @property
    def model(self) -> Path:
        """A starting and reference model."""
        return self.run / "model"

    def overrides(self, *more: str) -> list[str]:
        """Train two groups for two steps from the global model, and what is said beyond it."""
        return [f"data.dir={self.data}", f"model.name_or_path={self.model}", *FEW, *more]

    def config(self, *more: str) -> dict[str, Any]:
        """The resolved config of `overrides`."""
        return compose(*self.overrides(*more))


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line on stderr that a user's mistake leaves."""
        assert self.code == 2, self
        assert self.err.startswith("scpo: "), self.err
        assert self.err.count("\n") == 1, self.err
        assert self.err.endswith("\n")
        return self.err


Command = Callable[..., Done]


def compose(*overrides: str, name: str = "train") -> dict[str, Any]:
    """The resolved config for these overrides, as the command gets it."""
    import hydra
    from omegaconf import OmegaConf

    from scpo.cli.hydra_app import conf_dir

    with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
        config: Any = OmegaConf.to_container(hydra.compose(name, list(overrides)), resolve=True)
    assert isinstance(config, dict)
    return config


def make_world(root: Path) -> None:
    """Simulate, prepare and train."""
    from scpo.data.goqa import read_goqa
    from scpo.data.manifest import finish
    from scpo.data.prism import read_prism
    from scpo.data.simulate import simulate
    from scpo.run.execute import execute

    world = World(root)
    simulate(world.raw, annotators=240, questions=60, seed=0)
    prism, goqa = read_prism(world.raw / "prism"), read_goqa(world.raw / "goqa")
    prism.extra["simulated"] = goqa.extra["simulated"] = True  # as scpo prepare finds out
    finish(prism, world.data)
    finish(goqa, world.goqa, split="question")
    config = compose("experiment=global", f"data.dir={world.data}", "trainer.max_steps=60", "evaluation.resamples=100")
    execute(config, world.run, "scpo train experiment=global")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The world of this test session; its folders are read by all tests, so no test writes into them."""
    base = tmp_path_factory.getbasetemp()
    # https://pytest-xdist.readthedocs.io/en/stable/how-to.html: the parent is the same for all workers.
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "world"
    with FileLock(f"{root}.lock"):
        ready = root / "ready"
        if not ready.exists():
            make_world(root)
            ready.touch()
    return World(root)


@pytest.fixture
def scpo(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Runs a command as the console script does, in this process and in an empty folder."""
    from scpo.cli.main import entry

    cwd = tmp_path / "cwd"
    cwd.mkdir()
    monkeypatch.chdir(cwd)
    monkeypatch.delenv("SCPO_DEBUG", raising=False)
    # The command line sets up the process's messages; the next test must find them as they were.
    logger = logging.getLogger("scpo")
    monkeypatch.setattr(logger, "propagate", logger.propagate)
    monkeypatch.setattr(logger, "handlers", list(logger.handlers))

    def run(*argv: str | Path) -> Done:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["scpo", *map(str, argv)])
        with pytest.raises(SystemExit) as end:
            entry()
        shown = capsys.readouterr()
        return Done(int(end.value.code or 0), shown.out, shown.err)

    return run


def own_rows(run: Path) -> pd.DataFrame:
    """A run's predictions without the rows of the steering check: every candidate once, under its own group."""
    frame = pd.read_parquet(run / "predictions.parquet")
    return frame[steered_rows(frame, str(run))].reset_index(drop=True)


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder with its size and time of change: equal before and after what must not touch it."""
    files = (p for p in sorted(folder.rglob("*")) if p.is_file())
    return {str(p.relative_to(folder)): (p.stat().st_size, p.stat().st_mtime_ns) for p in files}
