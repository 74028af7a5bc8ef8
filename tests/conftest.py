"""What all tests share: one thread, no Hub, and where the real rows are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest_plugins = ["world"]

SHARED_DATA = Path(os.environ.get("SCPO_SHARED_DATA") or Path(__file__).parents[2] / "shared" / "data")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Models of tests are so small that a second thread only waits for the first."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _hub_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test sets the Hub's variables itself where they matter; the shell's must not decide."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real rows of PRISM and GlobalOpinionQA; the test is skipped where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the real rows of PRISM and GlobalOpinionQA are absent (set SCPO_SHARED_DATA)")
    return SHARED_DATA
