"""``docsplit-index check`` and ``docsplit-index repair``: verify and repair the store."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from service.bulk.command_settings import load_settings
from service.bulk.stores import faults, index_name, open_indexes, root_of
from service.errors import CommandError
from service.integrity.findings import Report
from service.integrity.outcome import Outcome
from service.server.lifecycle import Service
from service.server.opening import open_one
from service.settings import Settings

if TYPE_CHECKING:
    from service.index.indexes import Indexes
    from service.index.reembed import Embed


def main(command: str, arguments: Sequence[str], flags: list[str]) -> int:
    """Check or repair.

    Args:
        command: ``check`` or ``repair``.
        arguments: of the command.
        flags: of settings.

    Returns:
        Exit status: 0 when the store is intact (``repair``: again), 1 when data is damaged or was
        lost.
    """
    given = _parser(command).parse_args(arguments)
    name = None if given.name is None else index_name(given.name)
    settings = load_settings(flags).model_copy(update={"keys_file": None, "calibrate": 0})
    if command == "check":
        report = asyncio.run(_check(settings, name, given.record))
        _print(_checked(report), asdict(report), given.json)
        return 1 if report.findings else 0
    outcome, report = asyncio.run(_repair(settings, name))
    _print(_repaired(outcome, report), asdict(outcome) | {"after": asdict(report)}, given.json)
    return 1 if outcome.lost or outcome.left or report.findings else 0


def _parser(command: str) -> argparse.ArgumentParser:
    said = {
        "check": "Read the whole store, or only the index NAME, verify every checksum and every "
        "recorded digest, and name the faults. It changes nothing; services may run.",
        "repair": "Restore damaged data in the whole store, or only in the index NAME, and name "
        "lost data. First stop the services that write to it.",
    }
    parser = argparse.ArgumentParser(
        f"docsplit-index {command}",
        description=said[command],
        epilog="Further flags are docsplit-serve's, such as --index-path and --bundle.",
        allow_abbrev=False,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="of the index; all without it")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    if command == "check":
        parser.add_argument(
            "--record", action="store_true", help="record the digests of files without one"
        )
    return parser


async def _check(settings: Settings, name: str | None, record: bool) -> Report:
    from service.integrity.check import check

    root = root_of(settings)
    with faults():
        indexes = await open_indexes(settings, open_one(settings))
        return await check(indexes, root, name, record=record)


async def _repair(settings: Settings, name: str | None) -> tuple[Outcome, Report]:
    from service.integrity.check import INDEXES, check, tables
    from service.integrity.reader import Reader
    from service.integrity.repair import Repair

    held, root = open_one(settings), root_of(settings)
    if root is None:
        raise CommandError("repair: index_path must be a folder; copy the store to one")
    service: Service | None = None

    async def engine() -> Embed:
        nonlocal service
        service = Service(settings, held)
        await service.start()
        if service.running is None:
            raise CommandError("the engine did not start; its log says why")
        return service.running.reembedder

    async def opened() -> Indexes:
        return await open_indexes(settings, held)

    try:
        with Reader() as reader:
            repair = Repair(root, reader, opened, engine)
            if name is None:
                await repair.shared()
            found = await tables(await opened(), root, name)
            await repair.index([table for database, table in found if database == INDEXES])
        return repair.outcome, await check(await opened(), root, name, record=True)
    finally:
        if service is not None:
            await service.stop()


def _checked(report: Report) -> list[str]:
    lines = [f"damaged: {finding}" for finding in report.findings]
    return [
        *lines,
        *(f"to look at: {finding}" for finding in report.quoted),
        f"{report.tables} tables, {report.rows} rows ({report.unverified} unverified: written "
        f"before there were checksums), {report.files} files ({report.unrecorded} more without a "
        f"recorded digest), {len(report.findings)} damaged",
    ]


def _repaired(outcome: Outcome, report: Report) -> list[str]:
    return [
        *(f"repaired: {line}" for line in outcome.repaired),
        *(f"lost: {line}" for line in outcome.lost),
        *(f"left: {line}" for line in outcome.left),
        *_checked(report),
    ]


def _print(lines: list[str], content: dict[str, object], as_json: bool) -> None:
    sys.stdout.write((json.dumps(content) if as_json else "\n".join(lines)) + "\n")
