"""Uploading: what is asked of the Hub's client, and one line where it fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalTokenNotFoundError, OfflineModeIsEnabled, RepositoryNotFoundError

from scpo.errors import UserError
from scpo.export.push import check_id, push


class Api:
    """Stands in for the Hub's client: records calls, and raises what it is given, by method."""

    def __init__(self, **errors: Exception) -> None:
        self.errors = errors
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def _call(self, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> str:
        self.calls.append((name, args, named))
        if name in self.errors:
            raise self.errors[name]
        return "https://huggingface.co/owner/name"

    def model_info(self, *args: Any, **named: Any) -> str:
        return self._call("model_info", args, named)

    def create_repo(self, *args: Any, **named: Any) -> str:
        return self._call("create_repo", args, named)

    def upload_folder(self, *args: Any, **named: Any) -> str:
        return self._call("upload_folder", args, named)


def stand_in(monkeypatch: pytest.MonkeyPatch, **errors: Exception) -> Api:
    api = Api(**errors)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
    return api


def absent() -> RepositoryNotFoundError:
    response: Any = SimpleNamespace(headers={}, request=None)  # of the HTTP library, which differs between versions
    return RepositoryNotFoundError("404", response=response)


@pytest.mark.parametrize("private", [True, False])
def test_makes_the_repository_and_uploads_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, private: bool
) -> None:
    api = stand_in(monkeypatch, model_info=absent())
    assert push(tmp_path, "owner/name", private=private) == "https://huggingface.co/owner/name"
    asked, made, sent = api.calls
    assert asked[0] == "model_info"
    assert made == ("create_repo", ("owner/name",), {"private": True if private else None, "exist_ok": True})
    assert sent[0] == "upload_folder"
    assert sent[2]["repo_id"] == "owner/name"
    assert sent[2]["folder_path"] == tmp_path


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        ({"model_info": OfflineModeIsEnabled("offline mode")}, "offline mode"),
        ({"model_info": ConnectionError("[Errno -2]\nName unknown")}, "Name unknown"),
        ({"create_repo": LocalTokenNotFoundError("Token is required")}, "Token is required"),
        ({"upload_folder": TimeoutError()}, "TimeoutError"),
    ],
)
def test_a_failure_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, errors: dict[str, Exception], reason: str
) -> None:
    api = stand_in(monkeypatch, **errors)
    folder = tmp_path / "my model"
    with pytest.raises(UserError) as told:
        push(folder, "owner/name")
    said = str(told.value)
    assert said.startswith(f"{folder} is written, but not uploaded to owner/name (")
    assert reason in said
    assert "hf auth login" in said
    assert said.endswith(f"run 'hf upload owner/name '{folder}''")
    assert "\n" not in said
    assert api.calls[-1][0] == next(iter(errors))


@pytest.mark.parametrize("hub_id", ["owner/name", "my-org/model_1.0-x", "o/n"])
def test_ids(hub_id: str) -> None:
    huggingface_hub.utils.validate_repo_id(hub_id)
    check_id(hub_id)


@pytest.mark.parametrize(
    "hub_id",
    ["name", "a/b/c", "/a", "a/", "a b/c", "a/b--c", "a/b..c", "a/b.git", "a/-b", "a/b-", "é/a", f"a/{'b' * 96}"],
)
def test_ids_that_cannot_be(hub_id: str) -> None:
    with pytest.raises(UserError, match=r"--push: expected the id of a model on the Hub \(owner/name\), found"):
        check_id(hub_id)
