"""Citations that seem missing: pairs of documents that a citation head finds likely, unlinked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from docsplit.heads.network import Scorer
from docsplit.ranking.references import Named, Reference, References
from service import executors
from service.errors import DamagedError, NotFoundError
from service.index.documents import Index
from service.index.link_graph import Graph
from service.index.query import listing
from service.index.query.listing import Head
from service.index.query.reading import Hit
from service.index.query.search import stored
from service.learning.citing import citation

# pairs of one citing document
MOST_OF_ONE = 10


@dataclass(frozen=True, slots=True)
class Missing:
    """A pair of documents without a link, though one seems to cite the other.

    Attributes:
        citing: document that seems to cite the other one.
        cited: the other one; its score is the probability.
        place: the first place in the citing text that names the other one; None if there is none.
    """

    citing: Head
    cited: Hit
    place: Reference | None


@dataclass(frozen=True, slots=True)
class Page:
    """Missing citations of some documents.

    Attributes:
        citations: the likeliest first.
        documents: that were read, in the order of their ids.
        next: id of the last one; None if no document follows.
    """

    citations: list[Missing]
    documents: int
    next: str | None


async def page(
    graph: Graph,
    head: Scorer,
    counted: Graph,
    after: str,
    documents: int,
    threshold: float,
    until: float,
) -> Page:
    """Missing citations of the documents whose ids follow ``after``.

    Each document costs one search for citations, and leaves out what it cites already.

    Args:
        graph: whose links are not missing.
        head: of the index.
        counted: graph from which the head learnt.
        after: an id, or "" for the first page.
        documents: to read at most.
        threshold: lowest probability.
        until: begin no further document after this time on ``time.monotonic``'s clock.

    Raises:
        ConflictError: the head has other inputs than the index can give.
    """
    part = await listing.page(graph.index, after, documents)
    found: list[Missing] = []
    read = 0
    for one in part.heads:
        if read and time.monotonic() > until:
            break
        read += 1
        found += await _of_document(graph, head, counted, one, threshold)
    found.sort(key=lambda pair: (-pair.cited.score, pair.citing.id, pair.cited.id))
    if read < len(part.heads):
        return Page(found, read, part.heads[read - 1].id)
    return Page(found, read, part.next)


async def _of_document(
    graph: Graph, head: Scorer, counted: Graph, citing: Head, threshold: float
) -> list[Missing]:
    index: Index = graph.index
    try:
        query = await stored(index, citing.id)
        cited = await graph.cites(citing.id)
    except (DamagedError, NotFoundError):
        return []
    query = replace(query, exclude=cited)
    hits = await citation(index, query, MOST_OF_ONE, None, head, counted, "cites")
    hits = [hit for hit in hits if hit.score >= threshold]
    if not hits:
        return []
    places = await executors.STORE.run(_places, query.text, citing.id, hits)
    return [Missing(citing, hit, places.get(place)) for place, hit in enumerate(hits)]


def _places(text: str, citing: str, hits: Sequence[Hit]) -> dict[int, Reference]:
    """The first reference to each document, by its position among the hits."""
    references, _ = References([Named(hit.id, hit.title or "") for hit in hits]).find(text, citing)
    return {reference.cited: reference for reference in reversed(references)}
