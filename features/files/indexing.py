"""Reads the files of an upload and puts them into an index, as POST documents would."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from docsplit.corpora.documents import Document, of_file
from docsplit.corpora.files import TABLES
from docsplit.extraction.content import StartError, UnreadableError
from docsplit.extraction.kinds import KINDS, OLD, PACKINGS, kind_of
from docsplit.extraction.reading import Outcome, Reader
from features.files import duplicates
from features.files.progress import Progress
from features.files.spool import Upload
from service import executors
from service.embedding import charges
from service.embedding.background import BackgroundEmbedder
from service.embedding.embedder import UnusableInputError
from service.errors import EngineFailedError, UnavailableError
from service.index import commits
from service.index.documents import changed, kept, outline_of, refusal
from service.index.rows.records import Encoding, encoded, record
from service.index.store import Store

# documents of one commit, unless it waits longer than this for them
_CHARACTERS = 50_000
_DOCUMENTS = 64
_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Target:
    """Where documents go.

    Attributes:
        index, uid: name of the index, and which index of that name it was.
        generation: of the index, whose bundle embeds the documents.
        embedder: works for the client of the upload.
        threshold: a document is a near-duplicate if another one of the index resembles it as much;
            None compares nothing.
        mark: whether to write near-duplicates and name them, instead of refusing them.
        ocr: languages of the text in scans.
    """

    store: Store
    index: str
    uid: str
    generation: str
    embedder: BackgroundEmbedder
    threshold: float | None
    mark: bool
    ocr: str = "auto"


async def add(
    upload: Upload,
    target: Target,
    progress: Progress,
    require: Callable[[], Awaitable[None]],
) -> None:
    """Read all files and write their documents; a file that cannot be read is refused.

    Args:
        require: called before each write; raises if the job is no longer this process's.

    Raises:
        ServiceError: nothing more can be written; what was written stays.
    """
    batch: list[Document] = []
    seen: set[str] = set()
    read = 0
    since = time.monotonic()
    async with aclosing(_contents(upload, progress, target.ocr)) as contents:
        async for found in contents:
            if found is None:
                read += 1
            elif found.id in seen:
                reason = "another file of this upload has the same name: send it with another name"
                progress.refuse(found.id, "invalid", reason)
            else:
                seen.add(found.id)
                batch.append(found)
            full = sum(len(one.text) for one in batch) > _CHARACTERS or len(batch) >= _DOCUMENTS
            if full or time.monotonic() - since > _SECONDS:
                await _write(batch, target, progress, require)
                progress.done += read
                batch, read, since = [], 0, time.monotonic()
    await _write(batch, target, progress, require)
    progress.done += read


async def _contents(
    upload: Upload, progress: Progress, ocr: str
) -> AsyncGenerator[Document | None, None]:
    """The documents of each file, and None after each file that could be read."""
    reader = Reader(folder=upload.folder, ocr=ocr)
    try:
        for number, name in enumerate(upload.names):
            kind, packing = kind_of(name)
            if kind not in (*KINDS, *OLD):
                progress.failed += 1
                progress.refuse(name, "kind", _unknown(kind))
                continue
            whole = True
            outcomes = _outcomes(upload, number, kind + packing, reader)
            try:
                while (found := await executors.READING.run(next, outcomes, None)) is not None:
                    inner, outcome = found
                    full = f"{name}/{inner}" if inner else name
                    if isinstance(outcome, UnreadableError):
                        progress.refuse(full, "unreadable", str(outcome))
                        whole = whole and bool(inner)
                    else:
                        yield of_file(full, outcome)
            except StartError as error:
                raise UnavailableError(f"no file can be read here: {error}") from error
            if whole:
                yield None
            else:
                progress.failed += 1
    finally:
        reader.interrupt()
        # after the interrupted call, in the same thread
        await asyncio.shield(executors.READING.run(reader.close))


def _unknown(kind: str) -> str:
    """Why a file of this kind is refused, and what to do."""
    if kind in TABLES:
        return (
            "a table: index it with docsplit-index, or send its rows to POST "
            "/indexes/{name}/documents"
        )
    if kind == ".zst":
        return f"packed in a way that is not known; unpack it, or pack it as {PACKINGS[0]}"
    known = ", ".join(KINDS)
    return f"a file of an unknown kind; known, also with {' or '.join(PACKINGS)}, are {known}"


def _outcomes(upload: Upload, number: int, kind: str, reader: Reader) -> Iterator[Outcome]:
    with upload.read(number) as source:
        yield from reader.read(kind, source)


async def _write(
    batch: Sequence[Document],
    target: Target,
    progress: Progress,
    require: Callable[[], Awaitable[None]],
) -> None:
    """Embed and store the documents that the index can hold and does not have."""
    if not batch:
        return
    index = await (await target.store.indexes()).written(target.index, target.generation)
    index.require(target.uid)
    fit = []
    for one in batch:
        wrong = refusal(index, one)
        if wrong is None:
            fit.append(one)
        else:
            progress.refuse(one.id, "invalid", wrong)
    new = await changed(index, fit)
    progress.unchanged += len(fit) - len(new)
    known = await kept(index, {one.id: one.text for one in new})
    await _embed([one for one in new if one.id not in known], known, target, progress)
    if target.threshold is not None and not target.mark:
        await duplicates.refuse(index, new, known, target.threshold, progress)
    records = [record(one, known[one.id], outline_of(one)) for one in new if one.id in known]
    if records:
        await require()
        upsert = commits.Upsert(await index.rows(records))
        commit = asyncio.create_task(target.store.upsert(target.index, target.uid, upsert))
        try:
            await asyncio.shield(commit)
        finally:
            # a job that is cancelled meanwhile ends with the right count
            await commit
            progress.written += len(records)
        if target.threshold is not None and target.mark:
            index = await (await target.store.indexes()).written(target.index, target.generation)
            written = [one for one in new if one.id in known]
            await duplicates.mark(index, written, known, target.threshold, progress)


async def _embed(
    documents: Sequence[Document],
    known: dict[str, Encoding],
    target: Target,
    progress: Progress,
) -> None:
    """Add the encodings of documents to the known ones; refuse those that have none."""
    await charges.out_of_debt()
    try:
        outcomes = await target.embedder([one.text for one in documents])
    except EngineFailedError:
        if len(documents) == 1:
            progress.refuse(documents[0].id, "engine", "the engine failed on this document")
        else:
            # one of them may be the cause
            for one in documents:
                await _embed([one], known, target, progress)
        return
    for one, outcome in zip(documents, outcomes, strict=True):
        if isinstance(outcome, UnusableInputError):
            progress.refuse(one.id, "invalid", outcome.reason)
        else:
            known[one.id] = encoded(outcome)
