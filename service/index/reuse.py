"""What an index already has: a document with unchanged text is not embedded again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lancedb.expr import col, lit

from corpora.documents import Document
from service.index.documents import Index
from service.index.rows import checksums, fields, outline, records, vectors
from service.index.rows.checksums import Part
from service.index.rows.outline import Outline
from service.index.rows.record import Encoding, Record, Windows, digest
from service.index.rows.vectors import matrix

# reads texts and windows of this many documents at once
_CHUNK = 128
PARTS = (Part.TEXT, Part.VECTOR, Part.WINDOWS)


async def kept(index: Index, texts: Mapping[str, str]) -> dict[str, Encoding]:
    """Encodings of the documents that the index has, undamaged, with the same text.

    Args:
        texts: by id.
    """
    found: dict[str, Encoding] = {}
    for ids in _chunks(list(texts)):
        columns = checksums.columns(*PARTS)
        rows = await index.select(col("id").isin([lit(i) for i in ids]), columns, len(ids))
        rows = await index.sound(rows, *PARTS)
        if not rows.num_rows:
            continue
        held = rows.select(["id", "text", "window_ends"]).to_pylist()
        for vector, blob, row in zip(
            matrix(rows), vectors.blobs(rows["windows"]), held, strict=True
        ):
            if row["text"] == texts[row["id"]]:
                windows = records.windows(blob, row["window_ends"])
                found[row["id"]] = Encoding(vector, windows.vectors, windows.ends)
    return found


async def digests(index: Index, ids: Sequence[str]) -> dict[str, tuple[str, Outline | None]]:
    """Digests of the contents, and outlines, of the documents that the index has."""
    columns = ["id", "digest", *outline.columns(index.schema.names)]
    found = await index.select(col("id").isin([lit(i) for i in ids]), columns, len(ids))
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


async def windows(index: Index, ids: Sequence[str]) -> dict[str, Windows]:
    """Windows of documents by id, without damaged ones."""
    columns = [*checksums.columns(Part.WINDOWS), *outline.columns(index.schema.names)]
    found = await index.select(col("id").isin([lit(i) for i in ids]), columns, len(ids))
    found = await index.sound(found, Part.WINDOWS)
    ids, ends = found["id"].to_pylist(), found["window_ends"].to_pylist()
    return {
        name: replace(records.windows(*own), outline=known or outline.NONE)
        for name, known, *own in zip(
            ids, records.outlines(found), vectors.blobs(found["windows"]), ends, strict=True
        )
    }


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


def _chunks(ids: Sequence[str]) -> Sequence[Sequence[str]]:
    return [ids[first : first + _CHUNK] for first in range(0, len(ids), _CHUNK)]
