"""Real passages of mixed length, for calibrating int8 and for measuring parity."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from corpora.documents import text_of
from corpora.fields import Fields
from corpora.files import lines, suffix
from corpora.tables import is_table, rows
from export.errors import ExportError

PEPS = Path(__file__).parent.parent / "examples" / "peps" / "documents.jsonl.gz"
CALIBRATION = 256
# Passages grow, paragraph by paragraph, to at least so many words: from one paragraph, often a
# single line, to more than a window of 512 tokens holds.
WORDS = (1, 1, 24, 48, 96, 192, 384)
# Words that a token stands for, at least; longer windows get longer passages by it.
_WORDS_PER_TOKEN = 0.75
_WORD = re.compile(r"[^\W\d_]{2,}")


class Passages(NamedTuple):
    """Two sets of passages that share no passage and, if there are enough, no document."""

    calibration: list[str]
    parity: list[str]


def read_passages(
    path: Path | None, *, parity: int, calibration: int = CALIBRATION, max_tokens: int = 512
) -> Passages:
    """Cut ``calibration`` + ``parity`` passages from the documents of a file; always the same ones.

    Args:
        path: a table with a column ``text``, or UTF-8 text, one document a line; compressed or
            not. None means the Python Enhancement Proposals of ``examples/peps``.
        max_tokens: the window that the longest passages should fill.

    Raises:
        DataError: the file cannot be read.
        ExportError: it holds too few different passages.
    """
    if path is None:
        path = PEPS
        if not path.is_file():
            raise ExportError(f"{path}: no such file; give real text with --calibration FILE")
    wanted = calibration + parity
    found = list(dict.fromkeys(_passages(list(_documents(path)), wanted, _lengths(max_tokens))))
    if len(found) < wanted:
        raise ExportError(
            f"{path}: {len(found)} different passages, {wanted} are needed "
            f"({calibration} to calibrate, {parity} to measure)"
        )
    return Passages(found[:calibration], found[calibration:wanted])


def _documents(path: Path) -> Iterator[str]:
    if is_table(path) or suffix(path) == ".json":
        for where, row in rows(path, ["text"], []):
            yield text_of(row, where, Fields()).text
    else:
        yield from (line.strip() for _, line in lines(path) if line.strip())


def _lengths(max_tokens: int) -> tuple[int, ...]:
    """``WORDS``, and doubles of its longest up to what a window holds."""
    lengths: tuple[int, ...] = WORDS
    while 2 * lengths[-1] <= max_tokens * _WORDS_PER_TOKEN:
        lengths = (*lengths, 2 * lengths[-1])
    return lengths


def _passages(documents: list[str], wanted: int, lengths: tuple[int, ...]) -> Iterator[str]:
    """One passage of each document in turn, then a second of each, until none is left."""
    chance = random.Random(0)  # noqa: S311  the same choice every time, no secret
    chance.shuffle(documents)
    cursors = [_paragraphs(text, chance) for text in documents]
    turn = 0
    # Duplicates are dropped later, so more than wanted are offered.
    while cursors and turn < 4 * wanted + len(documents):
        for cursor in list(cursors):
            passage = _grow(cursor, lengths[turn % len(lengths)])
            turn += 1
            if passage:
                yield passage
            else:
                cursors.remove(cursor)


def _paragraphs(text: str, chance: random.Random) -> Iterator[str]:
    """From a random place on, so that not every passage is an abstract; then what precedes it."""
    found = [p.strip("\n") for p in re.split(r"\n\s*\n", text) if _WORD.search(p)]
    start = chance.randrange(len(found)) if found else 0
    return iter(found[start:] + found[:start])


def _grow(paragraphs: Iterator[str], words: int) -> str:
    taken: list[str] = []
    while sum(len(p.split()) for p in taken) < words:
        paragraph = next(paragraphs, None)
        if paragraph is None:
            break
        taken.append(paragraph)
    return "\n\n".join(taken)
