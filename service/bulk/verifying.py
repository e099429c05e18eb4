"""Reads every row of a table, and names the damaged ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from docsplit.heads import network
from docsplit.heads.examples import Examples
from docsplit.heads.network import Network
from service.index.documents import Index
from service.index.query.words import Vocabulary
from service.index.rows import checksums
from service.index.rows.checksums import Part
from service.index.rows.fields import FieldType, column, column_name
from service.index.rows.records import digest
from service.index.rows.schema import identity
from service.index.storage.database import connect

_BATCH = 1024
_QUOTED = (
    "its id, a link or a declared text has two apostrophes in a row, or a backslash before one: "
    "write it again if a version up to 0.1.0 has changed it"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of a stored table or document.

    Attributes:
        table: database and table, such as ``indexes/papers.0123456789ab.89abcdef``.
    """

    table: str
    what: str
    document: str | None = None
    part: str | None = None

    def __str__(self) -> str:
        place = f"{self.table}: "
        if self.document is not None:
            place += f"document {self.document!r}: "
        return f"{place}{self.part}: {self.what}" if self.part else place + self.what


@dataclass(slots=True)
class Report:
    """The extent of a check, and its findings.

    Attributes:
        unverified: rows of an earlier version, without checksums.
        quoted: documents that versions up to 0.1.0 may have confused with others.
    """

    tables: int = 0
    rows: int = 0
    unverified: int = 0
    findings: list[Finding] = field(default_factory=list)
    quoted: list[Finding] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Add the report of another table."""
        self.tables += other.tables
        self.rows += other.rows
        self.unverified += other.unverified
        self.findings += other.findings
        self.quoted += other.quoted


def verify(uri: str, database: str, name: str) -> Report:
    """Read every row of a table.

    LanceDB can end the process when it reads a damaged file.

    Args:
        database: of the table; ``indexes`` has documents, ``heads`` classifiers, and other tables
            have no checksums.
    """
    report = Report(tables=1)
    try:
        asyncio.run(_verify(f"{uri}/{database}", database, name, report))
    except Exception as error:  # noqa: BLE001 LanceDB panics on some damage
        report.findings.append(
            Finding(f"{database}/{name}", f"rows cannot be read: {beginning(error)}")
        )
    return report


async def _verify(uri: str, database: str, name: str, report: Report) -> None:
    table = await (await connect(uri)).open_table(name)
    schema = await table.schema()
    full = f"{database}/{name}"
    index = None
    if database == "indexes":
        index = Index(table, schema, identity(schema), Vocabulary())
    query = table.query().select(schema.names)
    async for batch in await query.to_batches(max_batch_length=_BATCH):
        rows = pa.Table.from_batches([batch])
        report.rows += rows.num_rows
        if index is not None:
            _documents(rows, index, full, report)
        elif database == "heads":
            _heads(rows, full, report)


def _documents(rows: pa.Table, index: Index, name: str, report: Report) -> None:
    for row, parts in enumerate(faults(rows, index)):
        document = rows["id"].cast(pa.binary())[row].as_py().decode("utf-8", "replace")
        report.findings += [Finding(name, "damaged", document, part) for part in parts]
        if not parts and _quoted(rows, row, index):
            report.quoted.append(Finding(name, _QUOTED, document))
    sealed = checksums.texts(rows["digest"])
    gone = rows["deleted"].to_pylist()
    report.unverified += sum(checksums.unverified(d, g) for d, g in zip(sealed, gone, strict=True))


def _heads(rows: pa.Table, name: str, report: Report) -> None:
    """Check heads by their checksums, and that networks and examples can be read."""
    names = rows.schema.names
    for row in rows.to_pylist():
        for part, parse in (
            ("report", lambda _, row=row: network.unsealed(row)),
            ("network", Network.from_bytes),
            ("examples", Examples.from_bytes),
        ):
            try:
                if row.get(part) and (part != "report" or set(network.COLUMNS) <= set(names)):
                    parse(row[part])
            except Exception:  # noqa: BLE001 a damaged archive can raise any error
                report.findings.append(Finding(name, "damaged", row[names[0]], part))


def faults(rows: pa.Table, index: Index) -> Iterator[list[str]]:
    """The faults of each row, by parts; ``rows`` holds all columns."""
    for place, parts in enumerate(checksums.faults(rows, *Part)):
        named = [part.name.lower() for part in parts]
        yield named or _contradictions(rows.slice(place, 1), index)


def _contradictions(row: pa.Table, index: Index) -> list[str]:
    """Parts of a row that contradict each other although the checksums match or are absent."""
    try:
        [held] = row.drop_columns(["vector", "windows", "window_ends"]).to_pylist()
    except UnicodeDecodeError:
        return ["text"]
    if held["deleted"]:
        return []
    try:
        metadata = json.loads(held["metadata"])
    except ValueError:
        return ["head"]
    revision = index.identity.revision
    right = digest(held["text"], held["title"], metadata, held["links"], revision)
    if right != checksums.content(held["digest"]):
        return ["digest"]
    return _typed(index.identity.fields, metadata, held)


def _typed(
    fields: dict[str, FieldType], metadata: dict[str, Any], held: dict[str, Any]
) -> list[str]:
    """The filter columns that contradict the metadata."""
    wrong = []
    for name, kind in fields.items():
        if held[column_name(name)] != column(kind, metadata.get(name)):
            wrong.append(column_name(name))
    return wrong


def _quoted(rows: pa.Table, row: int, index: Index) -> bool:
    """Whether a text of a document, which conditions name, has what ``_QUOTED`` says."""
    if rows["deleted"][row].as_py():
        return False
    kinds = index.identity.fields
    columns = [column_name(name) for name, kind in kinds.items() if kind in ("string", "strings")]
    held = [rows[column][row].as_py() for column in ("id", "links", *columns)]
    texts = (one for value in held for one in (value if isinstance(value, list) else [value or ""]))
    return any("''" in text or "\\'" in text for text in texts)


def beginning(error: Exception) -> str:
    """The beginning of LanceDB's message, without positions in its source."""
    return str(error).split("/rustc/")[0].split("/root/")[0][:200].rstrip(" ,")
