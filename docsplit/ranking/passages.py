"""Ranks the windows of a document for a query, by vectors and by shared words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice

import numpy as np
from ahocorasick_rs import AhoCorasick
from numpy.typing import NDArray

from docsplit.ranking.terms import Frequencies
from docsplit.ranking.words import every, placed

Vectors = NDArray[np.float32]
_Places = NDArray[np.int64]

_BLANK = re.compile(r"\s+")
# what stays with the character before it besides marks: the joiner and the skin tones of emoji
_JOINED = frozenset("\u200d\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")
# words of a query that are looked for in the texts of candidates
MOST_TERMS = 32
# of all words in the texts of one comparison
_MOST_OCCURRENCES = 1_000_000
# characters that are searched at a time
_STEP = 1 << 16
# automata of queries in memory
_FINDERS = 64
# characters
_LEAST_STEP = 20
# characters of a window that a snippet may come from; a window of words has fewer
_SEARCHED = 100_000
# a snippet may begin this share of its length earlier, at the start of a sentence
_LEAD = 0.4
_STARTS = (". ", "? ", "! ", "\n", "。", "！", "？", "। ", "۔ ", "؟ ")


@dataclass(frozen=True, slots=True)
class Terms:
    """The words of a query.

    Attributes:
        weights: idf of each word, as BM25's.
        characters: of the query's words with blanks between them.
    """

    weights: dict[str, float]
    characters: int


NONE = Terms({}, 0)


def terms(text: str, frequencies: Frequencies, *, common: bool = False) -> Terms:
    """The first top terms of a text, without those of half of the documents if these are many.

    Args:
        text: a query.
        frequencies: of words in the documents.
        common: whether to keep words that half of the documents have.
    """
    idf = dict(islice(frequencies.of_text(text).items(), MOST_TERMS))
    weights = idf if common else frequencies.rare(idf)
    return Terms(weights, len(" ".join(every(text))))


def cosines(windows: Vectors, query: Vectors) -> Vectors:
    """The cosine of each window ``[windows, dimensions]`` and the query ``[dimensions]``."""
    # an unverified row of an earlier version may hold any numbers
    with np.errstate(all="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", windows, windows))
        # unlike BLAS, this gives equal windows equal cosines
        products = np.einsum("ij,j->i", windows, query)
        return np.asarray(np.nan_to_num(np.clip(products / np.maximum(norms, 1e-9), -1, 1)))


def shares_of(documents: Sequence[str], asked: Terms) -> list[Vectors]:
    """How much of the query's words each window has, and has close together.

    It is the mean of two shares by weight: of the words in the window, and of those in the best
    span of the window, which is twice as long as the query. The documents stand one after the
    other in each array, because many small arrays take most of the time.

    Args:
        documents: their words, as ``docsplit.ranking.words.lined`` has them.
        asked: the words of the query.

    Returns:
        float32 ``[windows]`` for each document, 0 to 1.
    """
    sizes = np.array([words.count("\n") for words in documents], dtype=np.int64)
    if not asked.weights or not documents:
        return [np.zeros(size, dtype=np.float32) for size in sizes]
    starts, terms = _occurrences("".join(documents), asked)
    weights = np.array(list(asked.weights.values()))
    # behind the words stands the end of a line
    ending = terms == len(weights)
    ends, starts, terms = starts[ending], starts[~ending], terms[~ending]
    windows = _covered(np.searchsorted(ends, starts), terms, weights, len(ends))
    # spans of two steps, at each step
    lengths = np.array([len(words) for words in documents])
    bases = np.cumsum(lengths) - lengths
    owner = np.searchsorted(bases, starts, side="right") - 1
    step = max(_LEAST_STEP, asked.characters)
    counts = lengths // step + 2
    firsts = np.cumsum(counts) - counts
    at = (starts - bases[owner]) // step + firsts[owner]
    before = np.maximum(at - 1, firsts[owner])
    covered = _covered(np.concatenate((at, before)), np.tile(terms, 2), weights, int(counts.sum()))
    # a span belongs to the window of its centre
    of = np.repeat(np.arange(len(documents)), counts)
    centres = np.minimum((np.arange(len(of)) - firsts[of] + 1) * step, lengths[of] - 1) + bases[of]
    spans = np.zeros(len(ends))
    np.maximum.at(spans, np.searchsorted(ends, centres), covered)
    # a span may have words of the next window, too
    values = ((windows + np.minimum(spans, windows)) / (2 * weights.sum())).astype(np.float32)
    return np.split(values, np.cumsum(sizes)[:-1])


def _covered(
    places: NDArray[np.int64], terms: NDArray[np.int64], weights: NDArray[np.float64], count: int
) -> NDArray[np.float64]:
    """The weight of the distinct terms at each of ``count`` places."""
    keys = np.unique(places * len(weights) + terms)
    sums = np.bincount(keys // len(weights), weights[keys % len(weights)], count)
    return np.asarray(sums[:count], dtype=np.float64)


def _occurrences(words: str, asked: Terms) -> tuple[_Places, _Places]:
    """First characters of the query's words and of line ends, and the number of each.

    Args:
        words: as ``docsplit.ranking.words.lined`` has them.
        asked: their places are their numbers, and that of a line's end comes after the last.
    """
    finder = _finder(tuple(asked.weights))
    longest = max(map(len, asked.weights)) + 1
    found: list[tuple[_Places, _Places]] = []
    total = 0
    for begin in range(0, len(words), _STEP):
        # a word may cross the border
        part = words[begin : begin + _STEP + longest]
        matches = finder.find_matches_as_indexes(part, overlapping=True)
        values = np.fromiter(chain.from_iterable(matches), np.int64, 3 * len(matches))
        terms, firsts, _ = values.reshape(-1, 3).T
        kept = firsts < _STEP
        if total > _MOST_OCCURRENCES:
            kept &= terms == len(asked.weights)
        found.append((firsts[kept] + begin, terms[kept]))
        total += len(found[-1][0])
    starts, numbers = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return starts, numbers


@lru_cache(_FINDERS)
def _finder(words: tuple[str, ...]) -> AhoCorasick:
    # neighbours share the blank between them
    return AhoCorasick([*(f" {word} " for word in words), "\n"], store_patterns=False)


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
    end = min(end, start + _SEARCHED)
    first = _densest(text, start, end, size, asked)
    if first > start:
        # a sentence's start if there is one shortly before, else the next word's start
        low = max(start, first - int(_LEAD * size))
        sentences = [at + len(mark) for mark in _STARTS if (at := text.rfind(mark, low, first)) > 0]
        first = max(sentences, default=first)
    if first > end - size:
        first = end - size
        blank = _BLANK.search(text, first, first + int(_LEAD * size))
        if blank and not text[first - 1].isspace():
            first = blank.end()
    last = min(first + size, end)
    if last < end and (text[last].isalnum() or _parted(text, last)):
        # the last word does not fit; in a script without blanks it stays
        blanks = _BLANK.finditer(text, last - int(_LEAD * size), last)
        last = max((blank.start() for blank in blanks), default=last)
    return _whole(text, first, last)


def _whole(text: str, first: int, last: int) -> tuple[int, int]:
    """The span without the parts of characters at its ends; the same if it holds no whole one."""
    begin, stop = first, last
    while begin < last and _parted(text, begin):
        begin += 1
    while stop > begin and _parted(text, stop):
        stop -= 1
    return (begin, stop) if begin < stop else (first, last)


def _parted(text: str, at: int) -> bool:
    if not 0 < at < len(text):
        return False
    char = text[at]
    return char in _JOINED or text[at - 1] == "\u200d" or unicodedata.category(char)[0] == "M"


def _densest(text: str, start: int, end: int, size: int, asked: Terms) -> int:
    places = [
        (start + first, start + last, word)
        for word, first, last in placed(text[start:end], asked.weights.keys())
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
