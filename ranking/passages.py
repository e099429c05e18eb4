"""Ranks the windows of a document for a query, by vectors and by shared words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
from ahocorasick_rs import AhoCorasick, MatchKind
from numpy.typing import NDArray

from ranking.terms import Frequencies
from ranking.tokens import MARKS

Vectors = NDArray[np.float32]
_Places = NDArray[np.int64]

_INSIDE = re.compile(rf"[\w{MARKS}]")
_BLANK = re.compile(r"\s+")
# what stays with the character before it besides marks: the joiner and the skin tones of emoji
_JOINED = frozenset("\u200d\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")
# words of a query that are looked for in the texts of candidates
MOST_TERMS = 32
# a little more than the idf of a word in half of the documents
_RARE = 0.6932
# in fewer documents a word of half of them may still be what the query is about
_FEW = 20
# of all words in one text
_MOST_OCCURRENCES = 100_000
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
        total: the sum of all weights.
        characters: of the query.
    """

    weights: dict[str, float]
    total: float
    characters: int


NONE = Terms({}, 0.0, 0)


def terms(text: str, top_terms: str, frequencies: Frequencies, *, common: bool = False) -> Terms:
    """The first top terms of a text, without those of half of the documents if these are many.

    Args:
        text: a query.
        top_terms: of it.
        frequencies: of words in the documents.
        common: whether to keep words that half of the documents have.
    """
    top = top_terms.split()[:MOST_TERMS]
    idf = zip(top, frequencies.of_words(top).tolist(), strict=True)
    least = _RARE if frequencies.documents >= _FEW and not common else 0.0
    weights = {word: weight for word, weight in idf if weight > least}
    return Terms(weights, sum(weights.values()), len(text))


def cosines(windows: Vectors, query: Vectors) -> Vectors:
    """The cosine of each window ``[windows, dimensions]`` and the query ``[dimensions]``."""
    # an unverified row of an earlier version may hold any numbers
    with np.errstate(all="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", windows, windows))
        # unlike BLAS, this gives equal windows equal cosines
        products = np.einsum("ij,j->i", windows, query)
        found: Vectors = np.nan_to_num(np.clip(products / np.maximum(norms, 1e-9), -1, 1))
    return found


def shares(text: str, ends: Sequence[int], asked: Terms) -> Vectors:
    """The shares of the windows of one document, see ``shares_of``."""
    return shares_of([text], [ends], asked)[0]


def shares_of(texts: Sequence[str], ends: Sequence[Sequence[int]], asked: Terms) -> list[Vectors]:
    """How much of the query's words each window has, and has close together.

    It is the mean of two shares by weight: of the words in the window, and of those in the best
    span of the window, which is twice as long as the query. The documents stand one after the
    other in each array, because many small arrays take most of the time.

    Args:
        texts: of documents.
        ends: one past the last character of each window of each document.
        asked: the words of the query.

    Returns:
        float32 ``[windows]`` for each document, 0 to 1.
    """
    sizes = np.array([len(own) for own in ends])
    if not asked.weights or not texts:
        return [np.zeros(size, dtype=np.float32) for size in sizes]
    starts, terms, owner = _occurrences_of(texts, asked)
    weights = np.array(list(asked.weights.values()))
    lengths = np.array([len(text) for text in texts])
    bases = _firsts(lengths + 2)
    # behind the windows of each document is one without words, up to the next document
    edges = zip(ends, lengths, bases, strict=True)
    bounds = np.concatenate(
        [[*np.minimum(own, size) + base, base + size + 1] for own, size, base in edges]
    )
    windows = _covered(
        np.searchsorted(bounds, starts + bases[owner], side="right"), terms, weights, len(bounds)
    )
    # spans of two steps, at each step
    step = max(_LEAST_STEP, asked.characters)
    counts = lengths // step + 2
    firsts = _firsts(counts)
    at = starts // step + firsts[owner]
    before = np.maximum(at - 1, firsts[owner])
    covered = _covered(np.concatenate((at, before)), np.tile(terms, 2), weights, int(counts.sum()))
    # a span belongs to the window of its centre
    of = np.repeat(np.arange(len(texts)), counts)
    centres = np.minimum((np.arange(len(of)) - firsts[of] + 1) * step, lengths[of]) + bases[of]
    lasts = np.cumsum(sizes + 1) - 2
    spans = np.zeros(len(bounds))
    places = np.minimum(np.searchsorted(bounds, centres, side="right"), lasts[of])
    np.maximum.at(spans, places, covered)
    # a span may have words of the next window, too
    values = ((windows + np.minimum(spans, windows)) / (2 * asked.total)).astype(np.float32)
    pairs = zip(lasts + 1 - sizes, lasts + 1, strict=True)
    return [values[first:end] for first, end in pairs]


def _firsts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first place of each of several runs of some lengths."""
    return np.cumsum(counts) - counts


def _covered(
    places: NDArray[np.int64], terms: NDArray[np.int64], weights: NDArray[np.float64], count: int
) -> NDArray[np.float64]:
    """The weight of the distinct terms at each of ``count`` places."""
    keys = np.unique(places * len(weights) + terms)
    sums = np.bincount(keys // len(weights), weights[keys % len(weights)], count)
    return np.asarray(sums[:count], dtype=np.float64)


def _occurrences_of(texts: Sequence[str], asked: Terms) -> tuple[_Places, _Places, _Places]:
    """First characters of the query's words in some texts, their numbers, and those of the texts.

    Short texts are searched as one, because each search costs more than reading such a text.
    """
    found: list[tuple[_Places, _Places, _Places]] = []
    for first, last in _blocks([len(text) for text in texts]):
        starts, terms = _found("\n".join(map(_lowered, texts[first:last])), asked)
        bounds = np.cumsum([0, *(len(text) + 1 for text in texts[first:last])])
        own = np.searchsorted(bounds, starts, side="right") - 1
        found.append((starts - bounds[own], terms, own + first))
    starts, terms, owner = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return starts, terms, owner


def _blocks(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbours of at most ``_STEP`` characters together, or one that is longer."""
    first = total = 0
    for place, length in enumerate(lengths):
        if place > first and total + length >= _STEP:
            yield first, place
            first, total = place, 0
        total += length + 1
    yield first, len(lengths)


def occurrences(text: str, asked: Terms) -> tuple[_Places, _Places]:
    """First characters of the query's words in a text, and the number of the word of each."""
    return _found(_lowered(text), asked)


def _lowered(text: str) -> str:
    # the only letter that becomes several in lower case
    low = text.replace("İ", "i").lower()
    # an unverified row of an earlier version may hold bytes that are not UTF-8
    return low if low.isascii() else low.encode("utf-8", "replace").decode()


def _found(low: str, asked: Terms) -> tuple[_Places, _Places]:
    none = np.zeros(0, dtype=np.int64)
    if not asked.weights:
        return none, none
    finder = _finder(tuple(asked.weights))
    longest = max(map(len, asked.weights))
    found: list[tuple[_Places, _Places]] = [(none, none)]
    total = 0
    for begin in range(0, len(low), _STEP):
        # a word may cross the border
        matches = finder.find_matches_as_indexes(low[begin : begin + _STEP + longest])
        values = np.fromiter(chain.from_iterable(matches), np.int64, 3 * len(matches))
        terms, firsts, lasts = values.reshape(-1, 3).T
        # with the characters before and behind
        around = f" {low[begin : begin + _STEP + longest + 1]} "
        if begin:
            around = low[begin - 1] + around[1:]
        codes = np.frombuffer(around.encode("utf-32-le"), "<u4")
        kept = (firsts < _STEP) & ~(_inside(codes[firsts]) | _inside(codes[lasts + 1]))
        found.append((firsts[kept] + begin, terms[kept]))
        total += len(found[-1][0])
        if total > _MOST_OCCURRENCES:
            break
    starts, numbers = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return starts, numbers


@lru_cache(_FINDERS)
def _finder(words: tuple[str, ...]) -> AhoCorasick:
    # in a longer match no word begins: a match between two boundaries is a whole word
    return AhoCorasick(words, matchkind=MatchKind.LeftmostLongest, store_patterns=False)


def _inside(codes: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Whether each character can stand inside a word."""
    inside: NDArray[np.bool_] = _ASCII[np.minimum(codes, 127)]
    for place in np.flatnonzero(codes > 127).tolist():
        inside[place] = _in_word(chr(codes[place]))
    return inside


def _in_word(char: str) -> bool:
    return _INSIDE.match(char) is not None


_ASCII = np.array([_in_word(chr(code)) for code in range(128)])


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
        if blank and _in_word(text[first - 1]):
            first = blank.end()
    return _whole(text, first, min(first + size, end))


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
    words = list(asked.weights)
    starts, terms = occurrences(text[start:end], asked)
    places = [
        (start + at, start + at + len(words[term]), words[term])
        for at, term in zip(starts.tolist(), terms.tolist(), strict=True)
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
