"""Who cites whom: the links of an index's documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lancedb.expr import lit

from service.index.documents import LIVE, Index


async def cited_counts(index: Index, ids: Sequence[str], citing: str | None) -> Counter[str]:
    """How many documents cite each of some; the links of ``citing`` are not counted."""
    if not ids:
        return Counter()
    # the expression builder has no lists; every id is quoted by it
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

    Links to documents that are not in the index, and of a document to itself, are left out.
    """
    found = await index.table.query().where(LIVE).select(["id", "links"]).to_arrow()
    ids = found["id"].to_pylist()
    there = set(ids)
    links = {
        name: (there & set(cited)) - {name}
        for name, cited in zip(ids, found["links"].to_pylist(), strict=True)
    }
    return {name: cited for name, cited in links.items() if cited}
