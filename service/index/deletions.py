"""Deletes documents by tombstones in all generations of an index."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from service.errors import OvertakenError
from service.index.documents import Index
from service.index.indexes import Indexes
from service.index.rows.versions import ATTEMPTS, microseconds
from service.index.storage.database import refresh


async def delete(
    indexes: Indexes,
    name: str,
    uid: str,
    ids: Sequence[str],
    deleted: Mapping[str, int] | None = None,
    applied: Collection[str] = (),
) -> None:
    """Delete documents in all generations of an index, including those being created.

    A generation that appears later copies from generations where the documents are deleted.

    Args:
        indexes: of the store.
        name: of the index.
        uid: of the index for which the documents were checked.
        ids: of the documents.
        deleted: by id, when a generation has already deleted a document; later writes stay.
        applied: generations that have already deleted the documents.

    Raises:
        NotFoundError, ConflictError: the index is gone, or another index has its name now.
    """
    done = set(applied)
    for _ in range(ATTEMPTS):
        found = [g.index for g in await indexes.generations(name, still=True)]
        found[0].require(uid)
        fresh = [index for index in found if index.identity.generation not in done]
        if not fresh:
            await indexes.database.sync()
            return
        times = dict(deleted) if deleted else await _after(found, ids)
        for index in fresh:
            left = await index.tombstone(times)
            for _ in range(ATTEMPTS):
                if not left or deleted:
                    break
                await refresh(index.table)
                left = await index.tombstone(await _after([index], left))
            else:
                raise OvertakenError
            done.add(index.identity.generation)
    raise OvertakenError


async def _after(indexes: Sequence[Index], ids: Sequence[str]) -> dict[str, int]:
    """The time of deletion by id: now, or later if a generation holds a later write."""
    times = dict.fromkeys(ids, microseconds())
    for index in indexes:
        for document_id, written in (await index.updated(ids)).items():
            times[document_id] = max(times[document_id], written + 1)
    return times
