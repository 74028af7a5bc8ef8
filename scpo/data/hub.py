"""Corpora from the Hugging Face Hub, or from a local copy of a Hub repository.

A copy is laid out as the Hub's: a folder with the repository's files and a README.md that names its configs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scpo.errors import UserError
from scpo.io import sha256_file

if TYPE_CHECKING:
    import pandas as pd
    from datasets import Dataset

PRISM_REPO, PRISM_CONFIGS = "HannahRoseKirk/prism-alignment", ("survey", "utterances")
GOQA_REPO, GOQA_CONFIGS = "Anthropic/llm_global_opinions", (None,)
TIMEOUT = 10.0
"""Seconds to wait for the Hub's first answer."""


@dataclass(frozen=True)
class HubData:
    """One `datasets.Dataset` per config, and the source for the manifest (revision, or hashes of a copy's files)."""

    tables: dict[str | None, Dataset]
    source: dict[str, Any]

    def frame(self, config: str | None) -> pd.DataFrame:
        """A config as a pandas frame."""
        return self.tables[config].to_pandas()


def load_hub(repo: str, configs: Sequence[str | None], revision: str | None = None) -> HubData:
    """Load the configs' only split, from the Hub (its cache when the Hub cannot be reached) or from a folder.

    Args:
        repo: ``owner/name``, or a folder with a copy of the repository.
        configs: names of configs; null for a repository without named configs.
        revision: branch, tag or commit; not for a folder.

    Raises:
        UserError: the Hub cannot be reached, the repository or config does not exist, or its files do not parse.
    """
    folder = Path(repo)
    local = folder.is_dir()
    if not local and (folder.exists() or repo.count("/") != 1 or repo.startswith((".", "/", "~"))):
        raise UserError(f"{repo}: expected a Hub dataset (owner/name) or a folder with a copy of one, found neither")
    if local:
        if revision is not None:
            raise UserError(f"{repo}: expected no revision for a folder, found {revision!r}")
        files = sorted(
            p
            for p in folder.rglob("*")
            if p.is_file() and not any(part.startswith(".") for part in p.relative_to(folder).parts)
        )
        source: dict[str, Any] = {"files": {p.relative_to(folder).as_posix(): sha256_file(p) for p in files}}
        if not files:
            raise UserError(f"{repo}: expected a copy of a Hub dataset, found an empty folder")
    else:
        commit = commit_of(repo, revision)
        source = {"hub": repo, "revision": commit}
        revision = commit
    return HubData({config: load_config(repo, config, revision, local) for config in configs}, source)


def commit_of(repo: str, revision: str | None) -> str | None:
    """The commit that the Hub has for a revision; null in offline mode (HF_HUB_OFFLINE=1), where only the cache is read.

    Asked first, since this one request answers or fails within seconds, while `load_dataset` retries for half a minute.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    try:
        return str(HfApi().dataset_info(repo, revision=revision, timeout=TIMEOUT).sha)
    except OfflineModeIsEnabled:
        return None
    except HFValidationError as error:
        raise UserError(
            f"{repo}: expected a Hub dataset (owner/name), found another form ({one_line(error)})"
        ) from error
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", 500)
        if status >= 500 or status == 429:
            raise unreachable(repo, error) from error
        raise UserError(
            f"{repo}: the Hub has no such dataset or revision, or needs a login ({one_line(error)})"
        ) from error
    except Exception as error:
        if not is_network(error):
            raise
        raise unreachable(repo, error) from error


def is_network(error: BaseException) -> bool:
    """Whether the error is one of the connection; the Hub's client has changed its HTTP library more than once."""
    roots = {kind.__module__.split(".")[0] for kind in type(error).__mro__}
    return isinstance(error, OSError) or bool(roots & {"httpx", "httpx2", "requests", "urllib3"})


def unreachable(repo: str, error: Exception) -> UserError:
    """What to do without the Hub."""
    return UserError(
        f"{repo}: the Hugging Face Hub cannot be reached ({one_line(error)}); offline: on a machine with a connection run "
        f"'hf download {repo} --repo-type dataset --local-dir COPY', bring COPY here, then pass --hub COPY or --raw COPY"
    )


def load_config(repo: str, config: str | None, revision: str | None, local: bool) -> Dataset:
    """One config's split `train`, or its only split."""
    from datasets import DatasetDict, load_dataset

    name = repo if config is None else f"{repo}, config {config}"
    try:
        # A copy's files can change between two calls, so a copy is never read from the cache of an earlier call.
        mode = "force_redownload" if local else None
        data = load_dataset(repo, config, revision=revision, download_mode=mode)
    except Exception as error:
        if not local and (isinstance(error, ConnectionError) or (is_network(error) and not isinstance(error, OSError))):
            raise unreachable(repo, error) from error
        # Whatever a file's content makes the loader raise is a fault of the data, and the loader has no common error.
        cause = error.__cause__ or error
        raise UserError(
            f"{name}: expected files that 'datasets.load_dataset' reads, found: {one_line(cause)}"
        ) from error
    if not isinstance(data, DatasetDict) or ("train" not in data and len(data) != 1):
        raise UserError(f"{name}: expected a split 'train', found {', '.join(map(str, data))}")
    return data["train"] if "train" in data else next(iter(data.values()))


def one_line(error: BaseException) -> str:
    """The error's first 200 characters on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
