"""The heat map of the steering check: rows are what the model is told, columns whose pairs it ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scpo.evaluation.formats import NONE, clean, html_text, percent
from scpo.evaluation.plots import INK, printable
from scpo.io import atomic_path, write_text

MAX_NUMBERS = 14
"""Groups up to which the cells hold numbers."""

RANGE = 0.05
"""Least half width of the colour scale: differences of noise stay pale."""

LOW, HIGH = (0xFB, 0xFB, 0xF4), (0x0B, 0x3C, 0x6B)
"""Ends of the scale. Lightness falls steadily from one to the other, so a print in grey reads the same."""

EMPTY = "#ffffff"
LABEL = 150
WIDTH = 660
"""Least width of the picture: the scale and its words."""

NO_GROUP = "no group told"


@dataclass(frozen=True)
class Cell:
    """One cell: row and column, number as text, fill and ink, and whether the model is told the pairs' own group."""

    row: int
    column: int
    text: str
    fill: str
    ink: str
    own: bool
    label: str


@dataclass(frozen=True)
class HeatMap:
    """Names of rows and columns, cells, half width of the colour scale (a fraction), and whether cells hold numbers."""

    rows: list[str]
    columns: list[str]
    cells: list[Cell]
    half: float
    numbers: bool


def heat_map(check: Mapping[str, Any]) -> HeatMap:
    """Lay out the matrix, with the default as its last row.

    The fill is the difference from the mean of the column: groups differ in how hard their pairs are, and only the
    difference between conditions on the same pairs says whether the model follows.
    """
    told: dict[str, Mapping[str, Any]] = dict(check["matrix"])
    rows = [*told, NO_GROUP] if check["default_row"] else list(told)
    lines = [*told.values(), *(check["default_row"] or {}).values()]
    columns = list(check["groups"])
    values: list[list[float | None]] = [
        [line[name]["accuracy"] if printable(line[name]) else None for name in columns] for line in lines
    ]
    means = []
    for c in range(len(columns)):
        known = [value for line in values if (value := line[c]) is not None]
        means.append(sum(known) / len(known) if known else 0.0)
    distances = [abs(v - means[c]) for line in values for c, v in enumerate(line) if v is not None]
    half = max([RANGE, *distances])
    numbers = len(columns) <= MAX_NUMBERS and len(told) <= MAX_NUMBERS
    cells = []
    for r, line in enumerate(values):
        for c, value in enumerate(line):
            fill, ink = (EMPTY, INK) if value is None else shade((value - means[c]) / half)
            own = r < len(told) and rows[r] == columns[c]
            label = f"told {rows[r]}, pairs of {columns[c]}: {percent(value)}"
            cells.append(Cell(r, c, percent(value), fill, ink, own, label))
    return HeatMap(rows, columns, cells, half, numbers)


def shade(value: float) -> tuple[str, str]:
    """Fill and ink of a value from -1 to 1; the power keeps the middle pale, so that what stands out is dark."""
    share = ((min(max(value, -1.0), 1.0) + 1) / 2) ** 1.5
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(LOW, HIGH, strict=True))
    return f"#{red:02x}{green:02x}{blue:02x}", "#ffffff" if share > 0.65 else INK


def heat_map_alt(check: Mapping[str, Any]) -> str:
    """The picture in words."""
    told = "; ".join(
        f"{name} {percent(g['own'])} told itself, {percent(g['others'])} told others"
        for name, g in check["by_group"].items()
        if not g["insufficient"]
    )
    said = told or "no group with enough data"
    return f"Heat map of the accuracy in percent, by the group told and the group of the pairs: {said}."


def heat_map_svg(check: Mapping[str, Any]) -> str:
    """The heat map: numbers in the cells up to 14 groups, the own group's cell outlined, the scale below."""
    plan = heat_map(check)
    size, tall = (48, 26) if plan.numbers else (14, 14)
    top, small = 118, ' font-size="10"'
    width = max(LABEL + size * len(plan.columns) + 90, WIDTH)
    bottom = top + tall * len(plan.rows)
    height = bottom + 62
    alt = html_text(heat_map_alt(check))
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{alt}" font-family="system-ui, sans-serif" font-size="12" fill="{INK}">',
        f"<title>{alt}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LABEL - 6}" y="{top - 8}" text-anchor="end">model told</text>',
        f'<text x="{LABEL}" y="14">accuracy % on the pairs of</text>',
    ]
    for r, name in enumerate(plan.rows):
        middle = top + tall * (r + 0.5)
        where = f'x="{LABEL - 6}" y="{middle + 4:.1f}" text-anchor="end"{"" if plan.numbers else small}'
        out.append(f"<text {where}>{html_text(short(name))}</text>")
    for c, name in enumerate(plan.columns):
        x = LABEL + size * (c + 0.5)
        turn = f'transform="rotate(-45 {x:.1f} {top - 6})"{"" if plan.numbers else small}'
        out.append(f'<text x="{x:.1f}" y="{top - 6}" {turn}>{html_text(short(name))}</text>')
    for cell in plan.cells:
        x, y = LABEL + size * cell.column, top + tall * cell.row
        out.append(
            f'<g><title>{html_text(cell.label)}</title><rect x="{x}" y="{y}" width="{size}" height="{tall}" '
            f'fill="{cell.fill}" stroke="#ffffff"/>'
        )
        if plan.numbers:
            out.append(
                f'<text x="{x + size / 2:.1f}" y="{y + tall / 2 + 4:.1f}" text-anchor="middle" '
                f'fill="{cell.ink}">{cell.text}</text>'
            )
        elif cell.text == NONE:
            out.append(f'<path d="M{x + 3} {y + tall - 3}L{x + size - 3} {y + 3}" stroke="{INK}"/>')
        out.append("</g>")
    for cell in plan.cells:
        if cell.own:  # above all fills, so that no neighbour covers the line
            x, y = LABEL + size * cell.column, top + tall * cell.row
            box = f'x="{x}" y="{y}" width="{size}" height="{tall}" fill="none"'
            out.append(f'<rect class="own" {box} stroke="#ffffff" stroke-width="4"/>')
            out.append(f'<rect {box} stroke="{INK}" stroke-width="2"/>')
    return "\n".join([*out, *_svg_scale(plan, bottom + 16), "</svg>"])


def _svg_scale(plan: HeatMap, top: float) -> list[str]:
    out = []
    for i in range(21):
        out.append(
            f'<rect x="{LABEL + 9 * i}" y="{top}" width="9" height="12" fill="{shade(i / 10 - 1)[0]}" stroke="none"/>'
        )
    out.append(f'<rect x="{LABEL}" y="{top}" width="189" height="12" fill="none" stroke="{INK}" stroke-width="0.5"/>')
    for x, anchor, text in (
        (0, "start", f"−{100 * plan.half:.3g}"),
        (94.5, "middle", "0"),
        (189, "end", f"+{100 * plan.half:.3g}"),
    ):
        out.append(f'<text x="{LABEL + x}" y="{top + 26}" text-anchor="{anchor}">{text}</text>')
    out.append(f'<text x="{LABEL + 198}" y="{top + 10}">points from the column\'s mean; outlined: own group</text>')
    return out


def short(name: str) -> str:
    """A name that fits beside the picture."""
    text = clean(name)
    return text if len(text) <= 20 else text[:19] + "…"


def write_heat_map(folder: Path, check: Mapping[str, Any]) -> list[Path]:
    """Write ``steering.svg`` and ``steering.png`` into a folder."""
    svg, png = Path(folder) / "steering.svg", Path(folder) / "steering.png"
    write_text(svg, heat_map_svg(check) + "\n")
    _write_png(png, heat_map(check))
    return [png, svg]


def _write_png(path: Path, plan: HeatMap) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    across, down = (0.55, 0.32) if plan.numbers else (0.19, 0.19)
    size = (max(2.6 + across * len(plan.columns) + 1.2, 5.5), 2.2 + down * len(plan.rows))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for cell in plan.cells:
        corner = (cell.column - 0.5, cell.row - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, facecolor=cell.fill, edgecolor="white", linewidth=0.5))
        if plan.numbers:
            place: dict[str, Any] = {"ha": "center", "va": "center"}
            axes.text(cell.column, cell.row, cell.text, color=cell.ink, fontsize=8, parse_math=False, **place)
        elif cell.text == NONE:
            axes.plot(
                [cell.column - 0.3, cell.column + 0.3], [cell.row + 0.3, cell.row - 0.3], color=INK, linewidth=0.7
            )
        if cell.own:
            for colour, line, order in (("white", 3.5, 3), (INK, 1.6, 4)):
                axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=colour, linewidth=line, zorder=order))
    axes.set_xlim(-0.6, len(plan.columns) - 0.4)
    axes.set_ylim(len(plan.rows) - 0.4, -0.6)
    small: dict[str, Any] = {"fontsize": 8 if plan.numbers else 7, "parse_math": False}
    axes.set_yticks(range(len(plan.rows)), [short(name) for name in plan.rows], **small)
    axes.set_xticks(range(len(plan.columns)), [short(name) for name in plan.columns], rotation=45, **small)
    for label in axes.get_xticklabels():
        label.set(ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_ylabel("told")
    axes.set_title("accuracy % on the pairs of (columns), model told (rows); outlined: own group", fontsize=9)
    for side in axes.spines.values():
        side.set_visible(False)
    colours = ListedColormap([shade(i / 100 - 1)[0] for i in range(201)])
    scale = ScalarMappable(Normalize(-100 * plan.half, 100 * plan.half), colours)
    bar = figure.colorbar(scale, ax=axes, shrink=0.8, aspect=30)
    bar.set_label("points from the column's mean", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150, format="png")
