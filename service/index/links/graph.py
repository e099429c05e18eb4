"""The links between the documents of an index: given, found in texts, or both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from service.index.documents import LIVE, Index
from service.index.links.found import FoundLinks
from service.index.query import links
from service.index.rows import checksums
from service.index.rows.checksums import Part, texts

Source = Literal["given", "found", "both"]


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
        query = self.index.table.query().where(LIVE).select(["id", "digest"])
        there = await query.to_arrow()
        digests = map(checksums.content, texts(there["digest"]))
        present = dict(zip(texts(there["id"]), digests, strict=True))
        async for link in self.held.every(self.index.identity.uid):
            if present.get(link.citing) == link.digest and link.cited in present:
                found.setdefault(link.citing, set()).add(link.cited)
        return found

    async def cites(self, document: str) -> frozenset[str]:
        """The documents that a document cites, by given and by found links.

        Raises:
            NotFoundError: the index has no such document.
            DamagedError: the links of the document do not match their checksum.
        """
        own = await self.index.one(document, Part.LINKS)
        digest = checksums.content(own["digest"][0].as_py())
        held = await self.held.citing(self.index.identity.uid, document)
        found = (link.cited for link in held if link.digest == digest)
        return frozenset([*own["links"][0].as_py(), *found])

    async def cited_counts(self, ids: Sequence[str], citing: str | None) -> Counter[str]:
        """How many documents cite each of some; links of ``citing`` do not count.

        Found links of a text that has changed, or of a deleted document, count until the next
        search for links.
        """
        pairs: set[tuple[str, str]] = set()
        if self.source != "found":
            pairs |= await links.links_to(self.index, ids)
        if self.source != "given":
            held = await self.held.cited(self.index.identity.uid, ids)
            pairs |= {(link.citing, link.cited) for link in held}
        return Counter(cited for name, cited in pairs if name != citing)
