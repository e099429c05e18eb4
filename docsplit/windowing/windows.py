"""Content-defined windows: the content of a document decides where its windows end.

The idea is content-defined chunking (rsync; FastCDC, Xia et al., USENIX ATC 2016) with the local
minimum as the cut criterion (Bjørner, Blass & Gurevich, "Content-dependent chunking for
differential compression, the local maximum approach", 2010), moved from bytes to sentences.
Each boundary gets a hash of the sentence that ends there. A boundary is an *anchor* if its hash is
the smallest among its neighbours, ``capacity // 2`` tokens back and ``capacity // 8`` tokens ahead.
Windows end at anchors, or, if none is in reach, at the boundary with the smallest hash. Therefore:

- an edit changes only the windows around it, because distant anchors do not move;
- appended text changes only the last window, because no cut looks beyond ``capacity`` tokens of
  the window that it ends;
- a document that fits is one window."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from docsplit.windowing.tokens import Side, Tokens

# characters that are counted at once; the interpreter runs no other thread meanwhile
_PIECE = 1 << 16

# (start, end) in a text, in code points
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Weighing:
    """A rule for the weights of windows.

    Attributes:
        unit: what is counted. Tables, numbers and code have fewer letters for each token than
            sentences have, and say less about the subject.
        first: how many times those of the first window count.
    """

    unit: Literal["tokens", "letters"] = "tokens"
    first: float = 1.0

    def weights(self, text: str, spans: Sequence[Span], tokens: Sequence[int]) -> list[float]:
        """The weight of each window of a document.

        Args:
            text: of the document.
            spans: of the windows.
            tokens: of each window.
        """
        if len(spans) == 1:
            return [1.0]
        if self.unit == "tokens":
            found = [float(count) for count in tokens]
        else:
            # a document of numbers has a vector too
            found = [max(1.0, _letters(text, *span)) for span in spans]
        return [found[0] * self.first, *found[1:]]


def _letters(text: str, start: int, end: int) -> int:
    pieces = (text[at : min(at + _PIECE, end)] for at in range(start, end, _PIECE))
    return sum(sum(map(str.isalpha, piece)) for piece in pieces)


Ids: TypeAlias = NDArray[np.int32]
Positions: TypeAlias = NDArray[np.int64]
Hashes: TypeAlias = NDArray[np.uint64]

_BASE = np.uint64(0x9E3779B97F4A7C15)
_SHORT_CONTEXT = 4


def cut(ids: Ids, sentences: Positions, words: Positions, capacity: int) -> list[int]:
    """Ends of the windows of a document, in tokens.

    Args:
        ids: token ids of the whole document without special tokens, ``[tokens]``.
        sentences: ascending token positions at which sentences start (0 and ``tokens`` excluded).
        words: the same for words; a sentence that exceeds a window is cut at a word.
        capacity: most tokens in a window, without special tokens.

    Returns:
        Ascending ends; the last is ``len(ids)``; neighbours differ by at most ``capacity``.
    """
    total = len(ids)
    if total <= capacity:
        return [total]
    reach = capacity - capacity // 8
    hashes = _sentence_hashes(ids, sentences)
    anchors = sentences[_anchors(sentences, hashes, capacity // 2, capacity // 8)]
    smallest = capacity // 4
    ends: list[int] = []
    start = 0
    while total - start > capacity:
        at = int(np.searchsorted(anchors, start, side="right"))
        if at < len(anchors) and anchors[at] <= start + reach:
            start = int(anchors[at])
        else:
            end = _smallest_hash(sentences, hashes, start + smallest, start + reach)
            if end is None:
                end = _last_resort(ids, words, start, smallest, reach)
            start = end
        ends.append(start)
    ends.append(total)
    return ends


def _sentence_hashes(ids: Ids, starts: Positions) -> Hashes:
    """A hash per boundary, over the tokens of the sentence that ends there."""
    if len(starts) == 0:
        return np.zeros(0, dtype=np.uint64)
    edges = np.concatenate(([0], starts))
    with np.errstate(over="ignore"):
        within = np.arange(starts[-1]) - np.repeat(edges[:-1], np.diff(edges))
        mixed = _mix(ids[: starts[-1]].astype(np.uint64) + within.astype(np.uint64) * _BASE)
        return _mix(np.add.reduceat(mixed, edges[:-1]))


def _mix(values: Hashes) -> Hashes:
    """Finaliser of SplitMix64 (Steele, Lea & Flood, OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        values = values + _BASE
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def _anchors(positions: Positions, hashes: Hashes, back: int, ahead: int) -> NDArray[np.bool_]:
    """Which boundaries have a hash below all of the ``back`` tokens before, and at most equal to
    all of the ``ahead`` tokens after."""
    is_anchor = np.ones(len(positions), dtype=np.bool_)
    where = positions.tolist()
    value = hashes.tolist()
    # the front of each deque is the index of the minimum in the sliding range
    before: deque[int] = deque()
    for i, position in enumerate(where):
        while before and where[before[0]] < position - back:
            before.popleft()
        if before and value[before[0]] <= value[i]:
            is_anchor[i] = False
        while before and value[before[-1]] >= value[i]:
            before.pop()
        before.append(i)
    after: deque[int] = deque()
    for i in range(len(where) - 1, -1, -1):
        while after and where[after[0]] > where[i] + ahead:
            after.popleft()
        if after and value[after[0]] < value[i]:
            is_anchor[i] = False
        while after and value[after[-1]] >= value[i]:
            after.pop()
        after.append(i)
    return is_anchor


def _smallest_hash(positions: Positions, hashes: Hashes, low: int, high: int) -> int | None:
    first, last = np.searchsorted(positions, (low, high + 1))
    return None if first == last else _last_smallest(positions[first:last], hashes[first:last])


def _last_smallest(positions: Positions, hashes: Hashes) -> int:
    """The last of equal smallest hashes, so that a repeated sentence fills its windows."""
    return int(positions[len(hashes) - 1 - int(np.argmin(hashes[::-1]))])


def _last_resort(ids: Ids, words: Positions, start: int, smallest: int, reach: int) -> int:
    """A cut inside a sentence: between words, or between two tokens of an endless word."""
    first, last = np.searchsorted(words, (start + smallest, start + reach + 1))
    inside = words[first:last]
    if len(inside) == 0:
        inside = np.arange(start + max(smallest, _SHORT_CONTEXT), start + reach + 1)
    context = inside[:, None] - np.arange(1, _SHORT_CONTEXT + 1)[None, :]
    with np.errstate(over="ignore"):
        weights = _mix(np.arange(_SHORT_CONTEXT, dtype=np.uint64))
        hashes = _mix((ids[context].astype(np.uint64) * weights).sum(axis=1, dtype=np.uint64))
    return _last_smallest(inside, hashes)


BY_TOKENS = Weighing()


@dataclass(slots=True)
class Window:
    """A window of a document.

    Attributes:
        start: first character, in code points.
        end: one past the last character.
        tokens: tokens of the document in it, without special and prompt tokens.
        ids: the model's input, with special and prompt tokens, int32.
        weight: in the document's vector, against the weights of its other windows.
    """

    start: int
    end: int
    tokens: int
    ids: Ids
    weight: float


class Cutter(Protocol):
    """What ``split`` needs of a tokenizer."""

    capacity: int

    def boundaries(self, text: str, tokens: Tokens) -> tuple[Positions, Positions]: ...

    def model_input(self, parts: Sequence[Ids]) -> Ids: ...


def split(
    tokenizer: Cutter,
    text: str,
    tokens: Tokens,
    keep: Side | None = None,
    weighing: Weighing = BY_TOKENS,
) -> list[Window]:
    """The windows of a document, in order. A document without tokens has one empty window.

    Args:
        tokenizer: knows where to cut, and joins parts to the model's input.
        tokens: tokens of ``text``.
        keep: make only one window, filled from this end of the document.
        weighing: gives the windows their weights.
    """
    lead, ids = tokens.ids[: tokens.prompt], tokens.ids[tokens.prompt :]
    total, capacity = len(ids), tokenizer.capacity - len(lead)
    if total <= capacity:
        edges = [0, total]
    elif keep is not None:
        edges = [0, capacity] if keep == "right" else [total - capacity, total]
    else:
        edges = [0, *cut(ids, *tokenizer.boundaries(text, tokens), capacity)]
    spans, counts, inputs = [], [], []
    for first, last in pairwise(edges):
        begin = 0 if first == 0 else int(tokens.starts[tokens.prompt + first])
        end = len(text) if last == total else int(tokens.starts[tokens.prompt + last])
        spans.append((begin, end))
        counts.append(last - first)
        # a copy, so that the window does not keep the whole document's ids alive
        inputs.append(tokenizer.model_input((lead, ids[first:last])))
    weights = weighing.weights(text, spans, counts)
    every = zip(spans, counts, inputs, weights, strict=True)
    return [Window(*span, count, made, weight) for span, count, made, weight in every]
