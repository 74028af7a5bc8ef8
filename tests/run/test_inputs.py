"""What a run reads: groups, attributes and splits of a config, and every way in which they can be wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from world import World, compose

from scpo.data.manifest import content_hash
from scpo.data.schema import read_comparisons
from scpo.errors import UserError
from scpo.io import read_json, write_json
from scpo.run.inputs import build_start, load_data, make_simulated, named_start, reference_folder


def config(world: World, *more: str) -> dict[str, Any]:
    return compose(f"data.dir={world.data}", *more)


def copy_of(world: World, folder: Path) -> Path:
    folder.mkdir()
    for name in ("comparisons.parquet", "manifest.json"):
        shutil.copy(world.data / name, folder / name)
    return folder


def test_groups_come_in_the_order_of_the_config(world: World) -> None:
    data = load_data(config(world, "groups.names=[S. Africa,chile,CAN]"))
    assert data.groups == ["South Africa", "Chile", "Canada"]
    assert set(data.frame["group"]) == set(data.groups)
    assert list(data.frame.index) == list(range(len(data.frame)))
    named = np.array(data.groups)[data.group_code]
    assert list(named) == list(data.frame["group"])
    everything = read_comparisons(world.data)
    assert len(data.frame) == everything["group"].isin(data.groups).sum(), "no row of these groups is lost"


def test_pairs_are_of_one_split_and_inside_comparisons(world: World) -> None:
    data = load_data(config(world, "groups.names=[Chile,Israel]"))
    counts = {}
    for split in ("train", "val", "test", "all"):
        pairs = data.pairs(split, 0.0)
        chosen, rejected = data.frame.iloc[pairs.chosen], data.frame.iloc[pairs.rejected]
        assert (chosen["comparison_id"].to_numpy() == rejected["comparison_id"].to_numpy()).all()
        assert (chosen["score"].to_numpy() > rejected["score"].to_numpy()).all()
        assert split == "all" or set(chosen["split"]) == {split}
        counts[split] = len(pairs)
    assert counts["all"] == counts["train"] + counts["val"] + counts["test"]
    # An independent count: pairs of different scores, by a join of the table with itself.
    test = data.frame[data.frame["split"] == "test"]
    joined = test.merge(test, on="comparison_id")
    assert counts["test"] == (joined["score_x"] > joined["score_y"]).sum()


def test_unknown_group_says_did_you_mean(world: World) -> None:
    with pytest.raises(UserError, match=r"found 'Chilly'\. Did you mean 'Chile'"):
        load_data(config(world, "groups.names=[Chilly]"))
    with pytest.raises(UserError, match="both Chile"):
        load_data(config(world, "groups.names=[Chile,CL]"))


def test_a_group_without_test_pairs_is_named(world: World, tmp_path: Path) -> None:
    folder = copy_of(world, tmp_path / "data")
    frame = pd.read_parquet(folder / "comparisons.parquet")
    frame.loc[(frame["group"] == "Chile") & (frame["split"] == "test"), "split"] = "train"
    rewrite(frame, folder)
    with pytest.raises(UserError, match="expected test pairs for every group, found none for Chile;"):
        load_data(compose(f"data.dir={folder}", "groups.names=[Chile,Israel]"))
    assert load_data(compose(f"data.dir={folder}", "groups.names=[Israel]")).groups == ["Israel"]
    # What is not trained needs no training pairs.
    frame["split"] = "test"
    rewrite(frame, folder)
    alone = compose(f"data.dir={folder}", "groups.names=[Chile]")
    with pytest.raises(UserError, match="expected train pairs"):
        load_data(alone)
    assert load_data(alone, need_train=False).groups == ["Chile"]


def rewrite(frame: pd.DataFrame, folder: Path) -> None:
    """The table again, in the schema of the one that lies there, and its hash in the manifest."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / "comparisons.parquet"
    table = pa.Table.from_pandas(frame, schema=pq.read_schema(path).remove_metadata(), preserve_index=False)
    pq.write_table(table, path)
    manifest = read_json(folder / "manifest.json")
    write_json(folder / "manifest.json", {**manifest, "content_hash": content_hash(read_comparisons(folder))})


def test_a_table_that_was_changed_after_prepare_is_refused(world: World, tmp_path: Path) -> None:
    folder = copy_of(world, tmp_path / "data")
    before = read_json(folder / "manifest.json")
    frame = pd.read_parquet(folder / "comparisons.parquet")
    frame.loc[0, "response"] = "another text"
    rewrite(frame, folder)
    assert load_data(compose(f"data.dir={folder}", "groups.names=[Chile]"))
    write_json(folder / "manifest.json", before)
    with pytest.raises(UserError, match="changed since 'scpo prepare' wrote it"):
        load_data(compose(f"data.dir={folder}", "groups.names=[Chile]"))


def test_all_groups_are_those_with_enough_data_and_the_others_are_told(world: World) -> None:
    data = load_data(config(world, "groups=all", "evaluation.min_clusters=3", "evaluation.min_pairs=30"))
    everything = read_comparisons(world.data)
    test = everything[everything["split"] == "test"]
    clusters = test.groupby("group")["cluster_id"].nunique()
    joined = test.merge(test, on="comparison_id")
    pairs = joined[joined["score_x"] > joined["score_y"]].groupby("group_x").size()
    want = [g for g in sorted(set(everything["group"])) if clusters.get(g, 0) >= 3 and pairs.get(g, 0) >= 30]
    assert data.groups == want
    assert {"United States", "United Kingdom"} <= set(want)
    (note,) = data.notes
    small = sorted(set(everything["group"]) - set(want))
    assert note.startswith(
        f"groups=all leaves out {len(small)} groups with fewer than 3 clusters or 30 pairs in test: "
    )
    assert note.endswith(f"{', '.join(small)}.")
    with pytest.raises(UserError, match=r"no group has enough test pairs; lower evaluation.min_clusters"):
        load_data(config(world, "groups=all", "evaluation.min_clusters=1000"))


def test_an_attribute_of_the_annotator_can_be_the_group(world: World) -> None:
    data = load_data(config(world, "groups=all", "groups.attribute=gender", "evaluation.min_clusters=2"))
    everything = read_comparisons(world.data)
    genders = everything["attributes"].map(lambda a: dict(a).get("gender"))
    assert set(data.groups) <= set(genders.dropna())
    for group in data.groups:
        assert (data.frame["group"] == group).sum() == (genders == group).sum()
    assert all(dict(a)["group"] for a in data.frame["attributes"]), "the country stays as an attribute"
    without = everything.loc[genders.isna(), "comparison_id"].nunique()
    told = [n for n in data.notes if "have no attribute 'gender'" in n]
    assert bool(told) == bool(without)
    assert not told or told[0].startswith(f"{without} comparisons")
    with pytest.raises(UserError, match=r"found 'gendre'\. Did you mean 'gender'"):
        load_data(config(world, "groups=all", "groups.attribute=gendre"))


def test_the_papers_split_has_no_validation_set_unless_carved(world: World) -> None:
    from datasets import Dataset

    data = load_data(config(world, "split=paper", "groups=majority"))
    assert set(data.frame["split"]) == {"train", "test"}
    users = data.manifest["extra"]["survey_users"]
    parts = Dataset.from_dict({"user": users}).train_test_split(test_size=0.15, seed=0)
    assert set(data.frame.loc[data.frame["split"] == "test", "cluster_id"]) <= set(parts["test"]["user"])
    assert set(data.frame.loc[data.frame["split"] == "train", "cluster_id"]) <= set(parts["train"]["user"])
    carved = load_data(config(world, "split=paper", "split.val_fraction=0.2", "groups=majority"))
    assert set(carved.frame["split"]) == {"train", "val", "test"}


@pytest.mark.parametrize("method", ["stratified", "question", "paper"])
def test_no_cluster_on_both_sides(world: World, method: str) -> None:
    data = load_data(config(world, f"split={method}", "groups=majority"))
    assert (data.frame.groupby("cluster_id")["split"].nunique() == 1).all()
    again = load_data(config(world, f"split={method}", "groups=majority"))
    assert list(again.frame["split"]) == list(data.frame["split"])


def test_missing_and_damaged_data_name_the_file(world: World, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data.dir: expected the folder of a comparisons table"):
        load_data(compose("data=table"))
    with pytest.raises(UserError, match=r"nowhere"):
        load_data(compose("data=prism", f"data.dir={tmp_path}/nowhere"))
    folder = copy_of(world, tmp_path / "data")
    path = folder / "comparisons.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"comparisons.parquet"):
        load_data(compose(f"data.dir={folder}"))
    path.write_bytes(whole)
    (folder / "manifest.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match=r"manifest.json"):
        load_data(compose(f"data.dir={folder}"))


def visible(folder: Path) -> list[str]:
    """Names in a folder but for lock files, which may stay."""
    return sorted(p.name for p in folder.iterdir() if p.suffix != ".lock")


def test_the_embedded_world_is_made_where_it_is_absent(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    data = load_data(compose(f"data.dir={folder}", "data.simulate.annotators=60", "groups=majority"))
    assert data.groups == ["United States", "United Kingdom"]
    assert visible(tmp_path) == ["made"], "nothing of the making is left"
    before = (folder / "manifest.json").read_bytes()
    load_data(compose(f"data.dir={folder}", "data.simulate.annotators=60", "groups=majority"))
    assert (folder / "manifest.json").read_bytes() == before, "what is there is read, not made again"
    for other in ("data.simulate.annotators=90", "data.simulate.seed=3"):
        key, value = other.removeprefix("data.simulate.").split("=")
        asked = {"annotators": 60, "seed": 0, key: int(value)}
        with pytest.raises(UserError, match=r"set data\.dir to a new folder") as error:
            load_data(compose(f"data.dir={folder}", "data.simulate.annotators=60", other, "groups=majority"))
        assert f"{folder}: was simulated with {{'annotators': 60, 'seed': 0}}, and data.simulate says {asked}" in str(
            error.value
        )
    assert (folder / "manifest.json").read_bytes() == before
    # Other configs have no settings of a simulation, and read the folder as any other.
    assert load_data(compose("data=prism", f"data.dir={folder}", "groups=majority")).groups == data.groups


def test_two_processes_may_make_the_world_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    make_simulated(folder, {"annotators": 60, "seed": 0})
    make_simulated(folder, {"annotators": 60, "seed": 0})  # as a second process does that began before the first ended
    assert len(read_comparisons(folder))
    assert visible(tmp_path) == ["made"]


def test_the_starting_and_the_reference_model(world: World, tmp_path: Path) -> None:
    data = load_data(world.config())
    named = world.config()
    start = named_start(named)
    assert start == world.model
    assert reference_folder(named, start) == world.model, "a starting model with a head is its own reference"

    small = config(world, "model.scratch.hidden_size=16")
    assert named_start(small) is None
    assert build_start(small, data, tmp_path) == tmp_path / "start"
    assert (tmp_path / "start" / "config.json").is_file()
    assert reference_folder(config(world), None) is None, "a new head is no reference"
    other = config(world, f"reference.name_or_path={world.model}")
    assert reference_folder(other, None) == world.model

    from scpo.model.files import read_config

    headless = tmp_path / "headless"
    shutil.copytree(world.model, headless)
    parts = {**read_config(headless), "architectures": ["BertModel"]}
    (headless / "config.json").write_text(json.dumps(parts), encoding="utf-8")
    assert reference_folder(config(world), headless) is None
    with pytest.raises(UserError, match="expected a reference model with a trained reward head"):
        reference_folder(config(world, f"reference.name_or_path={headless}"), world.model)
    with pytest.raises(UserError, match=r"model.name_or_path: expected a model folder or a Hub id, found null"):
        named_start(config(world, "model.scratch=null"))
