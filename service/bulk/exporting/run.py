"""Exports an index, or continues an export."""

from __future__ import annotations

import argparse
import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rich.console import Console

from service import executors
from service.bulk.command_settings import load_settings, parser_of
from service.bulk.exporting import destination as files
from service.bulk.exporting.destination import Damage, Destination, Manifest, Plan
from service.bulk.progress import IndexProgress
from service.bulk.stores import index_name, opened
from service.bulk.verifying import Finding, beginning, faults
from service.errors import CommandError
from service.index import sql
from service.index.documents import Index
from service.index.indexes import Indexes
from service.index.storage import database
from service.logs import printable
from service.settings import Settings

T = TypeVar("T")

# bytes of a part, by the ends of its windows; titles and metadata come on top
_PART_BYTES = 4 * 2**20
_PART_ROWS = 1024
# rows whose ends are read at once
_AHEAD = 2048
_RENEW_SECONDS = database.PIN_SECONDS / 24


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a table, without damaged rows and tombstones.

    Attributes:
        rows: as the export has them.
        sizes: about how many bytes each takes.
        places: number of each in the table, from 0.
        damaged: places and faults of the damaged ones.
        end: number of the table's rows up to the end of the part.
    """

    rows: pa.Table
    sizes: npt.NDArray[np.int64]
    places: list[int]
    damaged: list[tuple[int, Damage]]
    end: int


class Snapshot:
    """A pinned version of an index.

    Args:
        indexes: of the store.
        index: to read.
        pin: hex digits that name the reader.
    """

    def __init__(self, indexes: Indexes, index: Index, pin: str) -> None:
        self.index = index
        self._indexes = indexes
        self._pin = pin
        self._table: Any = index.table
        self._columns: list[str] = []
        self._renewed = float("-inf")
        self.version = 0
        self.pinned = True

    async def open(self, version: int | None) -> None:
        """Pin a version, by default the newest, and open it.

        Raises:
            CommandError: the version is gone, or it cannot be opened.
        """
        table: Any = await self._read(self._indexes.database.open_table(self.index.table.name))
        newest = await self._read(table.version())
        self.version = version or newest
        try:
            await table.checkout(self.version)
            await table.checkout_latest()
            self.version = await database.pin(table, self._pin, version)
        except ValueError as error:
            raise self._gone() from error
        except (OSError, RuntimeError):
            # for example a store that is only readable
            self.pinned = False
        await self._read(table.checkout(self.version))
        self._table = table
        # the table may have got columns since then
        self._columns = (await self._read(table.schema())).names
        self._renewed = time.monotonic()

    async def documents(self) -> int:
        """The number of documents."""
        return int(await self._read(self._table.count_rows(sql.LIVE)))

    async def parts(self, first: int, schema: pa.Schema) -> AsyncGenerator[Part, None]:
        """The rows from ``first`` on, in the order of the table.

        Args:
            first: number of the table's first rows that are left out.
            schema: of the export.

        Raises:
            CommandError: rows cannot be read, or the version is gone.
        """
        async for number in self._numbers(first, schema.field("vector").type.list_size):
            query = self._table.query().select(self._columns).offset(first).limit(number)
            found = await self._read(query.to_arrow())
            part = await executors.STORE.run(self._part, found, first, schema)
            first = part.end
            yield part
            await self._renew()

    async def _numbers(self, first: int, dimensions: int) -> AsyncGenerator[int, None]:
        """Numbers of rows that fit into memory together, from a row on."""
        while True:
            query = self._table.query().select(["window_ends"]).offset(first).limit(_AHEAD)
            ends = (await self._read(query.to_arrow()))["window_ends"].to_pylist()
            if not ends:
                return
            first += len(ends)
            number = size = 0
            for own in ends:
                number += 1
                # damage may leave null in either place
                size += ((own[-1] or 0) if own else 0) + 2 * dimensions * len(own or ())
                if size >= _PART_BYTES or number == _PART_ROWS:
                    yield number
                    number = size = 0
            if number:
                yield number

    async def release(self) -> None:
        """End the pin; it also ends by itself."""
        if self.version and self.pinned:
            with suppress(OSError, RuntimeError, ValueError):
                await self._table.checkout_latest()
                await database.unpin(self._table, self._pin)

    def _part(self, found: pa.Table, first: int, schema: pa.Schema) -> Part:
        wrong = list(faults(found, self.index))
        sound = [not bad for bad in wrong]
        alive = [not gone for gone in found["deleted"].to_pylist()]
        kept = [place for place, pair in enumerate(zip(sound, alive, strict=True)) if all(pair)]
        names = found["id"].cast(pa.binary())
        damaged = [
            (first + place, Damage(names[place].as_py().decode("utf-8", "replace"), part))
            for place, bad in enumerate(wrong)
            for part in bad
        ]
        whole = found.take(pa.array(kept, pa.int64()))
        rows = files.rows(whole, schema)
        places = [first + place for place in kept]
        return Part(rows, files.sizes(rows, schema), places, damaged, first + found.num_rows)

    async def _renew(self) -> None:
        if not self.pinned or time.monotonic() - self._renewed < _RENEW_SECONDS:
            return
        table = await self._read(self._indexes.database.open_table(self.index.table.name))
        await self._read(database.pin(table, self._pin, self.version))
        self._renewed = time.monotonic()

    async def _read(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except Exception as error:
            # LanceDB panics on some damage
            if await self._lost():
                raise self._gone() from error
            raise CommandError(
                f"the index cannot be read ({beginning(error)}): docsplit-index check "
                "names what is damaged; what is complete stays"
            ) from error

    async def _lost(self) -> bool:
        try:
            table = await self._indexes.database.open_table(self.index.table.name)
            if self.version:
                await table.checkout(self.version)
        except ValueError:
            return True
        except Exception:  # noqa: BLE001 the first error says more
            return False
        return False

    def _gone(self) -> CommandError:
        return CommandError(
            f"version {self.version} of the index is gone, and this export reads only this one: "
            "empty the folder, and export again"
        )


class Export:
    """One export.

    Args:
        indexes: of the store.
        index: to export.
        destination: a folder that only this export writes to.
        plan: what to write.
    """

    def __init__(
        self, indexes: Indexes, index: Index, destination: Destination, plan: Plan
    ) -> None:
        self._destination = destination
        self._schema = files.schema(index, windows=plan.windows)
        self._plan = plan
        held = destination.manifest()
        self.manifest = held or self._new(index)
        self.resumed = held is not None
        self._snapshot = Snapshot(indexes, index, self.manifest.pin)

    @property
    def pinned(self) -> bool:
        """Whether the exported version is safe from cleanups."""
        return self._snapshot.pinned

    async def open(self) -> int:
        """Compare the folder with the plan, and pin the version to read.

        Returns:
            The number of documents in this version, damaged ones included.

        Raises:
            CommandError: the folder holds another export, or its version is gone.
        """
        held = self.manifest
        if self.resumed:
            self._require()
        if not held.complete:
            # before the pin, which a folder that cannot be written would leave behind
            self._destination.write(held)
            await self._snapshot.open(held.version or None)
            held.version = self._snapshot.version
            self._destination.write(held)
            return await self._snapshot.documents()
        newest = await self._snapshot.index.table.version()
        if newest != held.version:
            raise CommandError(
                f"{self._destination.path}: holds a complete export of an earlier state of the "
                "index: give another folder"
            )
        return held.rows

    async def run(self, show: Callable[[int], None]) -> None:
        """Write what is missing.

        Args:
            show: called with the number of documents that are done.

        Raises:
            CommandError: the index cannot be read, or the folder cannot be written.
        """
        while not self.manifest.complete:
            await self._file(show)
            self._destination.write(self.manifest)
        await self._snapshot.release()

    async def _file(self, show: Callable[[int], None]) -> None:
        """Write one more file, unless no rows are left."""
        held, plan = self.manifest, self._plan
        name = f"part-{len(held.files):05}{files.SUFFIXES[plan.form]}"
        cutter = files.Cutter(plan.file_rows)
        damaged: list[Damage] = []
        end = held.next
        with self._destination.whole(name) as path:
            with files.writer(path, self._schema, plan.form) as out:
                parts = self._snapshot.parts(held.next, self._schema)
                async with aclosing(parts):
                    async for part in parts:
                        end = _add(part, out, cutter)
                        damaged += [one for place, one in part.damaged if place < end]
                        show(held.rows + out.rows)
                        if end < part.end or cutter.whole:
                            break
                    else:
                        held.complete = True
            if not out.rows:
                path.unlink()
        if out.rows:
            held.files.append(self._destination.file(name, out.rows))
        held.rows += out.rows
        held.damaged += damaged
        held.next = end

    def _require(self) -> None:
        held, path = self.manifest, self._destination.path
        if held.plan.index != self._plan.index or held.plan.generation != self._plan.generation:
            raise CommandError(f"{path}: holds an export of another index: give another folder")
        if held.plan != self._plan:
            raise CommandError(
                f"{path}: the export began with other flags: --format {held.plan.form} "
                f"--file-rows {held.plan.file_rows}{'' if held.plan.windows else ' --no-windows'}"
            )
        lacking = self._destination.lacking(held)
        if lacking is not None:
            raise CommandError(
                f"{path}: {lacking} is missing or changed: empty the folder, and export again"
            )

    def _new(self, index: Index) -> Manifest:
        identity = index.identity
        return Manifest(
            plan=self._plan,
            bundle=identity.model,
            revision=identity.revision,
            dimensions=index.schema.field("vector").type.list_size,
            fields=dict(identity.fields),
            table=index.table.name,
            version=0,
            pin=uuid.uuid4().hex[:12],
            columns=[
                {"name": f.name, "type": str(f.type), "meaning": files.meaning(f.name)}
                for f in self._schema
            ],
        )


def _add(part: Part, out: files.Writer, cutter: files.Cutter) -> int:
    """Write the rows of a part until the file is full.

    Returns:
        The number of the table's rows that are done.
    """
    start = 0
    for stop in cutter.cuts(part.sizes):
        out.add(part.rows.slice(start, stop - start))
        out.flush()
        start = stop
        if cutter.whole:
            return part.places[stop - 1] + 1
    out.add(part.rows.slice(start))
    return part.end


FILE_ROWS = 100_000


def main(arguments: Sequence[str], flags: list[str]) -> int:
    """Export an index; the exit status is 1 when damaged documents are left out."""
    parser = parser_of(
        "export",
        "Write an index to a folder as Parquet or Arrow files with vectors, texts, "
        "metadata and links, and a manifest. Services may run and write: the export has the state "
        "of its beginning. Repeat the command to continue an interrupted export.",
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
        found = Finding(f"indexes/{held.table}", "damaged", one.document, one.part)
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
