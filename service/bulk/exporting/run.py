"""Exports an index, or continues an export."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import aclosing

from service.bulk.exporting import columns, files
from service.bulk.exporting.destination import Damage, Destination, Manifest, Plan
from service.bulk.exporting.reading import Part, Snapshot
from service.errors import CommandError
from service.index.documents import Index
from service.index.indexes import Indexes


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
        self._schema = columns.schema(index, windows=plan.windows)
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
                {"name": f.name, "type": str(f.type), "meaning": columns.meaning(f.name)}
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
