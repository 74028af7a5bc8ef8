"""The package: every module imports, starting is cheap, and a built wheel finds its configs far from the checkout."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import os
import pkgutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import scpo

ROOT = Path(__file__).parents[1]
MODULES = sorted(m.name for m in pkgutil.walk_packages(scpo.__path__, "scpo."))


@pytest.mark.parametrize("name", MODULES)
def test_each_module_imports_and_says_what_it_is(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"


def test_no_module_is_missed() -> None:
    files = {p for p in (ROOT / "scpo").rglob("*.py") if p.name != "__init__.py"}
    assert len(files) == len([m for m in MODULES if not hasattr(importlib.import_module(m), "__path__")])


def test_starting_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, scpo, scpo.groups, scpo.cli.main as m\n"
        "m.main(['--help'])\n"
        "heavy = {'torch', 'transformers', 'lightning', 'hydra', 'omegaconf', 'pandas', 'pyarrow', 'numpy', 'datasets'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or None)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_hydra_is_needed_by_no_import() -> None:
    """The library is used without Hydra; only functions that need it ask for it."""
    found = []
    for path in (ROOT / "scpo").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [path.name for name in names if name.split(".")[0] in ("hydra", "omegaconf")]
    assert found == []


def test_the_version_is_the_packages() -> None:
    assert importlib.metadata.version("scpo") == scpo.__version__


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from this checkout, without a network: the build backend is part of the dev extra."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*command, "-w", str(out), str(ROOT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = out.glob("*.whl")
    return path


def test_the_wheel_holds_code_configs_and_licence_only(wheel: Path) -> None:
    assert wheel.name == f"scpo-{scpo.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for source, inside in ((ROOT / "conf", "scpo/conf"), (ROOT / "scpo", "scpo")):
        files = [p for p in source.rglob("*") if p.suffix in (".yaml", ".py")]
        assert files
        assert {f"{inside}/{p.relative_to(source).as_posix()}" for p in files} <= names
    info = f"scpo-{scpo.__version__}.dist-info"
    assert f"{info}/licenses/LICENSE" in names
    assert {n.split("/")[0] for n in names} == {"scpo", info}
    assert not [n for n in names if "__pycache__" in n or "test" in n.split("/")[-1].split("_")[0]]


def test_the_wheel_finds_its_configs_far_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # The checkout may be installed here for development: it must not be what is found.
    code = (
        "import sys, pathlib\n"
        f"checkout = pathlib.Path({str(ROOT)!r})\n"
        "sys.path[:] = [p for p in sys.path if p and pathlib.Path(p).resolve() != checkout]\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f).lower()]\n"
        "import scpo.cli.main\n"
        f"assert pathlib.Path(scpo.__file__).is_relative_to({str(site)!r}), scpo.__file__\n"
        "scpo.cli.main.entry()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    for argv, word in (
        (["train", "--cfg", "job", "experiment=prism_main"], "OpenAssistant"),
        (["evaluate", "--cfg", "job"], "evaluation:"),
        (["--version"], scpo.__version__),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *argv],
            cwd=elsewhere,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert word in done.stdout
    assert list(elsewhere.iterdir()) == []
