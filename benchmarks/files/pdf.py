"""Makes PDFs with headers, page numbers and divided words, and says what each page holds."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator

from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas

from benchmarks.files.source import AUTHOR, Source

_LINES = 52
_COLUMNS = 95
_DIVIDED = 3


def pdf(source: Source, *, columns: int = 1, across: bool = False) -> tuple[bytes, list[str]]:
    """A PDF and the text of each page without what repeats.

    Args:
        source: of the text.
        columns: of each page.
        across: whether to write line by line across the columns.
    """
    made = io.BytesIO()
    canvas = Canvas(made, A4)
    canvas.setTitle(source.title)
    canvas.setAuthor(AUTHOR)
    width, height = A4
    pages = list(_pages(source, columns))
    for number, page in enumerate(pages, 1):
        canvas.setFont("Helvetica", 9)
        canvas.drawString(60, height - 40, source.title[:60] if number % 2 else AUTHOR)
        canvas.drawCentredString(width / 2, 30, f"Page {number} of {len(pages)}")
        places = list(enumerate(page))
        if across:
            places.sort(key=lambda place: (place[0] % _LINES, place[0]))
        for place, (level, line, first) in places:
            column, row = divmod(place, _LINES)
            if level and first:
                canvas.bookmarkPage(f"{number}-{place}")
                canvas.addOutlineEntry(first, f"{number}-{place}", 0)
            canvas.setFont("Helvetica-Bold" if level else "Helvetica", 10 if columns == 1 else 8)
            canvas.drawString(60 + column * (width - 100) / columns, height - 70 - 13 * row, line)
        canvas.showPage()
    canvas.save()
    return made.getvalue(), [_whole([line for _, line, _ in page]) for page in pages]


def _pages(source: Source, columns: int) -> Iterator[list[tuple[int, str, str]]]:
    lines: list[tuple[int, str, str]] = []
    for level, text in source.blocks:
        for place, line in enumerate(_wrapped(text, _COLUMNS // columns)):
            lines.append((level, line, "" if place else text))
    size = _LINES * columns
    for first in range(0, len(lines), size):
        yield lines[first : first + size]


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of bounded width; some end in the middle of a word, with a hyphen."""
    lines: list[str] = []
    for line in textwrap.wrap(text, width - 8, break_on_hyphens=False):
        head, _, tail = line.partition(" ")
        cut = re.match(r"[a-z]{4}(?=[a-z]{3,}$)", head)
        if lines and cut and len(lines) % _DIVIDED == 0 and lines[-1][-1:].isalpha():
            lines[-1] += f" {cut[0]}-"
            line = f"{head[cut.end() :]} {tail}".strip()
        lines.append(line)
    return lines


def _whole(lines: list[str]) -> str:
    return re.sub(r"(?<= [a-z]{4})-\n(?=[a-z])", "", "\n".join(lines))
