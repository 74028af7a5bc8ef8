"""What a report is made of; the Markdown and the HTML page are written from the same sections."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Chart:
    """A picture: SVG markup for the page, inserted as it is (its maker escapes), a file for Markdown, and its text."""

    svg: str
    file: str
    alt: str


@dataclass
class Section:
    """A heading, paragraphs of plain text, a chart, tables (caption, header, rows), and lines to show as they are."""

    title: str
    paragraphs: list[str] = field(default_factory=list)
    tables: list[tuple[str, list[str], list[list[str]]]] = field(default_factory=list)
    code: str = ""
    chart: Chart | None = None
