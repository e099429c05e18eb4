"""Compares the documents of an upload with those of the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from docsplit.corpora.documents import Document
from docsplit.ranking.duplicates import Shingles, resemblance, shingles
from features.files.progress import Progress
from service import executors
from service.index.documents import Index
from service.index.query.duplicates import CANDIDATES, Held, like
from service.index.query.reading import Query
from service.index.rows.records import Encoding


async def refuse(
    index: Index,
    documents: Sequence[Document],
    known: dict[str, Encoding],
    threshold: float,
    progress: Progress,
) -> None:
    """Refuse documents with near-duplicates in the index: remove their encodings.

    Of two such documents only the later one is refused, as if they were written one by one.
    """
    earlier: dict[str, Shingles] = {}
    held = Held()
    for one in documents:
        if one.id not in known:
            continue
        query = Query(known[one.id].vector, one.text, one.id)
        found = await like(index, query, threshold, 1, held)
        if found:
            other: str | None = found[0].hit.id
        else:
            other = await executors.STORE.run(_like_earlier, one, earlier, threshold)
        if other is not None:
            del known[one.id]
            reason = f"the index has a near-duplicate of it: {other}"
            progress.refuse(one.id, "duplicate", reason)


def _like_earlier(document: Document, earlier: dict[str, Shingles], threshold: float) -> str | None:
    """An earlier near-duplicate; without one the document itself joins the earlier ones."""
    own = shingles(document.text)
    for name, other in earlier.items():
        if resemblance(own, other) >= threshold:
            return name
    earlier[document.id] = own
    return None


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
    held = Held()
    for one in documents:
        later.remove(one.id)
        query = Query(known[one.id].vector, one.text, one.id, exclude=frozenset(later))
        if found := await like(index, query, threshold, CANDIDATES, held):
            progress.mark(one.id, found)
