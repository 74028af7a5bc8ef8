"""Reference rewards: every candidate scored once by the frozen global model, and cached by content.

The cache is one parquet file per model and format, from a hash of (prompt, history, response) to a float32 reward: other data
with the same texts find them there. It is written atomically under a lock, and a damaged file is rebuilt with a warning.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from scpo.data.encode import FORMAT_VERSION, Turn
from scpo.errors import UserError
from scpo.io import atomic_path, sha256_json
from scpo.model.files import model_fingerprint

if TYPE_CHECKING:
    from scpo.model.reward import ModelOptions

log = logging.getLogger(__name__)

SCORING_VERSION = 1
"""Raised when the same model and token ids would give other rewards."""

CACHE = pa.schema([pa.field("text", pa.binary(16), nullable=False), pa.field("reward", pa.float32(), nullable=False)])

FloatArray = npt.NDArray[np.float32]


def model_key(folder: Path, options: ModelOptions) -> str:
    """Hex hash of what decides a no-group reward of a text: weights, tokenizer, template, length policy, precision."""
    parts = [SCORING_VERSION, FORMAT_VERSION, options.max_length, options.overlong, options.dtype]
    return sha256_json([model_fingerprint(folder), *parts])


def text_key(prompt: str, response: str, history: Sequence[Turn]) -> bytes:
    """16 bytes that stand for one text, whatever corpus it comes from."""
    turns = [[t["role"], t["content"]] for t in history]
    text = json.dumps([prompt, response, turns], ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def reference_rewards(
    frame: pd.DataFrame,
    folder: Path,
    options: ModelOptions,
    cache_dir: Path,
    score: Callable[[pd.DataFrame], FloatArray],
) -> FloatArray:
    """Rewards (n_candidates,) float32 of a comparisons table by a reference model, from the cache where they are there.

    Args:
        frame: a comparisons table (columns prompt, response, history).
        folder: the model's folder; only hashed here.
        options: how the model is loaded, part of the key.
        cache_dir: holds the cache files.
        score: called with the rows that are missing, one per distinct text; loads the model. Not called when none are.

    Raises:
        UserError: the cache folder cannot be made or written; nothing is scored then.
    """
    key = model_key(folder, options)
    path = Path(cache_dir) / f"{key[:24]}.parquet"
    _make_folder(path.parent)
    texts = [text_key(p, r, h) for p, r, h in zip(frame["prompt"], frame["response"], frame["history"], strict=True)]
    # The lock is held while scoring, so that a second process waits and finds the work done.
    with _locked(path):
        known = _read(path, key)
        first = {text: i for i, text in reversed(list(enumerate(texts))) if text not in known}
        if first:
            _check_writable(path)
            rows = np.array(sorted(first.values()))
            rewards = score(frame.iloc[rows])
            known.update(zip((texts[i] for i in rows), map(float, rewards), strict=True))
            _write(path, key, known)
        return np.array([known[text] for text in texts], dtype=np.float32)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{folder}: expected a folder for cached reference rewards, which cannot be made ({error.strerror}); remove "
            "what stands there or choose another place"
        ) from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = FileLock(f"{path}.lock")
    try:
        lock.acquire()
    except (OSError, NotImplementedError) as error:  # filelock raises the latter on file systems without locks
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{path}.lock: the cache of reference rewards cannot be locked ({reason})") from error
    try:
        yield
    finally:
        lock.release()


def _check_writable(path: Path) -> None:
    """Before the long scoring, not after it: the cache can be written, and what stands in its place is moved aside."""
    try:
        if (path.exists() and not path.is_file()) or (path.is_symlink() and not path.exists()):
            aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f"{path.name}.", suffix=".damaged"))
            os.replace(path, aside / path.name)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"):
            pass
    except OSError as error:
        raise UserError(f"{path.parent}: cached reference rewards cannot be written ({error.strerror})") from error


def _read(path: Path, key: str) -> dict[bytes, float]:
    if not path.is_file():
        if path.exists() or path.is_symlink():
            kind = "a folder" if path.is_dir() else "no file"
            log.warning("reward cache %s is damaged (it is %s); its rewards are computed again", path, kind)
        return {}
    try:
        table = pq.read_table(path, schema=CACHE, page_checksum_verification=True)
        metadata = pq.read_schema(path).metadata or {}
        if metadata.get(b"model_key") != key.encode():
            raise ValueError("it was written for another model")
        if table.column("text").null_count:
            raise ValueError("a row has no text")
        texts, rewards = table.column("text").to_pylist(), table.column("reward").to_numpy()
        # Parquet's own checksums cover the pages, not the headers that say how to read them.
        if metadata.get(b"checksum") != _checksum(texts, rewards).encode():
            raise ValueError("its content does not match its checksum")
        if np.isinf(rewards).any():
            raise ValueError("it holds infinite rewards")
        return dict(zip(texts, rewards.tolist(), strict=True))
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        log.warning(
            "reward cache %s is damaged (%s); its rewards are computed again", path, " ".join(str(error).split())
        )
        return {}


def _write(path: Path, key: str, known: dict[bytes, float]) -> None:
    texts, rewards = list(known), np.array(list(known.values()), dtype=np.float32)
    columns: list[Any] = [pa.array(texts, type=pa.binary(16)), pa.array(rewards, type=pa.float32())]
    metadata = {"model_key": key, "checksum": _checksum(texts, rewards)}
    table = pa.Table.from_arrays(columns, schema=CACHE.with_metadata(metadata))
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, write_page_checksum=True)


def _checksum(texts: list[bytes], rewards: FloatArray) -> str:
    return hashlib.sha256(b"".join(texts) + np.ascontiguousarray(rewards).tobytes()).hexdigest()
