"""``docsplit-index check``: read every row of the store, and name the damaged ones."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from service import executors
from service.bulk.command_settings import load_settings, parser_of
from service.bulk.stores import faults, index_name, open_indexes, root_of
from service.bulk.verifying import Finding, Report, verify
from service.errors import NotFoundError
from service.index.storage.recovery import Apart, EndedError
from service.server.encoders import open_one
from service.settings import Settings

if TYPE_CHECKING:
    from service.index.indexes import Indexes


def main(arguments: Sequence[str], flags: list[str]) -> int:
    """Check the store; the exit status is 0 when each row can be read and matches its checksums."""
    parser = parser_of(
        "check",
        "Read every row of the whole store, or only of the index NAME, verify its "
        "checksums, and name what is damaged. It changes nothing; services may run.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="of the index; all without it")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    name = None if given.name is None else index_name(given.name)
    settings = load_settings(flags).model_copy(update={"keys_file": None, "calibrate": 0})
    report = asyncio.run(_run(settings, name))
    lines = [
        *(f"damaged: {finding}" for finding in report.findings),
        *(f"to look at: {finding}" for finding in report.quoted),
        f"{report.tables} tables, {report.rows} rows ({report.unverified} unverified: written "
        f"before there were checksums), {len(report.findings)} damaged",
    ]
    sys.stdout.write((json.dumps(asdict(report)) if given.json else "\n".join(lines)) + "\n")
    return 1 if report.findings else 0


async def _run(settings: Settings, name: str | None) -> Report:
    root = root_of(settings)
    with faults():
        return await check(await open_indexes(settings, open_one(settings)), root, name)


async def check(indexes: Indexes, root: Path | None, name: str | None) -> Report:
    """Verify one index, or the whole store.

    Args:
        root: ``index_path`` if it is a folder.
        name: of the index; None means all indexes, shared tables, and classifiers.

    Raises:
        NotFoundError: there is no index of that name.
    """
    from service.index.indexes import by_index
    from service.index.storage.database import table_names

    uri = indexes.database.uri.rpartition("/")[0]
    report = Report()
    try:
        dropped = await indexes.registry.dropped()
    except Exception:  # noqa: BLE001 LanceDB panics on some damage; the check of that table says so
        dropped = {}
    held = [one for one in await table_names(indexes.database) if one not in dropped]
    if name is not None and not (held := by_index(held).get(name, [])):
        raise NotFoundError("there is no index of that name")
    found = [("indexes", table) for table in held]
    if name is None and root is not None:
        found += _shared(root)
    apart = Apart()
    try:
        for database, table in found:
            if root is not None and not (root / database / f"{table}.lance").is_dir():
                # dropped since the listing
                continue
            try:
                # objects of a bucket have checksums, so they need no process of their own
                run = executors.STORE.run if root is None else apart.run
                report.add(await run(verify, uri, database, table))
            except EndedError as error:
                report.add(Report(1, findings=[Finding(f"{database}/{table}", str(error))]))
    finally:
        apart.close()
    return report


def _shared(root: Path) -> list[tuple[str, str]]:
    """The tables that belong to no index, sorted."""
    found = [path for part in ("leases", "heads") for path in root.glob(f"{part}/*.lance")]
    return sorted((path.parent.name, path.stem) for path in found)
