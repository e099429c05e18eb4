"""Verifies every row of an index's table."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from service.index.documents import Index
from service.index.rows import checksums
from service.index.rows.checksums import Part
from service.index.rows.fields import FieldType, column
from service.index.rows.record import digest
from service.index.rows.schema import PREFIX
from service.integrity.findings import Finding, Report

BATCH = 1024
QUOTED = (
    "its id, a link or a declared text has two apostrophes in a row, or a backslash before one: "
    "write it again if a version up to 0.1.0 has changed it"
)


async def check(index: Index, name: str, report: Report) -> None:
    """Read a whole table, and add the faults of its rows to a report.

    Args:
        name: of the table in findings.
    """
    try:
        query = index.table.query().select(index.schema.names)
        async for batch in await query.to_batches(max_batch_length=BATCH):
            rows = pa.Table.from_batches([batch])
            report.rows += rows.num_rows
            for row, parts in enumerate(faults(rows, index)):
                document = rows["id"].cast(pa.binary())[row].as_py().decode("utf-8", "replace")
                report.findings += [
                    Finding(name, "damaged", document=document, part=part) for part in parts
                ]
                if not parts and _quoted(rows, row, index):
                    report.quoted.append(Finding(name, QUOTED, document=document))
            report.unverified += _unverified(rows)
    except Exception as error:  # noqa: BLE001 LanceDB panics on some damage
        report.findings.append(Finding(name, f"rows cannot be read: {outline(error)}"))


def faults(rows: pa.Table, index: Index) -> Iterator[list[str]]:
    """The faults of each row, by parts; ``rows`` holds all columns."""
    bad = checksums.faults(rows, *Part)
    for place, parts in enumerate(bad):
        named = [part.name.lower() for part in parts]
        if not named:
            named = _contradictions(rows.slice(place, 1), index)
        yield named


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
    return typed(index.identity.fields, metadata, held)


def typed(
    fields: dict[str, FieldType], metadata: dict[str, Any], held: dict[str, Any]
) -> list[str]:
    """The filter columns that contradict the metadata."""
    wrong = []
    for name, kind in fields.items():
        if held[PREFIX + name] != column(kind, metadata.get(name)):
            wrong.append(PREFIX + name)
    return wrong


def _quoted(rows: pa.Table, row: int, index: Index) -> bool:
    """Whether a text of a document, which conditions name, has what ``QUOTED`` says."""
    if rows["deleted"][row].as_py():
        return False
    kinds = index.identity.fields
    columns = [PREFIX + name for name, kind in kinds.items() if kind in ("string", "strings")]
    held = [rows[column][row].as_py() for column in ("id", "links", *columns)]
    texts = (one for value in held for one in (value if isinstance(value, list) else [value or ""]))
    return any("''" in text or "\\'" in text for text in texts)


def _unverified(rows: pa.Table) -> int:
    sealed = checksums.texts(rows["digest"])
    gone = rows["deleted"].to_pylist()
    return sum(checksums.unverified(d, g) for d, g in zip(sealed, gone, strict=True))


def outline(error: Exception) -> str:
    """The beginning of LanceDB's message, without positions in its source."""
    return str(error).split("/rustc/")[0].split("/root/")[0][:200].rstrip(" ,")
