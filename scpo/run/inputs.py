"""What a run reads: the comparisons of its groups, split; and the folders of its starting and reference model."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from scpo.data.manifest import check_content, read_manifest
from scpo.data.pairs import Pairs, make_pairs
from scpo.data.schema import read_comparisons
from scpo.data.split import assign_split, check_split
from scpo.errors import UserError, did_you_mean
from scpo.groups import check_names, resolve
from scpo.model.files import resolve_model, reward_head
from scpo.run.config import Config

log = logging.getLogger(__name__)


@dataclass
class RunData:
    """The comparisons of a run's groups.

    Attributes:
        frame: the comparisons table, rows of these groups only, index 0..n-1.
        comparison: (n_candidates,) integer code of each row's comparison.
        groups: in the order of the config, or sorted.
        manifest: of the prepared folder.
        notes: sentences for the report: groups left out, pairs of equal texts.
    """

    frame: pd.DataFrame
    comparison: npt.NDArray[np.int64]
    groups: list[str]
    manifest: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    def restrict(self, groups: list[str]) -> None:
        """Keep the rows of these groups only."""
        self.frame = self.frame[self.frame["group"].isin(groups)].reset_index(drop=True)
        self.comparison = pd.factorize(self.frame["comparison_id"])[0].astype(np.int64)
        self.groups = groups

    def drop(self, rows: npt.NDArray[np.bool_], why: str, noted: npt.NDArray[np.bool_] | None = None) -> None:
        """Take rows out and note, per group, how many (of those in `noted`, if given) and why."""
        if rows.any():
            noted = rows if noted is None else noted
            counts = self.frame.loc[noted, "group"].value_counts()
            if noted.any():
                each = ", ".join(f"{g} {counts.get(g, 0)}" for g in self.groups)
                self.notes.append(f"Candidates {why}: {each}.")
            self.frame = self.frame[~rows]
            self.restrict(self.groups)

    @property
    def group_code(self) -> npt.NDArray[np.int64]:
        """(n_candidates,) position of each row's group in `groups`."""
        return pd.Categorical(self.frame["group"], categories=self.groups).codes.astype(np.int64)

    def pairs(self, split: str, min_gap: float) -> Pairs:
        """The pairs of one split ("all": of every split), as positions in `frame`."""
        scores = self.frame["score"].to_numpy(dtype=np.float64, na_value=np.nan)
        if split != "all":
            scores = np.where(self.frame["split"] == split, scores, np.nan)
        return make_pairs(self.comparison, scores, min_gap)

    def note_equal_texts(self, split: str, min_gap: float) -> None:
        """Say how many pairs of a split have two equal responses: no model can rank them, and they count as ties."""
        pairs = self.pairs(split, min_gap)
        codes = pd.factorize(self.frame["response"])[0]
        n = int((codes[pairs.chosen] == codes[pairs.rejected]).sum())
        if n:
            self.notes.append(
                f"{n} of {len(pairs)} {split} pairs have two equal responses; they are ties and count as wrong."
            )


def load_data(config: Config, *, need_train: bool = True) -> RunData:
    """Read, regroup, split and restrict the comparisons of a config.

    Raises:
        UserError: no such data, an unknown group, a group without training or test pairs.
    """
    folder = config["data"]["dir"]
    if folder is None:
        raise UserError(
            "data.dir: expected the folder of a comparisons table (scpo prepare ... --out DATA), found null"
        )
    folder = Path(folder)
    wanted = config["data"].get("simulate")
    if not folder.exists() and wanted:
        make_simulated(folder, wanted)
    frame, manifest = read_comparisons(folder), read_manifest(folder)
    check_content(frame, manifest, str(folder))
    made = manifest["extra"].get("simulate")
    if wanted and made and made != wanted:
        raise UserError(
            f"{folder}: was simulated with {made}, and data.simulate says {wanted}; set data.dir to a new folder"
        )
    notes: list[str] = []
    attribute = config["groups"]["attribute"]
    if attribute is not None:
        frame = regroup(frame, attribute, notes)
        check_names(frame["group"].unique(), f"groups.attribute={attribute}")
    split = config["split"]
    if split["method"] != "prepared":
        frame["split"] = assign_split(
            frame,
            split["method"],
            seed=split["seed"],
            fractions=tuple(split["fractions"]),
            survey_users=manifest["extra"].get("survey_users"),
            val_fraction=split["val_fraction"],
        )
        check_split(frame, by_cluster=split["method"] != "row")
    names = config["groups"]["names"]
    present = sorted(frame["group"].unique())
    groups = named_groups(names, present, folder) if names else enough_groups(frame, present, config, notes)
    data = RunData(frame, np.zeros(0, dtype=np.int64), groups, manifest, notes)
    data.restrict(groups)
    check_groups(data, config, need_train)
    data.note_equal_texts(config["evaluation"]["split"], config["data"]["min_gap"])
    return data


def make_simulated(folder: Path, settings: dict[str, Any]) -> None:
    """Simulate and prepare the embedded world where `data=simulated` finds no data yet."""
    import tempfile

    from filelock import FileLock

    from scpo.data.manifest import finish
    from scpo.data.prism import read_prism
    from scpo.data.simulate import simulate

    folder.parent.mkdir(parents=True, exist_ok=True)
    # Jobs of a sweep may come here together: the first one works, the others find the data.
    with (
        FileLock(folder.parent / f".{folder.name}.lock"),
        tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary,
    ):
        if folder.exists():
            return
        log.info("%s does not exist: simulating the embedded world there", folder)
        simulate(Path(temporary) / "raw", **settings)
        prepared = read_prism(Path(temporary) / "raw" / "prism")
        prepared.extra["simulate"] = settings
        finish(prepared, folder)


def regroup(frame: pd.DataFrame, attribute: str, notes: list[str]) -> pd.DataFrame:
    """Take an attribute of the annotator as the group; rows without it are left out and counted; the old group is kept."""
    values = [a.get(attribute) for a in frame["attributes"]]
    known = {name for a in frame["attributes"] for name in a}
    if attribute not in known:
        raise UserError(
            f"groups.attribute: expected an attribute of the data, found {attribute!r}.{did_you_mean(attribute, known)}"
        )
    has = np.array([value is not None for value in values])
    if not has.all():
        lost = frame.loc[~has, "comparison_id"].nunique()
        notes.append(f"{lost} comparisons have no attribute {attribute!r} and are left out.")
    attributes: Any = [{**a, "group": g} for a, g in zip(frame["attributes"], frame["group"], strict=True)]
    return frame.assign(group=values, attributes=attributes)[has].reset_index(drop=True)


def named_groups(names: list[str], present: list[str], folder: Path) -> list[str]:
    """The groups of the data that the config names."""
    try:
        return resolve(names, present)
    except UserError as error:
        raise UserError(f"{folder}: {error} (groups=all takes every group with enough data)") from error


def enough_groups(frame: pd.DataFrame, present: list[str], config: Config, notes: list[str]) -> list[str]:
    """The groups whose test rows reach the minimum of clusters and pairs; the others are named in the notes."""
    evaluation = config["evaluation"]
    where = frame if evaluation["split"] == "all" else frame[frame["split"] == evaluation["split"]]
    counts = where.groupby("group").agg(clusters=("cluster_id", "nunique"))
    codes = pd.factorize(where["comparison_id"])[0].astype(np.int64)
    scores = where["score"].to_numpy(dtype=np.float64, na_value=np.nan)
    pairs = make_pairs(codes, scores, config["data"]["min_gap"])
    n_pairs = where["group"].iloc[pairs.chosen].value_counts()
    small = [
        g
        for g in present
        if counts["clusters"].get(g, 0) < evaluation["min_clusters"] or n_pairs.get(g, 0) < evaluation["min_pairs"]
    ]
    if small:
        notes.append(
            f"groups=all leaves out {len(small)} groups with fewer than {evaluation['min_clusters']} clusters or "
            f"{evaluation['min_pairs']} pairs in {evaluation['split']}: {', '.join(small)}."
        )
    kept = [g for g in present if g not in small]
    if not kept:
        raise UserError(
            "groups=all: no group has enough test pairs; lower evaluation.min_clusters and evaluation.min_pairs"
        )
    return kept


def check_groups(data: RunData, config: Config, need_train: bool) -> None:
    """Raise UserError unless every group has pairs where they are needed."""
    wanted = [config["evaluation"]["split"], *(["train"] if need_train else [])]
    for split in wanted:
        pairs = data.pairs(split, config["data"]["min_gap"])
        have = set(data.frame["group"].iloc[pairs.chosen])
        lacking = [g for g in data.groups if g not in have]
        if lacking:
            raise UserError(
                f"{config['data']['dir']}: expected {split} pairs for every group, found none for {', '.join(lacking)}; "
                "choose other groups (groups.names=[...]) or another split"
            )


def named_start(config: Config) -> Path | None:
    """The starting model's folder, or None where the config builds one from scratch.

    Raises:
        UserError: no such model, or neither a name nor the settings to build one.
    """
    model = config["model"]
    if model["name_or_path"] is not None:
        return resolve_model(model["name_or_path"], allow_pickle=model["allow_pickle"])
    if not model.get("scratch"):
        raise UserError("model.name_or_path: expected a model folder or a Hub id, found null")
    return None


def build_start(config: Config, data: RunData, work: Path) -> Path:
    """A starting model from scratch, with a tokenizer trained on the training texts; built once per run folder."""
    from scpo.model import tiny

    folder = work / "start"
    if not (folder / "config.json").is_file():
        train = data.frame[data.frame["split"] == "train"]
        model = config["model"]
        texts = [*train["prompt"], *train["response"]]
        tiny.build(folder, texts, seed=config["seed"], max_length=max(512, model["max_length"]), **model["scratch"])
    return folder


def reference_folder(config: Config, start: Path | None) -> Path | None:
    """The reference model's folder: the named one, else the starting model if it has a trained head, else None."""
    reference = config["reference"]
    if reference["name_or_path"] is not None:
        folder = resolve_model(reference["name_or_path"], allow_pickle=reference["allow_pickle"])
        check_reference(folder)
        return folder
    return start if start is not None and reward_head(start) else None


def check_reference(folder: Path) -> None:
    """Raise UserError unless a folder says that it holds a trained reward head."""
    if not reward_head(folder):
        raise UserError(
            f"{folder}: expected a reference model with a trained reward head, found a model without one; train it first "
            "(scpo train experiment=global model.name_or_path=...) and give that run's model folder"
        )
