"""The column ``outline``: where the pages and headings of a document from a file begin."""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from service.index.rows.seals import seal, unseal

COLUMN = "outline"
# pages, and headings, that a document keeps; the first count
MOST = 20_000
TITLE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Outline:
    """Pages and headings of a text.

    Attributes:
        pages: the first character of each page, ascending.
        headings: the first character and the title of each heading, ascending.
    """

    pages: tuple[int, ...]
    headings: tuple[tuple[int, str], ...]

    def page(self, place: int) -> int | None:
        """The number of the page that has a character, from 1; None without pages."""
        return bisect_right(self.pages, place) or None

    def heading(self, place: int) -> str | None:
        """The title of the last heading up to a character; None before the first."""
        before = bisect_right(self.headings, place, key=lambda heading: heading[0])
        return self.headings[before - 1][1] if before else None


NONE = Outline((), ())


def outline(pages: Sequence[int], headings: Sequence[tuple[int, str]]) -> Outline | None:
    """The outline of a text; None if it has neither pages nor headings."""
    kept = tuple((start, title[:TITLE_CHARACTERS]) for start, title in sorted(headings)[:MOST])
    return Outline(tuple(sorted(pages)[:MOST]), kept) if pages or kept else None


def columns(names: Sequence[str]) -> list[str]:
    """The column to read, if a table has it among its columns."""
    return [COLUMN] if COLUMN in names else []


def sealed(held: Outline | None, digest: str) -> bytes | None:
    """The value for an outline.

    Args:
        held: of the document.
        digest: value of the column ``digest``.
    """
    if held is None:
        return None
    starts = [start for start, _ in held.headings]
    titles = [title for _, title in held.headings]
    content = json.dumps([_steps(held.pages), _steps(starts), titles], ensure_ascii=False)
    return seal(zlib.compress(content.encode()), digest)


def opened(stored: bytes | None, digest: str) -> Outline | None:
    """The outline of a stored value; None if it is missing or damaged."""
    content = unseal(stored, digest)
    if content is None:
        return None
    pages, starts, titles = json.loads(zlib.decompress(content))
    headings = zip(accumulate(starts), titles, strict=True)
    return Outline(tuple(accumulate(pages)), tuple(headings))


def _steps(places: Sequence[int]) -> list[int]:
    return [place - former for former, place in zip((0, *places), places, strict=False)]
