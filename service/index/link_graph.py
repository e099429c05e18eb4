"""Links of documents, given and found: lists, the graph, and documents that share links."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from lancedb.query import ColumnOrdering

from service import executors
from service.index import documents, sql
from service.index.documents import LIVE, Index
from service.index.found_links import FoundLinks, Link
from service.index.query import listing
from service.index.query.filters import Where, both, identified, live
from service.index.query.reading import Direction, Hit, Query, Ranks, Shared, read
from service.index.query.search import first
from service.index.rows import checksums
from service.index.rows.checksums import Part, texts

# rows in memory at a time; each has up to 10,000 links
_ROWS = 256
# ids that are converted at a time
_NAMES = 4096


async def links_to(
    index: Index, ids: Sequence[str], most: int
) -> tuple[set[tuple[str, str]], bool]:
    """Citing and cited ids of links to some documents, without links to itself.

    Args:
        ids: of the cited documents.
        most: citing documents to read.

    Returns:
        The pairs, and whether they are all of them. Which are missing is not determined.
    """
    found: set[tuple[str, str]] = set()
    if not ids:
        return found, True
    # a deleted document has no links, so the index of links answers without reading rows
    query = index.table.query().where(sql.overlaps("links", ids)).limit(most + 1)
    wanted = pa.array(ids)
    rows = 0
    async for batch in await query.select(["id", "links"]).to_batches(max_batch_length=_ROWS):
        rows += batch.num_rows
        cited, parents = pc.list_flatten(batch["links"]), pc.list_parent_indices(batch["links"])
        chosen = pc.is_in(cited, wanted)
        citing = _texts(batch["id"].take(parents.filter(chosen)))
        pairs = zip(citing, _texts(cited.filter(chosen)), strict=True)
        found |= {(one, other) for one, other in pairs if one != other}
    return found, rows <= most


async def counts_to(index: Index, ids: Sequence[str], without: str | None = None) -> list[int]:
    """How many other documents cite each of some documents; ``without`` does not count.

    The index of links answers, so the cost does not depend on the numbers.
    """
    others = [] if without is None else [without]
    conditions = (
        sql.every(sql.overlaps("links", [name]), sql.negated(sql.among("id", [name, *others])))
        for name in ids
    )
    return await asyncio.gather(*map(index.table.count_rows, conditions))


async def citations(index: Index) -> dict[str, set[str]]:
    """The documents that each citing document cites, by id.

    Leaves out links to missing documents, and of a document to itself.
    """
    there: set[str] = set()
    query = index.table.query().where(LIVE)
    async for batch in await query.select(["id"]).to_batches(max_batch_length=_NAMES):
        there.update(await executors.STORE.run(_texts, batch["id"]))
    found: dict[str, set[str]] = {}
    query = index.table.query().where(LIVE)
    async for batch in await query.select(["id", "links"]).to_batches(max_batch_length=_ROWS):
        found |= await executors.STORE.run(_within, batch, there)
    return found


def _within(batch: pa.RecordBatch, there: set[str]) -> dict[str, set[str]]:
    """The links of a batch to documents that are there."""
    # one list at a time: Arrow lets no other thread run while it converts a column
    lists = (links.as_py() for links in batch["links"])
    pairs = zip(_texts(batch["id"]), lists, strict=True)
    own = ((name, there.intersection(cited) - {name}) for name, cited in pairs)
    return {name: cited for name, cited in own if cited}


def _texts(column: pa.Array) -> list[str]:
    return checksums.texts(pa.chunked_array([column]))


Source = Literal["given", "found", "both"]

# documents whose links are in memory at a time; each has up to 10,000 from each source
_CHUNK = 32
# documents whose digests are converted at a time
_IDS = 4096
# citing documents, or found links, that are read to count links; an index counts more of them
MOST_READ = 10_000


@dataclass(frozen=True, slots=True)
class Graph:
    """The links of one index from one source."""

    index: Index
    held: FoundLinks
    source: Source = "given"

    async def citations(self) -> dict[str, set[str]]:
        """The documents that each citing document cites, by id.

        Leaves out links to missing documents, of a document to itself, and found ones of a text
        that has changed since.
        """
        found = {} if self.source == "found" else await citations(self.index)
        if self.source == "given":
            return found
        present: dict[str, str] = {}
        query = self.index.table.query().where(LIVE).select(["id", "digest"])
        async for batch in await query.to_batches(max_batch_length=_IDS):
            present |= await executors.STORE.run(_digests, pa.Table.from_batches([batch]))
        async for link in self.held.every(self.index.identity.uid):
            if present.get(link.citing) == link.digest and link.cited in present:
                found.setdefault(link.citing, set()).add(link.cited)
        return found

    async def cites(self, document: str) -> frozenset[str]:
        """The documents that a document cites, missing ones included.

        Raises:
            NotFoundError: the index has no such document.
            DamagedError: the links of the document do not match their checksum.
        """
        own = await self.index.one(document, Part.LINKS)
        cited: set[str] = set()
        if self.source != "found":
            cited.update(own["links"][0].as_py())
        if self.source != "given":
            digest = checksums.content(own["digest"][0].as_py())
            held = await self.held.citing(self.index.identity.uid, [document])
            cited.update(link.cited for link in held if link.digest == digest)
        return frozenset(cited)

    async def references(self, ids: Sequence[str]) -> AsyncIterator[tuple[str, set[str]]]:
        """The documents that each of some documents cites, missing ones included.

        Leaves out missing and damaged citing documents, links of a document to itself, and found
        ones of a text that has changed since.
        """
        for start in range(0, len(ids), _CHUNK):
            chunk = ids[start : start + _CHUNK]
            rows = await self.index.read(chunk, [Part.LINKS])
            names, digests = texts(rows["id"]), _digests(rows)
            cited: dict[str, set[str]] = {name: set() for name in names}
            if self.source != "found":
                for name, own in zip(names, rows["links"].to_pylist(), strict=True):
                    cited[name].update(own)
            if self.source != "given":
                for link in await self.held.citing(self.index.identity.uid, names):
                    if digests[link.citing] == link.digest:
                        cited[link.citing].add(link.cited)
            for name, own in cited.items():
                yield name, own - {name}

    async def links_to(self, ids: Sequence[str], most: int) -> tuple[set[tuple[str, str]], bool]:
        """Citing and cited ids of links to some documents, and whether these are all.

        Leaves out links to itself. It reads ``most`` documents with given links, and ``most`` found
        links. The latter include those of a text that has changed, or of a deleted document, until
        the next search for links.
        """
        pairs: set[tuple[str, str]] = set()
        whole = True
        if self.source != "found":
            pairs, whole = await links_to(self.index, ids, most)
        if self.source != "given":
            found, all_found = await self.held.links_to(self.index.identity.uid, ids, most)
            pairs, whole = pairs | found, whole and all_found
        return pairs, whole

    async def cited_counts(self, ids: Sequence[str], citing: str | None = None) -> Counter[str]:
        """How many documents cite each of some; links of ``citing`` do not count.

        Found links of a text that has changed, or of a deleted document, count until the next
        search for links. If there are more than ``MOST_READ`` links, those that stand in both
        sources can be counted in one of them only, so a count may be too low.
        """
        pairs, whole = await self.links_to(ids, MOST_READ)
        counts = Counter(cited for name, cited in pairs if name != citing)
        if whole:
            return counts
        if self.source != "found":
            given = await counts_to(self.index, ids, citing)
            counts |= Counter(dict(zip(ids, given, strict=True)))
        if self.source != "given":
            found = await self.held.counts_to(self.index.identity.uid, ids, citing)
            counts |= Counter(dict(zip(ids, found, strict=True)))
        return counts


def _digests(rows: pa.Table) -> dict[str, str]:
    """Digests of the contents of documents, by id."""
    digests = map(checksums.content, texts(rows["digest"]))
    return dict(zip(texts(rows["id"]), digests, strict=True))


# documents that are scored, and so the number of hits at most
CANDIDATES = 500
# documents that cite the query whose references are read
MOST_CITING = 1000
# references of the query, the least cited first, through which candidates are found
MOST_REFERENCES = 1000
# documents that are read because they cite one of them
MOST_COUPLED = 10_000
# links of the documents that cite the query
MOST_LINKS = 1_000_000
# candidates that are looked up at a time, and in all
_COUPLED = 1000
_LOOKED_UP = 20_000


@dataclass(frozen=True, slots=True)
class _Query:
    """The links of the query, and what they connect it with.

    Attributes:
        references: documents that it cites.
        cited: number of documents that cite it.
        citing: number of those that were read, with their references.
        together: how many of these cite each document.
        weights: of documents that share links with it: how strongly, to choose candidates by.
    """

    references: AbstractSet[str]
    cited: int
    citing: int
    together: Mapping[str, int]
    weights: Mapping[str, float]


async def coupled(
    index: Index, query: Query, limit: int, where: Where | None, graph: Graph
) -> list[Hit]:
    """The documents that share most citations with a stored document.

    The cost is bounded however often a document is cited. Scores are exact, except for a query that
    more than ``MOST_CITING`` documents cite: these are then a part of all, and the number of
    documents that cite both is estimated from it. References that many documents cite find no
    candidates, but they count for those that others find.

    Args:
        query: of a stored document.
        limit: of hits; there are ``CANDIDATES`` at most.
    """
    if query.id is None:
        raise ValueError("only a stored document has links")
    own = await _connected(graph, query.id)
    ranked = sorted(own.weights, key=lambda name: (-own.weights[name], name))
    ranked = [name for name in ranked if not query.leaves_out(name)]
    shared = await _shared(graph, own, list(await _rows(index, ranked, where)))
    order = sorted(shared, key=lambda name: (-shared[name].score, name))

    async def search() -> list[Ranks]:
        rows = await _rows(index, order, None)
        return [{row: shared[name].score for name, row in rows.items()}]

    found = await read(index, query, search)
    hits = (found.hit(place, score) for place, score in enumerate(found.ranks(0).tolist()))
    known = (replace(hit, shared=shared[hit.id]) for hit in hits if hit.id in shared)
    return await first(index, known, limit, query)


async def _connected(graph: Graph, name: str) -> _Query:
    own = {one: cited async for one, cited in graph.references([name])}
    references = own.get(name, set())
    weights: dict[str, float] = defaultdict(float)
    counts = await graph.cited_counts(sorted(references)[:MOST_REFERENCES])
    # a shared document weighs less if it has many links: by the root of their number
    pairs, _ = await graph.links_to(_rare(counts), MOST_COUPLED)
    for one, cited in pairs:
        weights[one] += 1 / math.sqrt(counts[cited])
    pairs, whole = await graph.links_to([name], MOST_CITING)
    some = sorted(one for one, _ in pairs)[:MOST_CITING]
    together: Counter[str] = Counter()
    citing = links = 0
    async for _, cited_by_one in graph.references(some):
        # a found link may be gone from the text
        if name not in cited_by_one:
            continue
        citing += 1
        together.update(cited_by_one)
        for cited in cited_by_one:
            weights[cited] += 1 / math.sqrt(len(cited_by_one))
        links += len(cited_by_one)
        if links > MOST_LINKS:
            whole = False
            break
    number = citing if whole else (await graph.cited_counts([name]))[name]
    return _Query(references, max(citing, number), citing, together, weights)


def _rare(counts: Mapping[str, int]) -> list[str]:
    """The least cited documents, at least one, that ``MOST_COUPLED`` documents cite together."""
    ordered = sorted(counts, key=lambda name: (counts[name], name))
    sums = accumulate(counts[name] for name in ordered)
    return [name for name, total in zip(ordered, sums, strict=True) if total <= MOST_COUPLED] or (
        ordered[:1]
    )


async def _rows(index: Index, names: Sequence[str], where: Where | None) -> dict[str, int]:
    """The positions of the first documents of some that exist and pass a filter, in their order."""
    rows: dict[str, int] = {}
    for start in range(0, min(len(names), _LOOKED_UP), _COUPLED):
        chunk = names[start : start + _COUPLED]
        chosen = both(live(where), identified(chunk))
        query = index.table.query().where(chosen.form).select(["id"])
        found = await query.with_row_id().to_arrow()
        places = dict(zip(texts(found["id"]), found["_rowid"].to_pylist(), strict=True))
        rows |= {name: places[name] for name in chunk if name in places}
        if len(rows) >= CANDIDATES:
            break
    return dict(islice(rows.items(), CANDIDATES))


async def _shared(graph: Graph, own: _Query, names: Sequence[str]) -> dict[str, Shared]:
    """What connects each of some documents with the query; none for damaged documents."""
    counts = await graph.cited_counts([name for name in names if own.together.get(name)])
    # of the documents that cite the query only a part may be known
    scale = own.cited / max(1, own.citing)
    found = {}
    async for name, references in graph.references(names):
        both, citing = len(references & own.references), own.together.get(name, 0)
        coupling = both / math.sqrt(max(1, len(references) * len(own.references)))
        number = max(counts[name], citing)
        co_citation = scale * citing / math.sqrt(max(1, number * own.cited))
        score = (coupling + min(1.0, co_citation)) / 2
        # a found link that is gone from its text connects nothing
        if score > 0:
            found[name] = Shared(score, both, round(scale * citing))
    return found


# citing documents whose links are in memory at a time; each has up to 10,000
_BATCH = 32


@dataclass(frozen=True, slots=True)
class Entry:
    """A linked document.

    Attributes:
        id: of the other document.
        title: of the other document; None if it has none or does not exist.
        found: the places in the text of the citing document; None if there are none.
    """

    id: str
    direction: Direction
    title: str | None
    exists: bool
    given: bool
    found: Link | None


@dataclass(frozen=True, slots=True)
class Page:
    """Links in the order of direction and id.

    Attributes:
        next: key of the last entry; None on the last page.
    """

    entries: list[Entry]
    next: tuple[Direction, str] | None


async def page(
    index: Index, held: FoundLinks, document: str, after: tuple[str, str], limit: int
) -> Page:
    """Links of a document that come after a key; found ones of changed texts are left out.

    Args:
        after: direction and id, or two empty strings for the first page.

    Raises:
        NotFoundError: the index has no such document.
        DamagedError: the links of the document do not match their checksum.
    """
    own = await index.one(document, Part.LINKS)
    cited: list[str] = own["links"][0].as_py()
    uid = index.identity.uid
    found: dict[tuple[str, str], Link] = {
        ("cites", link.cited): link for link in await held.citing(uid, [document])
    }
    if after[0] != "cites":
        to_it = await held.cited(uid, [document])
        found |= {("cited_by", link.citing): link for link in to_it}
    entries: list[Entry] = []
    last, wanted = after, limit + 1
    while True:
        given = {("cites", name) for name in cited}
        if last[0] != "cites":
            given |= {
                ("cited_by", name) for name in await _citing(index, document, last[1], wanted)
            }
        keys = sorted(key for key in {*given, *found} if key > last and key[1] != document)
        # beyond these, a citing document that was not read may come first
        chunk = keys[:wanted]
        names = sorted({name for _, name in chunk})
        heads = await listing.heads(index, names)
        known = await documents.digests(index, [*names, document])
        digests = {name: digest for name, (digest, _) in known.items()}
        for key in chunk:
            if len(entries) == limit:
                return Page(entries, (entries[-1].direction, entries[-1].id))
            link = _current(found.get(key), digests)
            there = key[1] in digests
            if key in given or (link is not None and there):
                head = heads.get(key[1])
                title = head.title if head is not None else None
                direction: Direction = "cites" if key[0] == "cites" else "cited_by"
                entries.append(Entry(key[1], direction, title, there, key in given, link))
        if len(chunk) < wanted:
            return Page(entries, None)
        last = chunk[-1]


def _current(link: Link | None, digests: Mapping[str, str]) -> Link | None:
    """The link, unless its text has changed since it was found."""
    if link is None or digests.get(link.citing) != link.digest:
        return None
    return link


async def _citing(index: Index, document: str, after: str, most: int) -> list[str]:
    """The first other documents after an id whose users say that they cite a document.

    Damaged ones are left out.
    """
    cites = sql.every(sql.LIVE, sql.overlaps("links", [document]))
    other = sql.compare("id", "<>", document)
    names: list[str] = []
    while True:
        where = sql.every(cites, other, sql.compare("id", ">", after))
        query = index.table.query().where(where).order_by([ColumnOrdering(column_name="id")])
        wanted = most - len(names)
        ids = (await query.select(["id"]).limit(wanted).to_arrow())["id"].to_pylist()
        if not ids:
            return names
        query = index.table.query().where(sql.every(cites, sql.among("id", ids)))
        query = query.select(checksums.columns(Part.LINKS))
        sound: list[str] = []
        async for batch in await query.to_batches(max_batch_length=_BATCH):
            rows = await index.sound(pa.Table.from_batches([batch]), Part.LINKS)
            sound += rows["id"].to_pylist()
        names += sorted(sound)
        if len(ids) < wanted or len(names) == most:
            return names
        after = ids[-1]
