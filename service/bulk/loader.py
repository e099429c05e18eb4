"""Brings an index up to date with documents; skips unchanged documents."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field

from corpora.documents import Document
from service.bulk.encoding import Encoder, Work
from service.index.documents import Index
from service.index.reuse import changed, kept, outline_of, refusal
from service.index.rows.record import record

# a batch is one commit; more characters would not fit into the queue
BATCH_CHARACTERS = 400_000
BATCH_DOCUMENTS = 256


@dataclass(slots=True)
class Report:
    """The results of a run.

    Attributes:
        written, unchanged, repeated: numbers of documents.
        tokens: number of embedded tokens.
        refused: a line for each document that the index cannot hold.
        ids: of all documents, refused ones too.
    """

    written: int = 0
    unchanged: int = 0
    repeated: int = 0
    tokens: int = 0
    refused: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    @property
    def seen(self) -> int:
        """The number of documents so far."""
        return self.written + self.unchanged + self.repeated + len(self.refused)


async def load_documents(
    index: Index,
    encode: Encoder,
    sources: Iterable[Document],
    progress: Callable[[Report], None],
    sync: Callable[[], Awaitable[None]],
) -> Report:
    """Bring an index up to date with documents; ``progress`` counts only durable documents.

    A document whose digest is in the index is skipped, so a repeated run continues where the first
    one stopped. A document with the same text but other content keeps its vectors. If several
    documents in a run have one id, the first one counts.
    """
    report = Report()
    async for work, result in encode(_works(index, sources, report)):
        encodings = work.known | result.encodings
        records = [
            record(s, encodings[s.id], outline_of(s)) for s in work.sources if s.id in encodings
        ]
        if records:
            await index.put(records)
            await sync()
        report.written += len(records)
        report.tokens += result.tokens
        report.refused += result.refused
        progress(report)
    return report


async def _works(index: Index, sources: Iterable[Document], report: Report) -> AsyncIterator[Work]:
    for batch in _batches(sources):
        fresh = []
        for source in batch:
            if source.id in report.ids:
                report.repeated += 1
            else:
                report.ids.add(source.id)
                if _fits(index, source, report):
                    fresh.append(source)
        new = await changed(index, fresh)
        report.unchanged += len(fresh) - len(new)
        yield Work(new, await kept(index, {source.id: source.text for source in new}))


def _fits(index: Index, source: Document, report: Report) -> bool:
    wrong = refusal(index, source)
    if wrong is not None:
        # an id with half a surrogate pair could not be printed
        report.refused.append(f"{source.id.encode(errors='replace').decode()}: {wrong}")
    return wrong is None


def _batches(sources: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for source in sources:
        if batch and (size + len(source.text) > BATCH_CHARACTERS or len(batch) == BATCH_DOCUMENTS):
            yield batch
            batch, size = [], 0
        batch.append(source)
        size += len(source.text)
    if batch:
        yield batch
