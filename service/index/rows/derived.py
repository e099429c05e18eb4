"""Columns that are computed or optional: words, terms and outlines.

A checksum ties each value to its row's content. A damaged value counts as missing, and so does one
that a version without the column left beside a new text. ``words`` are the lines of
``docsplit.ranking.words``, which LanceDB indexes; ``terms`` counts words and pairs of words as
``docsplit.ranking.terms`` does; ``outline`` says where the pages and headings of a file begin.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from docsplit.ranking.terms import Bag, bag
from service.index.rows import checksums

_SUM = 4


def seal(content: bytes, digest: str) -> bytes:
    """The stored value.

    Args:
        digest: value of the column ``digest``.
    """
    return _sum(content, digest) + content


def unseal(stored: bytes | None, digest: str) -> bytes | None:
    """The content of a stored value; None if it is missing or damaged."""
    if stored is None or stored[:_SUM] != _sum(stored[_SUM:], digest):
        return None
    return stored[_SUM:]


def _sum(content: bytes, digest: str) -> bytes:
    start = zlib.crc32(checksums.content(digest).encode("utf-8", "replace"))
    return zlib.crc32(content, start).to_bytes(_SUM, "little")


TERMS = "terms"
WORDS = "words"
# what an earlier version stored has other words, and counts as missing
_FORM = "words "


def sealed_terms(text: str, digest: str) -> bytes:
    """The value for a text.

    Args:
        digest: value of the column ``digest``.
    """
    return seal(bag(text), _FORM + digest)


def opened_terms(stored: bytes | None, digest: str) -> Bag | None:
    """The features of a stored value; None if it is missing or damaged."""
    return unseal(stored, _FORM + digest)


OUTLINE = "outline"
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


def outline_columns(names: Sequence[str]) -> list[str]:
    """The column to read, if a table has it among its columns."""
    return [OUTLINE] if OUTLINE in names else []


def sealed_outline(held: Outline | None, digest: str) -> bytes | None:
    """The value for an outline.

    Args:
        digest: value of the column ``digest``.
    """
    if held is None:
        return None
    starts = [start for start, _ in held.headings]
    titles = [title for _, title in held.headings]
    content = json.dumps([_steps(held.pages), _steps(starts), titles], ensure_ascii=False)
    return seal(zlib.compress(content.encode()), digest)


def opened_outline(stored: bytes | None, digest: str) -> Outline | None:
    """The outline of a stored value; None if it is missing or damaged."""
    content = unseal(stored, digest)
    if content is None:
        return None
    pages, starts, titles = json.loads(zlib.decompress(content))
    headings = zip(accumulate(starts), titles, strict=True)
    return Outline(tuple(accumulate(pages)), tuple(headings))


def _steps(places: Sequence[int]) -> list[int]:
    return [place - former for former, place in zip((0, *places), places, strict=False)]
