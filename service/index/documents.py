"""One open index: its documents by id, and what an upsert can keep of them.

A text has up to 16 MB, four times as much as a Python string. So readers take documents in groups
whose texts and windows fit into memory together, and not a number of them at a time.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import structlog
from lancedb.expr import Expr, col, lit
from lancedb.query import ColumnOrdering
from lancedb.table import AsyncTable

from docsplit.corpora.documents import Document
from service import executors, precedence
from service.embedding.tokenising import FairSemaphore
from service.errors import (
    ConflictError,
    DamagedError,
    InvalidError,
    NotFoundError,
    OvertakenError,
    UncertainError,
)
from service.index import row_cache, sql
from service.index.row_cache import RowCache, take
from service.index.rows import checksums, derived, fields, records
from service.index.rows.checksums import Part, texts
from service.index.rows.derived import Outline
from service.index.rows.records import Encoding, Record, Stored, Windows, digest
from service.index.rows.schema import Identity
from service.index.rows.vectors import vector_matrix, window_blobs
from service.index.rows.versions import ATTEMPTS, Standing, after, microseconds
from service.index.sql import Sql
from service.index.storage.database import refresh

if TYPE_CHECKING:
    from lancedb._lancedb import MergeResult

    from service.index.query.words import Vocabulary

log = structlog.get_logger("docsplit.index")

# hashing more bytes than this runs in a thread
_MUCH_BYTES = 1_000_000

LIVE = col("deleted").eq(lit(False))
# of a stored row (target) and one that is written (source)
OLDER = Sql("target.updated < source.updated")


@dataclass(frozen=True, slots=True)
class Index:
    """An open index; every read sees all earlier commits.

    Attributes:
        damaged: called with the number of damaged rows that a read met.
        row_cache: of ids, digests and states.
    """

    table: AsyncTable
    schema: pa.Schema
    identity: Identity
    vocabulary: Vocabulary
    damaged: Callable[[int], None] = lambda _: None
    row_cache: RowCache = field(default_factory=RowCache)

    def require(self, uid: str) -> None:
        """Raise if the index was deleted and created again since ``uid`` was read."""
        if self.identity.uid != uid:
            raise ConflictError("the index was deleted and created again: repeat the request")

    async def put(self, documents: Sequence[Record]) -> None:
        """Insert documents, or replace those of the same id, in one commit; the time is now."""
        held = await self.standing([document.id for document in documents])
        now = microseconds()
        times = [after(held.get(document.id), now) for document in documents]
        await self.write(await self.rows(documents), times)

    async def write(
        self, rows: pa.Table, updated: Sequence[int], *, repeated: bool = False
    ) -> list[int]:
        """Insert documents, or replace those of the same id, without conditions.

        If another process has written a document with a later time, this writes it once more. To
        leave it out would place it before that write, and a conditional write that did not see it
        would be wrong.

        Args:
            rows: as ``rows`` made them; each id occurs once.
            updated: when each is written, in microseconds since the epoch.
            repeated: whether an earlier commit of the same rows failed.

        Returns:
            The time of each document in the end.

        Raises:
            StoreError: it is unknown whether the former attempt succeeded.
        """
        ids: list[str] = rows["id"].to_pylist()
        times = list(updated)
        left = list(range(len(ids)))
        for _ in range(ATTEMPTS):
            part = records.stamped(rows.take(left), [times[place] for place in left])
            result = await self.merge_rows(part)
            if applied(result) == len(left):
                return times
            missing = await self.missing(part, result.version)
            left = [place for place in left if ids[place] in missing]
            if not left:
                return times
            if repeated:
                raise UncertainError
            for place in left:
                times[place] = after(missing[ids[place]])
        raise OvertakenError

    async def missing(self, rows: pa.Table, version: int) -> dict[str, Standing | None]:
        """Rows that a commit did not write, with the state that the index has instead.

        Args:
            rows: that the commit was to write.
            version: of the table after the commit; nothing else may use the handle.
        """
        ids = rows["id"].to_pylist()
        made = await self.standing(ids, version)
        state = (rows[name].to_pylist() for name in ("updated", "deleted", "digest"))
        wanted = zip(ids, *state, strict=True)
        return {name: made.get(name) for name, *row in wanted if made.get(name) != Standing(*row)}

    async def merge(self, documents: Sequence[Record], updated: Sequence[int]) -> None:
        """Insert documents, or replace older ones of the same id, in one commit.

        Args:
            documents: each id occurs once.
            updated: when each was written, in microseconds since the epoch.
        """
        rows = await executors.STORE.run(self._rows, documents)
        await self.merge_rows(records.stamped(rows, updated))

    async def rows(self, documents: Sequence[Record]) -> pa.Table:
        """Documents as rows of the index; ``updated`` is not set yet.

        Raises:
            InvalidError: a value that the index cannot hold.
        """
        try:
            if len(documents) == 1 and len(documents[0].text) < _MUCH_BYTES // 100:
                # faster than starting a thread
                return self._rows(documents)
            return await executors.STORE.run(self._rows, documents)
        except (pa.ArrowException, UnicodeError, OverflowError) as error:
            raise InvalidError(
                "documents: the index cannot store a value: send valid Unicode and 64-bit numbers",
                "documents",
            ) from error

    def _rows(self, documents: Sequence[Record]) -> pa.Table:
        unknown = [0] * len(documents)
        fields, revision = self.identity.fields, self.identity.revision
        return records.table(documents, unknown, self.schema, fields, revision)

    async def tombstone(self, deleted: Mapping[str, int]) -> list[str]:
        """Delete documents, by id and time, unless they were written later, in one commit.

        Absent documents get a tombstone, too, so that no older copy of them gets in.

        Returns:
            The ids of documents that were written later.
        """
        rows = records.tombstones(deleted, self.schema)
        # by default LanceDB rejects a missing vector as a bad one
        result = await self.merge_rows(rows, on_bad_vectors="null")
        if applied(result) == len(deleted):
            return []
        found = await self.missing(rows, result.version)
        return [name for name, held in found.items() if held is None or not held.deleted]

    async def updated(self, ids: Sequence[str]) -> dict[str, int]:
        """When documents were written or deleted; unknown ids are left out."""
        query = self.table.query().where(named(ids))
        found = await query.select(["id", "updated"]).to_arrow()
        return dict(zip(found["id"].to_pylist(), found["updated"].to_pylist(), strict=True))

    async def standing(self, ids: Sequence[str], version: int = 0) -> dict[str, Standing]:
        """The states of documents, including deleted ones.

        Args:
            version: of the table; 0 means the newest. With a version nothing else may use the
                handle, and the states include digests.
        """
        table: Any = self.table
        if version:
            await table.checkout(version)
        try:
            query = table.query().where(named(ids))
            columns = ["id", "updated", "deleted", *(["digest"] if version else [])]
            found = await query.select(columns).to_arrow()
        finally:
            if version:
                await refresh(table)
        return {row.pop("id"): Standing(**row) for row in found.to_pylist()}

    async def count(self) -> int:
        """The number of documents."""
        return int(await self.table.count_rows(sql.LIVE))

    async def has(self, document_id: str) -> bool:
        """Whether the index has a document."""
        found = await self.select(col("id").eq(lit(document_id)), ["id"], 1)
        return bool(found.num_rows)

    async def merge_rows(self, rows: pa.Table, on_bad_vectors: str = "error") -> MergeResult:
        """Insert rows, or replace older ones of the same id, in one commit.

        The latest write of a document wins, in whatever order the writes arrive.
        """
        merge = self.table.merge_insert("id").when_matched_update_all(where=OLDER)
        merge = merge.when_not_matched_insert_all()
        result: MergeResult = await merge.execute(rows, on_bad_vectors=on_bad_vectors)
        return result

    async def get(self, document_id: str) -> Stored:
        """One document.

        Raises:
            NotFoundError: the index has no such document.
            DamagedError: the stored document does not match its checksums.
        """
        found = await self.one(document_id, Part.TEXT, Part.HEAD, Part.LINKS, Part.VECTOR)
        row = found.drop_columns(["vector", "digest", "deleted"]).to_pylist()[0]
        return Stored(**row, vector=vector_matrix(found)[0])

    async def one(self, document_id: str, *parts: Part, further: Sequence[str] = ()) -> pa.Table:
        """The columns of some parts of one document, of its state, and further ones.

        Raises:
            NotFoundError: the index has no such document.
            DamagedError: a part does not match its checksum.
        """
        parts = (*parts, Part.STATE)
        # the code checks deletion here: a second condition would cost a fifth more
        query = self.table.query().where(col("id").eq(lit(document_id)))
        found = await query.select([*checksums.columns(*parts), *further]).limit(1).to_arrow()
        there = found.num_rows > 0
        if there and not (found := await self.sound(found, *parts)).num_rows:
            raise DamagedError
        if not there or found["deleted"][0].as_py():
            raise NotFoundError("no document of that id in this index")
        return found

    async def sound(self, found: pa.Table, *parts: Part) -> pa.Table:
        """The rows whose parts match their checksums; the others are logged and counted.

        Args:
            found: with ``checksums.columns(*parts)``.
        """
        return self._without(found, await self.faults(found, *parts))

    def _without(self, found: pa.Table, bad: Sequence[tuple[Part, ...]]) -> pa.Table:
        if not any(bad):
            return found
        self.note_damage({part for row in bad for part in row}, sum(map(bool, bad)))
        return found.filter(pa.array([not row for row in bad]))

    async def faults(self, found: pa.Table, *parts: Part) -> list[tuple[Part, ...]]:
        """The damaged parts of each row."""
        if found.nbytes > _MUCH_BYTES:
            return await executors.STORE.run(checksums.faults, found, *parts)
        return checksums.faults(found, *parts)

    def note_damage(self, parts: Collection[Part], rows: int) -> None:
        """Log and count damaged rows that a read skipped."""
        named = sorted(part.name.lower() for part in parts)
        log.error("row_damaged", table=self.table.name, parts=named, rows=rows)
        self.damaged(rows)

    async def read(
        self,
        ids: Sequence[str],
        parts: Sequence[Part],
        rows: Sequence[int] = (),
        further: Sequence[str] = (),
    ) -> pa.Table:
        """Parts of documents, in no order; leaves out damaged and missing ones.

        Args:
            rows: their last known positions (``_rowid``), which save most of the search.
            further: columns to read besides those of the parts.
        """
        columns = [*checksums.columns(*parts), *further]
        found, bad = self.schema.empty_table().select(columns), list[tuple[Part, ...]]()
        if rows:
            found, bad = await self._at(rows, columns, parts)
        # rows that moved or changed since then are missing
        missing = sorted(set(ids) - set(checksums.texts(found["id"])))
        found = self._without(found, bad)
        if missing:
            read = await self.select(named(missing), columns, len(missing))
            others = await self.sound(read, *parts)
            found = pa.concat_tables([found.cast(others.schema), others])
        return found

    async def _at(
        self, rows: Sequence[int], columns: Sequence[str], parts: Sequence[Part]
    ) -> tuple[pa.Table, list[tuple[Part, ...]]]:
        """Columns at some positions, and the damaged parts of each row."""
        known = self.row_cache.find(self.table, rows)
        found = await take(self.table, rows, columns, known)
        bad = await self.faults(found, *parts)
        if known is not None and any(bad):
            found = await take(self.table, rows, columns)
            self.row_cache.compare(self.table, found)
            bad = await self.faults(found, *parts)
        return found.select(columns), bad

    async def contents(
        self, ids: Sequence[str], *parts: Part, columns: Sequence[str] = ()
    ) -> AsyncIterator[pa.Table]:
        """Parts of documents, some MB at a time, in no order; leaves out damaged and missing ones.

        Args:
            ids: each once.
            columns: to read besides those of the parts.
        """
        if not ids:
            return
        found = await self.select(named(ids), SIZE_COLUMNS, len(ids))
        width = 2 * self.schema.field("vector").type.list_size
        of = sizes_of(found, width, *parts)
        wanted = list(dict.fromkeys([*checksums.columns(*parts), *columns]))
        for group in groups_by_size(of):
            async with turn_of_size(sum(of[name] for name in group)):
                yield await self.sound(await self.select(named(group), wanted, len(group)), *parts)

    async def sample(self, count: int) -> pa.Table:
        """Ids and positions (``_rowid``) of the documents with the lowest digests.

        They are a random sample, and the same one for all processes.
        """
        query = self.table.query().where(LIVE).order_by([ColumnOrdering(column_name="digest")])
        # the table must have the column that orders it
        found = query.select(["id", "digest"]).with_row_id().limit(count)
        return await found.to_arrow()

    async def select(self, where: Expr, columns: list[str], limit: int) -> pa.Table:
        """Columns of the matching documents, in no order."""
        query = self.table.query().where(LIVE & where)
        return await query.select(columns).limit(limit).to_arrow()


def named(ids: Sequence[str], column: str = "id") -> Expr:
    """The condition that a document has one of some ids, or that another column does."""
    return col(column).isin([lit(name) for name in ids])


def applied(result: MergeResult) -> int:
    """The number of rows that a commit wrote."""
    return int(result.num_updated_rows + result.num_inserted_rows)


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
            vector_matrix(rows), window_blobs(rows["windows"]), held, strict=True
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
        lengths = characters(await index.select(named(some), SIZE_COLUMNS, len(some)))
        same = [name for name, length in lengths.items() if length == len(texts[name])]
        async for rows in index.contents(same, *PARTS):
            yield rows


async def digests(index: Index, ids: Sequence[str]) -> dict[str, tuple[str, Outline | None]]:
    """Digests of the contents, and outlines, of the documents that the index has."""
    columns = ["id", "digest", *derived.outline_columns(index.schema.names)]
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
    return derived.outline(source.pages, [(head.start, head.title) for head in source.headings])


async def changed(index: Index, sources: Sequence[Document]) -> list[Document]:
    """Those of the documents that the index lacks, or has with other content."""
    held = await digests(index, [source.id for source in sources]) if sources else {}
    revision = index.identity.revision

    def current(one: Document) -> tuple[str, Outline | None]:
        return digest(one.text, one.title, one.metadata, one.links, revision), outline_of(one)

    return [source for source in sources if held.get(source.id) != current(source)]


async def windows_by_id(index: Index, ids: Sequence[str]) -> AsyncIterator[tuple[str, Windows]]:
    """Ids and windows of documents, without damaged ones."""
    columns = derived.outline_columns(index.schema.names)
    async for found in index.contents(ids, Part.WINDOWS, columns=columns):
        names, ends = found["id"].to_pylist(), found["window_ends"].to_pylist()
        for name, known, *own in zip(
            names,
            records.outlines(found),
            window_blobs(found["windows"]),
            ends,
            strict=True,
        ):
            yield name, replace(records.windows(*own), outline=known or derived.NONE)


async def windows_of(index: Index, document_id: str) -> Windows:
    """Windows of one document.

    Raises:
        NotFoundError: the index has no such document.
        DamagedError: the stored windows do not match their checksum.
    """
    further = derived.outline_columns(index.schema.names)
    found = await index.one(document_id, Part.WINDOWS, further=further)
    [known] = records.outlines(found)
    held = records.windows(window_blobs(found["windows"])[0], found["window_ends"][0].as_py())
    return replace(held, outline=known or derived.NONE)


async def whole(index: Index, document_id: str) -> tuple[Record, int]:
    """A document as the index stores it, and when it was written, in microseconds.

    Raises:
        NotFoundError: the index has no such document.
        DamagedError: the stored document does not match its checksums.
    """
    further = derived.outline_columns(index.schema.names)
    found = await index.one(document_id, Part.HEAD, Part.LINKS, *PARTS, further=further)
    [row] = found.drop_columns(["vector", "windows", "deleted"]).to_pylist()
    windows = records.windows(window_blobs(found["windows"])[0], row["window_ends"])
    record = Record(
        id=row["id"],
        text=row["text"],
        title=row["title"],
        metadata=json.loads(row["metadata"]),
        links=row["links"],
        encoding=Encoding(vector_matrix(found)[0], windows.vectors, windows.ends),
        outline=derived.opened_outline(row.get(derived.OUTLINE), row["digest"]),
    )
    return record, row["updated"]


# columns for ``characters`` and ``sizes_of``
SIZE_COLUMNS = ["id", "window_ends"]
# characters of texts and bytes of windows that are read at a time, besides those of one document
READ_BYTES = 8 * 2**20
# documents of one group
MOST_IN_GROUP = 256
# groups of more than ``precedence.LARGE`` that all requests of a process have in memory at once
_large = FairSemaphore(4)


def characters(found: pa.Table) -> dict[str, int]:
    """Characters of the texts of documents, by id.

    Args:
        found: with ``SIZE_COLUMNS``.
    """
    lengths, _ = row_cache.lengths(found["window_ends"])
    return dict(zip(texts(found["id"]), lengths.tolist(), strict=True))


async def characters_of(table: AsyncTable, document_id: str) -> int:
    """Characters of the text of one document; 0 if the table has no such row."""
    # a condition that it is not deleted takes half as long again
    query = table.query().where(col("id").eq(lit(document_id))).select(SIZE_COLUMNS).limit(1)
    return sum(characters(await query.to_arrow()).values())


def sizes_of(found: pa.Table, width: int, *parts: Part) -> dict[str, int]:
    """Characters and bytes of some parts of documents, by id; only texts and windows count.

    Args:
        found: with ``SIZE_COLUMNS``.
        width: bytes of a window.
    """
    lengths, windows = row_cache.lengths(found["window_ends"])
    counted = lengths.astype(np.int64) * (Part.TEXT in parts)
    counted += windows.astype(np.int64) * width * (Part.WINDOWS in parts)
    return dict(zip(texts(found["id"]), counted.tolist(), strict=True))


def groups_by_size(sizes: Mapping[str, int], most: int | None = None) -> Iterator[list[str]]:
    """Documents in their order, in groups of at most ``most``; a larger one is by itself.

    Args:
        sizes: by id.
        most: of a group; ``READ_BYTES`` by default.
    """
    most = READ_BYTES if most is None else most
    group: list[str] = []
    total = 0
    for name, size in sizes.items():
        if group and (total + size > most or len(group) == MOST_IN_GROUP):
            yield group
            group, total = [], 0
        group.append(name)
        total += size
    if group:
        yield group


@asynccontextmanager
async def turn_of_size(size: int) -> AsyncIterator[None]:
    """Wait until few large groups of other requests are in memory, and hold a place for one."""
    if size <= precedence.LARGE:
        yield
    else:
        async with _large.turn():
            yield
