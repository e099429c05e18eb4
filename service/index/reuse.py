"""What an index already has: a document with unchanged text is not embedded again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from docsplit.corpora.documents import Document
from service.index import sql
from service.index.documents import Index, named
from service.index.rows import checksums, fields, outline, records, sizes, vectors
from service.index.rows.checksums import Part
from service.index.rows.outline import Outline
from service.index.rows.record import Encoding, Record, Windows, digest
from service.index.rows.vectors import matrix

# documents whose lengths are read at a time
_CHUNK = 512
PARTS = (Part.TEXT, Part.VECTOR, Part.WINDOWS)


async def kept(index: Index, texts: Mapping[str, str]) -> dict[str, Encoding]:
    """Encodings of the documents that the index has, undamaged, with the same text.

    Args:
        texts: by id.
    """
    found: dict[str, Encoding] = {}
    async for rows in _same_length(index, texts):
        held = rows.select(["id", "text", "window_ends"]).to_pylist()
        if not held:
            continue
        for vector, blob, row in zip(
            matrix(rows), vectors.blobs(rows["windows"]), held, strict=True
        ):
            if row["text"] == texts[row["id"]]:
                windows = records.windows(blob, row["window_ends"])
                found[row["id"]] = Encoding(vector, windows.vectors, windows.ends)
    return found


async def _same_length(index: Index, texts: Mapping[str, str]) -> AsyncIterator[pa.Table]:
    """The documents whose texts are as long as the given ones.

    Others differ. Their texts may be far longer than the request that names them.
    """
    ids = list(texts)
    if len(ids) == 1:
        length = sql.compare("array_element(window_ends, -1)", "=", len(texts[ids[0]]))
        where = sql.every(sql.LIVE, sql.among("id", ids), length)
        query = index.table.query().where(where).select(checksums.columns(*PARTS)).limit(1)
        yield await index.sound(await query.to_arrow(), *PARTS)
        return
    for first in range(0, len(ids), _CHUNK):
        some = ids[first : first + _CHUNK]
        lengths = sizes.characters(await index.select(named(some), sizes.COLUMNS, len(some)))
        same = [name for name, length in lengths.items() if length == len(texts[name])]
        async for rows in index.contents(same, *PARTS):
            yield rows


async def digests(index: Index, ids: Sequence[str]) -> dict[str, tuple[str, Outline | None]]:
    """Digests of the contents, and outlines, of the documents that the index has."""
    columns = ["id", "digest", *outline.columns(index.schema.names)]
    found = await index.select(named(ids), columns, len(ids))
    contents = map(checksums.content, checksums.texts(found["digest"]))
    pairs = zip(contents, records.outlines(found), strict=True)
    return dict(zip(checksums.texts(found["id"]), pairs, strict=True))


def refusal(index: Index, source: Document) -> str | None:
    """Why an index cannot store a document, and the remedy; None if it can."""
    wrong = fields.unservable(source.id, source.text, source.title, source.metadata, source.links)
    return wrong or fields.mistyped(index.identity.fields, source.metadata)


def outline_of(source: Document) -> Outline | None:
    """Pages and headings of a document as an index stores them."""
    return outline.outline(source.pages, [(head.start, head.title) for head in source.headings])


async def changed(index: Index, sources: Sequence[Document]) -> list[Document]:
    """Those of the documents that the index lacks, or has with other content."""
    held = await digests(index, [source.id for source in sources]) if sources else {}
    revision = index.identity.revision

    def current(one: Document) -> tuple[str, Outline | None]:
        return digest(one.text, one.title, one.metadata, one.links, revision), outline_of(one)

    return [source for source in sources if held.get(source.id) != current(source)]


async def windows(index: Index, ids: Sequence[str]) -> AsyncIterator[tuple[str, Windows]]:
    """Ids and windows of documents, without damaged ones."""
    columns = outline.columns(index.schema.names)
    async for found in index.contents(ids, Part.WINDOWS, columns=columns):
        names, ends = found["id"].to_pylist(), found["window_ends"].to_pylist()
        for name, known, *own in zip(
            names, records.outlines(found), vectors.blobs(found["windows"]), ends, strict=True
        ):
            yield name, replace(records.windows(*own), outline=known or outline.NONE)


async def windows_of(index: Index, document_id: str) -> Windows:
    """Windows of one document.

    Raises:
        NotFoundError: the index has no such document.
        DamagedError: the stored windows do not match their checksum.
    """
    further = outline.columns(index.schema.names)
    found = await index.one(document_id, Part.WINDOWS, further=further)
    [known] = records.outlines(found)
    held = records.windows(vectors.blobs(found["windows"])[0], found["window_ends"][0].as_py())
    return replace(held, outline=known or outline.NONE)


async def whole(index: Index, document_id: str) -> tuple[Record, int]:
    """A document as the index stores it, and when it was written, in microseconds.

    Raises:
        NotFoundError: the index has no such document.
        DamagedError: the stored document does not match its checksums.
    """
    further = outline.columns(index.schema.names)
    found = await index.one(document_id, Part.HEAD, Part.LINKS, *PARTS, further=further)
    [row] = found.drop_columns(["vector", "windows", "deleted"]).to_pylist()
    windows = records.windows(vectors.blobs(found["windows"])[0], row["window_ends"])
    record = Record(
        id=row["id"],
        text=row["text"],
        title=row["title"],
        metadata=json.loads(row["metadata"]),
        links=row["links"],
        encoding=Encoding(matrix(found)[0], windows.vectors, windows.ends),
        outline=outline.opened(row.get(outline.COLUMN), row["digest"]),
    )
    return record, row["updated"]
