"""Restores damaged data as far as possible, and reports the rest as lost."""

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from service import executors
from service.index import sql
from service.index.documents import Index
from service.index.indexes import Indexes, connect
from service.index.maintenance import KEEP_TOMBSTONES, optimize
from service.index.reembed import Embed, embed_rows
from service.index.rows.columns import prepare
from service.index.rows.record import Record
from service.index.rows.versions import microseconds
from service.index.sql import Sql
from service.index.storage import layout, manifest, pins
from service.index.storage.ledger import Recorder, read
from service.integrity import names, own, reading, recorded, rows, salvage, table_files
from service.integrity.judge import Judged, judge
from service.integrity.outcome import Outcome
from service.integrity.reader import Reader
from service.integrity.rescue import rescue
from service.integrity.unfinished import Plans

# almost zero: LanceDB warns about zero itself
_NO_TIME = timedelta(milliseconds=1)
_BATCH = 1024
# at most so often are rows read and repaired
_LOOKS = 3


class Repair:
    """Repairs indexes, and with ``shared`` the shared tables; nothing else may write meanwhile.

    Args:
        root: ``index_path``.
        reader: reads damaged files.
        open_indexes: connects again: LanceDB keeps what it read before a repair.
        engine: starts the served bundle's engine; called only if documents must be embedded.
    """

    def __init__(
        self,
        root: Path,
        reader: Reader,
        open_indexes: Callable[[], Awaitable[Indexes]],
        engine: Callable[[], Awaitable[Embed]],
    ) -> None:
        self._root = root
        self._reader = reader
        self._open_indexes = open_indexes
        self._engine = engine
        self._embed: Embed | None = None
        self.outcome = Outcome()
        self._plans = Plans(root, self.outcome)

    async def index(self, tables: Sequence[str]) -> None:
        """Repair tables of the database ``indexes``."""
        for table in tables:
            await self._table(table)
        self._plans.end()

    async def shared(self) -> None:
        """Repair the tables that all indexes share, the classifiers, and files of texts."""
        await executors.STORE.run(own.repair, self._root, self.outcome)
        for database, table in layout.tables(self._root):
            if database in layout.SHARED:
                bad = await executors.STORE.run(
                    table_files.repair, self._root, database, table, self.outcome
                )
                if layout.manifests(layout.folder(self._root, database, table)):
                    await self._plain(database, table, bad)

    async def _table(self, table: str) -> None:
        folder = layout.folder(self._root, "indexes", table)
        bad = await executors.STORE.run(
            table_files.repair, self._root, "indexes", table, self.outcome
        )
        held = layout.manifests(folder)
        if not held:
            return
        newest = manifest.read(folder / next(iter(held.values())))
        substituted = [f for f in newest.fragments if f.deletions in bad]
        for fragment in substituted:
            if fragment.deletions is not None:
                table_files.write_no_deletions(folder / fragment.deletions)
                Recorder(self._root).forget("indexes", table, [fragment.deletions])
        index = await (await self._open_indexes()).table(table)
        if index is None:
            self.outcome.left.append(f"indexes/{table}: it cannot be opened")
            return
        unindexed = any(path.startswith("_indices/") for path in bad)
        if unindexed:
            # a write would read them
            await _drop_indexes(index)
        await self._fragments(index, folder, newest, bad)
        for fragment in substituted:
            await self._forget_again(index, fragment)
        if unindexed:
            await prepare(index.table)
            self.outcome.repaired.append(f"indexes/{table}: its indexes built again")
        await self._rows(index)
        await self._finish(index, table, bad)

    async def _fragments(
        self, index: Index, folder: Path, newest: manifest.Manifest, bad: set[str]
    ) -> None:
        """Write the readable rows of damaged files again, and name the documents of the others."""
        name = f"indexes/{index.table.name}"
        take = salvage.through(self._reader, str(folder.parent), index.table.name)
        unnamed, files_of_them = 0, list[str]()
        for fragment in newest.fragments:
            if not bad.intersection(fragment.paths) and await salvage.readable(
                take, index.schema.names, fragment.number, fragment.rows
            ):
                continue
            rescued = await rescue(self._reader, folder, newest, index.schema, fragment)
            judged = judge(rescued.rows, index, distrust=True)
            where = f"file {', '.join(fragment.paths)}"
            lost = [
                f"{name}: document {document!r}: its row in {where} cannot be read"
                for document in rescued.lost
            ]
            # after an interruption nothing tells their names any more
            unread = [f"{name}: {where}: rows whose ids cannot be read: {rescued.unnamed}"]
            unread = unread if rescued.unnamed else []
            inside = reading.within(fragment.number)
            await self._replace(index, inside, rescued.rows, judged, lost + unread)
            self.outcome.repaired.append(
                f"{name}: {where}: {rescued.rows.num_rows} rows taken out of it"
            )
            self.outcome.lost += lost
            bad.update(fragment.paths)
            if rescued.unnamed:
                unnamed += rescued.unnamed
                files_of_them += fragment.paths
        # only now can a merge read all files
        await self._plans.resume(index)
        if not unnamed:
            return
        ids = (await index.table.query().select(["id"]).to_arrow())["id"].to_pylist()
        former = await names.by_versions(self._reader, folder, newest, set(ids))
        self.outcome.lost += [
            f"{name}: document {document!r}: version {version} had it, and its row cannot be read"
            for document, version in sorted(former.items())
        ]
        if unnamed > len(former):
            self.outcome.lost.append(
                f"{name}: file {', '.join(files_of_them)}: rows whose ids cannot be read: "
                f"{unnamed - len(former)}"
            )

    async def _finish(self, index: Index, table: str, bad: set[str]) -> None:
        """Remove all versions that need a damaged file, and record the current files."""
        if bad:
            await pins.release(index.table)
            await index.table.optimize(cleanup_older_than=_NO_TIME)
        await optimize(index.table)
        await executors.STORE.run(self._close, "indexes", table, bad)

    def _close(self, database: str, table: str, bad: set[str]) -> None:
        folder = layout.folder(self._root, database, table)
        needed: set[str] = set()
        for path in layout.manifests(folder).values():
            needed.update(manifest.read(folder / path).paths)
        left = [path for path in bad - needed if (folder / path).exists()]
        recorder = Recorder(self._root)
        if left:
            table_files.set_aside(self._root, database, table, left)
        known = read(self._root, database, table).entries
        gone = {path for path in known if not (folder / path).exists()}
        recorder.forget(database, table, sorted(gone | (bad & needed)))
        recorder.record(database, table)
        if recorded.hint(folder) and (held := layout.manifests(folder)):
            table_files.write(folder / layout.HINT, f'{{"version":{max(held)}}}')

    async def _rows(self, index: Index) -> None:
        """Repair the damaged rows of readable files.

        A service that still runs may move rows meanwhile, and then a row's number names no row: so
        it looks again after a repair.
        """
        before = len(self.outcome.left)
        for _ in range(_LOOKS):
            damaged = await _damaged(index)
            for held in damaged:
                these = sql.among("_rowid", held["_rowid"].to_pylist())
                content = held.select(index.schema.names)
                await self._replace(index, these, content, judge(content, index))
            if not damaged or len(self.outcome.left) > before:
                break
        self.outcome.once()

    async def _replace(
        self,
        index: Index,
        where: Sql,
        former: pa.Table,
        judged: Judged,
        lost: Sequence[str] = (),
    ) -> None:
        """Delete rows and write their repaired form; the quarantine gets a copy of the rows.

        Args:
            where: the condition of the rows.
            former: the rows, as far as they can be read.
            judged: the same rows.
            lost: further losses that the next repair reports if this one is interrupted.
        """
        name = f"indexes/{index.table.name}"
        said = Outcome()
        written = list(judged.sound)
        stale = judged.stale
        if stale:
            made = await self._embedded(index, stale)
            if made is None:
                revision = index.identity.revision[:12]
                self.outcome.left += [
                    f"{name}: document {row['id']!r}: it must be embedded again: repeat this with "
                    f"the bundle of revision {revision}"
                    for row in stale
                ]
                return
            written += made
            said.repaired += [f"{name}: document {row['id']!r}: embedded again" for row in stale]
        said.lost += [
            f"{name}: document {document!r}: its {part} is damaged"
            for document, part in judged.lost
        ]
        said.repaired += [
            f"{name}: document {record.id!r}: written again" for record, _ in judged.sound
        ]
        aside = table_files.quarantine(self._root, "indexes", index.table.name)
        if former.num_rows:
            with pa.ipc.new_file(aside / "rows.arrow", former.schema) as stream:
                stream.write_table(former)
        report = Outcome(said.repaired, [*said.lost, *lost])
        plan = await self._plans.make(aside, index, written, judged.tombstones, report)
        await index.table.delete(where)
        await self._plans.carry_out(index, plan, report)
        self.outcome.lost += said.lost
        self.outcome.repaired += said.repaired

    async def _embedded(
        self, index: Index, stale: list[dict[str, Any]]
    ) -> list[tuple[Record, int]] | None:
        indexes = await self._open_indexes()
        if all(index.identity.revision != model.revision for model in indexes.served.models):
            return None
        if self._embed is None:
            self._embed = await self._engine()
        read = [row | {"metadata": json.dumps(row["metadata"])} for row in stale]
        made = await embed_rows(read, self._embed)
        return list(zip(made, [row["updated"] for row in stale], strict=True))

    async def _forget_again(self, index: Index, fragment: manifest.Fragment) -> None:
        """Delete rows of a fragment again when only the number of its deleted rows is known.

        The latest row of each document stays. Tombstones that are old enough are removed.
        """
        columns = ["id", "updated", "deleted"]
        held = await index.table.query().select(columns).with_row_id().to_arrow()
        latest: dict[str, tuple[int, int]] = {}
        for row in held.to_pylist():
            key = (row["updated"], row["_rowid"])
            latest[row["id"]] = max(latest.get(row["id"], key), key)
        old = microseconds() - KEEP_TOMBSTONES
        gone = [
            row["_rowid"]
            for row in held.to_pylist()
            if row["_rowid"] >> 32 == fragment.number
            and (
                latest[row["id"]] != (row["updated"], row["_rowid"])
                or (row["deleted"] and row["updated"] < old)
            )
        ]
        if gone:
            await index.table.delete(sql.among("_rowid", gone))
        else:
            # the version still counts deleted rows that the empty list does not have
            where = reading.within(fragment.number)
            whole = await index.table.query().where(where).select(index.schema.names).to_arrow()
            await self._replace(index, where, whole, judge(whole, index))
        name = f"indexes/{index.table.name}: file {fragment.deletions}"
        if len(gone) < fragment.deleted:
            self.outcome.lost.append(
                f"{name}: which {fragment.deleted - len(gone)} further rows it deleted: documents "
                "that were deleted long ago may exist again"
            )
        else:
            self.outcome.repaired.append(f"{name}: {len(gone)} rows deleted again")

    async def _plain(self, database: str, table: str, bad: set[str]) -> None:
        """Rescue the readable rows of a damaged table without texts."""
        folder = layout.folder(self._root, database, table)
        held = manifest.read(folder / next(iter(layout.manifests(folder).values())))
        opened = await (await connect(f"{self._root}/{database}")).open_table(table)
        schema = await opened.schema()
        take = salvage.through(self._reader, f"{self._root}/{database}", table)
        for fragment in held.fragments:
            if fragment.deletions in bad and fragment.deletions is not None:
                table_files.write_no_deletions(folder / fragment.deletions)
                Recorder(self._root).forget(database, table, [fragment.deletions])
            broken = bool(bad.intersection(fragment.paths))
            if not broken and await salvage.readable(
                take, schema.names, fragment.number, fragment.rows
            ):
                continue
            await opened.delete(reading.within(fragment.number))
            bad.update(fragment.paths)
            missing = fragment.rows - fragment.deleted
            self.outcome.lost.append(f"{database}/{table}: {missing} rows of a damaged file")
        if bad:
            await opened.optimize(cleanup_older_than=_NO_TIME)
        await executors.STORE.run(self._close, database, table, bad)


async def _damaged(index: Index) -> list[pa.Table]:
    """The damaged rows of a table's readable files, all columns and ``_rowid``."""
    damaged: list[pa.Table] = []
    query = index.table.query().select(index.schema.names).with_row_id()
    async for batch in await query.to_batches(max_batch_length=_BATCH):
        held = pa.Table.from_batches([batch])
        bad = [bool(parts) for parts in rows.faults(held, index)]
        if any(bad):
            damaged.append(held.filter(pa.array(bad)))
    return damaged


async def _drop_indexes(index: Index) -> None:
    for built in await index.table.list_indices():
        await index.table.drop_index(built.name)
