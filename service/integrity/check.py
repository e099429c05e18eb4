"""Reads all data below ``index_path`` and names the faults."""

import asyncio
from pathlib import Path

from docsplit.heads import network
from docsplit.heads.examples import Examples
from docsplit.heads.network import Network
from service import executors
from service.index.generations import Registry
from service.index.indexes import Indexes, connect
from service.index.storage import layout
from service.index.storage.ledger import Recorder
from service.integrity import own, reading, recorded, rows, unfinished
from service.integrity.findings import Finding, Report
from service.integrity.reader import EndedError, Reader

INDEXES = "indexes"
# LanceDB can end the process when it reads such a file
_READ = ("data/", "_deletions/", "_versions/")
# a commit of a running service must not look like damage
_LOOKS = 2
_PAUSE = 0.2


async def check(indexes: Indexes, root: Path | None, name: str | None, *, record: bool) -> Report:
    """Verify one index, or the whole store.

    Args:
        indexes: opens tables.
        root: ``index_path`` if it is a folder; with None only rows are verified.
        name: of the index; None means all indexes, shared tables, and classifiers.
        record: record the missing digests of files in sound tables.

    Raises:
        NotFoundError: there is no index of that name.
    """
    report = Report()
    if root is not None and name is None:
        report.findings += await executors.STORE.run(own.faults, root)
    # an index may be large
    with Reader(seconds=None) as reader:
        await _tables(indexes, root, name, report, reader, record=record)
    return report


async def _tables(
    indexes: Indexes,
    root: Path | None,
    name: str | None,
    report: Report,
    reader: Reader,
    *,
    record: bool,
) -> None:
    for database, table in await tables(indexes, root, name):
        before, others = len(report.findings), report.unrecorded
        if root is not None and not layout.folder(root, database, table).is_dir():
            # dropped since the listing
            continue
        report.tables += 1
        if root is not None:
            await _files(root, database, table, report)
        if any(f.file is not None and f.file.startswith(_READ) for f in report.findings[before:]):
            report.findings.append(
                Finding(f"{database}/{table}", "its rows were not read: repair its files first")
            )
        elif database == INDEXES:
            await _rows(indexes, root, table, report, reader)
            if root is not None and unfinished.of_table(root, table):
                what = "a repair of it was interrupted: repeat it"
                report.findings.append(Finding(f"{database}/{table}", what))
        elif database == "heads" and root is not None:
            await _heads(root, table, report)
        if record and root is not None and len(report.findings) == before:
            recorded = await executors.STORE.run(Recorder(root).record, database, table)
            # a running service may have added files since they were counted
            report.unrecorded = max(report.unrecorded - recorded, others)


async def _files(root: Path, database: str, table: str, report: Report) -> None:
    """Compare a table's files; a second time if the first may have met an unfinished commit."""
    for _ in range(_LOOKS):
        seen = Report()
        synced = await executors.STORE.run(own.synced_fault, root, database, table)
        seen.findings += [synced] if synced is not None else []
        await executors.STORE.run(recorded.check, root, database, table, seen)
        if not seen.findings:
            break
        await asyncio.sleep(_PAUSE)
    report.files += seen.files
    report.unrecorded += seen.unrecorded
    report.findings += seen.findings


async def tables(indexes: Indexes, root: Path | None, name: str | None) -> list[tuple[str, str]]:
    """Databases and tables of an index, or of the whole store.

    Raises:
        NotFoundError: there is no index of that name.
    """
    from service.errors import NotFoundError
    from service.index.generations import by_index
    from service.index.storage.database import table_names

    dropped = await _dropped(indexes.registry)
    held = [table for table in await table_names(indexes.database) if table not in dropped]
    if name is not None:
        held = by_index(held).get(name, [])
        if not held:
            raise NotFoundError("there is no index of that name")
    found = [(INDEXES, table) for table in held]
    if name is None and root is not None:
        found += [(d, t) for d, t in layout.tables(root) if d in layout.SHARED]
    return found


async def _dropped(registry: Registry) -> dict[str, float]:
    try:
        return await registry.dropped()
    except Exception:  # noqa: BLE001 LanceDB panics on some damage
        # the check of that table reports it
        return {}


async def _rows(
    indexes: Indexes, root: Path | None, table: str, report: Report, reader: Reader
) -> None:
    name = f"{INDEXES}/{table}"
    try:
        index = await indexes.table(table)
    except Exception as error:  # noqa: BLE001 LanceDB panics on some damage
        report.findings.append(Finding(name, f"it cannot be opened: {rows.outline(error)}"))
        return
    if index is None:
        return
    if root is None:
        await rows.check(index, name, report)
        return
    try:
        read = await reader.run(reading.check, f"{root}/{INDEXES}", table, name)
    except (EndedError, RuntimeError) as error:
        report.findings.append(Finding(name, f"rows cannot be read: {rows.outline(error)}"))
        return
    report.rows += read.rows
    report.unverified += read.unverified
    report.findings += read.findings
    report.quoted += read.quoted


async def _heads(root: Path, table: str, report: Report) -> None:
    """Check heads by their checksums, and that networks and examples can be read."""
    name = f"heads/{table}"
    try:
        database = await connect(f"{root}/heads")
        held = await (await database.open_table(table)).query().to_arrow()
    except Exception as error:  # noqa: BLE001 LanceDB panics on some damage
        report.findings.append(Finding(name, f"rows cannot be read: {rows.outline(error)}"))
        return
    report.rows += held.num_rows
    if set(network.COLUMNS) <= set(held.schema.names):
        for place in range(held.num_rows):
            try:
                network.unsealed(held.select(network.COLUMNS).slice(place, 1).to_pylist()[0])
            except (TypeError, ValueError):
                document = held[held.schema.names[0]][place].as_py()
                report.findings.append(Finding(name, "damaged", document=document, part="report"))
    for column, parse in (("network", Network.from_bytes), ("examples", Examples.from_bytes)):
        if column not in held.schema.names:
            continue
        for place, blob in enumerate(held[column].to_pylist()):
            try:
                if blob:
                    parse(blob)
            except Exception:  # noqa: BLE001 a damaged archive can raise any error
                document = held[held.schema.names[0]][place].as_py()
                found = Finding(name, "damaged", document=document, part=column)
                report.findings.append(found)
