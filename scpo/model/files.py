"""Model folders: finding one by path or Hub id, checking it before anything heavy is loaded, hashing it, replacing it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from scpo.errors import UserError
from scpo.io import sha256_file, sha256_json

WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
PICKLES = ("*.bin", "*.bin.index.json", "*.pt", "*.pth")
HUB_SECONDS = 5.0
"""How long the Hub may take to answer before it counts as unreachable."""

TEXT_FILES = ("*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken", "*.vocab", "*.spm")


def resolve_model(name_or_path: str | os.PathLike[str], *, allow_pickle: bool = False) -> Path:
    """The local folder of a model, given as a path or as a Hub id; a Hub model is downloaded (or found in the Hub's cache).

    Raises:
        UserError: no such folder, no config.json, no weights, only pickled weights, or a Hub that cannot be reached.
    """
    path = Path(name_or_path).expanduser()
    if path.is_dir():
        return _check_folder(path, allow_pickle)
    text = str(name_or_path)
    if path.exists() or text.startswith((".", "/", "~")) or text.count("/") != 1:
        raise UserError(f"model {text!r}: expected a model folder or a Hub id of the form 'owner/name', found neither")
    return _check_folder(_download(text, allow_pickle), allow_pickle)


def _download(repo: str, allow_pickle: bool) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    patterns = [*TEXT_FILES, *WEIGHTS, *(PICKLES if allow_pickle else ())]
    unreachable: Exception | None = None
    try:
        # Asked first with a time limit of its own: snapshot_download waits for minutes on a network that swallows requests.
        huggingface_hub.HfApi().model_info(repo, timeout=HUB_SECONDS)
    except HFValidationError as error:
        raise UserError(f"model {repo!r}: expected a model folder or a Hub id 'owner/name' ({error})") from error
    # The client lets its HTTP library's own errors through, which differ between versions; a copy in its cache still serves.
    except Exception as error:
        unreachable = error
    try:
        return Path(
            huggingface_hub.snapshot_download(
                repo, allow_patterns=patterns, etag_timeout=HUB_SECONDS, local_files_only=unreachable is not None
            )
        )
    except Exception as error:
        if isinstance(unreachable or error, RepositoryNotFoundError):
            raise UserError(
                f"model {repo!r}: no such folder here and no such model on the Hub (or it is private: run 'hf auth login')"
            ) from error
        reason = " ".join(str(unreachable or error).split())[:120] or type(unreachable or error).__name__
        raise UserError(
            f"model {repo!r}: no such folder here, and the Hub cannot be reached ({reason}); on a machine with a network run "
            f"'hf download {repo} --local-dir DIR', copy DIR here and give its path instead of the id"
        ) from error


def _check_folder(folder: Path, allow_pickle: bool) -> Path:
    if (folder / "steering" / "steering.json").is_file() and not (folder / "config.json").is_file():
        names = sorted(p.parent.name for p in folder.glob("*/config.json"))
        raise UserError(
            f"{folder}: holds one model per group; give one of them, such as {folder / names[0] if names else '?'}"
        )
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: expected a Hugging Face model folder, found no config.json in it")
    if not any(any(folder.glob(p)) for p in WEIGHTS):
        if not any(any(folder.glob(p)) for p in PICKLES):
            raise UserError(f"{folder}: expected model weights (*.safetensors), found none")
        if not allow_pickle:
            raise UserError(
                f"{folder}: its weights are pickles, which can run code when read; convert them to safetensors, or, if you "
                "trust their source, set model.allow_pickle=true (reference.allow_pickle=true)"
            )
    return folder


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's config.json as a dict."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{folder / 'config.json'}: expected JSON ({error})") from error
    if not isinstance(config, dict):
        raise UserError(f"{folder / 'config.json'}: expected a JSON object")
    return config


def reward_head(folder: Path) -> bool:
    """True where the folder says that it holds a sequence classifier with one output: a trained reward head.

    Raises:
        UserError: a sequence classifier with another number of outputs.
    """
    config = read_config(folder)
    architectures = config.get("architectures") or []
    if not any(str(a).endswith("ForSequenceClassification") for a in architectures):
        return False
    # transformers leaves num_labels out and writes id2label instead; without either it means 2.
    outputs = config.get("num_labels") or len(config.get("id2label") or (0, 1))
    if outputs != 1:
        raise UserError(
            f"{folder}: expected a reward model with num_labels 1, found a classifier with {outputs} labels; "
            "its outputs are not rewards"
        )
    return True


def model_fingerprint(folder: Path) -> str:
    """Hex hash of everything in a model folder that can change a reward: weights, config, tokenizer, chat template."""
    patterns = (*WEIGHTS, *PICKLES, *TEXT_FILES)
    files = sorted({p for pattern in patterns for p in folder.glob(pattern) if p.is_file()})
    return sha256_json([[p.name, sha256_file(p)] for p in files])


def steered_fingerprint(folder: Path) -> str:
    """Hex hash of everything that can change a reward, what was learned for groups included."""
    learned = sorted(p for p in (folder / "steering").rglob("*") if p.suffix in (".json", ".safetensors"))
    return sha256_json(
        [model_fingerprint(folder), [[p.relative_to(folder).as_posix(), sha256_file(p)] for p in learned]]
    )
