"""Brings an index up to date with documents; skips unchanged documents."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field

import structlog

from docsplit.corpora.documents import Document
from service.embedding.background import BackgroundEmbedder
from service.embedding.embedder import UnusableInputError
from service.errors import CommandError
from service.index.commits import delete_everywhere
from service.index.documents import LIVE, Index, changed, kept, outline_of, refusal
from service.index.indexes import Indexes
from service.index.maintenance import optimize
from service.index.merging import GROWTH_BYTES, size
from service.index.rows.checksums import texts
from service.index.rows.records import Encoding, encoded, record


@dataclass(slots=True)
class Encoded:
    """The results for some texts.

    Attributes:
        refused: a line for each text that could not be embedded.
        tokens: number of embedded tokens, without special tokens.
    """

    encodings: dict[str, Encoding] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    tokens: int = 0


# embeds texts by id
Encode = Callable[[Mapping[str, str]], Awaitable[Encoded]]


async def encode_texts(embedder: BackgroundEmbedder, texts: Mapping[str, str]) -> Encoded:
    """Encodings of texts by id.

    Raises:
        EngineFailedError: from the batcher.
    """
    result = Encoded()
    for name, outcome in zip(texts, await embedder(list(texts.values())), strict=True):
        if isinstance(outcome, UnusableInputError):
            result.refused.append(f"{name}: {outcome.reason}")
        else:
            result.encodings[name] = encoded(outcome)
            result.tokens += outcome.tokens
    return result


@dataclass(slots=True)
class Outcome:
    """How an update of some documents ended.

    Attributes:
        written, unchanged: numbers of documents.
        tokens: number of embedded tokens.
        refused: a line for each document that the index cannot hold.
    """

    written: int = 0
    unchanged: int = 0
    tokens: int = 0
    refused: list[str] = field(default_factory=list)


class Updater:
    """Embeds and writes documents; several calls may run at the same time.

    Args:
        index: to write to. While one call embeds, another reads or writes it.
        sync: returns when the last commit is durable.
    """

    def __init__(self, index: Index, encode: Encode, sync: Callable[[], Awaitable[None]]) -> None:
        self._index = index
        self._encode = encode
        self._sync = sync
        # a write may move the handle to another version for a moment
        self._turn = asyncio.Lock()

    async def __call__(self, sources: Sequence[Document], encode: Encode | None = None) -> Outcome:
        """Write new and changed documents in one durable commit.

        A document whose digest is in the index is left out. One with the same text but other
        content keeps its vectors.

        Args:
            sources: each id occurs once.
            encode: embeds in place of the updater's own.
        """
        outcome = Outcome()
        fitting = [source for source in sources if self._fits(source, outcome)]
        async with self._turn:
            new = await changed(self._index, fitting)
            encodings = await kept(self._index, {source.id: source.text for source in new})
        outcome.unchanged = len(fitting) - len(new)
        texts = {source.id: source.text for source in new if source.id not in encodings}
        made = await (encode or self._encode)(texts) if texts else Encoded()
        encodings |= made.encodings
        records = [record(s, encodings[s.id], outline_of(s)) for s in new if s.id in encodings]
        if records:
            async with self._turn:
                await self._index.put(records)
                await self._sync()
        outcome.written = len(records)
        outcome.tokens = made.tokens
        outcome.refused += made.refused
        return outcome

    def _fits(self, source: Document, outcome: Outcome) -> bool:
        wrong = refusal(self._index, source)
        if wrong is not None:
            # an id with half a surrogate pair could not be printed
            name = source.id.encode(errors="replace").decode()
            outcome.refused.append(f"{name}: {wrong}")
        return wrong is None


# documents of one commit
_CHUNK = 1000


async def prune(
    indexes: Indexes, name: str, index: Index, present: Collection[str], unread: Collection[str]
) -> int:
    """Delete all documents of an index except those of a source; returns their number.

    Args:
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
        await delete_everywhere(indexes, name, index.identity.uid, part)
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
        sync: returns when the last commit is durable.
    """

    async def updated(batches: Iterator[Batch]) -> AsyncIterator[Outcome]:
        table = (await indexes.open(name)).table
        before = await size(table)
        async for outcome in update(batches):
            yield outcome
            if await size(table) > before + GROWTH_BYTES:
                try:
                    if (await optimize(table, sync)).removed:
                        await indexes.erasures.note(table.name)
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
