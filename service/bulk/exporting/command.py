"""``docsplit-index export NAME DEST``."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from service.bulk.command_settings import load_settings
from service.bulk.exporting.destination import Destination, Manifest, Plan
from service.bulk.progress import IndexProgress
from service.bulk.stores import index_name, opened
from service.errors import CommandError
from service.integrity.findings import Finding
from service.logs import printable
from service.settings import Settings

FILE_ROWS = 100_000


def main(arguments: Sequence[str], flags: list[str]) -> int:
    """Export an index.

    Args:
        arguments: of the command.
        flags: of settings.

    Returns:
        Exit status: 0 when every document is exported, 1 when damaged ones are left out.
    """
    parser = argparse.ArgumentParser(
        "docsplit-index export",
        description="Write an index to a folder as Parquet or Arrow files with vectors, texts, "
        "metadata and links, and a manifest. Services may run and write: the export has the state "
        "of its beginning. Repeat the command to continue an interrupted export.",
        epilog="Further flags are docsplit-serve's, such as --index-path and --bundle.",
        allow_abbrev=False,
    )
    parser.add_argument("name", help="of the index, or an alias")
    parser.add_argument("destination", type=Path, help="a new or empty folder")
    parser.add_argument("--format", choices=("parquet", "arrow"), default="parquet")
    parser.add_argument(
        "--no-windows", action="store_true", help="leave out the vectors of windows"
    )
    parser.add_argument(
        "--file-rows",
        type=int,
        default=FILE_ROWS,
        metavar="N",
        help=f"most documents of a file (default: {FILE_ROWS:,}); large ones end a file earlier",
    )
    given = parser.parse_args(arguments)
    if given.file_rows < 1:
        raise CommandError("--file-rows: give a positive number")
    name = index_name(given.name)
    settings = load_settings(flags)
    return asyncio.run(_export(settings, name, given))


async def _export(settings: Settings, name: str, given: argparse.Namespace) -> int:
    from service.bulk.exporting.run import Export

    console = Console(stderr=True)
    indexes, name, index = await opened(settings, name)
    plan = Plan(
        name, index.identity.generation, given.format, not given.no_windows, given.file_rows
    )
    destination = Destination(given.destination)
    with destination.locked():
        export = Export(indexes, index, destination, plan)
        total = await export.open()
        if not export.pinned:
            console.print(
                "the store is not writable, so nothing keeps the version of this export from "
                "cleanups by others",
                style="yellow",
                markup=False,
            )
        with IndexProgress(console) as progress:
            task = progress.start(f"{name}: export", total, export.manifest.rows)
            await export.run(lambda done: progress.update(task, done))
            progress.ended()
    return report(console, export.manifest)


def report(console: Console, held: Manifest) -> int:
    """Print what an export has, and name what it left out; returns the exit status."""
    for one in held.damaged:
        found = Finding(f"indexes/{held.table}", "damaged", document=one.document, part=one.part)
        line = f"damaged: {printable(str(found))}"
        console.print(line, style="red", markup=False, emoji=False, soft_wrap=True)
    size = sum(file.bytes for file in held.files)
    console.print(
        f"{held.rows:,} documents in {len(held.files):,} files, {size / 1e6:,.1f} MB; "
        f"version {held.version} of the index; "
        f"{len({one.document for one in held.damaged})} damaged documents left out",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    return 1 if held.damaged else 0
