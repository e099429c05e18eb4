"""Headings of PDFs by the look of their letters, compared with the outlines that they have.

    python -m benchmarks.files.headings manuals/*.pdf

Recall is the share of the outlines' entries that are found, precision the share of the found
headings that are entries, on the same or a neighbouring page; numbers, case and marks do not
count. PDFs with less than five entries, and those of more than 400 pages, are left out.
"""

from __future__ import annotations

import argparse
import re
from io import BytesIO
from pathlib import Path

import pypdfium2 as pdfium

from docsplit.extraction.content import Limits
from docsplit.extraction.pdf.headings import headings, title
from docsplit.extraction.pdf.pages import pages_of
from docsplit.extraction.readers.pdf import bodies_of

_LEAST, _MOST_PAGES = 5, 400
_NUMBER = re.compile(r"^\s*(?:chapter|appendix)?\s*(?:[A-Z]|\d+)(?:\.\d+)*\.?\s+")

Places = set[tuple[int, str]]


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args()
    totals = [0, 0, 0, 0]
    print(
        "| file | entries | recall | headings | precision | title |\n|---|---:|---:|---:|---:|---|"
    )
    for path in given.files:
        document = pdfium.PdfDocument(BytesIO(path.read_bytes()))
        stated = outline(document)
        if len(stated) < _LEAST or len(document) > _MOST_PAGES:
            continue
        pages = bodies_of(pages_of(document, Limits()).pages)
        found: Places = {
            (
                one.page,
                plain(" ".join(line.text for line in pages[one.page][one.first : one.last + 1])),
            )
            for one in headings(pages)
        }
        counts = len(near(stated, found)), len(stated), len(near(found, stated)), len(found)
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
        print(row(path.name, counts), title(pages), "|")
    print(row("all", totals), "|")


def outline(document: pdfium.PdfDocument) -> Places:
    """Pages and titles of the entries."""
    found = ((one.get_dest(), one.get_title()) for one in document.get_toc())
    return {
        (page, plain(name))
        for place, name in found
        if place is not None and (page := place.get_index()) is not None
    }


def plain(name: str) -> str:
    """A title without number, case, marks and blanks."""
    return re.sub(r"\W+", "", _NUMBER.sub("", name)).lower()


def near(some: Places, others: Places) -> Places:
    """Those of which the others have the same one on that page or a neighbouring one."""
    return {
        (page, name) for page, name in some if any((page + n, name) in others for n in (-1, 0, 1))
    }


def row(name: str, counts: tuple[int, ...] | list[int]) -> str:
    """The cells of a row."""
    right, entries, correct, found = counts
    return (
        f"| {name} | {entries} | {right / entries:.2f} | {found} | {correct / max(1, found):.2f} |"
    )


if __name__ == "__main__":
    main()
