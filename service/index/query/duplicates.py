"""Finds near-duplicates in an index: of one document, or all groups of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from cachetools import LRUCache
from numpy.typing import NDArray

from docsplit.ranking import duplicates
from docsplit.ranking.duplicates import Shingles
from service import executors
from service.index.documents import Index
from service.index.query import listing, search
from service.index.query.reading import Hit, Query
from service.index.rows.checksums import Part, texts

# documents of the highest cosine that are compared word by word
CANDIDATES = 50
# pairs confirmed at a time
CHUNK = 16
# a window differs if the other document has fewer of its shingles
SAME = 0.8
# bytes of shingles kept while candidates are confirmed, and while one request compares documents
_KEPT_BYTES, _HELD_BYTES = 64 * 2**20, 16 * 2**20


@dataclass(frozen=True, slots=True)
class Match:
    """A near-duplicate of a document.

    Attributes:
        resemblance: share of the shingles of either document that both have, 0 to 1.
        containment: share of the shorter document's shingles that the other has, 0 to 1.
        differs: characters ``[start, end)`` of its windows that the other document lacks.
    """

    hit: Hit
    resemblance: float
    containment: float
    differs: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Group:
    """Documents that near-duplicates connect.

    Attributes:
        ids: in ascending order.
        lowest: resemblance of the least similar pair that connects them.
    """

    ids: list[str]
    lowest: float


class Held:
    """The shingles of documents that queries of one request were compared with, by id."""

    def __init__(self, most: int = _HELD_BYTES) -> None:
        self._known: LRUCache[str, Shingles] = LRUCache(most, lambda own: own.nbytes + 256)

    def keep(self, name: str, own: Shingles) -> None:
        """Remember the shingles of a document, unless they are very many."""
        if own.nbytes < self._known.maxsize // 4:
            self._known[name] = own

    def get(self, name: str) -> Shingles | None:
        """The shingles of a document; None if they are not known."""
        found: Shingles | None = self._known.get(name)
        return found

    def near(self, asked: Shingles, names: Iterable[str], threshold: float) -> list[str]:
        """Those of the documents that may reach ``threshold``."""
        pairs = [(name, self.get(name)) for name in names]
        return [
            name
            for name, own in pairs
            if own is None or duplicates.resemblance(asked, own) >= threshold
        ]


async def like(
    index: Index, query: Query, threshold: float, limit: int, held: Held | None = None
) -> list[Match]:
    """Documents whose resemblance to the query reaches ``threshold``, highest first.

    Args:
        query: the document to compare.
        threshold: lowest resemblance.
        limit: of the documents in the answer.
        held: the same for all queries of one request, which often meet the same documents.
    """
    kept = Held() if held is None else held
    hits = {hit.id: hit for hit in await search.cosine(index, query, CANDIDATES, None)}
    asked = await executors.WORDS.run(duplicates.shingles, query.text)
    near = await executors.WORDS.run(kept.near, asked, list(hits), threshold)
    found: list[Match] = []
    async for part in index.contents(near, Part.TEXT, Part.WINDOWS):
        found += await executors.WORDS.run(_matches, asked, part, hits, threshold, kept)
    return sorted(found, key=lambda match: (-match.resemblance, match.hit.id))[:limit]


def _matches(
    asked: Shingles, part: pa.Table, hits: dict[str, Hit], threshold: float, held: Held
) -> list[Match]:
    found = []
    for name, text, ends in zip(
        texts(part["id"]), texts(part["text"]), part["window_ends"].to_pylist(), strict=True
    ):
        own = duplicates.shingles(text)
        held.keep(name, own)
        share = duplicates.resemblance(asked, own)
        if share >= threshold:
            spans = zip([0, *ends[:-1]], ends, strict=True)
            differs = [
                (start, end)
                for start, end in spans
                if len(window := duplicates.shingles(text[start:end])) > 0
                and len(np.intersect1d(window, asked, assume_unique=True)) < SAME * len(window)
            ]
            match = Match(hits[name], share, duplicates.containment(asked, own), differs)
            found.append(match)
    return found


async def groups(index: Index, threshold: float) -> list[Group]:
    """All groups of near-duplicates, the largest first.

    It reads every text once, and the texts of candidates once or a few times more. It keeps 128
    bytes and the id of every document.
    """
    ids: list[str] = []
    found: list[duplicates.Keys] = []
    async for part in listing.every(index, Part.TEXT):
        named = await executors.WORDS.run(_keys, part)
        ids += named
        found += named.values()
    if not ids:
        return []
    candidates = await executors.WORDS.run(duplicates.pairs, np.stack(found))
    shares = await _confirmed(index, ids, candidates, threshold)
    return await executors.WORDS.run(_grouped, ids, shares)


def _grouped(ids: Sequence[str], shares: Mapping[tuple[int, int], float]) -> list[Group]:
    members = sorted(duplicates.groups(len(ids), list(shares)), key=len, reverse=True)
    group_of = {one: number for number, group in enumerate(members) for one in group}
    lowest = [1.0] * len(members)
    for (one, _), share in shares.items():
        lowest[group_of[one]] = min(lowest[group_of[one]], share)
    return [
        Group(sorted(ids[one] for one in group), share)
        for group, share in zip(members, lowest, strict=True)
    ]


async def _confirmed(
    index: Index, ids: Sequence[str], candidates: NDArray[np.int64], threshold: float
) -> dict[tuple[int, int], float]:
    """Candidates whose resemblance reaches ``threshold``, with their resemblance."""
    held = Held(_KEPT_BYTES)
    shares: dict[tuple[int, int], float] = {}
    for at in range(0, len(candidates), CHUNK):
        # only these: a large index has millions of pairs
        chunk: list[tuple[int, int]] = [(a, b) for a, b in candidates[at : at + CHUNK].tolist()]
        names = {ids[place] for pair in chunk for place in pair}
        known = {name: held.get(name) for name in names}
        near = {name: own for name, own in known.items() if own is not None}
        async for part in index.contents(sorted(names - near.keys()), Part.TEXT):
            near |= await executors.WORDS.run(_shingles, part)
        for name, own in near.items():
            held.keep(name, own)
        # a document may have been deleted since
        chunk = [(a, b) for a, b in chunk if ids[a] in near and ids[b] in near]
        sets = [(near[ids[a]], near[ids[b]]) for a, b in chunk]
        found = await executors.WORDS.run(_resemblances, sets)
        pairs = zip(chunk, found, strict=True)
        shares |= {pair: share for pair, share in pairs if share >= threshold}
    return shares


def _resemblances(sets: Sequence[tuple[Shingles, Shingles]]) -> list[float]:
    return [duplicates.resemblance(one, other) for one, other in sets]


def _shingles(part: pa.Table) -> dict[str, Shingles]:
    pairs = zip(texts(part["id"]), texts(part["text"]), strict=True)
    return {name: duplicates.shingles(text) for name, text in pairs}


def _keys(part: pa.Table) -> dict[str, duplicates.Keys]:
    """Keys of the documents that have words."""
    found = _shingles(part)
    return {name: duplicates.keys(own) for name, own in found.items() if len(own)}
