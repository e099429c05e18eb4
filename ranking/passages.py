"""Ranks the windows of a document for a query, by vectors and by shared words."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ranking.terms import MOST_WORDS, Frequencies, words

Vectors = NDArray[np.float32]

_WORD = re.compile(r"\w{2,}")
# a snippet may begin this share of its length earlier, at the start of a sentence
_LEAD = 0.4
_STARTS = (". ", "? ", "! ", "\n", "。")


@dataclass(frozen=True, slots=True)
class Terms:
    """The words of a query.

    Attributes:
        weights: idf of each word, as BM25's.
        total: the sum of all weights.
    """

    weights: dict[str, float]
    total: float

    def share(self, text: str) -> float:
        """The share of the query's words, by weight, that a text contains, 0 to 1."""
        if not self.weights:
            return 0.0
        found = self.weights.keys() & set(words(text))
        return sum(self.weights[word] for word in found) / self.total


NONE = Terms({}, 0.0)


def terms(text: str, frequencies: Frequencies) -> Terms:
    """The words of a text that occur in less than half of the documents, the top terms only."""
    count, containing = frequencies.documents, frequencies.containing
    top = frequencies.top_terms(text, MOST_WORDS).split()
    held = {word: containing[word] for word in top if 2 * containing[word] < max(count, 2)}
    weights = {word: math.log(1 + (count - df + 0.5) / (df + 0.5)) for word, df in held.items()}
    return Terms(weights, sum(weights.values()))


def cosines(windows: Vectors, query: Vectors) -> Vectors:
    """The cosine of each window ``[windows, dimensions]`` and the query ``[dimensions]``."""
    norms = np.linalg.norm(windows, axis=1)
    # an unverified row of an earlier version may hold any numbers
    with np.errstate(all="ignore"):
        found: Vectors = np.nan_to_num(np.clip(windows @ query / np.maximum(norms, 1e-9), -1, 1))
    return found


def shares(text: str, ends: Sequence[int], asked: Terms) -> Vectors:
    """The share of the query's words in each window of a text, float32 ``[windows]``."""
    starts = [0, *ends[:-1]]
    parts = [asked.share(text[start:end]) for start, end in zip(starts, ends, strict=True)]
    return np.array(parts, dtype=np.float32)


def snippet(text: str, start: int, end: int, size: int, asked: Terms) -> tuple[int, int]:
    """The part of a window with the most of the query's words, by weight.

    Args:
        text: of the document.
        start: first character of the window.
        end: one past its last.
        size: most characters of the part.
        asked: words of the query.

    Returns:
        Its first character, and one past its last.
    """
    if end - start <= size:
        return start, end
    first = _densest(text, start, end, size, asked)
    if first > start:
        # a sentence's start if there is one shortly before, else the next word's start
        low = max(start, first - int(_LEAD * size))
        sentences = [at + len(mark) for mark in _STARTS if (at := text.rfind(mark, low, first)) > 0]
        first = max(sentences, default=first)
    first = min(first, end - size)
    return first, first + size


def _densest(text: str, start: int, end: int, size: int, asked: Terms) -> int:
    places = [
        (found.start(), found.end(), word)
        for found in _WORD.finditer(text, start, end)
        if (word := found[0].lower()) in asked.weights
    ]
    room = size - int(_LEAD * size)
    best, weight, first, at = 0.0, 0.0, 0, start
    inside: Counter[str] = Counter()
    for place, (_, stop, word) in enumerate(places):
        weight += 0 if inside[word] else asked.weights[word]
        inside[word] += 1
        while first < place and places[first][0] < stop - room:
            gone = places[first][2]
            inside[gone] -= 1
            weight -= 0 if inside[gone] else asked.weights[gone]
            first += 1
        if weight > best + 1e-9:
            best, at = weight, places[first][0]
    return at
