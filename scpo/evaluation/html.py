"""One self-contained HTML page: inline style and inline SVG, no script, no network, for phones and for print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scpo.evaluation.formats import html_text, is_number

if TYPE_CHECKING:
    from scpo.evaluation.sections import Section

STYLE = """
:root { color-scheme: light; --ink: #1d2329; --faint: #d5dbe0; --back: #ffffff; --stripe: #f4f6f8; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 70rem; color: var(--ink); background: var(--back);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0 1rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--faint); padding-bottom: .2rem; }
p { margin: .5rem 0; max-width: 46rem; }
.summary p { font-size: 1.05rem; }
figure { margin: 1rem 0; }
svg { width: 100%; min-width: 32rem; max-width: 42rem; height: auto; }
.wide { overflow-x: auto; margin: .75rem 0; }
.wide:focus { outline: 2px solid #2f6f9f; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-size: .875rem; padding: .25rem 0; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--faint); text-align: left; vertical-align: top; }
thead th { border-bottom: 2px solid var(--ink); vertical-align: bottom; }
tbody tr:nth-child(even) { background: var(--stripe); }
.number { text-align: right; white-space: nowrap; }
th[scope=row] { font-weight: 600; min-width: 7rem; }
pre { background: var(--stripe); padding: .75rem; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
@media print {
  @page { size: A4 landscape; margin: 12mm; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  table, caption { font-size: 8pt; }
  th, td { padding: .15rem .35rem; }
  .wide { overflow: visible; }
  thead { display: table-header-group; }
  tr, figure { break-inside: avoid; }
  h2 { break-after: avoid; }
}
"""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The page may load nothing: text that slipped in as markup could neither run nor call home."""


def page(title: str, sections: Sequence[Section]) -> str:
    """The whole page.

    Args:
        title: heading and window title.
        sections: see :class:`scpo.evaluation.sections.Section`; all their text is escaped here, SVG by its maker.
    """
    body = "\n".join(_section(section) for section in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{html_text(title)}</h1>\n"
        f"{body}\n</main>\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    out = [f"<section{' class=summary' if section.title == 'Summary' else ''}>", f"<h2>{html_text(section.title)}</h2>"]
    out.extend(f"<p>{html_text(p)}</p>" for p in section.paragraphs)
    if section.chart is not None:
        out.append(f'<figure class="wide" tabindex="0">{section.chart.svg}</figure>')
    out.extend(table(caption or section.title, header, rows) for caption, header, rows in section.tables)
    if section.code:
        # Line by line: html_text would join the lines of a longer command.
        out.append("<pre>" + "\n".join(html_text(line) for line in section.code.splitlines()) + "</pre>")
    return "\n".join([*out, "</section>"])


def table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table; the first column heads its row, numbers stand flush right; scrolls sideways on a phone."""
    numeric = [
        i > 0 and bool(rows) and sum(is_number(row[i]) for row in rows) * 2 > len(rows) for i in range(len(header))
    ]
    style = [' class="number"' if n else "" for n in numeric]
    head = "".join(f'<th scope="col"{style[i]}>{html_text(h)}</th>' for i, h in enumerate(header))
    body = "\n".join(
        "<tr>"
        + "".join(
            f'<th scope="row">{html_text(c)}</th>' if i == 0 else f"<td{style[i]}>{html_text(c)}</td>"
            for i, c in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{html_text(caption)}">'
        f"<table><caption>{html_text(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )
