"""The links that users gave to the documents of an index."""

from __future__ import annotations

from collections.abc import Sequence

from lancedb.expr import lit

from service.index.documents import LIVE, Index


async def links_to(index: Index, ids: Sequence[str]) -> set[tuple[str, str]]:
    """Citing and cited ids of the links to some documents, without links to itself."""
    if not ids:
        return set()
    # the expression builder has no lists; it quotes every id
    some = ", ".join(lit(i).to_sql() for i in ids)
    where = f"deleted = false AND array_has_any(links, [{some}])"
    found = await index.table.query().where(where).select(["id", "links"]).to_arrow()
    wanted = set(ids)
    return {
        (row["id"], cited)
        for row in found.to_pylist()
        for cited in wanted.intersection(row["links"]) - {row["id"]}
    }


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
