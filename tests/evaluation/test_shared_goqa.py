"""Real questions through the whole path: read, predict by length, write, read back, summarise, report."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from scpo.evaluation.predictions import read_predictions, write_predictions
from scpo.evaluation.report import terminal_table, write_report
from scpo.evaluation.summary import summarise

ROOT = Path(os.environ.get("SCPO_SHARED_DATA") or Path(__file__).parents[2] / "../shared/data") / "goqa"


@pytest.mark.shared
@pytest.mark.skipif(not ROOT.is_dir(), reason="no real GlobalOpinionQA rows: set SCPO_SHARED_DATA")
def test_real_questions_from_rows_to_pages(tmp_path: Path) -> None:
    from scpo.data.goqa import read_goqa

    frame = read_goqa(ROOT).frame
    length = frame["response"].str.len()
    # The model prefers the longer option, the reference the shorter one: each is right where the other is not, but for ties.
    frame = frame.assign(
        reward=length.astype(np.float32),
        reference_reward=-length.astype(np.float32),
        conditioned_on=frame["group"],
        response_length=length,
    )
    path = tmp_path / "predictions.parquet"
    write_predictions(frame, path)
    metrics = summarise(read_predictions(path), resamples=100)
    for group in metrics["by_group"].values():
        if group["n_pairs"]:
            assert group["all"]["accuracy"] == group["baselines"]["length"]
            assert group["all"]["accuracy"] + group["reference"]["all"] + group["tie_rate"] == pytest.approx(1)
        if group["distinctive"]["n_pairs"]:
            assert group["distinctive"]["accuracy"] == 1.0
            assert group["reference"]["distinctive"] == 0.0
    questions = frame.groupby("comparison_id")["score"].nunique()
    with_pairs = frame[frame["comparison_id"].isin(questions.index[questions > 1])]
    assert metrics["n_clusters"] == with_pairs["cluster_id"].nunique()
    assert metrics["n_groups"] == frame["group"].nunique()
    assert len(terminal_table(metrics).splitlines()) > metrics["n_groups"]
    assert write_report(tmp_path, metrics, context={}).stat().st_size > 10_000
