"""Deletes the documents that a source no longer has."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from service.errors import CommandError
from service.index.deletions import delete
from service.index.documents import LIVE, Index
from service.index.indexes import Indexes
from service.index.rows.checksums import texts

# documents of one commit
_CHUNK = 1000


async def prune(
    indexes: Indexes, name: str, index: Index, present: Collection[str], unread: Collection[str]
) -> int:
    """Delete all documents of an index except those of a source; returns their number.

    Args:
        indexes: of the store.
        name: of the index.
        index: the open index of that name.
        present: ids of the documents that the source has.
        unread: ids of files that could not be read: their documents stay.

    Raises:
        CommandError: the source is empty, as a table whose writer failed.
    """
    query = index.table.query().where(LIVE).select(["id"])
    held = texts((await query.to_arrow())["id"])
    if held and not present and not unread:
        raise CommandError(
            f"the source has no document, so --prune would delete all {len(held)} of the index and "
            f"deleted none; if you want that, delete the index: DELETE /indexes/{name}"
        )
    gone = [one for one in held if one not in present and not _inside(one, unread)]
    for first in range(0, len(gone), _CHUNK):
        part = gone[first : first + _CHUNK]
        await delete(indexes, name, index.identity.uid, part)
    return len(gone)


def _inside(document_id: str, files: Collection[str]) -> bool:
    """Whether a document comes from one of some files, or from an archive among them."""
    return any(path in files for path in _paths(document_id))


def _paths(document_id: str) -> Iterator[str]:
    """The id, and what stands before each slash in it."""
    yield document_id
    while "/" in document_id:
        document_id = document_id.rpartition("/")[0]
        yield document_id
