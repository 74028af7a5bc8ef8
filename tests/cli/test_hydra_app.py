"""Hydra behind the commands: its errors as one line with exit code 2, and sweeps that tell every failure."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from world import Command, World, compose

from scpo.cli import hydra_app, train
from scpo.io import read_json
from scpo.run.config import config_hash

WRONG = [
    (["selection.tao=1"], ["tao"]),
    (["selection=foo"], ["foo", "full", "filter", "weight", "inverse", "scpo", "random"]),
    (["batch.tokns=1"], ["tokns"]),
    (["nonsense=1"], ["nonsense"]),
    (["seed=[1"], ["[1"]),
    (["groups.names=[Chile"], ["Chile"]),
    (["=3"], ["Config group override must be a string or a list"]),
    (["batch.tokens", "=3"], ["batch.tokens"]),
    (["experiment=unheard"], ["unheard", "prism_main"]),
    (["batch.tokens=${nowhere.tokens}"], ["nowhere"]),
]


def leftovers(folder: Path) -> list[str]:
    """What Hydra would leave in a folder where it runs."""
    return [p.name for p in folder.rglob("*") if p.name in ("outputs", "multirun", ".hydra") or p.suffix == ".log"]


EITHER = [
    (argv, names) for argv, names in WRONG if argv[0].split("=")[0] not in ("selection", "selection.tao", "experiment")
]


@pytest.mark.parametrize(
    ("command", "argv", "names"), [("train", *wrong) for wrong in WRONG] + [("evaluate", *wrong) for wrong in EITHER]
)
def test_what_hydra_refuses_is_one_line(
    scpo: Command, tmp_path: Path, command: str, argv: list[str], names: list[str]
) -> None:
    line = scpo(command, *argv).line
    for name in names:
        assert name in line
    assert f"'scpo {command} --help' shows the config groups and keys" in line
    assert list((tmp_path / "cwd").iterdir()) == []


def test_hydras_own_flags_work(scpo: Command, tmp_path: Path) -> None:
    done = scpo("train", "--cfg", "job", "selection=filter", "seed=7")
    assert done.code == 0
    assert "name: filter" in done.out
    assert "seed: 7" in done.out
    assert "hydra:" not in done.out
    done = scpo("train", "--help")
    for group in ("balance", "conditioning", "experiment", "selection"):
        assert re.search(rf"^\s*{group}: ", done.out, re.MULTILINE), group
    assert "scpo train -m model.name_or_path" in done.out
    assert "--cfg" in scpo("train", "--hydra-help").out
    assert "evaluation:" in scpo("evaluate", "--cfg", "job").out
    assert list((tmp_path / "cwd").iterdir()) == []


def test_a_sweep_goes_on_after_failures_and_tells_them_all(
    scpo: Command, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "sweep"
    argv = ["train", "-m", *world.overrides("groups.names=[Chile]"), "selection.tau=0.7,0", "batch.pairs=0,8"]
    argv.append(f"run_dir={root}")
    done = scpo(*argv)
    assert done.code == 1
    last = done.err.splitlines()[-4:]
    assert last[0] == f"4 jobs: 1 finished, 3 failed; collect them with: scpo table {root}"
    assert [line.split(":")[1].split(",")[0].strip() for line in last[1:]] == ["job 0", "job 2", "job 3"]
    assert last[1].endswith("batch.pairs: expected at least 1, found 0")
    assert "selection.tau: expected a number above 0" in last[2]
    assert "selection.tau: " in last[2]
    assert "batch.pairs: " in last[2], "all wrong values of a job in its line"
    assert "selection.tau: " in last[3]
    folders = sorted(p for p in root.iterdir() if p.is_dir())
    assert len(folders) == 4
    assert all(re.fullmatch(r"[0-9a-f]{8}", p.name) for p in folders)
    states = sorted(read_json(p / "status.json")["state"] for p in folders)
    assert states == ["failed", "failed", "failed", "finished"]
    assert leftovers(tmp_path) == []
    assert not [p for p in root.iterdir() if p.name.startswith(".")], "no records of the sweep are left"

    # The same command finds the finished job and tries the others again.
    ran: list[str] = []
    from scpo.run import parts

    monkeypatch.setattr(parts, "train_part", lambda *args: ran.append(args[2].name))
    again = scpo(*argv)
    assert again.code == 1
    assert ran == []
    assert "is finished; nothing to do" in again.err
    assert again.err.splitlines()[-4] == last[0]

    found = scpo("table", root)
    assert found.code == 0
    assert found.err.count("left out: ") == 3


def test_the_jobs_folder_is_the_hash_of_its_config(scpo: Command, world: World, tmp_path: Path) -> None:
    root = tmp_path / "sweep"
    lists = "groups.names=[Chile],[Israel,Mexico]"
    base = [o for o in world.overrides() if not o.startswith("groups")]
    done = scpo("train", "-m", *base, lists, f"run_dir={root}", "selection=full")
    assert done.code == 0, done.err
    assert "2 jobs: 2 finished, 0 failed" in done.err
    want = {
        config_hash(compose(*base, "selection=full", f"groups.names={names}"))[:8]
        for names in ("[Chile]", "[Israel,Mexico]")
    }
    assert {p.name for p in root.iterdir() if p.is_dir()} == want


def test_fail_fast_starts_no_more_jobs(scpo: Command, world: World, tmp_path: Path) -> None:
    root = tmp_path / "sweep"
    argv = ["train", "-m", *world.overrides(), "batch.pairs=0", "seed=0,1,2", "fail_fast=true", f"run_dir={root}"]
    done = scpo(*argv)
    assert done.code == 1
    assert "3 jobs: 0 finished, 1 failed, 2 not started (fail_fast)" in done.err
    assert len([p for p in root.iterdir() if p.is_dir()]) == 1


def test_a_crash_in_a_job_leaves_its_traceback(
    scpo: Command, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scpo.run import execute

    def crash(*args: object) -> None:
        raise ZeroDivisionError("odd")

    monkeypatch.setattr(execute, "train_parts", crash)
    done = scpo("train", "-m", *world.overrides(), "seed=0,1", f"run_dir={tmp_path / 'sweep'}")
    assert done.code == 1
    assert done.err.count("failed: job ") == 2
    for folder in (p for p in (tmp_path / "sweep").iterdir() if p.is_dir()):
        assert "crash" in (folder / "error.txt").read_text(encoding="utf-8")
        status = read_json(folder / "status.json")
        assert (status["state"], status["error"]) == ("failed", "ZeroDivisionError: odd")


def test_an_interrupted_or_refused_sweep_leaves_no_records(
    scpo: Command, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "sweep"

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(train, "run_one", interrupt)
        done = scpo("train", "-m", *world.overrides(), "seed=0,1", f"run_dir={root}")
    assert done.code == 130
    assert [p.name for p in root.iterdir()] == ["multirun.yaml"]
    done = scpo("train", "-m", "selection=foo,full", f"run_dir={root}")
    assert "foo" in done.line
    assert [p.name for p in root.iterdir()] == ["multirun.yaml"]


def test_a_value_without_json_fails_as_one_job(scpo: Command, world: World, tmp_path: Path) -> None:
    done = scpo("train", "-m", *world.overrides(), "optim.lr=nan,inf", f"run_dir={tmp_path / 'sweep'}")
    assert done.code == 1
    assert done.err.count("failed: job ") == 2
    assert "optim.lr: expected a finite number, found nan" in done.err


def test_an_evaluation_sweeps_too(scpo: Command, world: World, tmp_path: Path) -> None:
    root = tmp_path / "sweep"
    argv = ["evaluate", "-m", f"run={world.run},{tmp_path / 'nowhere'}", f"run_dir={root}"]
    done = scpo(*argv, "evaluation.resamples=100")
    assert done.code == 1
    assert "2 jobs: 1 finished, 1 failed" in done.err
    assert "nowhere" in done.err.splitlines()[-1]
    assert len([p for p in root.iterdir() if (p / "status.json").is_file()]) == 2


def test_jobs_may_run_in_processes_of_joblib(scpo: Command, world: World, tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs hydra-joblib-launcher")
    root = tmp_path / "sweep"
    base = world.overrides("groups.names=[Chile]", "selection=full", "batch.pairs=0,8", "hydra/launcher=joblib")
    done = scpo("train", "-m", *base, "hydra.launcher.n_jobs=1", f"run_dir={root}")
    assert done.code == 1, done.err
    assert "2 jobs: 1 finished, 1 failed" in done.err
    assert "batch.pairs: expected at least 1, found 0" in done.err
    states = sorted(read_json(p / "status.json")["state"] for p in root.iterdir() if p.is_dir())
    assert states == ["failed", "finished"]
    assert leftovers(tmp_path) == []


def test_the_config_tree_is_found_in_the_package_or_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (hydra_app.conf_dir() / "train.yaml").is_file()
    package = tmp_path / "scpo"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.setattr(hydra_app.scpo, "__file__", str(package / "__init__.py"))
    with pytest.raises(hydra_app.UserError, match="the config tree is missing"):
        hydra_app.conf_dir()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "train.yaml").touch()
    assert hydra_app.conf_dir() == tmp_path / "conf"
    shutil.copytree(tmp_path / "conf", package / "conf")
    assert hydra_app.conf_dir() == package / "conf"
