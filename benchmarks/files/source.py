"""A PEP as headings and paragraphs, which the makers write into files."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PEPS = Path(__file__).parents[2] / "examples" / "peps" / "documents.jsonl.gz"
_HEADING = re.compile(r"(\S.*)\n([=\-~^*#\"'.])\2{2,}\s*$")
AUTHOR = "Ada Example"


@dataclass(frozen=True)
class Source:
    """A document.

    Attributes:
        title, date: that the files state.
        blocks: level of the heading, or 0 for a paragraph, and the text without line breaks.
    """

    title: str
    date: str
    blocks: list[tuple[int, str]]

    @property
    def text(self) -> str:
        """The text that a reader should find, apart from blanks."""
        return "\n\n".join(text for _, text in self.blocks)


def sources(count: int, most_words: int = 5000) -> Iterator[Source]:
    """Some PEPs, spread over all, in the characters of Latin-1, which every kind can hold."""
    with gzip.open(PEPS, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    rows = [row for row in rows if 100 < len(row["text"].split()) <= most_words]
    for number in range(count):
        row = rows[number * len(rows) // count % len(rows)]
        yield Source(_plain(row["title"]), f"{row['year']}-03-07", list(_blocks(row["text"])))


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    levels: dict[str, int] = {}
    for block in re.split(r"\n\s*\n", _plain(text)):
        if found := _HEADING.match(block.strip()):
            yield levels.setdefault(found[2], len(levels) + 1), " ".join(found[1].split())
        elif block.strip():
            yield 0, " ".join(block.split())


def _plain(text: str) -> str:
    kept = text.encode("latin-1", "ignore").decode("latin-1")
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad]", "", kept)
