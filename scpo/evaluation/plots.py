"""The bar chart of accuracy per group with intervals: as SVG by hand for the page, as PNG for slides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scpo.evaluation.formats import INSUFFICIENT, clean, estimate, html_text, percent, size
from scpo.io import atomic_path, write_text

BAR = "#2f6f9f"
REFERENCE = "#b5481b"
INK = "#1d2329"
FAINT = "#d5dbe0"
ROW = 26
LABEL = 150
PLOT = 330
NUMBERS = 170
TOP = 30


def bars(metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per group, best first, groups without a printable number last: name, cell (all pairs), reference."""
    rows = [
        {"name": name, "cell": group["all"], "reference": group["reference"]["all"]}
        for name, group in metrics["by_group"].items()
    ]

    def key(row: dict[str, Any]) -> tuple[bool, float, str]:
        missing = not printable(row["cell"])
        return missing, 0.0 if missing else -row["cell"]["accuracy"], row["name"]

    return sorted(rows, key=key)


def printable(cell: Mapping[str, Any]) -> bool:
    """True where a page may show the number."""
    return cell["accuracy"] is not None and not cell["insufficient"]


def alt_text(metrics: Mapping[str, Any]) -> str:
    """The chart in words, for those who do not see it."""
    said = "; ".join(f"{row['name']} {estimate(row['cell'])}" for row in bars(metrics))
    return f"Bar chart of accuracy per group in percent, with 95 % intervals: {said}."


def bar_chart_svg(metrics: Mapping[str, Any]) -> str:
    """A horizontal bar per group with its interval, the reference model as a diamond, and n (pairs / clusters)."""
    rows = bars(metrics)
    height = TOP + ROW * len(rows) + 24
    width = LABEL + PLOT + NUMBERS
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{html_text(alt_text(metrics))}" font-family="system-ui, sans-serif" font-size="12" fill="{INK}">',
        f"<title>{html_text(alt_text(metrics))}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    bottom = TOP + ROW * len(rows)
    for tick in (0, 25, 50, 75, 100):
        x = LABEL + PLOT * tick / 100
        dash = ' stroke-dasharray="4 3"' if tick == 50 else ""
        colour = INK if tick == 50 else FAINT
        out.append(f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}"{dash}/>')
        out.append(
            f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{tick}{" %" if tick == 100 else ""}</text>'
        )
    out.append(f'<text x="{LABEL + PLOT / 2:.1f}" y="14" text-anchor="middle">chance 50 %</text>')
    out.append(f'<text x="{width - 4}" y="14" text-anchor="end">accuracy % (n pairs / clusters)</text>')
    for i, row in enumerate(rows):
        out.extend(_svg_row(row, TOP + ROW * i, width))
    return "\n".join([*out, "</svg>"])


def _svg_row(row: Mapping[str, Any], top: float, width: float) -> list[str]:
    cell, middle = row["cell"], top + ROW / 2
    name = clean(row["name"])
    shown = name if len(name) <= 22 else name[:21] + "…"
    out = [f'<text x="{LABEL - 8}" y="{middle + 4:.1f}" text-anchor="end">{html_text(shown)}</text>']
    if printable(cell):
        out.append(
            f'<rect x="{LABEL}" y="{top + 5}" width="{PLOT * cell["accuracy"]:.1f}" height="{ROW - 10}" '
            f'fill="{BAR}" fill-opacity="0.75"/>'
        )
        if cell["ci"] is not None:
            low, high = (LABEL + PLOT * v for v in cell["ci"])
            out.append(
                f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 4}V{middle + 4}M{high:.1f} {middle - 4}'
                f'V{middle + 4}" '
                f'stroke="{INK}" stroke-width="1.5" fill="none"/>'
            )
        if row["reference"] is not None:
            x = LABEL + PLOT * row["reference"]
            out.append(
                f'<path d="M{x:.1f} {middle - 6}l5 6l-5 6l-5 -6z" fill="{REFERENCE}" stroke="#ffffff" stroke-width="0.8"/>'
            )
    number = percent(cell["accuracy"]) if printable(cell) else INSUFFICIENT if cell["insufficient"] else "–"
    out.append(f'<text x="{width - 4}" y="{middle + 4:.1f}" text-anchor="end">{number} ({size(cell)})</text>')
    return out


def write_plots(folder: Path, metrics: Mapping[str, Any]) -> list[Path]:
    """Write ``accuracy.svg`` and ``accuracy.png`` into a folder."""
    svg, png = Path(folder) / "accuracy.svg", Path(folder) / "accuracy.png"
    write_text(svg, bar_chart_svg(metrics) + "\n")
    _write_png(png, metrics)
    return [png, svg]


def _write_png(path: Path, metrics: Mapping[str, Any]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = bars(metrics)
    # Figure and canvas, not pyplot: no global state, no display, safe in threads.
    figure = Figure(figsize=(7.5, 1.1 + 0.3 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for i, row in enumerate(rows):
        cell = row["cell"]
        label = f"{INSUFFICIENT} ({size(cell)})"
        if printable(cell):
            axes.barh(i, 100 * cell["accuracy"], height=0.6, color=BAR, alpha=0.75)
            label = f"{percent(cell['accuracy'])} ({size(cell)})"
            if cell["ci"] is not None:
                low, high = (100 * v for v in cell["ci"])
                axes.plot([low, high], [i, i], color=INK, linewidth=1.5, marker="|", markersize=7)
            if row["reference"] is not None:
                axes.plot(100 * row["reference"], i, marker="D", color=REFERENCE, markersize=6, markeredgecolor="white")
        axes.text(102, i, label, va="center", fontsize=8, parse_math=False)
    if any(row["reference"] is not None for row in rows):
        axes.plot([], [], marker="D", linestyle="", color=REFERENCE, label="reference model")
    axes.plot([], [], color=INK, marker="|", label="95 % interval")
    axes.axvline(50, color=INK, linestyle="--", linewidth=0.8, label="chance")
    axes.set_yticks(range(len(rows)), [clean(row["name"]) for row in rows], parse_math=False)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 100)
    axes.set_xlabel("accuracy on all test pairs, % (n pairs / clusters)")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150, format="png")
