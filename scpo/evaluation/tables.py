"""Many runs as one table: mean and standard deviation over seeds, baselines, and the paper's numbers beside ours."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from scpo.errors import UserError, did_you_mean
from scpo.evaluation import published
from scpo.evaluation.formats import (
    INSUFFICIENT,
    NONE,
    csv_text,
    json_text,
    latex_table,
    markdown_table,
    markdown_text,
    percent,
)
from scpo.evaluation.runs import Run, rows_of, varying_keys

FORMATS = ("markdown", "latex", "csv", "json")
DATA_KEYS = ("data", "groups", "split", "reference", "model")
"""Config groups on which baselines depend; the arm, the conditioning and the balance leave them as they are."""

COLUMNS = {
    "all": "macro all",
    "distinctive": "macro distinctive",
    "shared": "macro shared",
    "worst": "worst group",
    "gap": "gap",
    "kept": "kept",
}
FOOTER = (
    "Mean over seeds ± standard deviation (n - 1); one seed has none. Macro: unweighted mean over the groups with pairs. "
    "Worst group and gap (best minus worst): over the groups with enough data. A tie of rewards is wrong. Insufficient data: "
    "below the minimum of pairs or clusters in at least one seed. Distinctive pairs: the reference ranks them the wrong way "
    "round; higher there is not simply better. n: test pairs / clusters, a range where seeds differ."
)


def build_table(runs: list[Run]) -> dict[str, Any]:
    """Rows of the comparison, as JSON-serialisable values; accuracies are fractions.

    Returns:
        `keys` (label columns), `groups` (names), `rows` (each with label, seeds, numbers ``{"mean", "sd", "n"}`` by column,
        n_pairs and n_clusters as [min, max], published, by_group) and `footer`. Rows of baselines have `baseline` set.
    """
    keys = varying_keys(runs)
    groups = list(dict.fromkeys(g for run in runs for g in run.metrics["by_group"]))
    rows = [
        _row(dict(zip(keys, values, strict=True)), members, groups) for values, members in rows_of(runs, keys).items()
    ]
    data_keys = [k for k in keys if k.split(".")[0] in DATA_KEYS]
    for values, members in rows_of(runs, data_keys).items():
        where = dict.fromkeys(keys, "") | dict(zip(data_keys, values, strict=True))
        # Runs with other groups have other test pairs: each set of groups has baselines of its own.
        sets: dict[tuple[str, ...], list[Run]] = {}
        for run in members:
            sets.setdefault(tuple(sorted(run.metrics["by_group"])), []).append(run)
        for names, same in sets.items():
            of = "" if len(sets) == 1 else ", ".join(names)
            rows.extend(_baseline(name, where, same, groups) | {"of": of} for name in ("chance", "length", "reference"))
    return {
        "keys": keys,
        "groups": groups,
        "rows": rows,
        "published": published.LABEL,
        "footer": f"{FOOTER} {how_chosen(runs)}",
    }


def how_chosen(runs: list[Run]) -> str:
    """Which seeds and which weights of each run are behind the numbers, as far as the configurations tell."""
    seeds = sorted({run.seed for run in runs}, key=lambda seed: (seed.zfill(12), seed))
    sets = {tuple(sorted(run.seed for run in members)) for members in rows_of(runs, varying_keys(runs)).values()}
    said = (
        f"Seeds: {', '.join(seeds)}{'' if len(sets) == 1 else ' (not every row has all)'}; every finished run counts."
    )
    rules = dict.fromkeys(_rule(run) for run in runs)
    return f"{said} Weights of a run: {'; or '.join(sorted(rules))}."


def _rule(run: Run) -> str:
    """How a run's weights were chosen among its checkpoints."""
    if "callbacks.monitor" not in run.config:
        return "the configuration does not say which"
    monitor, patience = run.config["callbacks.monitor"], run.config.get("callbacks.patience")
    if monitor is None:
        return "the last ones"
    stop = "" if patience is None else f", training stopped after {patience} validations without better ones"
    return f"those with the best {monitor}, measured on validation pairs{stop}"


def spread(values: Iterable[float | None]) -> dict[str, Any]:
    """Mean, standard deviation (ddof 1, None for one value) and n of the defined values."""
    defined = [float(v) for v in values if v is not None]
    return {
        "mean": statistics.fmean(defined) if defined else None,
        "sd": statistics.stdev(defined) if len(defined) > 1 else None,
        "n": len(defined),
    }


def _row(labels: dict[str, str], members: list[Run], groups: list[str]) -> dict[str, Any]:
    first = members[0]
    return {
        "label": labels,
        "baseline": None,
        "seeds": [run.seed for run in members],
        "runs": [run.name for run in members],
        "numbers": {
            "all": spread(_subset(run, "all") for run in members),
            "distinctive": spread(_subset(run, "distinctive") for run in members),
            "shared": spread(_subset(run, "shared") for run in members),
            "worst": spread(_firm(run, "worst") for run in members),
            "gap": spread(_firm(run, "gap") for run in members),
            "kept": spread(_mean(g.get("kept_ratio") for g in run.metrics["by_group"].values()) for run in members),
        },
        **_sizes(members),
        "published": published.published(first.config, list(first.metrics["by_group"])),
        "by_group": {g: _group(members, g, lambda cell: cell["all"]["accuracy"]) for g in groups},
    }


def _baseline(name: str, labels: dict[str, str], members: list[Run], groups: list[str]) -> dict[str, Any]:
    """One baseline on one test set. Arms share it, so runs of one seed are averaged first and count once."""
    by_seed: dict[str, list[Run]] = {}
    for run in members:
        by_seed.setdefault(run.seed, []).append(run)
    numbers = {column: spread([]) for column in COLUMNS}
    numbers["all"] = spread(_mean(r.metrics["baselines"].get(name) for r in runs) for runs in by_seed.values())
    if name == "reference":
        for subset in ("distinctive", "shared"):
            numbers[subset] = spread(_mean(_reference(r, subset) for r in runs) for runs in by_seed.values())
    first = members[0]
    known = name == "reference" and published.same_experiment(first.config, list(first.metrics["by_group"]))

    def with_it(runs: list[Run]) -> Run:
        """One run of a seed stands for all; one that knows the baseline, if any does (`full` may run without a reference)."""
        return max(runs, key=lambda run: run.metrics["baselines"].get(name) is not None)

    def read(cell: Mapping[str, Any]) -> float | None:
        value: float | None = cell.get("baselines", {}).get(name)
        return cell["reference"]["all"] if value is None and name == "reference" else value

    return {
        "label": labels,
        "baseline": name,
        "seeds": sorted(by_seed),
        "runs": [],
        "numbers": numbers,
        **_sizes(members),
        "published": published.GLOBAL_MODEL if known else None,
        "by_group": {g: _group([with_it(runs) for runs in by_seed.values()], g, read) for g in groups},
    }


def _mean(values: Iterable[float | None]) -> float | None:
    return spread(values)["mean"]


def _subset(run: Run, subset: str) -> float | None:
    """Macro accuracy on a set of pairs, from the groups' own cells."""
    return _mean(g[subset]["accuracy"] for g in run.metrics["by_group"].values())


def _reference(run: Run, subset: str) -> float | None:
    return _mean(g["reference"][subset] for g in run.metrics["by_group"].values())


def _firm(run: Run, which: str) -> float | None:
    """Worst group or gap over the groups with enough data."""
    values = [g["all"]["accuracy"] for g in run.metrics["by_group"].values() if not g["insufficient"]]
    values = [v for v in values if v is not None]
    if which == "worst":
        return min(values, default=None)
    return max(values) - min(values) if len(values) > 1 else None


def _sizes(members: list[Run]) -> dict[str, list[int]]:
    """Smallest and largest number of test pairs and clusters among the runs."""

    def total(run: Run, key: str) -> int:
        whole = run.metrics.get(key)
        return int(sum(g[key] for g in run.metrics["by_group"].values()) if whole is None else whole)

    return {
        key: [min(total(r, key) for r in members), max(total(r, key) for r in members)]
        for key in ("n_pairs", "n_clusters")
    }


def _group(members: list[Run], group: str, read: Callable[[Mapping[str, Any]], float | None]) -> dict[str, Any]:
    """One group's number over the seeds, its n, and whether any seed has too little data."""
    cells = [run.metrics["by_group"][group] for run in members if group in run.metrics["by_group"]]
    pairs, clusters = [c["n_pairs"] for c in cells], [c["n_clusters"] for c in cells]
    return {
        **spread(read(c) for c in cells),
        "n_pairs": [min(pairs, default=0), max(pairs, default=0)],
        "n_clusters": [min(clusters, default=0), max(clusters, default=0)],
        "insufficient": any(c["insufficient"] for c in cells),
    }


def check_format(fmt: str) -> None:
    """Raise UserError for an unknown format."""
    if fmt not in FORMATS:
        raise UserError(f"--format: expected one of {', '.join(FORMATS)}, found {fmt!r}.{did_you_mean(fmt, FORMATS)}")


def render(table: Mapping[str, Any], fmt: str) -> str:
    """The table as markdown or latex (percent, two tables), csv (fractions, one rectangle) or json (everything)."""
    check_format(fmt)
    if fmt == "json":
        return json_text(table)
    if fmt == "csv":
        return _csv(table)
    left = len(table["keys"]) or 1
    main, groups = _main(table), _groups(table)
    title = "Accuracy in percent"
    title_groups = "Accuracy on all test pairs per group, in percent (n: pairs / clusters)"
    if fmt == "latex":
        note = f"{title}. {table['footer']} Published: {table['published']}."
        return (
            latex_table(*main, caption=note, left=left)
            + "\n"
            + latex_table(*groups, caption=f"{title_groups}.", left=left)
        )
    return "\n".join(
        [
            f"**{markdown_text(title)}**\n",
            markdown_table(*main, left=left),
            f"**{markdown_text(title_groups)}**\n",
            markdown_table(*groups, left=left),
            markdown_text(f"{table['footer']} Published: {table['published']}."),
            "",
        ]
    )


def _labels(row: Mapping[str, Any], keys: list[str]) -> list[str]:
    if row["baseline"] is None:
        return [row["label"][k] or NONE for k in keys] or ["all runs"]
    name = {"length": "longer response"}.get(row["baseline"], row["baseline"])
    first = f", {row['label'][keys[0]]}" if keys and row["label"][keys[0]] else ""
    first += f" ({row['of']})" if row["of"] else ""
    return [f"baseline: {name}{first}", *(row["label"][k] or NONE for k in keys[1:])]


def _header(keys: list[str]) -> list[str]:
    return [k.removesuffix(".name") for k in keys] or ["runs"]


def _text(number: Mapping[str, Any]) -> str:
    if number["mean"] is None:
        return NONE
    return percent(number["mean"], 2) + ("" if number["sd"] is None else f" ± {percent(number['sd'], 2)}")


def _range(low_high: list[int]) -> str:
    low, high = low_high
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _main(table: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    keys = table["keys"]
    header = [*_header(keys), "seeds", *COLUMNS.values(), "n", "published all", "published distinctive"]
    rows = []
    for row in table["rows"]:
        paper = row["published"] or {}
        cells = [_text(row["numbers"][c]) for c in COLUMNS]
        known = [percent(paper.get(s), 2) if paper else "" for s in ("all", "distinctive")]
        n = f"{_range(row['n_pairs'])} / {_range(row['n_clusters'])}"
        rows.append([*_labels(row, keys), str(len(row["seeds"])), *cells, n, *known])
    return header, rows


def _groups(table: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    keys = table["keys"]

    def cell(entry: Mapping[str, Any]) -> str:
        if entry["insufficient"]:
            return INSUFFICIENT
        return (
            _text(entry)
            if entry["mean"] is None
            else f"{_text(entry)} ({_range(entry['n_pairs'])} / {_range(entry['n_clusters'])})"
        )

    rows = [[*_labels(row, keys), *(cell(row["by_group"][g]) for g in table["groups"])] for row in table["rows"]]
    return [*_header(keys), *table["groups"]], rows


def _csv(table: Mapping[str, Any]) -> str:
    import csv
    import io

    keys, groups = table["keys"], table["groups"]
    spreads = ("mean", "sd")
    header = [*(_header(keys)), "baseline", "seeds", *(f"{c} {s}" for c in COLUMNS for s in spreads)]
    header += [f"{n} {m}" for n in ("n_pairs", "n_clusters") for m in ("min", "max")]
    header += ["published all", "published distinctive"]
    header += [
        f"{g} {c}"
        for g in groups
        for c in ("mean", "sd", "n_pairs min", "n_pairs max", "n_clusters min", "insufficient")
    ]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([csv_text(h) for h in header])
    for row in table["rows"]:
        paper = row["published"] or {}
        cells: list[Any] = [*([row["label"][k] for k in keys] or [""]), row["baseline"], len(row["seeds"])]
        cells += [row["numbers"][c][s] for c in COLUMNS for s in spreads]
        cells += [*row["n_pairs"], *row["n_clusters"], paper.get("all"), paper.get("distinctive")]
        for g in groups:
            entry = row["by_group"][g]
            shown = [None, None] if entry["insufficient"] else [entry["mean"], entry["sd"]]
            cells += [*shown, *entry["n_pairs"], entry["n_clusters"][0], str(entry["insufficient"]).lower()]
        writer.writerow([csv_text(c) for c in cells])
    return stream.getvalue()
