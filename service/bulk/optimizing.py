"""``docsplit-index optimize NAME`` and ``erase NAME``: the maintenance of an index, now."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console

from service.bulk.command_settings import load_settings, parser_of
from service.bulk.progress import IndexProgress
from service.bulk.stores import index_name, writable
from service.errors import CommandError
from service.settings import Settings

if TYPE_CHECKING:
    from service.index.documents import Index
    from service.index.indexes import Indexes

# LanceDB repeats what conflicts with writes only a few times, or for 30 seconds
_ATTEMPTS = 10
_LEASE_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Condition:
    """What maintenance changes.

    Attributes:
        documents: deleted ones excluded.
        files: data files of the present version, with their rows written together.
        bytes: of the present version's data and indexes.
        versions: the present one and former ones.
        unindexed: rows that an index does not cover, by its column.
    """

    documents: int
    files: int
    bytes: int
    versions: int
    unindexed: dict[str, int]


def main(arguments: Sequence[str], flags: list[str]) -> int:
    """Optimize an index."""
    parser = parser_of(
        "optimize",
        "Do the maintenance of an index now: merge small files, update and build its "
        "indexes, and remove former versions that no reader needs. Services may run and write.",
    )
    parser.add_argument("name", help="of the index, or an alias")
    parser.add_argument(
        "--rebuild",
        action="store_true",
        help="build all indexes again, for example after the index grew to many times its size",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    name = index_name(given.name)
    settings = load_settings(flags)
    before, after = asyncio.run(_run(settings, name, given.rebuild))
    if given.json:
        sys.stdout.write(json.dumps({"before": asdict(before), "after": asdict(after)}) + "\n")
    else:
        sys.stdout.write("\n".join(_lines(name, before, after)) + "\n")
    return 0


async def _run(settings: Settings, name: str, rebuild: bool) -> tuple[Condition, Condition]:
    async with _work(settings, name) as (indexes, name, show):
        index = await indexes.open(name)
        before = await condition(index)
        await optimize(indexes, name, index, show, every=True, rebuild=rebuild)
        return before, await condition(index)


@asynccontextmanager
async def _work(
    settings: Settings, name: str
) -> AsyncIterator[tuple[Indexes, str, Callable[[str], None]]]:
    """The indexes of the store, the own name of one, and what shows the steps of the work on it."""
    async with writable(settings) as store:
        from service.index.rows.keyed import resolve

        indexes = await store.indexes()
        own = await resolve(indexes, name)
        with IndexProgress(Console(stderr=True)) as progress:
            yield indexes, own, lambda what: progress.step(f"{own}: {what}")
            progress.ended()


async def optimize(
    indexes: Indexes,
    name: str,
    index: Index,
    step: Callable[[str], None],
    *,
    every: bool = False,
    rebuild: bool = False,
) -> None:
    """Maintain an index; waits until no other process does so.

    Args:
        step: called with what begins.
        every, rebuild: as for ``maintenance.optimize``.

    Raises:
        CommandError: other processes wrote too much.
    """
    from service.index.maintenance import maintain
    from service.index.storage.database import conflicting

    async with _leased(indexes, index.table.name, step):
        for _ in range(_ATTEMPTS):
            try:
                if await maintain(indexes, name, index, step, every=every, rebuild=rebuild):
                    return
            except RuntimeError as error:
                if not conflicting(error):
                    raise
            step("begin again: other processes wrote at the same time")
    raise CommandError(
        "other processes wrote to the index all the time, so it is not optimized: repeat this when "
        "they write less"
    )


@asynccontextmanager
async def _leased(indexes: Indexes, lease: str, step: Callable[[str], None]) -> AsyncIterator[None]:
    """Wait until no other process maintains a table, and keep others from it."""
    from service.index.maintenance import LEASE_SECONDS

    waited = False
    while not await indexes.leases.acquire(lease, LEASE_SECONDS):
        if not waited:
            step("wait for another process that optimizes it")
            waited = True
        await asyncio.sleep(_LEASE_POLL_SECONDS)
    async with indexes.leases.kept(lease, LEASE_SECONDS):
        yield


def erase_main(arguments: Sequence[str], flags: list[str]) -> int:
    """Remove what was deleted from the disk."""
    parser = parser_of(
        "erase",
        "Remove deleted and replaced texts of an index from the disk now: write the "
        "files that hold them again, build all indexes again, and remove all former versions. "
        "Services may run; a search that began before may fail.",
    )
    parser.add_argument("name", help="of the index, or an alias")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    name = index_name(given.name)
    found = asyncio.run(_erase(load_settings(flags), name))
    if given.json:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        for table, files in found.items():
            sys.stdout.write(
                f"{table}: {files:,} files with deleted texts written again, all "
                "indexes built again, former versions removed\n"
            )
    return 0


async def _erase(settings: Settings, name: str) -> dict[str, int]:
    """The number of files that were written again, by generation."""
    found = {}
    async with _work(settings, name) as (indexes, name, show):
        from service.index.maintenance import erase

        for generation in await indexes.generations(name):
            table = generation.index.table.name
            async with _leased(indexes, table, show):
                found[table] = await erase(indexes, name, generation.index, show)
    return found


async def condition(index: Index) -> Condition:
    """The present condition of an index."""
    # the library annotates some of these calls wrongly, or not at all
    table: Any = index.table
    held = await table.stats()
    unindexed: dict[str, int] = {}
    for built in await table.list_indices():
        found = await table.index_stats(built.name)
        if found is not None:
            unindexed[built.columns[0]] = found.num_unindexed_rows
    return Condition(
        documents=await index.count(),
        files=held["fragment_stats"]["num_fragments"],
        bytes=held["total_bytes"],
        versions=len(await table.list_versions()),
        unindexed=unindexed,
    )


def _lines(name: str, before: Condition, after: Condition) -> list[str]:
    rows = ", ".join(
        f"{column} {before.unindexed.get(column, 'new')} -> {left}"
        for column, left in sorted(after.unindexed.items())
    )
    return [
        f"{name}: {after.documents:,} documents",
        f"files: {before.files:,} -> {after.files:,}",
        f"MB of data and indexes: {before.bytes / 1e6:,.1f} -> {after.bytes / 1e6:,.1f}",
        f"versions: {before.versions:,} -> {after.versions:,}",
        f"rows that an index lacks: {rows}",
    ]
