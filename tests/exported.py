"""Finished runs for tests of the export, made without training: tiny networks moved off their start, with measured numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from steered import GROUPS, MODES, move, steering_of
from tiny_backbones import build_backbone
from world import compose

from scpo.conditioning import parts, write_steering
from scpo.evaluation.steering import steering_check
from scpo.evaluation.summary import summarise
from scpo.groups import slug
from scpo.io import write_json
from scpo.model.reward import ModelOptions, load_model
from scpo.model.steering_files import describe, save_steering
from scpo.run.config import config_hash

LENGTH = 120
"""Most tokens of a text."""

CLUSTERS = 10
"""Test clusters of every group."""


def make_run(
    run: Path, kind: str, mode: str, *, tokenizer: Any = None, overrides: tuple[str, ...] = (), default: bool = True
) -> Path:
    """Write the folder of a finished run of one of `MODES`, prefix, separate or none; return it."""
    of_run = {"low-rank": "head", "all": "adapter"}.get(mode, mode)
    names = ",".join(GROUPS)
    config = compose(
        f"conditioning={of_run}",
        f"groups.names=[{names}]",
        f"model.max_length={LENGTH}",
        f"conditioning.group_dropout={0.1 if default else 0.0}",
        "data.dir=gone",
        *overrides,
    )
    positions = LENGTH + 10 if kind == "roberta" else LENGTH + 8
    for place, part in enumerate(parts(of_run, GROUPS)):
        start = build_backbone(
            kind,
            run.parent / f"{run.name}-start{place}",
            seed=place,
            tokenizer=tokenizer,
            max_position_embeddings=positions,
        )
        model = load_model(start, ModelOptions(max_length=LENGTH))[0]
        if mode in MODES:
            model.add_steering(GROUPS, MODES[mode])
            move(steering_of(model))
        folder = run / "model" / part.folder
        model.save(folder)
        save_steering(model, folder)
        if of_run == "separate":
            write_steering(folder, config, list(part.groups), "none")
    write_steering(run / "model", config, GROUPS, of_run, learned=describe(model))
    write_metrics(run, of_run)
    (run / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    status = {
        "state": "finished",
        "config_hash": config_hash(config),
        "command": "scpo train data.dir=/secret/place/mine",
    }
    status |= {"versions": {"scpo": "0.0.7"}, "finished": "2026-01-02T03:04:05+00:00", "inputs": {}, "error": None}
    write_json(run / "status.json", status)
    return run


def predictions(told: bool) -> pd.DataFrame:
    """Ten clusters of four comparisons of two candidates in each group; the last group has one cluster only.

    The model ranks the comparisons 0, 1 and 2 of every cluster as the annotator did, and 3 the other way round: 75 %. The
    reference model is right about comparison 0 alone. Told another group, the model is right about comparison 0 alone.
    """
    rows = []
    for group in GROUPS:
        for cluster in range(CLUSTERS if group != GROUPS[-1] else 1):
            for comparison in range(4):
                for conditioned in GROUPS if told else [None]:
                    own = conditioned in (group, None)
                    right = comparison < (3 if own else 1)
                    for better in (True, False):
                        name = f"{group}/{cluster}/{comparison}"
                        rows.append(
                            {
                                "candidate_id": f"{name}/{better:d}",
                                "comparison_id": name,
                                "cluster_id": f"{group}/{cluster}",
                                "annotator_id": f"{group}/{cluster}",
                                "group": group,
                                "attributes": {"age": "secret age"},
                                "score": 80.0 if better else 20.0,
                                "reference_reward": 1.0 if better == (comparison == 0) else 0.0,
                                "conditioned_on": conditioned,
                                "reward": 1.0 if better == right else 0.0,
                            }
                        )
    frame = pd.DataFrame(rows)
    return frame.astype({"reference_reward": np.float32, "reward": np.float32})


def write_metrics(run: Path, mode: str) -> dict[str, Any]:
    """The metrics of `predictions`, as a run writes them."""
    frame = predictions(told=mode not in ("none",))
    settings: dict[str, Any] = {"resamples": 50, "groups": GROUPS}
    selection = {g: {"training pairs": 1234 + i, "kept": 567 + i, "kept share": 0.5} for i, g in enumerate(GROUPS)}
    own = frame if mode != "separate" else frame[frame["group"] == frame["conditioned_on"]]
    metrics = summarise(own, **settings) | {
        "steering": steering_check(own, **settings),
        "selection": selection,
        "notes": ["a note with /secret/place"],
    }
    write_json(run / "metrics.json", metrics)
    return metrics


def weights_of(run: Path, group: str | None) -> Path:
    """The folder whose weights serve a group of a run with one model per group."""
    return run / "model" / slug(str(group))
