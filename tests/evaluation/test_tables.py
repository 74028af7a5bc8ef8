from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from prediction_worlds import pair, table

from scpo.cli.table import main
from scpo.errors import UserError
from scpo.evaluation.published import ROW, published
from scpo.evaluation.runs import collect, varying_keys
from scpo.evaluation.summary import summarise
from scpo.evaluation.tables import build_table, render
from scpo.groups import PRISM7
from scpo.io import write_json


def metrics_of(right: int, groups: tuple[str, ...] = PRISM7, n: int = 40) -> dict[str, Any]:
    """Every group has `right` of `n` pairs right, the last group one fewer; the reference has every second pair right."""
    rows = []
    for g in groups:
        for i in range(n):
            margin = 1.0 if i < right - (g == groups[-1]) else -1.0
            rows += pair(g, f"{g} {i % 10}", f"{g} {i}", margin, 1.0 if i % 2 else -1.0, response_length=1)
    return summarise(table(rows), resamples=5, kept_ratio=dict.fromkeys(groups, 0.5))


def make_run(root: Path, name: str, metrics: dict[str, Any] | None, state: str = "finished", **settings: Any) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    config: dict[str, Any] = {
        "data": {"name": "prism", "dir": "d"},
        "groups": {"name": "prism7"},
        "model": {"name": "deberta"},
        "selection": {"name": "scpo", "tau": 0.7, "beta": 1.1},
        "conditioning": {"name": "separate"},
        "balance": {"name": "none"},
        "loss": {"name": "pairwise"},
        "callbacks": {"monitor": None, "patience": None},
        "seed": 0,
        "run_dir": str(folder),
    }
    for key, value in ROW.items():
        group, leaf = key.split(".")
        config.setdefault(group, {}).setdefault(leaf, value)
    for key, value in settings.items():
        group, _, leaf = key.partition("__")
        if leaf:
            config[group] = {**config[group], leaf: value}
        else:
            config[group] = value
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    write_json(
        folder / "status.json",
        {"state": state, "started": "1", "finished": name, "error": "boom" if state == "failed" else None},
    )
    if metrics is not None:
        write_json(folder / "metrics.json", metrics)
    return folder


def test_mean_and_standard_deviation_over_seeds_by_hand(tmp_path: Path) -> None:
    for seed, right in enumerate((20, 24, 28)):
        make_run(tmp_path, f"s{seed}", metrics_of(right), seed=seed)
    make_run(tmp_path, "full0", metrics_of(30), selection__name="full", selection__tau=None)
    built = build_table(collect(tmp_path).runs)
    assert built["keys"] == ["selection.name"]  # tau follows from the arm
    full, scpo, *baselines = built["rows"]
    assert (full["label"], scpo["label"]) == ({"selection.name": "full"}, {"selection.name": "scpo"})
    assert scpo["seeds"] == ["0", "1", "2"]
    assert scpo["numbers"]["all"]["mean"] == pytest.approx((6 * 24 / 40 + 23 / 40) / 7)
    assert scpo["numbers"]["all"]["sd"] == pytest.approx(0.1)  # 0.5, 0.6, 0.7 less a constant, ddof 1
    assert full["numbers"]["all"]["sd"] is None
    assert scpo["numbers"]["worst"]["mean"] == pytest.approx(23 / 40)
    assert scpo["numbers"]["gap"]["mean"] == pytest.approx(1 / 40)
    assert scpo["numbers"]["kept"]["mean"] == 0.5
    # The reference has odd pairs right: distinctive are the even ones, of which the first `right` are right.
    assert scpo["numbers"]["distinctive"]["mean"] == pytest.approx((6 * 12 + 12) / 7 / 20)
    assert scpo["n_pairs"] == [280, 280]
    assert scpo["n_clusters"] == [70, 70]
    assert scpo["by_group"]["Chile"]["mean"] == pytest.approx(0.6)
    assert [b["baseline"] for b in baselines] == ["chance", "length", "reference"]
    assert baselines[2]["numbers"]["all"]["mean"] == 0.5
    assert baselines[2]["numbers"]["distinctive"]["mean"] == 0.0
    assert baselines[2]["published"] == {"all": 0.5855, "distinctive": 0.0}
    assert baselines[1]["numbers"]["all"]["mean"] == 0.0  # equal lengths are wrong
    assert scpo["published"]["all"] == 0.6272


def test_a_table_needs_only_the_keys_of_the_contract(tmp_path: Path) -> None:
    metrics = metrics_of(20)
    keep = {"schema", "macro", "micro", "worst_group", "gap", "by_group", "by_subcommunity", "baselines", "train"}
    metrics = {k: v for k, v in metrics.items() if k in keep}
    for group in metrics["by_group"].values():
        for extra in ("baselines", "reference_tie_rate"):
            del group[extra]
    make_run(tmp_path, "a", metrics)
    built = build_table(collect(tmp_path).runs)
    assert built["rows"][0]["n_pairs"] == [280, 280]
    assert built["rows"][-1]["by_group"]["Chile"]["mean"] == 0.5


def test_unfinished_failed_damaged_and_repeated_runs_are_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path, "a/ok", metrics_of(20))
    make_run(tmp_path, "b_failed", None, state="failed", seed=1)
    make_run(tmp_path, "c_running", metrics_of(40), state="running", seed=2)
    make_run(tmp_path, "d_damaged", metrics_of(20), seed=3)
    (tmp_path / "d_damaged" / "metrics.json").write_text("{", encoding="utf-8")
    make_run(tmp_path, "e_repeat", metrics_of(22))
    make_run(tmp_path, "f_absent", None, seed=5)
    (make_run(tmp_path, "g_unknown", metrics_of(22), seed=6) / "status.json").unlink()
    make_run(tmp_path, ".hidden", metrics_of(22), seed=7)
    found = collect(tmp_path)
    assert [run.name for run in found.runs] == ["e_repeat"]
    states = dict(found.left_out)
    assert states["b_failed"] == "failed (boom)"
    assert states["c_running"] == "running"
    assert "expected a JSON document" in states["d_damaged"]
    assert states["a/ok"] == "finished, repeated by e_repeat"
    assert "no such file" in states["f_absent"]
    assert states["g_unknown"] == "without status.json"
    assert main([str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "left out: b_failed: failed (boom)" in err
    assert "b_failed" not in out
    assert out.startswith("**Accuracy")


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run folder"):
        main([str(tmp_path)])
    with pytest.raises(UserError, match="expected a folder of runs, found nothing"):
        main([str(tmp_path / "absent")])
    make_run(tmp_path, "x", None, state="interrupted")
    with pytest.raises(UserError, match="x: interrupted"):
        main([str(tmp_path)])


def test_the_root_may_be_a_run_itself(tmp_path: Path) -> None:
    make_run(tmp_path, "only", metrics_of(20))
    assert [run.name for run in collect(tmp_path / "only").runs] == ["only"]


def test_rows_are_told_apart_by_what_varies_but_not_by_seeds_and_places(tmp_path: Path) -> None:
    make_run(tmp_path, "a", metrics_of(20), split__seed=3)
    make_run(tmp_path, "b", metrics_of(20), seed=1, split__seed=4)
    make_run(tmp_path, "c", metrics_of(20), conditioning__name="prefix", hydra={"job": 3})
    make_run(tmp_path, "d", metrics_of(20), optim__lr=1.0e-5)
    runs = collect(tmp_path).runs
    assert varying_keys(runs) == ["selection.name", "conditioning.name", "optim.lr"]
    rows = [r for r in build_table(runs)["rows"] if r["baseline"] is None]
    assert sorted(len(r["seeds"]) for r in rows) == [1, 1, 2]


def test_runs_of_other_groups_have_baselines_of_their_own(tmp_path: Path) -> None:
    """A global run on two groups beside a run on two others: neither baseline stands for both test sets."""
    make_run(tmp_path, "global", metrics_of(30, ("United States", "United Kingdom")), selection__name="full")
    make_run(tmp_path, "ours", metrics_of(20, ("Chile", "Mexico")))
    built = build_table(collect(tmp_path).runs)
    baselines = [row for row in built["rows"] if row["baseline"] == "reference"]
    assert [row["of"] for row in baselines] == ["United Kingdom, United States", "Chile, Mexico"]
    for row, own, other in ((baselines[0], "United States", "Chile"), (baselines[1], "Chile", "United States")):
        assert row["by_group"][own]["mean"] == 0.5
        assert row["by_group"][other]["mean"] is None
        assert row["n_pairs"] == [80, 80]
    assert "baseline: reference (Chile, Mexico)" in render(built, "markdown")


def test_a_run_without_a_reference_does_not_hide_that_of_the_others(tmp_path: Path) -> None:
    bare = metrics_of(30)
    bare["baselines"]["reference"] = None
    for cell in bare["by_group"].values():
        cell["reference"] = dict.fromkeys(cell["reference"])
        cell["baselines"]["reference"] = None
    make_run(tmp_path, "a", bare, selection__name="full")
    make_run(tmp_path, "b", metrics_of(20))
    (row,) = [row for row in build_table(collect(tmp_path).runs)["rows"] if row["baseline"] == "reference"]
    assert row["by_group"]["Chile"]["mean"] == 0.5


def test_published_rows_stand_only_beside_the_same_experiment() -> None:
    base = {**ROW, "data.name": "prism", "selection.name": "scpo", "selection.tau": 0.7, "selection.beta": 1.1}
    groups = list(PRISM7)
    assert published(base, groups) == {"all": 0.6272, "distinctive": 0.4057}
    assert published(base, groups[::-1]) is not None
    for arm, value in {"full": 0.6212, "filter": 0.4687, "inverse": 0.5662, "weight": 0.6113}.items():
        row = published(base | {"selection.name": arm}, groups)
        assert row is not None
        assert row["all"] == value
    assert published(base | {"selection.name": "full", "selection.tau": 0.3}, groups) is not None
    for other in (
        {"selection.tau": 0.5},
        {"selection.beta": 1.0},
        {"selection.name": "random"},
        {"data.name": "goqa"},
        {"conditioning.name": "prefix"},
        {"balance.name": "sqrt"},
        {"loss.name": "distribution"},
        {"model.name": "tulu"},
        {"split.method": "stratified"},
        {"trainer.max_steps": 10},
        {"optim.lr": 1e-5},
        {"batch.pairs": 16},
        {"data.min_gap": 5.0},
        {"selection.tau": "odd"},
    ):
        assert published(base | other, groups) is None
    assert published(base, groups[:-1]) is None


def test_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path, "a", metrics_of(20), balance__name="=cmd|x_1")
    make_run(tmp_path, "b", metrics_of(21), balance__name="none")
    out = {}
    for fmt in ("markdown", "latex", "csv", "json"):
        assert main([str(tmp_path), "--format", fmt]) == 0
        out[fmt] = capsys.readouterr().out
    assert r"=cmd\|x\_1" in out["markdown"]
    assert "62.72" in out["markdown"]
    assert "a tie of rewards is wrong" in out["markdown"].lower()
    assert r"=cmd\textbar{}x\_1" in out["latex"]
    assert r"\toprule" in out["latex"]
    rows = list(csv.DictReader(io.StringIO(out["csv"])))
    assert {r["balance"] for r in rows if not r["baseline"]} == {"'=cmd|x_1", "none"}
    assert all(None not in r and None not in r.values() for r in rows)
    none = next(r for r in rows if r["balance"] == "none")
    assert float(none["all mean"]) == pytest.approx((6 * 21 + 20) / 280)
    assert none["published all"] == "0.6272"
    assert json.loads(out["json"])["rows"][0]["by_group"]["Canada"]["n_pairs"] == [40, 40]
    target = tmp_path / "t" / "table.csv"
    assert main([str(tmp_path), "--format", "csv", "--out", str(target)]) == 0
    assert target.read_text(encoding="utf-8") == out["csv"]
    with pytest.raises(UserError, match=r"Did you mean 'markdown'"):
        main([str(tmp_path), "--format", "markdwn"])


def test_small_groups_show_no_number(tmp_path: Path) -> None:
    make_run(tmp_path, "a", metrics_of(8, groups=("Big", "Small"), n=10))
    built = build_table(collect(tmp_path).runs)
    assert built["rows"][0]["numbers"]["worst"]["mean"] is None
    assert built["rows"][0]["published"] is None
    markdown = render(built, "markdown")
    assert "| scpo | insufficient data | insufficient data |" in markdown


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    assert "scpo table runs/arms" in capsys.readouterr().out


def _damage(metrics: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for key in parents:
        metrics = metrics[key]
    if value is KeyError:
        del metrics[last]
    else:
        metrics[last] = value


DAMAGE: list[tuple[str, Any]] = [
    *[("by_group", value) for value in ([], None, "x", {"Chile": 3}, {"Chile": {}})],
    *[(key, value) for key in ("macro", "micro", "baselines") for value in (KeyError, None, [], "x")],
    *[
        ("by_group.Chile.all.accuracy", value)
        for value in ("0.5", True, 1.5, -0.1, float("nan"), 10**400, [], KeyError)
    ],
    *[("by_group.Chile.shared", value) for value in (None, KeyError, 0.5)],
    *[("by_group.Chile.n_pairs", value) for value in (None, "3", 3.5, -1, True, KeyError)],
    *[("by_group.Chile.insufficient", value) for value in (None, "no", KeyError)],
    *[("by_group.Chile.reference", value) for value in (None, {"all": "x"}, KeyError)],
    *[("by_group.Chile.baselines", value) for value in (None, {"length": "x"})],
    ("by_group.Chile.kept_ratio", "half"),
    ("baselines.length", {}),
    ("n_pairs", "many"),
    ("schema", 2),
]


@pytest.mark.parametrize(("path", "value"), DAMAGE)
@pytest.mark.filterwarnings("error")
def test_damaged_metrics_are_listed_as_unreadable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, value: Any
) -> None:
    make_run(tmp_path, "good", metrics_of(20))
    metrics = metrics_of(20)
    _damage(metrics, path, value)
    folder = make_run(tmp_path, "odd", None, seed=1)
    (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    assert main([str(tmp_path)]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"left out: odd: unreadable ({folder / 'metrics.json'}: key ")
    assert len(line) < 500


CONFIGS = {
    "brackets": b"[" * 20_000,
    "braces": b"{" * 20_000,
    "digits": b"seed: " + b"9" * 5000,
    "a 13th month": b"seed: 2001-13-45",
    "binary": b"\xff\xfe\x00",
    "a list": b"[1, 2]",
    "nothing": b"",
    "python": b"seed: !!python/object/apply:os.getcwd []",
    "alias in itself": b"a: &a {b: *a}",
    "aliases of aliases": "\n".join(
        ["a0: &a0 {x: 1, y: 2}", *(f"a{i}: &a{i} {{x: *a{i - 1}, y: *a{i - 1}}}" for i in range(1, 30))]
    ).encode(),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_that_is_none_is_listed_as_unreadable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    make_run(tmp_path, "good", metrics_of(20))
    (make_run(tmp_path, "odd", metrics_of(20), seed=1) / "config.yaml").write_bytes(CONFIGS[name])
    assert main([str(tmp_path)]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("left out: odd: unreadable (")
    assert len(line) < 400


def test_names_of_runs_and_errors_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path, "good", metrics_of(20))
    folder = make_run(tmp_path, "odd\x1b[2J\u202e", None, seed=1)
    write_json(folder / "status.json", {"state": "failed\x1b[2J", "error": "\u202eboom"})
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().err == "left out: odd\\x1b[2J\\u202e: failed\\x1b[2J (\\u202eboom)\n"


def test_group_names_cannot_steer_any_format(tmp_path: Path) -> None:
    make_run(tmp_path, "a", metrics_of(30, groups=("A\u202eB", "C\x1b[2JD")))
    built = build_table(collect(tmp_path).runs)
    for fmt in ("markdown", "latex", "csv", "json"):
        assert render(built, fmt).replace("\n", "").isprintable()
    assert r"A\u202eB mean" in render(built, "csv").splitlines()[0]


def test_the_footer_says_how_seeds_and_weights_were_chosen(tmp_path: Path) -> None:
    """PITFALLS 88."""
    for seed in (10, 2):
        make_run(tmp_path, f"full{seed}", metrics_of(20), seed=seed, selection__name="full")
    footer = build_table(collect(tmp_path).runs)["footer"]
    assert footer.endswith("Seeds: 2, 10; every finished run counts. Weights of a run: the last ones.")
    best = {"monitor": "val/accuracy", "patience": 5}
    make_run(tmp_path, "scpo2", metrics_of(20), seed=2, callbacks=best)
    make_run(tmp_path, "weight2", metrics_of(20), seed=2, selection__name="weight", callbacks__monitor="val/loss")
    runs = collect(tmp_path).runs
    built = build_table(runs)
    assert built["footer"].endswith(
        "Seeds: 2, 10 (not every row has all); every finished run counts. Weights of a run: the last ones; or those with the "
        "best val/accuracy, measured on validation pairs, training stopped after 5 validations without better ones; or those "
        "with the best val/loss, measured on validation pairs."
    )
    for fmt in ("markdown", "latex", "json"):
        assert "measured on validation pairs" in render(built, fmt)
    for run in runs:
        run.config.pop("callbacks.monitor")
    assert build_table(runs)["footer"].endswith("Weights of a run: the configuration does not say which.")
