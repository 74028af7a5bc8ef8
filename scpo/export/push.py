"""Uploading an exported folder to the Hugging Face Hub."""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path

from scpo.errors import UserError
from scpo.model.files import HUB_SECONDS


def check_id(hub_id: str) -> None:
    """Raise UserError unless this can be the id of a model on the Hub, with its owner: the card's code names it whole."""
    part = r"[A-Za-z0-9](?:[A-Za-z0-9_]|[.-](?![.-]))*"
    if not re.fullmatch(rf"{part}/{part}", hub_id) or hub_id.endswith((".", "-", ".git")) or len(hub_id) > 96:
        raise UserError(f"--push: expected the id of a model on the Hub (owner/name), found {hub_id!r}")


def push(folder: Path, hub_id: str, *, private: bool = False) -> str:
    """Upload a folder that was written, and return its address.

    Args:
        folder: an exported folder.
        hub_id: owner/name; made where it does not exist.
        private: make it private, where it does not exist.

    Raises:
        UserError: no network, no token, no right to write there. The folder stays.
    """
    import huggingface_hub
    from huggingface_hub.errors import RepositoryNotFoundError

    api = huggingface_hub.HfApi()
    try:
        # Asked first with a time limit: other calls wait for minutes on a network that swallows requests. A model that is
        # not found is made; without a token a private one looks so too.
        with contextlib.suppress(RepositoryNotFoundError):
            api.model_info(hub_id, timeout=HUB_SECONDS)
        made = api.create_repo(hub_id, private=private or None, exist_ok=True)
        api.upload_folder(repo_id=hub_id, folder_path=folder, commit_message="Exported by scpo")
    except Exception as error:  # the client lets its HTTP library's own errors through
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        again = shlex.join(["hf", "upload", hub_id, str(folder)])
        raise UserError(
            f"{folder} is written, but not uploaded to {hub_id} ({reason}); log in with 'hf auth login' on a machine with a "
            f"network, then run '{again}'"
        ) from error
    return str(made)
