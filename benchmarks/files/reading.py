"""Reads files of every kind made from the PEPs: fidelity, right pages, speed and memory.

    python -m benchmarks.files.reading --files 500

Fidelity is the share of characters, blanks apart, in words that the file and the found text have
in the same order (``benchmarks.files.fidelity``). A page is right if nine tenths of its characters
are.
The time of a file includes its process. PDFs of two columns, and one of many pages, are further
rows.
"""

from __future__ import annotations

import argparse
import io
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.files.fidelity import fidelity, right_pages
from benchmarks.files.making import KINDS, Made, made
from benchmarks.files.pdf import pdf
from benchmarks.files.source import Source, sources
from docsplit.extraction.content import Content, Limits
from docsplit.extraction.readers.pdf import read as read_pdf
from docsplit.extraction.reading import Reader

# compared characters of a text
_MOST = 50_000


@dataclass
class Row:
    """Results of one kind."""

    fidelities: list[float] = field(default_factory=list)
    headings: list[bool] = field(default_factory=list)
    pages: int = 0
    right: int = 0
    seconds: float = 0
    refused: int = 0

    def line(self, name: str) -> str:
        """A row of a Markdown table."""
        files = len(self.fidelities) + self.refused
        least = min(self.fidelities, default=0)
        mean = sum(self.fidelities) / max(1, len(self.fidelities))
        share = f"{self.right / self.pages:.3f} of {self.pages}" if self.pages else ""
        heads = f"{sum(self.headings) / len(self.headings):.3f}" if self.headings else ""
        speed = f"{self.pages / self.seconds:,.0f}" if self.pages else ""
        return (
            f"| {name} | {files} | {self.refused} | {mean:.4f} | {least:.4f} | {share} | {heads} "
            f"| {1000 * self.seconds / files:.0f} | {speed} |"
        )


def main() -> None:
    """Make, read, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=500)
    given = parser.parse_args()
    each = -(-given.files // len(KINDS))
    rows: dict[str, Row] = {}
    with Reader() as reader:
        # the process starts with the first file
        read(reader, ".rtf", made(".rtf", next(sources(1))), Row())
        for name, kind, file in _files(each):
            read(reader, kind, file, rows.setdefault(name, Row()))
    print(
        "| kind | files | refused | fidelity, mean | least | pages right | headings right "
        "| ms a file | pages/s |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    for name, row in rows.items():
        print(row.line(name))
    print(f"\nPages a second of processor time, of the long PDF: {_speed():.0f}")
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"\nMemory of a reading process at most: {most:.0f} MB")


def read(reader: Reader, kind: str, file: Made, row: Row) -> None:
    """Read one file and add the results to a row."""
    with tempfile.TemporaryFile() as stream:
        stream.write(file.content)
        stream.seek(0)
        began = time.perf_counter()
        [(_, found)] = list(reader.read(kind, stream))
        row.seconds += time.perf_counter() - began
    if not isinstance(found, Content):
        row.refused += 1
        return
    # the whole of a long text would take hours
    row.fidelities.append(fidelity(file.text[:_MOST], found.text[:_MOST]))
    if file.pages is not None:
        row.pages += len(file.pages)
        row.right += right_pages(file.pages, found.text, found.pages)
    if file.headings is not None:
        row.headings.append([heading.title for heading in found.headings] == file.headings)


def _speed() -> float:
    """Pages a second of one core, with the places of the letters, without another process."""
    content, pages = _long()
    began = time.process_time()
    read_pdf(io.BytesIO(content), Limits())
    return len(pages) / (time.process_time() - began)


def _long() -> tuple[bytes, list[str]]:
    blocks = [block for source in sources(75) for block in source.blocks]
    return pdf(Source("All", "2026-01-01", blocks))


def _files(each: int) -> Iterator[tuple[str, str, Made]]:
    for source in sources(each):
        for kind in KINDS:
            yield kind, kind, made(kind, source)
    for across in (False, True):
        name = ".pdf, two columns, written across" if across else ".pdf, two columns"
        for source in sources(each):
            content, pages = pdf(source, columns=2, across=across)
            yield name, ".pdf", Made(content, "\n".join(pages), pages)
    content, pages = _long()
    yield ".pdf, long", ".pdf", Made(content, "\n".join(pages), pages)


if __name__ == "__main__":
    main()
