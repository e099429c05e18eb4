"""Documents that citations connect with a document, without a direct link between them.

Two documents are coupled if they cite the same documents (bibliographic coupling, Kessler 1963) or
if the same documents cite both (co-citation, Small 1973). Salton's cosine makes the two numbers
comparable (Salton and McGill 1983; Glänzel and Czerwon 1996 for coupling): it divides the number of
shared documents by the geometric mean of the numbers of all. The score is the mean of both cosines.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import accumulate, islice

from service.index.documents import Index
from service.index.links.graph import Graph
from service.index.query.filters import Where, both, identified, live
from service.index.query.reading import Hit, Query, Ranks, Shared, read
from service.index.query.search import first
from service.index.rows.checksums import texts

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
_CHUNK = 1000
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
        index: contains the documents.
        query: of a stored document.
        limit: of hits; there are ``CANDIDATES`` at most.
        where: filter.
        graph: of the index.
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
    for start in range(0, min(len(names), _LOOKED_UP), _CHUNK):
        chunk = names[start : start + _CHUNK]
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
