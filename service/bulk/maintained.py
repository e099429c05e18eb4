"""Maintenance of an index during a long load."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import structlog

from service.bulk.loader import Batch, Update
from service.bulk.updating import Outcome
from service.index.indexes import Indexes
from service.index.maintenance import optimize
from service.index.merging.process import GROWTH_BYTES, size

log = structlog.get_logger("docsplit.index")


def maintained(
    update: Update, indexes: Indexes, name: str, sync: Callable[[], Awaitable[None]]
) -> Update:
    """The same update, which also maintains the index whenever it has grown much.

    Args:
        update: brings the index up to date.
        indexes: of the store.
        name: of the index.
        sync: returns when the last commit is durable.
    """

    async def updated(batches: Iterator[Batch]) -> AsyncIterator[Outcome]:
        before = await size((await indexes.open(name)).table)
        async for outcome in update(batches):
            yield outcome
            table = (await indexes.open(name)).table
            if await size(table) > before + GROWTH_BYTES:
                try:
                    await optimize(table, sync)
                except RuntimeError as error:
                    # a service may maintain the index at the same time; the next time does it all
                    log.warning("index_maintenance_failed", index=name, reason=str(error)[:300])
                before = await size(table)

    return updated
