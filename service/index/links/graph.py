"""The links between the documents of an index: given, found in texts, or both."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from service import executors
from service.index.documents import LIVE, Index
from service.index.links.found import FoundLinks
from service.index.query import links
from service.index.rows import checksums
from service.index.rows.checksums import Part, texts

Source = Literal["given", "found", "both"]

# documents whose links are in memory at a time; each has up to 10,000 from each source
_CHUNK = 32
# documents whose digests are converted at a time
_IDS = 4096
# citing documents, or found links, that are read to count links; an index counts more of them
MOST_READ = 10_000


@dataclass(frozen=True, slots=True)
class Graph:
    """The links of one index from one source.

    Attributes:
        index: contains the documents.
        held: the found links of all indexes.
        source: of the links.
    """

    index: Index
    held: FoundLinks
    source: Source = "given"

    async def citations(self) -> dict[str, set[str]]:
        """The documents that each citing document cites, by id.

        Leaves out links to missing documents, of a document to itself, and found ones of a text
        that has changed since.
        """
        found = {} if self.source == "found" else await links.citations(self.index)
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
            pairs, whole = await links.links_to(self.index, ids, most)
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
            given = await links.counts_to(self.index, ids, citing)
            counts |= Counter(dict(zip(ids, given, strict=True)))
        if self.source != "given":
            found = await self.held.counts_to(self.index.identity.uid, ids, citing)
            counts |= Counter(dict(zip(ids, found, strict=True)))
        return counts


def _digests(rows: pa.Table) -> dict[str, str]:
    """Digests of the contents of documents, by id."""
    digests = map(checksums.content, texts(rows["digest"]))
    return dict(zip(texts(rows["id"]), digests, strict=True))
