"""The links of an index's documents: counts and pairs of citations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lancedb.expr import lit

from service.index.documents import LIVE, Index


async def cited_counts(index: Index, ids: Sequence[str], citing: str | None) -> Counter[str]:
    """How many documents cite each of some; links of ``citing`` do not count."""
    if not ids:
        return Counter()
    # the expression builder has no lists; it quotes every id
    some = ", ".join(lit(i).to_sql() for i in ids)
    where = f"deleted = false AND array_has_any(links, [{some}])"
    found = await index.table.query().where(where).select(["id", "links"]).to_arrow()
    wanted = set(ids)
    counts: Counter[str] = Counter()
    for row in found.to_pylist():
        if row["id"] != citing:
            counts.update(wanted.intersection(row["links"]) - {row["id"]})
    return counts


async def citations(index: Index) -> dict[str, set[str]]:
    """The documents that each citing document cites, by id.

    Leaves out links to missing documents, and of a document to itself.
    """
    found = await index.table.query().where(LIVE).select(["id", "links"]).to_arrow()
    ids = found["id"].to_pylist()
    there = set(ids)
    links = {
        name: (there & set(cited)) - {name}
        for name, cited in zip(ids, found["links"].to_pylist(), strict=True)
    }
    return {name: cited for name, cited in links.items() if cited}
