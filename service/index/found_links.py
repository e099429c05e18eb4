"""Links that stand in the texts of an index: how they are found, and where they are stored."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import structlog
from lancedb.index import BTree
from lancedb.table import AsyncTable

from docsplit.ranking.forms import key
from docsplit.ranking.references import Named, Reference, References, Rule
from service import executors
from service.errors import TooLargeError
from service.index import sql
from service.index.documents import LIVE, Index, named
from service.index.query import listing
from service.index.rows import checksums
from service.index.rows.checksums import Part, texts
from service.index.rows.fields import TITLE_CHARACTERS
from service.index.storage.database import KEEP_VERSIONS, Database, older_than
from service.logs import outline

log = structlog.get_logger("docsplit.index")

# titles with their metadata that are read at a time, and texts that one step reads
_HEADS = 256
_TEXTS = 16
_MUCH_BYTES = 4_000_000
# limit of the links of one document, as of those that a user gives
MOST_OF_ONE = 10_000
# limit of the links of an index, which are in memory during a search
MOST_LINKS = 1_000_000


@dataclass(frozen=True, slots=True)
class Names:
    """What to look for.

    Attributes:
        ids: whether ids are identifiers.
        titles: whether titles count.
        fields: metadata that have identifiers, such as a DOI.
        rules: for further names.
    """

    ids: bool = True
    titles: bool = True
    fields: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()


async def find(index: Index, names: Names) -> tuple[pa.Table, Report]:
    """The links between documents of an index that stand in their texts.

    It reads every text once. Memory holds the names, some 300 bytes for each token, the links, and
    a few texts at a time. It leaves out damaged documents.

    Returns:
        Rows for ``FoundLinks.replace``, and what the search read and found.

    Raises:
        TooLargeError: there are more than ``MOST_LINKS``.
    """
    started = time.monotonic()
    named = await _named(index, names.fields)
    references = await executors.STORE.run(
        lambda: References(named, names.rules, ids=names.ids, titles=names.titles)
    )
    pieces, documents, links, places, cut = [rows([])], 0, 0, 0, 0
    async for part in listing.every(index, Part.TEXT):
        documents += part.num_rows
        # a thread must not be busy with many long texts when the request has ended
        step = 1 if part.nbytes > _MUCH_BYTES else _TEXTS
        for start in range(0, part.num_rows, step):
            texts_of = part.slice(start, step)
            own = await executors.WORDS.run(_links, texts_of, references, named)
            links += own.rows.num_rows
            places += own.places
            cut += own.cut
            if links > MOST_LINKS:
                raise TooLargeError(
                    f"the texts of this index have more than {MOST_LINKS} links: leave out titles "
                    "or rules"
                )
            pieces.append(own.rows)
    report = Report(
        documents,
        references.names,
        references.ambiguous,
        references.left_out,
        links,
        places,
        cut,
        time.monotonic() - started,
    )
    log.info("links_found", table=index.table.name, documents=documents, links=links)
    return pa.concat_tables(pieces), report


async def _named(index: Index, fields: Sequence[str]) -> list[Named]:
    named: list[Named] = []
    query = index.table.query().where(LIVE).select(checksums.columns(Part.HEAD))
    async for batch in await query.to_batches(max_batch_length=_HEADS):
        part = await index.sound(pa.Table.from_batches([batch]), Part.HEAD)
        named += await executors.STORE.run(lambda: list(_of_heads(part, fields)))  # noqa: B023
    return named


def _of_heads(part: pa.Table, fields: Sequence[str]) -> Iterator[Named]:
    columns = (part[name].to_pylist() for name in ("id", "title", "metadata"))
    for name, title, metadata in zip(*columns, strict=True):
        held = orjson.loads(metadata) if fields else {}
        values = tuple(one for field in fields for one in _identifiers(field, held.get(field)))
        yield Named(name, (title or "")[:TITLE_CHARACTERS], values)


def _identifiers(field: str, value: object) -> Iterator[str]:
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, str | int) and not isinstance(one, bool):
            # a number such as a PMID says nothing without the name of the field
            yield (key(f"{field} {one}") if str(one).isdigit() else None) or str(one)


@dataclass(frozen=True, slots=True)
class _Own:
    """The links in some texts; ``cut`` of these have more than are kept."""

    rows: pa.Table
    places: int
    cut: int


def _links(part: pa.Table, references: References, named: Sequence[Named]) -> _Own:
    links: list[Link] = []
    places, cut = 0, 0
    columns = (texts(part[name]) for name in ("id", "digest", "text"))
    for name, digest, text in zip(*columns, strict=True):
        inside, much = references.find(text, name)
        own, more = _of_text(name, checksums.content(digest), inside, named)
        links += own
        places += len(inside)
        cut += much or more
    return _Own(rows(links), places, cut)


def _of_text(
    citing: str, digest: str, references: Sequence[Reference], named: Sequence[Named]
) -> tuple[list[Link], bool]:
    """The links of a text, and whether it has more than are kept."""
    links: dict[int, Link] = {}
    cut = False
    for one in references:
        if one.cited not in links and len(links) == MOST_OF_ONE:
            cut = True
            continue
        link = links.setdefault(one.cited, Link(citing, named[one.cited].id, digest))
        link.add(one)
    return list(links.values()), cut


_BATCH = 4096
# places that are kept of each link
MOST_PLACES = 20
_INTS = pa.list_(pa.int32())
SCHEMA = pa.schema(
    [
        pa.field("citing", pa.string(), nullable=False),
        pa.field("cited", pa.string(), nullable=False),
        pa.field("digest", pa.string(), nullable=False),
        pa.field("places", pa.int32(), nullable=False),
        pa.field("starts", _INTS, nullable=False),
        pa.field("ends", _INTS, nullable=False),
        pa.field("titles", pa.list_(pa.bool_()), nullable=False),
        pa.field("forms", pa.list_(pa.string()), nullable=False),
        pa.field("checksum", pa.binary(), nullable=False),
    ]
)
_VALUES = [name for name in SCHEMA.names if name != "checksum"]
_REPORT = b"docsplit.report"


@dataclass(slots=True)
class Link:
    """A link that stands in a text.

    Attributes:
        citing: id of the document that has the text.
        cited: id of the document that the text names.
        digest: of the citing document's content at the time.
        places: number of places, those that are not stored included.
        starts, ends: characters ``[start, end)`` of the first places.
        titles: whether each of these places is a title, otherwise an identifier.
        forms: what each of these places was read as, empty for a title; none of former versions.
    """

    citing: str
    cited: str
    digest: str
    places: int = 0
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    titles: list[bool] = field(default_factory=list)
    forms: list[str] = field(default_factory=list)

    def add(self, reference: Reference) -> None:
        """Count one more place, and keep it if it is one of the first."""
        self.places += 1
        if len(self.starts) < MOST_PLACES:
            self.starts.append(reference.start)
            self.ends.append(reference.end)
            self.titles.append(not reference.form)
            self.forms.append(reference.form)


@dataclass(frozen=True, slots=True)
class Report:
    """What a search for links read and found.

    Attributes:
        documents: whose texts were read.
        names: identifiers and titles that it looked for.
        ambiguous: identifiers and titles that belong to several documents.
        left_out: names beyond the limits.
        links: pairs of documents.
        places: in all texts.
        cut: documents with more links or names than are read.
        seconds: that it took.
    """

    documents: int
    names: int
    ambiguous: int
    left_out: int
    links: int
    places: int
    cut: int
    seconds: float


class FoundLinks:
    """The found links of all indexes, by the ``uid`` of each."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def replace(self, uid: str, rows: pa.Table, report: Report) -> None:
        """Store the result of a search in one commit.

        Args:
            rows: from the function ``rows``.
        """
        rows = rows.replace_schema_metadata({_REPORT: json.dumps(asdict(report))})
        # Lance warns about a table that it must create in order to overwrite it
        await self._database.provide(_name(uid), SCHEMA)
        table = await self._database.create_table(_name(uid), rows, mode="overwrite")
        for column in ("citing", "cited") if rows.num_rows else ():
            await table.create_index(column, config=BTree())
        await self._database.sync()
        await table.optimize(cleanup_older_than=await older_than(table, KEEP_VERSIONS))

    async def report(self, uid: str) -> Report | None:
        """The report of the last search; None if there was none."""
        table = await self._database.find(_name(uid))
        held = None if table is None else ((await table.schema()).metadata or {}).get(_REPORT)
        return None if held is None else Report(**json.loads(held))

    async def citing(self, uid: str, documents: Sequence[str]) -> list[Link]:
        """Links in the texts of some documents."""
        return await self._links(uid, "citing", documents)

    async def cited(self, uid: str, documents: Sequence[str]) -> list[Link]:
        """Links to some documents."""
        return await self._links(uid, "cited", documents)

    async def links_to(
        self, uid: str, ids: Sequence[str], most: int
    ) -> tuple[set[tuple[str, str]], bool]:
        """``most`` citing and cited ids of links to some documents, and whether these are all."""
        table = await self._database.find(_name(uid))
        if table is None or not ids:
            return set(), True
        found = await table.query().where(named(ids, "cited")).limit(most + 1).to_arrow()
        links = await executors.STORE.run(_opened, found)
        return {(link.citing, link.cited) for link in links}, found.num_rows <= most

    async def counts_to(
        self, uid: str, ids: Sequence[str], without: str | None = None
    ) -> list[int]:
        """How many documents cite each of some documents; ``without`` does not count."""
        table = await self._database.find(_name(uid))
        if table is None:
            return [0] * len(ids)
        other = sql.compare("citing", "<>", without or "")
        conditions = (sql.every(sql.compare("cited", "=", name), other) for name in ids)
        return await asyncio.gather(*map(table.count_rows, conditions))

    async def every(self, uid: str) -> AsyncIterator[Link]:
        """All links of an index, some of them in memory at a time."""
        table = await self._database.find(_name(uid))
        if table is None:
            return
        async for batch in await table.query().to_batches(max_batch_length=_BATCH):
            found = pa.Table.from_batches([batch])
            for link in await executors.STORE.run(_opened, found):
                yield link

    async def forget(self, uid: str) -> None:
        """Delete the links of an index."""
        try:
            await self._database.drop_table(_name(uid), ignore_missing=True)
        except Exception as error:  # noqa: BLE001 an index can be deleted without it
            log.error("found_links_not_deleted", outline=outline(error))

    async def _links(self, uid: str, column: str, ids: Sequence[str]) -> list[Link]:
        table: AsyncTable | None = await self._database.find(_name(uid))
        if table is None or not ids:
            return []
        found = await table.query().where(named(ids, column)).to_arrow()
        return await executors.STORE.run(_opened, found)


def _name(uid: str) -> str:
    return f"links.{uid}"


def rows(links: Sequence[Link]) -> pa.Table:
    """Links as rows with checksums. Call it in a thread: there may be thousands."""
    columns: dict[str, list[Any]] = {n: [getattr(one, n) for one in links] for n in _VALUES}
    columns["checksum"] = [_checksum(*values) for values in zip(*columns.values(), strict=True)]
    return pa.table(columns, schema=SCHEMA)


def _opened(found: pa.Table) -> list[Link]:
    """The links whose checksums match. Call it in a thread: there may be thousands."""
    links = []
    for row in found.to_pylist():
        checksum = row.pop("checksum")
        # a former version wrote no forms
        if checksum == _checksum(*(row[name] for name in _VALUES if name in row)):
            links.append(Link(**row))
    if len(links) < found.num_rows:
        log.error("found_links_damaged", rows=found.num_rows - len(links))
    return links


def _checksum(*values: object) -> bytes:
    return hashlib.blake2b(repr(values).encode("utf-8", "replace"), digest_size=8).digest()
