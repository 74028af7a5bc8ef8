"""The report of one run: sections built once from the metrics, then written as Markdown and as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scpo.evaluation import html
from scpo.evaluation.formats import (
    INSUFFICIENT,
    NONE,
    estimate,
    markdown_table,
    markdown_text,
    percent,
    plain_table,
    plural,
    points,
    size,
    size_words,
    span,
)
from scpo.evaluation.heatmap import write_heat_map
from scpo.evaluation.plots import alt_text, bar_chart_svg, printable, write_plots
from scpo.evaluation.sections import Chart, Section
from scpo.evaluation.steering_report import steering_section
from scpo.io import write_text


def write_report(run_dir: Path, metrics: dict[str, Any], *, context: Mapping[str, Any]) -> Path:
    """Write report.html, report.md and plots/ (accuracy and, of a conditioned model, steering, as PNG and SVG).

    Args:
        run_dir: the run folder.
        metrics: the result of :func:`scpo.evaluation.summary.summarise`, with `steering` where that was checked.
        context: any of title, config (dict), command, versions (dict), data_losses (a ledger's ``as_dict()``),
            selection (dict of group to dict of counts), notes (list of sentences).

    Returns:
        The path of report.html: one file that needs no network and no script.
    """
    run_dir = Path(run_dir)
    title = str(context.get("title") or "Evaluation of a reward model")
    sections = build_sections(metrics, context)
    write_plots(run_dir / "plots", metrics)
    if metrics.get("steering"):
        write_heat_map(run_dir / "plots", metrics["steering"])
    write_text(run_dir / "report.md", to_markdown(title, sections))
    path = run_dir / "report.html"
    write_text(path, html.page(title, sections))
    return path


def build_sections(metrics: Mapping[str, Any], context: Mapping[str, Any]) -> list[Section]:
    """All sections, in reading order."""
    chart = Chart(bar_chart_svg(metrics), "plots/accuracy.png", alt_text(metrics))
    sections = [
        Section("Summary", summary_sentences(metrics)),
        Section("Accuracy per group", [CHART_NOTE], [group_table(metrics)], chart=chart),
        Section("Averages and baselines", [AVERAGE_NOTE], [average_table(metrics)]),
    ]
    if metrics.get("steering"):
        sections.append(steering_section(metrics["steering"]))
    if metrics["by_subcommunity"]:
        sections.append(Section("Within the groups", [SUBCOMMUNITY_NOTE], [subcommunity_table(metrics)]))
    if context.get("selection"):
        sections.append(Section("Selection of training pairs", [], [counts_table(context["selection"])]))
    losses = context.get("data_losses")
    if losses and losses.get("by_group"):
        sections.append(Section("What the data lost", [LOSS_NOTE], [losses_table(losses)]))
    sections.append(Section("How it was measured", method_sentences(metrics)))
    if context.get("notes"):
        sections.append(Section("Notes", [str(note) for note in context["notes"]]))
    if context.get("command"):
        sections.append(Section("Command", code=str(context["command"])))
    for name, key in (("Versions", "versions"), ("Configuration", "config")):
        if context.get(key):
            rows = [[k, v] for k, v in flatten(context[key]).items()]
            sections.append(Section(name, [], [("", ["key", "value"], rows)]))
    return sections


CHART_NOTE = (
    "Share of test pairs, in percent, in which the response that the annotator scored higher gets the strictly higher reward; "
    "a tie is wrong. In brackets: 95 % bootstrap interval. Diamond: the reference model. Distinctive pairs are those that the "
    "reference model ranks the wrong way round, so it scores 0 there by construction; higher on them is not simply better. "
    "Shared pairs are the rest."
)
AVERAGE_NOTE = (
    "Macro: unweighted mean over the groups with test pairs. Micro: all pairs pooled. Baselines are macro averages on all "
    "pairs. The interval of the worst group is that of the minimum over groups, whichever group attains it in a resample."
)
SUBCOMMUNITY_NOTE = "Annotators of a group by what they said about themselves; all test pairs."
LOSS_NOTE = (
    "Comparisons kept and dropped when the data were prepared; a note loses nothing, a choice follows from an option."
)


def summary_sentences(metrics: Mapping[str, Any]) -> list[str]:
    """The result in words: how good, best and worst group, gap, against the reference, and whom it cannot speak of."""
    firm, macro = metrics["sufficient_only"], metrics["macro"]
    said = []
    if macro["accuracy"] is None:
        return ["There are no test pairs: nothing can be said."]
    groups = metrics["n_groups"] - metrics["n_groups_insufficient"]
    said.append(
        f"On average over {plural(macro['n_groups'], 'group')} the model ranks {percent(macro['accuracy'])} % of the test "
        f"pairs as the annotators did{_bracket(macro['ci'])} ({size_words(macro)}); chance is 50 %."
    )
    best, worst, gap = firm["best_group"], firm["worst_group"], firm["gap"]
    if gap["max_min"] is not None:
        said.append(
            f"Best: {best['name']}, {percent(best['accuracy'])} % ({size_words(best)}). "
            f"Worst: {worst['name']}, {percent(worst['accuracy'])} % ({size_words(worst)}). "
            f"The gap between them is {percent(gap['max_min'])} points{_bracket(gap['ci'])}, "
            f"among {plural(groups, 'group')} with enough data."
        )
    elif best["name"] is not None:
        said.append(
            f"Only {best['name']} has enough data for a number of its own: {percent(best['accuracy'])} % ({size_words(best)})."
        )
    else:
        said.append("No group has enough data for a number of its own.")
    said.append(_against_reference(metrics))
    if metrics["insufficient_groups"]:
        cells = "; ".join(f"{g} ({size_words(metrics['by_group'][g])})" for g in metrics["insufficient_groups"])
        said.append(
            f"{INSUFFICIENT.capitalize()} for: {cells}. Averages include those with pairs; best, worst and gap do not."
        )
    return said


def _against_reference(metrics: Mapping[str, Any]) -> str:
    gap, reference = metrics["gap"], metrics["baselines"]["reference"]
    if gap["to_reference"] is None:
        return "There are no reference rewards: distinctive and shared pairs cannot be told apart."
    low, high = gap["to_reference_ci"] or (None, None)
    if low is None or high is None:
        verdict = "too little data for an interval"
    elif low > 0:
        verdict = "more than noise"
    elif high < 0:
        verdict = "worse by more than noise"
    else:
        verdict = "not distinguishable from noise"
    bracket = _bracket(gap["to_reference_ci"])
    return (
        f"Against the reference model ({percent(reference)} % on the same {size_words(metrics['macro'])}): "
        f"{points(gap['to_reference'])} points{bracket}, {verdict}."
    )


def _bracket(ci: list[float] | None) -> str:
    return f", 95 % interval {span(ci)}" if ci is not None else ""


def group_table(metrics: Mapping[str, Any]) -> tuple[str, list[str], list[list[str]]]:
    """One row per group: accuracy on the three sets of pairs with n, baselines, ties, kept ratio."""
    header = ["group", "all", "n", "distinctive", "n", "shared", "n", "reference", "longer", "ties", "kept"]
    rows = []
    for name, g in metrics["by_group"].items():
        shown = printable(g["all"])
        base = [percent(g["baselines"][b]) if shown else NONE for b in ("reference", "length")]
        subsets = [text for s in ("all", "distinctive", "shared") for text in (estimate(g[s]), size(g[s]))]
        if not g["n_pairs"]:
            subsets[0] = INSUFFICIENT
        rows.append([name, *subsets, *base, percent(g["tie_rate"]), percent(g["kept_ratio"])])
    return "Accuracy in percent; n: pairs / clusters", header, rows


def average_table(metrics: Mapping[str, Any]) -> tuple[str, list[str], list[list[str]]]:
    """Macro, micro, worst group, gap and the baselines, each with its n."""
    firm = metrics["sufficient_only"]
    whole = size(metrics["macro"])
    rows = []
    for name in ("macro", "micro"):
        for label, cell in (
            (name, metrics[name]),
            *((f"{name}, {s}", metrics[name][s]) for s in ("distinctive", "shared")),
        ):
            rows.append([label, estimate(cell), size(cell), str(cell["n_groups"])])
    worst, gap = firm["worst_group"], firm["gap"]
    label = f"worst group: {worst['name']}" if worst["name"] else "worst group"
    rows.append([label, estimate(worst) if worst["name"] else INSUFFICIENT, size(worst), "1" if worst["name"] else "0"])
    enough = size(firm["macro"])
    shown = f"{percent(gap['max_min'])} {span(gap['ci'])}".rstrip() if gap["max_min"] is not None else INSUFFICIENT
    rows.append(["gap, best minus worst (points)", shown, enough, str(gap["n_groups"])])
    for label, key in (
        ("baseline: chance", "chance"),
        ("baseline: longer response", "length"),
        ("baseline: reference", "reference"),
    ):
        rows.append([label, percent(metrics["baselines"][key]), whole, str(metrics["macro"]["n_groups"])])
    return "Percent; n: pairs / clusters", ["", "accuracy", "n", "groups"], rows


def subcommunity_table(metrics: Mapping[str, Any]) -> tuple[str, list[str], list[list[str]]]:
    """One row per group, attribute and value; small cells keep their n and lose their number."""
    rows = [[c["group"], c["attribute"], c["value"], estimate(c), size(c)] for c in metrics["by_subcommunity"]]
    return "Accuracy in percent; n: pairs / clusters", ["group", "attribute", "value", "accuracy", "n"], rows


def counts_table(counts: Mapping[str, Any]) -> tuple[str, list[str], list[list[str]]]:
    """Counts per group, columns in the order in which they first appear; a bare number is one column."""
    table = {g: dict(c) if isinstance(c, Mapping) else {"pairs": c} for g, c in counts.items()}
    columns = list(dict.fromkeys(k for c in table.values() for k in c))
    return "", ["group", *columns], [[g, *(_plain(c.get(k)) for k in columns)] for g, c in table.items()]


def losses_table(losses: Mapping[str, Any]) -> tuple[str, list[str], list[list[str]]]:
    """The ledger: one row per group and reason, kept comparisons on each group's first row."""
    rows = []
    for group, entry in losses["by_group"].items():
        reasons = entry.get("dropped") or {"": 0}
        for i, (reason, n) in enumerate(reasons.items()):
            kind = losses.get("kinds", {}).get(reason, "")
            rows.append([group, f"{entry['kept']:,}" if i == 0 else "", reason or "nothing lost", kind, f"{n:,}"])
    return "", ["group", "kept", "reason", "kind", "n"], rows


def method_sentences(metrics: Mapping[str, Any]) -> list[str]:
    """Interval, minimum, and everything that was looked at but is not in the numbers."""
    s, c = metrics["settings"], metrics["counts"]
    only = c["candidates_other_condition_only"]
    return [
        f"Intervals: {s['interval']['method']} bootstrap, {s['interval']['resamples']:,} resamples of whole clusters "
        f"within each group, seed {s['interval']['seed']}; a question asked in several groups is drawn in "
        "each of them separately.",
        "Best, worst and gap are extremes of noisy numbers: with many or small groups their intervals lean outwards and need "
        "not hold the estimate.",
        f'Below {s["min_pairs"]} pairs or {s["min_clusters"]} clusters the page says "{INSUFFICIENT}"; '
        "metrics.json keeps the number.",
        f"{c['pairs']:,} pairs from {c['comparisons']:,} comparisons and {c['candidates']:,} candidates. Not used: "
        f"{c['pairs_tied_or_below_min_gap']:,} pairs with tied scores or a gap up to {s['min_gap']:g}, "
        f"{c['candidates_without_score']:,} candidates without a score, "
        f"{c['rows_other_condition']:,} rewards under another condition"
        + (f", {only:,} candidates that have only such rewards." if only else "."),
    ]


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A nested dict as dotted keys and text."""
    out: dict[str, str] = {}
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping) and item:
            out.update(flatten(item, f"{name}."))
        else:
            out[name] = _plain(item)
    return out


def _plain(value: Any) -> str:
    if value is None:
        return NONE
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def to_markdown(title: str, sections: list[Section]) -> str:
    """The report as Markdown; a chart is a link to its file with its text beside it."""
    out = [f"# {markdown_text(title)}"]
    for section in sections:
        out.append(f"## {markdown_text(section.title)}")
        out.extend(markdown_text(p) for p in section.paragraphs)
        if section.chart is not None:
            out.append(f"![{markdown_text(section.chart.alt)}]({section.chart.file})")
        for caption, header, rows in section.tables:
            if caption:
                out.append(markdown_text(caption))
            out.append(markdown_table(header, rows).rstrip())
        if section.code:
            out.append("\n".join("    " + line for line in section.code.splitlines()))
    return "\n\n".join(out) + "\n"


def terminal_table(metrics: Mapping[str, Any]) -> str:
    """The table per group, averages and baselines below it, as aligned plain text that ends with a newline."""
    header = ["group", "all %", "distinctive %", "shared %", "reference %", "ties %", "kept %", "pairs", "clusters"]
    rows = []
    for name, g in metrics["by_group"].items():
        cells = [estimate(g[s]) for s in ("all", "distinctive", "shared")]
        if not g["n_pairs"]:
            cells[0] = INSUFFICIENT
        reference = percent(g["reference"]["all"]) if printable(g["all"]) else NONE
        n = [f"{g['n_pairs']:,}", f"{g['n_clusters']:,}"]
        rows.append([name, *cells, reference, percent(g["tie_rate"]), percent(g["kept_ratio"]), *n])
    n = [f"{metrics['n_pairs']:,}", f"{metrics['n_clusters']:,}"]
    baselines = metrics["baselines"]
    for label in ("macro", "micro"):
        cells = [estimate(metrics[label]), *(estimate(metrics[label][s]) for s in ("distinctive", "shared"))]
        reference = percent(baselines["reference"]) if label == "macro" else NONE
        rows.append([f"[{label} average]", *cells, reference, percent(metrics["tie_rate"]), NONE, *n])
    for label, key in (("chance", "chance"), ("longer response", "length"), ("reference", "reference")):
        rows.append([f"[baseline: {label}]", percent(baselines[key]), *[NONE] * 5, *n])
    said = summary_sentences(metrics)
    if metrics.get("steering"):
        said.append(metrics["steering"]["sentence"])
    return plain_table(header, rows) + "\n" + "\n".join(said) + "\n"
