"""Group commit: what many requests write at once goes into one commit of the index."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from service.index.indexes import Indexes
from service.index.record import Record

# a commit copies its rows once; more would hold too much memory at a time
MOST_DOCUMENTS = 4096


@dataclass(slots=True)
class Change:
    """What one request writes, and the future that tells it the write is durable."""

    uid: str
    upserts: Sequence[Record]
    deletes: Sequence[str]
    done: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Writer:
    """Writes to one index, one commit at a time; what arrives meanwhile shares the next.

    Args:
        indexes: opens the index anew for every commit.
        name: of the index.
        committed: is told how many documents each commit wrote.
    """

    def __init__(self, indexes: Indexes, name: str, committed: Callable[[int], None]) -> None:
        self._indexes = indexes
        self._name = name
        self._committed = committed
        self._waiting: deque[Change] = deque()
        self._task: asyncio.Task[None] | None = None

    async def write(
        self, uid: str, *, upserts: Sequence[Record] = (), deletes: Sequence[str] = ()
    ) -> None:
        """Return when the change is durable; in the order of the calls.

        A caller that is cancelled before its commit has begun writes nothing.

        Raises:
            NotFoundError, ConflictError: the index is gone, or is another one by now.
        """
        change = Change(uid, upserts, deletes)
        self._waiting.append(change)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        await change.done

    async def close(self) -> None:
        """Wait for the commits that have begun and those that wait."""
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while group := self._group():
            try:
                await self._commit(group)
            except Exception as error:  # noqa: BLE001 every waiting request gets it
                for change in group:
                    if not change.done.done():
                        change.done.set_exception(error)
            else:
                for change in group:
                    if not change.done.done():
                        change.done.set_result(None)

    def _group(self) -> list[Change]:
        """The next changes of one kind to one index; order between the kinds is kept."""
        group: list[Change] = []
        size = 0
        while self._waiting:
            change = self._waiting[0]
            if change.done.cancelled():
                self._waiting.popleft()
                continue
            size += len(change.upserts)
            if group and (
                size > MOST_DOCUMENTS
                or change.uid != group[0].uid
                or bool(change.deletes) != bool(group[0].deletes)
            ):
                break
            group.append(self._waiting.popleft())
        return group

    async def _commit(self, group: list[Change]) -> None:
        if group[0].deletes:
            ids = list(dict.fromkeys(i for change in group for i in change.deletes))
            await self._indexes.bury(self._name, group[0].uid, ids)
            self._committed(len(ids))
            return
        index = await self._indexes.writable(self._name)
        index.same(group[0].uid)
        # the last of an id wins; twice in one commit it would be stored twice
        latest = {record.id: record for change in group for record in change.upserts}
        await index.put(list(latest.values()))
        self._committed(len(latest))
