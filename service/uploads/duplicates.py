"""Compares the documents of an upload with those of the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from corpora.documents import Document
from service.index.documents import Index
from service.index.query.duplicates import CANDIDATES, like
from service.index.query.reading import Query
from service.index.rows.record import Encoding
from service.uploads.progress import Progress


async def refuse(
    index: Index,
    documents: Sequence[Document],
    known: dict[str, Encoding],
    threshold: float,
    progress: Progress,
) -> None:
    """Refuse documents of which the index has near-duplicates: remove their encodings."""
    for one in documents:
        if one.id in known:
            query = Query(known[one.id].vector, one.text, one.id)
            if found := await like(index, query, threshold, 1):
                del known[one.id]
                reason = f"the index has a near-duplicate of it: {found[0].hit.id}"
                progress.refuse(one.id, "duplicate", reason)


async def mark(
    index: Index,
    documents: Sequence[Document],
    known: Mapping[str, Encoding],
    threshold: float,
    progress: Progress,
) -> None:
    """Name the near-duplicates of documents that have just been written together.

    Of two such documents only the later one counts, as if they were written one by one.
    """
    later = {one.id for one in documents}
    for one in documents:
        later.remove(one.id)
        query = Query(known[one.id].vector, one.text, one.id, exclude=frozenset(later))
        if found := await like(index, query, threshold, CANDIDATES):
            progress.mark(one.id, found)
