"""Draws documents from a file or folder and splits them into the halves of DocSplit."""

from __future__ import annotations

import hashlib
import heapq
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from docsplit.corpora.documents import read_texts
from docsplit.corpora.fields import DataError, Fields
from training.data.sentences import split_sentences

# one document in so many measures the gain and does not fit the map
_HELD_OUT = 10


@dataclass(frozen=True)
class Halves:
    """Halves of documents, as texts.

    Attributes:
        fitting, held_out: pairs of halves of the documents that fit the map, and of the others.
        read: documents of the file or folder; those of one sentence and copies are never drawn.
    """

    fitting: list[tuple[str, str]]
    held_out: list[tuple[str, str]]
    read: int


def draw(path: Path, fields: Fields, most: int, seed: int) -> Halves:
    """Halves of ``most`` documents, or of all if there are fewer.

    The digests of the texts decide which documents are drawn and which are held out, so a copy of
    a document is not in both parts. Memory holds only the documents that were drawn.

    Raises:
        DataError: the path cannot be read, or it has fewer than 20 documents of two sentences.
    """
    drawn: list[tuple[int, str]] = []
    seen: set[int] = set()
    read = 0
    for document in read_texts(path, fields):
        read += 1
        digest = hashlib.sha256(f"{seed}:{document.text}".encode("utf-8", "surrogatepass")).digest()
        # a heap of the smallest numbers has its largest first
        number = -int.from_bytes(digest[:8], "big")
        if number in seen or (len(drawn) == most and number < drawn[0][0]):
            continue
        if len(split_sentences(document.text)) < 2:
            continue
        seen.add(number)
        if len(drawn) < most:
            heapq.heappush(drawn, (number, document.text))
        else:
            seen.remove(heapq.heapreplace(drawn, (number, document.text))[0])
    if len(drawn) < 2 * _HELD_OUT:
        raise DataError(
            f"{path}: {len(drawn)} different documents of two sentences or more; a map needs at "
            f"least {2 * _HELD_OUT}"
        )
    pairs = [split(text, -number) for number, text in sorted(drawn, reverse=True)]
    return Halves(
        [pair for place, pair in enumerate(pairs) if place % _HELD_OUT],
        pairs[::_HELD_OUT],
        read,
    )


def split(text: str, seed: int) -> tuple[str, str]:
    """Two halves of a text: a coin decides for each sentence (SimLTE / DocSplit, section 2.2).

    Args:
        text: two sentences or more.
        seed: of the coin.
    """
    sentences = split_sentences(text)
    rng = np.random.default_rng(seed)
    while True:
        first = rng.random(len(sentences)) < 0.5
        if first.any() and not first.all():
            break
    parts = zip(sentences, first, strict=True)
    halves: tuple[list[str], list[str]] = [], []
    for sentence, heads in parts:
        halves[not heads].append(sentence)
    return " ".join(halves[0]), " ".join(halves[1])
