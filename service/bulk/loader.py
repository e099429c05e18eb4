"""Brings an index up to date with documents; skips unchanged documents."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field

import structlog

from docsplit.corpora.documents import Document
from service.bulk.updating import Outcome, Updater
from service.index.indexes import Indexes
from service.index.maintenance import optimize
from service.index.merging.process import GROWTH_BYTES, size

log = structlog.get_logger("docsplit.index")

# a batch is one commit; more characters would not fit into the queue
BATCH_CHARACTERS = 400_000
BATCH_DOCUMENTS = 256
# the smallest batch of ``tapered``: some seconds of a core
LEAST_CHARACTERS = 20_000

Batch = list[Document]
# brings an index up to date with batches, in any order
Update = Callable[[Iterator[Batch]], AsyncIterator[Outcome]]


@dataclass(slots=True)
class Report(Outcome):
    """The results of a run.

    Attributes:
        repeated: number of documents whose id came before.
        ids: of all documents, refused ones too.
    """

    repeated: int = 0
    ids: set[str] = field(default_factory=set)

    @property
    def seen(self) -> int:
        """The number of documents so far."""
        return self.written + self.unchanged + self.repeated + len(self.refused)


def here(updater: Updater) -> Update:
    """One batch after the other, in this process."""

    async def update(batches: Iterator[Batch]) -> AsyncIterator[Outcome]:
        for batch in batches:
            yield await updater(batch)

    return update


def tapered(batches: Iterator[Batch], ahead: int) -> Iterator[Batch]:
    """The same documents in the same order; the last batches become smaller and smaller.

    Workers that share the batches then end at about the same time. With whole batches, some would
    wait for the last one, which takes a minute of a core.

    Args:
        batches: read in advance, to know which are the last.
        ahead: number of batches that become smaller.
    """
    held: deque[Batch] = deque()
    for batch in batches:
        held.append(batch)
        if len(held) > ahead:
            yield held.popleft()
    left = deque(document for batch in held for document in batch)
    characters = sum(len(document.text) for document in left)
    while left:
        most = max(LEAST_CHARACTERS, characters // ahead)
        part = [left.popleft()]
        size = len(part[0].text)
        while left and size + len(left[0].text) <= most and len(part) < BATCH_DOCUMENTS:
            part.append(left.popleft())
            size += len(part[-1].text)
        characters -= size
        yield part


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
        table = (await indexes.open(name)).table
        before = await size(table)
        async for outcome in update(batches):
            yield outcome
            if await size(table) > before + GROWTH_BYTES:
                try:
                    await optimize(table, sync)
                except RuntimeError as error:
                    # a service may maintain the index at the same time; the next time does it all
                    log.warning("index_maintenance_failed", index=name, reason=str(error)[:300])
                before = await size(table)

    return updated


async def load_documents(
    sources: Iterable[Document], update: Update, progress: Callable[[Report], None]
) -> Report:
    """Bring an index up to date with documents; ``progress`` counts only durable documents.

    A document whose digest is in the index is skipped, so a repeated run continues where the first
    one stopped. If several documents in a run have one id, the first one counts.
    """
    report = Report()
    async for outcome in update(_batches(sources, report)):
        report.written += outcome.written
        report.unchanged += outcome.unchanged
        report.tokens += outcome.tokens
        report.refused += outcome.refused
        progress(report)
    return report


def _batches(sources: Iterable[Document], report: Report) -> Iterator[Batch]:
    batch: Batch = []
    size = 0
    for source in sources:
        if source.id in report.ids:
            report.repeated += 1
            continue
        report.ids.add(source.id)
        if batch and (size + len(source.text) > BATCH_CHARACTERS or len(batch) == BATCH_DOCUMENTS):
            yield batch
            batch, size = [], 0
        batch.append(source)
        size += len(source.text)
    if batch:
        yield batch
