"""Group commit: one commit of the index writes the documents of many requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from service.errors import BuildingError, ConflictError, NotFoundError, StoreError, disk_fault
from service.index import commits, deletions
from service.index.commits import Upsert
from service.index.indexes import Indexes
from service.index.rows.versions import Condition
from service.index.storage import bucket

# a commit copies its rows once; more would use too much memory
MOST_DOCUMENTS = 4096
# errors that no single document causes: all requests of a commit get them
_OF_ALL = (StoreError, NotFoundError, ConflictError, BuildingError, OSError)


@dataclass(slots=True)
class Change:
    """The write of one request.

    Attributes:
        uid: of the index for which the request was checked.
        upsert: documents to write, or None.
        deletes: ids of documents to delete.
        condition: on the one document to delete.
        seen: versions by id; documents to delete if they still have these.
        done: gets the versions of the written documents, by id, once they are durable; for ``seen``
            the times of deletion.
    """

    uid: str
    upsert: Upsert | None = None
    deletes: Sequence[str] = ()
    condition: Condition | None = None
    seen: Mapping[str, int] = field(default_factory=dict)
    done: asyncio.Future[dict[str, int]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Writer:
    """Writes to one index, one commit at a time; writes during a commit share the next.

    Args:
        indexes: opens the index again for every commit.
        name: of the index.
        committed: called with the number of documents of each commit.
    """

    def __init__(self, indexes: Indexes, name: str, committed: Callable[[int], None]) -> None:
        self._indexes = indexes
        self._name = name
        self._committed = committed
        # held during each commit
        self.committing = asyncio.Lock()
        self._waiting: deque[Change] = deque()
        self._task: asyncio.Task[None] | None = None

    async def write(self, uid: str, upsert: Upsert) -> dict[str, int]:
        """Return when the documents are durable; commits keep the order of the calls.

        A caller that is cancelled before its commit begins writes nothing.

        Returns:
            The documents' versions by id.

        Raises:
            VersionError: a condition does not hold.
            NotFoundError, ConflictError: the index is gone, or another index has its name now.
        """
        return await self._take(Change(uid, upsert))

    async def delete(
        self, uid: str, ids: Sequence[str], condition: Condition | None = None
    ) -> None:
        """Return when the deletion is durable; see ``write``.

        Args:
            uid: of the index for which they were checked.
            ids: exactly one if there is a condition.
            condition: on its version.
        """
        await self._take(Change(uid, deletes=ids, condition=condition))

    async def delete_seen(self, uid: str, seen: Mapping[str, int]) -> dict[str, int]:
        """Delete the documents that still have the versions that a reader saw; see ``write``.

        Returns:
            When each was deleted, by id.
        """
        return await self._take(Change(uid, seen=seen))

    async def close(self) -> None:
        """Wait for the running commit and all waiting ones."""
        if self._task is not None:
            await self._task

    async def _take(self, change: Change) -> dict[str, int]:
        self._waiting.append(change)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await change.done

    async def _run(self) -> None:
        while group := self._group():
            await self._settle(group)

    async def _settle(self, group: Sequence[Change]) -> None:
        try:
            async with self.committing:
                outcomes = await self._commit(group)
        except Exception as error:  # noqa: BLE001 the requests get it
            for change in group:
                # One request's documents may be the cause: each request tries again separately. A
                # request with a condition does not: the failed commit may have changed the state.
                broken = isinstance(error, _OF_ALL) or disk_fault(error) or bucket.fault(error)
                if len(group) == 1 or broken or change.upsert is None or change.upsert.conditions:
                    _end(change, error)
                elif not change.done.done():
                    await self._settle([change])
            return
        for change, outcome in zip(group, outcomes, strict=True):
            _end(change, outcome)

    def _group(self) -> list[Change]:
        """The next changes that may share a commit, in their order."""
        group: list[Change] = []
        size = 0
        ids: set[str] = set()
        conditional: set[str] = set()
        while self._waiting:
            change = self._waiting[0]
            if change.done.cancelled():
                self._waiting.popleft()
                continue
            more = set(change.upsert.ids) if change.upsert else set()
            conditions = set(change.upsert.conditions) if change.upsert else set()
            size += len(more)
            if group and (
                size > MOST_DOCUMENTS
                or change.uid != group[0].uid
                or bool(change.deletes) != bool(group[0].deletes)
                or change.condition is not None
                or group[0].condition is not None
                or change.seen
                or group[0].seen
                # a condition applies to the state after the writes before it
                or ids & conditions
                or more & conditional
            ):
                break
            ids |= more
            conditional |= conditions
            group.append(self._waiting.popleft())
        return group

    async def _commit(self, group: Sequence[Change]) -> Sequence[dict[str, int] | Exception]:
        if group[0].seen:
            return [await self._delete_seen(group[0])]
        if group[0].deletes:
            await self._delete(group)
            return [{}] * len(group)
        upserts = [change.upsert for change in group if change.upsert is not None]
        conditional = any(upsert.conditions for upsert in upserts)
        # only a complete generation knows the version of a document
        opening = self._indexes.open if conditional else self._indexes.writable
        index = await opening(self._name, still=True)
        index.require(group[0].uid)
        refused = await commits.write(index, upserts)
        written = {
            name
            for upsert, error in zip(upserts, refused, strict=True)
            for name in (upsert.ids if error is None else error.written)
        }
        if written:
            self._committed(len(written))
        return [error or upsert.times for upsert, error in zip(upserts, refused, strict=True)]

    async def _delete(self, group: Sequence[Change]) -> None:
        [first, *_] = group
        ids = list(dict.fromkeys(i for change in group for i in change.deletes))
        deleted = None
        if first.condition is not None:
            index = await self._indexes.open(self._name, still=True)
            index.require(first.uid)
            deleted = {ids[0]: await commits.delete(index, ids[0], first.condition)}
        await deletions.delete(self._indexes, self._name, first.uid, ids, deleted)
        self._committed(len(ids))

    async def _delete_seen(self, change: Change) -> dict[str, int]:
        # only a complete generation knows the versions of documents
        index = await self._indexes.open(self._name, still=True)
        index.require(change.uid)
        gone = await commits.delete_seen(index, change.seen)
        if gone:
            applied = {index.identity.generation}
            await deletions.delete(
                self._indexes, self._name, change.uid, list(gone), gone, applied=applied
            )
            self._committed(len(gone))
        return gone


def _end(change: Change, outcome: dict[str, int] | Exception) -> None:
    if change.done.done():
        return
    if isinstance(outcome, Exception):
        change.done.set_exception(outcome)
    else:
        change.done.set_result(outcome)
