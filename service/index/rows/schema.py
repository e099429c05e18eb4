"""The Arrow schema of an index, its metadata, and the indexes over its columns.

Importing this module does not import LanceDB, which takes seconds and 90 MB: a service that only
embeds does without it.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from docsplit.ranking.words import INDEX
from service.errors import ConflictError, StoreError
from service.index import sql
from service.index.rows import derived
from service.index.rows.fields import PREFIX, FieldType, column_name
from service.index.rows.vectors import windows_type

if TYPE_CHECKING:
    from lancedb.index import FTS, Bitmap, BTree, LabelList
    from lancedb.table import AsyncTable

FORMAT = "1"
# Without it, two simultaneous upserts of one new id both insert a row, without an error.
PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true"}

OPTIONAL = (
    pa.field(derived.TERMS, pa.binary()),
    pa.field(derived.OUTLINE, pa.binary()),
    pa.field(derived.WORDS, pa.string()),
)

_ARROW = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    # microseconds since the epoch
    "date": pa.int64(),
    "strings": pa.list_(pa.string()),
}


@dataclass(frozen=True, slots=True)
class Identity:
    """An index's description of itself.

    Attributes:
        uid: random for each created index, so that a head trained on a deleted index does not match
            a new one of the same name; all generations of an index share it.
        generation: random for each table.
        original: whether the table was created with the index, not for re-embedding.
        bounded: whether titles and metadata of all documents are within ``fields.HEAD_BYTES``; an
            earlier version did not limit them.
        model: name of the bundle that embedded the documents.
        revision: of that bundle.
        fields: metadata that filters may use, with its type.
    """

    uid: str
    generation: str
    original: bool
    bounded: bool
    model: str
    revision: str
    fields: dict[str, FieldType]


def create(
    model: str,
    revision: str,
    dimensions: int,
    fields: dict[str, FieldType],
    source: Identity | None = None,
) -> pa.Schema:
    """The schema of a new index, or of a further generation of the index of ``source``.

    ``windows`` holds the windows' vectors (float16), ``window_ends`` one past the last character of
    each: the windows joined are the document.
    ``updated`` is when a client wrote or deleted the document, in microseconds since the epoch. A
    deleted document stays as a row with ``deleted`` and without content as long as a stale copy of
    it may come from another generation. ``OPTIONAL`` are columns that tables of earlier versions
    lack; ``service.index.rows.derived`` describes them.
    """
    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False, metadata=PRIMARY_KEY),
            pa.field("title", pa.string()),
            pa.field("text", pa.string(), nullable=False),
            pa.field("metadata", pa.string(), nullable=False),
            pa.field("links", pa.list_(pa.string()), nullable=False),
            pa.field("digest", pa.string(), nullable=False),
            pa.field("vector", pa.list_(pa.float32(), dimensions)),
            pa.field("windows", windows_type(dimensions), nullable=False),
            pa.field("window_ends", pa.list_(pa.int32()), nullable=False),
            pa.field("updated", pa.int64(), nullable=False),
            pa.field("deleted", pa.bool_(), nullable=False),
            *OPTIONAL,
            *(pa.field(column_name(name), _ARROW[kind]) for name, kind in fields.items()),
        ],
        metadata={
            "docsplit.format": FORMAT,
            "docsplit.uid": source.uid if source else uuid.uuid4().hex,
            "docsplit.generation": uuid.uuid4().hex,
            "docsplit.original": json.dumps(source is None),
            "docsplit.bounded": json.dumps(source is None or source.bounded),
            "docsplit.model": model,
            "docsplit.revision": revision,
            "docsplit.fields": json.dumps(fields),
        },
    )


def identity(schema: pa.Schema) -> Identity:
    """The identity that ``create`` wrote.

    Raises:
        ConflictError: the table has another format.
        StoreError: the table is damaged.
    """
    held: dict[bytes, bytes] = schema.metadata or {}
    if held.get(b"docsplit.format") != FORMAT.encode():
        raise ConflictError("the table of this name has another format: delete it")
    try:
        fields: dict[str, Any] = json.loads(held[b"docsplit.fields"])
        return Identity(
            held[b"docsplit.uid"].decode(),
            held[b"docsplit.generation"].decode(),
            json.loads(held[b"docsplit.original"]),
            held.get(b"docsplit.bounded") == b"true",
            held[b"docsplit.model"].decode(),
            held[b"docsplit.revision"].decode(),
            fields,
        )
    except (KeyError, ValueError) as error:
        raise StoreError(
            "the table of this index is damaged: restore a backup", "damaged"
        ) from error


# documents whose words an earlier version has not stored
LACKING = sql.every(sql.LIVE, sql.negated(sql.given(derived.WORDS)))


async def prepare(table: AsyncTable, *, again: bool = False) -> None:
    """Build the scalar and full-text indexes that a table lacks, or all of them again."""
    from lancedb.index import FTS, BTree, LabelList

    from service.index.storage.database import conflicting

    held = await indexed(table)
    wanted: dict[str, BTree | Bitmap | FTS | LabelList] = {"id": BTree(), "links": LabelList()}
    # until an upgrade has stored all words, searches read the texts' index of an earlier version
    if derived.WORDS in held or await _filled(table):
        wanted[derived.WORDS] = FTS(**INDEX)
    for field in await table.schema():
        if field.name.startswith(PREFIX):
            wanted[field.name] = _of_metadata(field.type)
    for column, config in wanted.items():
        if column in held and not again:
            continue
        try:
            await table.create_index(column, config=config)
        except RuntimeError as error:
            # two processes may prepare a new table at once, and the first one builds the index
            if again or not conflicting(error) or column not in await indexed(table):
                raise
    if "text" in held and derived.WORDS in await indexed(table):
        await table.drop_index(held["text"])


async def indexed(table: AsyncTable) -> dict[str, str]:
    """The columns with an index, and the name of each index."""
    return {built.columns[0]: built.name for built in await table.list_indices()}


async def _filled(table: AsyncTable) -> bool:
    return derived.WORDS in (await table.schema()).names and not await table.count_rows(LACKING)


def _of_metadata(kind: pa.DataType) -> BTree | Bitmap | LabelList:
    from lancedb.index import Bitmap, BTree, LabelList

    if pa.types.is_boolean(kind):
        return Bitmap()
    return LabelList() if pa.types.is_list(kind) else BTree()
