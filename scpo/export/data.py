"""What is known of the data of a run: name, source, licence, clusters that were trained on, and a few texts of it."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scpo.data.encode import Turn
from scpo.data.hub import GOQA_REPO, PRISM_REPO
from scpo.data.manifest import read_manifest
from scpo.errors import UserError
from scpo.export.source import Source

log = logging.getLogger(__name__)

TEXTS = 8
"""Candidates of the data on which the exported rewards are compared with ours."""

Text = tuple[str, str, Sequence[Turn]]
"""Prompt, response, history."""

NEUTRAL: tuple[Text, ...] = (
    ("Hi.", "Hello.", ()),
    ("What is soup?", "It is hot.", ()),
    ("Name three trees.", "Oak, pine and birch: the first loses its leaves in winter.", ()),
    ("And then?", "Let it rest for ten minutes.", ({"role": "user", "content": "How is rice cooked?"},)),
)
"""Texts of nobody, compared beside those of the data, or alone where the data are gone."""


@dataclass(frozen=True)
class Corpus:
    """What the card says of a kind of data.

    Attributes:
        title: of the data.
        licence: of the data, in words.
        spdx: the Hub's identifier for the card's header; None: there is no licence to name.
        unit: what a cluster is, in the plural.
        asked: who was asked, for the limits.
        hub: its id among the Hub's datasets.
    """

    title: str
    licence: str
    spdx: str | None
    unit: str
    asked: str
    hub: str | None = None


CORPORA = {
    "prism": Corpus(
        "PRISM (Kirk et al. 2024)",
        "human-written text CC BY 4.0; model responses CC BY-NC 4.0 and the terms of each model's provider.",
        "cc-by-nc-4.0",
        "annotators",
        "The annotators of PRISM: paid participants of an online panel, a few dozen in most countries. They do not stand for "
        "their country, and a cluster is one of them.",
        PRISM_REPO,
    ),
    "goqa": Corpus(
        "GlobalOpinionQA (Durmus et al. 2023)",
        "CC BY-NC-SA 4.0: not for commercial use, share alike.",
        "cc-by-nc-sa-4.0",
        "questions",
        "Respondents of two survey programmes, through national averages of their answers: no person's own view, and nobody "
        "judged a response. A cluster is one question.",
        GOQA_REPO,
    ),
    "simulated": Corpus(
        "The embedded simulated world of scpo",
        "none; the texts and preferences are planted by a program, no person wrote or judged them.",
        None,
        "simulated annotators",
        "Nobody: the preferences are planted by a program. The numbers show that the software works, not how people are.",
    ),
    "table": Corpus(
        "A table of comparisons that scpo does not know",
        "not known, fill in.",
        "unknown",
        "clusters",
        "Not known, fill in: who was asked, how many they are, and how they were found.",
    ),
}


@dataclass(frozen=True)
class DataFacts:
    """What is known of a run's data.

    Attributes:
        corpus: see :data:`CORPORA`.
        origin: where the rows come from, with revision or hashes, or why that is not known.
        clusters: per group, clusters in the training split; empty where the data are gone.
        texts: candidates of the test split.
    """

    corpus: Corpus
    origin: str
    clusters: dict[str, int] = field(default_factory=dict)
    texts: tuple[Text, ...] = ()


def read_facts(source: Source) -> DataFacts:
    """Everything that can still be read; data that are gone or were changed since are told, and are no error."""
    try:
        folder = _folder(source)
        manifest = read_manifest(folder)
        if manifest["content_hash"] != source.status.get("inputs", {}).get("data"):
            raise UserError(f"{folder}: holds other data than the run was trained on")
        config = {**source.config, "data": {**source.config["data"], "dir": str(folder)}}
        clusters, texts = _from_rows(config, source.group)
    except UserError as error:
        log.warning("%s; the model card leaves out what only the data tell", error)
        return DataFacts(CORPORA[_kind(source, {})], "not known, the data were not at hand when this card was written")
    return DataFacts(CORPORA[_kind(source, manifest)], origin(manifest["source"]), clusters, texts)


def _folder(source: Source) -> Path:
    """The data's folder, as it was meant where the run was started."""
    given = Path(str(source.config["data"]["dir"]))
    for folder in (given, Path(str(source.status.get("cwd") or ".")) / given):
        if folder.is_dir():
            return folder
    raise UserError(f"{given}: the run's data are gone")


def _kind(source: Source, manifest: Mapping[str, Any]) -> str:
    """Which corpus this is, by the data's own manifest: `data=` of the config is often left at its default.

    A simulated world has another corpus's layout, and its manifest says so.
    """
    extra = manifest.get("extra", {})
    if extra.get("simulate") or extra.get("simulated"):
        return "simulated"
    found = manifest.get("dataset")
    return found if found in ("prism", "goqa") else "table"


def origin(found: Mapping[str, Any]) -> str:
    """The manifest's source in words: a revision of the Hub, or the names and hashes of files, never their folders."""
    if found.get("hub"):
        revision = found.get("revision")
        return f"{found['hub']} on the Hugging Face Hub" + (f", revision {revision}" if revision else "")
    files = found.get("files")
    if isinstance(files, Mapping) and files:
        return "; ".join(f"{Path(str(name)).name} (SHA-256 {str(digest)[:16]})" for name, digest in files.items())
    return "not known"


def _from_rows(config: dict[str, Any], group: str | None) -> tuple[dict[str, int], tuple[Text, ...]]:
    from scpo.run.inputs import load_data

    data = load_data(config)
    frame = data.frame
    train = frame[frame["split"] == "train"]
    counts = train.groupby("group")["cluster_id"].nunique()
    test = frame[frame["split"] == "test"]
    own = test[test["group"] == group]
    rows = own if len(own) else test
    places = np.unique(np.linspace(0, max(0, len(rows) - 1), min(TEXTS, len(rows))).astype(int))
    chosen = rows.iloc[places]
    texts = tuple(zip(chosen["prompt"], chosen["response"], chosen["history"], strict=True))
    return {str(g): int(n) for g, n in counts.items()}, texts


def base_model(source: Source) -> str | None:
    """The Hub id of the starting model; None where it was a folder, or was made from scratch."""
    name = source.config["model"].get("name_or_path")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", name):
        return None
    cwd = Path(str(source.status.get("cwd") or "."))
    # "runs/global" looks like an id; where its first part is a folder, a folder is what was meant.
    return None if any((where / name.split("/")[0]).is_dir() for where in (cwd, Path())) else name
