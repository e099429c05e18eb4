"""Real passages of mixed length to calibrate int8 and to measure parity."""

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from docsplit.corpora.documents import text_of
from docsplit.corpora.fields import Fields
from docsplit.corpora.files import lines, suffix
from docsplit.corpora.tables import is_table, rows
from export.errors import ExportError

PEPS = Path(__file__).parent.parent / "examples" / "peps" / "documents.jsonl.gz"
CALIBRATION = 256
# Passages grow by paragraphs until they reach one of these numbers of words. The shortest are one
# paragraph, often a single line. The longest exceed a window of 512 tokens.
WORDS = (1, 1, 24, 48, 96, 192, 384)
# A lower bound of words per token. It gives longer windows longer passages.
_WORDS_PER_TOKEN = 0.75
_WORD = re.compile(r"[^\W\d_]{2,}")


class Passages(NamedTuple):
    """Two sets of passages that share no passage and, if there are enough, no document."""

    calibration: list[str]
    parity: list[str]


def read_passages(
    path: Path | None, *, parity: int, calibration: int | None = None, max_tokens: int = 512
) -> Passages:
    """Cut ``calibration`` + ``parity`` passages from the documents of a file; deterministic.

    Args:
        path: a table with a column ``text``, or UTF-8 text with one document per line, compressed
            or not. None means the Python Enhancement Proposals of ``examples/peps``.
        calibration: by default ``CALIBRATION``.
        max_tokens: the window that the longest passages should fill.

    Raises:
        DataError: the file cannot be read.
        ExportError: the file holds too few different passages.
    """
    if path is None:
        path = PEPS
        if not path.is_file():
            raise ExportError(f"{path}: no such file; give real text with --calibration FILE")
    calibration = CALIBRATION if calibration is None else calibration
    wanted = calibration + parity
    found = list(dict.fromkeys(_passages(list(_documents(path)), wanted, _lengths(max_tokens))))
    if len(found) < wanted:
        raise ExportError(
            f"{path}: {len(found)} different passages, but {wanted} are needed "
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
    """``WORDS``, and multiples of the longest by powers of two up to the length of a window."""
    lengths: tuple[int, ...] = WORDS
    while 2 * lengths[-1] <= max_tokens * _WORDS_PER_TOKEN:
        lengths = (*lengths, 2 * lengths[-1])
    return lengths


def _passages(documents: list[str], wanted: int, lengths: tuple[int, ...]) -> Iterator[str]:
    """One passage of each document, then a second of each, until no passage is left."""
    chance = random.Random(0)  # noqa: S311  the same choice every time, no secret
    chance.shuffle(documents)
    cursors = [_paragraphs(text, chance) for text in documents]
    turn = 0
    # A later step drops duplicates, so this one yields more than needed.
    while cursors and turn < 4 * wanted + len(documents):
        for cursor in list(cursors):
            passage = _grow(cursor, lengths[turn % len(lengths)])
            turn += 1
            if passage:
                yield passage
            else:
                cursors.remove(cursor)


def _paragraphs(text: str, chance: random.Random) -> Iterator[str]:
    """Paragraphs from a random place on, then those before it, so not all are abstracts."""
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
