"""The report's section on the steering check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scpo.evaluation.formats import INSUFFICIENT, NONE, percent, plural, points, size, span
from scpo.evaluation.heatmap import MAX_NUMBERS, NO_GROUP, heat_map_alt, heat_map_svg
from scpo.evaluation.sections import Chart, Section

TITLE = "Does the model follow its group?"

NOTE = (
    "A sample of each group's test comparisons was scored again with the model told every other group; nothing else "
    "changed. Advantage: accuracy when told the pairs' own group minus the mean when told the others. Best candidate changes: "
    "share of comparisons in which another candidate becomes the best one. Reward shift: how far rewards move, as a share of "
    "their spread inside a comparison, after what all candidates of a comparison share is taken out; a wider or narrower "
    "scale counts as moved. Level shift: that shared move, in units of the reward; it changes no ranking. Averages are "
    "unweighted means over groups; in brackets: 95 % bootstrap interval."
)

MAP_NOTE = (
    "The picture: a row is what the model is told, a column whose pairs it ranks. Darker: better than the mean of the column. "
    "A model that follows has a dark diagonal, outlined; one that ignores its group has columns of one shade."
)


def steering_section(check: Mapping[str, Any]) -> Section:
    """The verdict first, then the numbers with their n, the heat map, and up to 14 groups the matrix as a table."""
    tables = [numbers_table(check), group_table(check)]
    if len(check["groups"]) <= MAX_NUMBERS and len(check["conditions"]) <= MAX_NUMBERS:
        tables.append(matrix_table(check))
    chart = Chart(heat_map_svg(check), "plots/steering.png", heat_map_alt(check))
    return Section(TITLE, [check["sentence"], NOTE, MAP_NOTE, counts_sentence(check)], tables, chart=chart)


def counts_sentence(check: Mapping[str, Any]) -> str:
    """What was sampled and what could not be used."""
    c = check["counts"]
    said = (
        f"{c['comparisons_used']:,} of {plural(c['comparisons_sampled'], 'sampled comparison')} used, "
        f"{plural(c['candidates'], 'candidate')} under {plural(len(check['conditions']), 'group')}"
        f"{' and under none' if check['default_row'] else ''}."
    )
    if c["comparisons_with_missing_rows"]:
        said += f" Not used: {c['comparisons_with_missing_rows']:,} with a candidate not scored under every condition."
    if c["comparisons_without_own_group"]:
        said += f" Not used: {c['comparisons_without_own_group']:,} of groups that the model was not told."
    if check["insufficient_groups"]:
        said += (
            f" {INSUFFICIENT.capitalize()} for: {', '.join(check['insufficient_groups'])}; the verdict leaves them out."
        )
    return said


def _signed(cell: Mapping[str, Any]) -> str:
    return f"{points(cell['value'])} {span(cell['ci'])}".rstrip()


def _share(cell: Mapping[str, Any]) -> str:
    return f"{percent(cell['value'])} {span(cell['ci'])}".rstrip()


def _units(cell: Mapping[str, Any]) -> str:
    if cell["value"] is None:
        return NONE
    ci = f" [{cell['ci'][0]:.3g}, {cell['ci'][1]:.3g}]" if cell["ci"] else ""
    return f"{cell['value']:.3g}{ci}"


ROWS = (
    ("advantage", "advantage over the other groups (points)", _signed),
    ("advantage_over_default", "advantage over no group told (points)", _signed),
    ("best_changes", "best candidate changes (%)", _share),
    ("reward_shift", "reward shift (% of the spread)", _share),
    ("level_shift", "level shift (units of the reward)", _units),
)


def numbers_table(check: Mapping[str, Any]) -> tuple[str, list[str], list[list[str]]]:
    """The averages over the groups with enough data, on which the verdict rests; where some have not, over all as well."""
    rows = []
    for over, numbers in (("", check["sufficient_only"]), (", small groups too", check)):
        if over and not check["insufficient_groups"]:
            continue
        for name, label, show in ROWS:
            cell = numbers[name]
            if cell is not None:
                shown = show(cell) if cell["n_groups"] else INSUFFICIENT
                rows.append([label + over, shown, size(cell), f"{cell['n_comparisons']:,}", str(cell["n_groups"])])
    return "Macro averages; n: pairs / clusters", ["", "value", "n", "comparisons", "groups"], rows


def group_table(check: Mapping[str, Any]) -> tuple[str, list[str], list[list[str]]]:
    """One row per group; small groups keep their n and lose their numbers."""
    has_default = check["default_row"] is not None
    header = ["group", "told itself", "told others", *(["told none"] if has_default else [])]
    header += ["advantage", "best changes", "reward shift", "level shift", "n", "comparisons"]
    rows = []
    for name, g in check["by_group"].items():
        n = [size(g), f"{g['n_comparisons']:,}"]
        if g["insufficient"]:
            rows.append([name, INSUFFICIENT, *[NONE] * (len(header) - 4), *n])
            continue
        accuracy = [percent(g[key]) for key in ("own", "others", *(["default"] if has_default else []))]
        moved = [
            _signed(g["advantage"]),
            _share(g["best_changes"]),
            _share(g["reward_shift"]),
            _units(g["level_shift"]),
        ]
        rows.append([name, *accuracy, *moved, *n])
    return "By group, in percent and points; n: pairs / clusters", header, rows


def matrix_table(check: Mapping[str, Any]) -> tuple[str, list[str], list[list[str]]]:
    """Accuracy by the group told (rows) and the group of the pairs (columns), with the n of each column at the end."""
    names = check["groups"]
    lines = dict(check["matrix"])
    rows = [
        [told, *(f"{_cell(line[name])}{' (own)' if told == name else ''}" for name in names)]
        for told, line in lines.items()
    ]
    if check["default_row"]:
        rows.append([NO_GROUP, *(_cell(check["default_row"]["default"][name]) for name in names)])
    rows.append(["n: pairs / clusters", *(size(check["by_group"][name]) for name in names)])
    return "Accuracy in percent; rows: group told, columns: whose pairs", ["told", *names], rows


def _cell(cell: Mapping[str, Any]) -> str:
    return INSUFFICIENT if cell["insufficient"] else percent(cell["accuracy"])
