"""Who cites whom: the links of an index's documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lancedb.expr import lit

from service.index.documents import Index


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
