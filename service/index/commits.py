"""Writes and deletions of documents: group commits, under conditions on versions.

A ``Writer`` puts the changes of many requests into one commit; a deletion reaches all generations.
``uid`` names one life of an index: who checked documents for an index that was deleted and created
again meanwhile meets another one, and gets ``ConflictError``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from service.errors import (
    BuildingError,
    ConflictError,
    NotFoundError,
    OvertakenError,
    StoreError,
    UncertainError,
    VersionError,
    disk_fault,
)
from service.index import sql
from service.index.documents import OLDER, Index, applied
from service.index.indexes import Indexes
from service.index.rows import records, versions
from service.index.rows.versions import ATTEMPTS, Condition, Standing, holds, microseconds
from service.index.sql import Sql
from service.index.storage import bucket
from service.index.storage.database import refresh

if TYPE_CHECKING:
    from lancedb._lancedb import MergeResult


@dataclass(slots=True)
class Upsert:
    """Documents of one request.

    Attributes:
        rows: as ``Index.rows`` makes them; each id occurs once.
        conditions: by id; a document without a condition is written in any case.
        times: when each was written, by id. The first attempt to commit sets them, so that a
            second attempt changes nothing that the first has done.
    """

    rows: pa.Table
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)

    @property
    def ids(self) -> list[str]:
        """Ids of the documents, in their order."""
        found: list[str] = self.rows["id"].to_pylist()
        return found

    @property
    def generation(self) -> str:
        """The generation for which the rows were made, see ``Identity``."""
        held: bytes = self.rows.schema.metadata[b"docsplit.generation"]
        return held.decode()


async def write(index: Index, upserts: Sequence[Upsert]) -> list[VersionError | None]:
    """Commit documents; ``times`` of each upsert are then their versions.

    If a condition does not hold before the commit, its whole upsert is left out. If another
    process writes between that check and the commit, the commit writes only the documents whose
    conditions still hold.

    Args:
        index: a handle that nothing else uses.
        upserts: in their order; an id with a condition occurs in one of them only.

    Returns:
        For each upsert the reason why it was not written, or None.
    """
    repeated = any(upsert.times for upsert in upserts)
    held = await index.standing(list(chain.from_iterable(upsert.ids for upsert in upserts)))
    _stamp(upserts, held)
    refused = [check(upsert.conditions, held) for upsert in upserts]
    taken = [upsert for upsert, error in zip(upserts, refused, strict=True) if error is None]
    missed = await _conditional(index, taken, held)
    clean = [upsert for upsert in taken if not missed.keys() & upsert.conditions.keys()]
    await _plain(index, clean, repeated=repeated)
    return [
        error or _missed(upsert, missed) for upsert, error in zip(upserts, refused, strict=True)
    ]


async def delete(index: Index, document_id: str, condition: Condition) -> int:
    """Delete one document if it has a given version.

    Args:
        index: a handle that nothing else uses.

    Returns:
        When it was deleted, in microseconds since the epoch.

    Raises:
        VersionError: it has another version.
        NotFoundError: the index has no such document.
        OvertakenError: the commits wrote nothing.
    """
    conditions = {document_id: condition}
    held = await index.standing([document_id])
    for _ in range(versions.ATTEMPTS):
        if (error := check(conditions, held)) is not None:
            if error.present[document_id] is None:
                raise NotFoundError("no document of that id in this index")
            raise error
        time = versions.after(held[document_id])
        gone = records.tombstones({document_id: time}, index.schema)
        result = await _replace(index, gone, versions.clause(conditions), on_bad_vectors="null")
        if applied(result):
            return time
        # another process wrote meanwhile
        await refresh(index.table)
        former, held = held, await index.standing([document_id])
        if held == former:
            break
    raise OvertakenError


async def delete_seen(index: Index, seen: Mapping[str, int]) -> dict[str, int]:
    """Delete the documents that still have the versions that a reader saw, in one commit.

    Args:
        index: a handle that nothing else uses.
        seen: versions by id.

    Returns:
        When each was deleted, by id; a document with another version by now is missing.
    """
    now = microseconds()
    times = {name: max(now, version + 1) for name, version in seen.items()}
    conditions = {name: frozenset([version]) for name, version in seen.items()}
    gone = records.tombstones(times, index.schema)
    result = await _replace(index, gone, versions.clause(conditions), on_bad_vectors="null")
    if applied(result) == len(times):
        return times
    if not applied(result):
        return {}
    missed = await index.missing(gone, result.version)
    return {name: time for name, time in times.items() if name not in missed}


def check(conditions: Mapping[str, Condition], held: Mapping[str, Standing]) -> VersionError | None:
    """The reason not to write under conditions, or None."""
    wrong = [name for name, one in conditions.items() if not holds(one, held.get(name))]
    return VersionError(_present(wrong, held)) if wrong else None


def _present(ids: Sequence[str], held: Mapping[str, Standing | None]) -> dict[str, int | None]:
    return {name: versions.present(held.get(name)) for name in ids}


def _stamp(upserts: Sequence[Upsert], held: Mapping[str, Standing]) -> None:
    now = microseconds()
    last = {name: standing.updated for name, standing in held.items()}
    for upsert in upserts:
        for name in upsert.ids:
            # later than the state it replaces, even if that came from a machine with a fast clock
            time = upsert.times.get(name) or max(now, last.get(name, 0) + 1)
            upsert.times[name] = last[name] = time


async def _conditional(
    index: Index, upserts: Sequence[Upsert], former: Mapping[str, Standing | None]
) -> dict[str, int | None]:
    """Write the documents that have conditions.

    Args:
        former: the states of the documents before.

    Returns:
        For each document that was not written, the version that the index has instead.

    Raises:
        OvertakenError: the commits wrote nothing.
    """
    conditions = {name: one for upsert in upserts for name, one in upsert.conditions.items()}
    missed: dict[str, int | None] = {}
    if not conditions:
        return missed
    for _ in range(versions.ATTEMPTS):
        held = await _attempts(index, upserts, conditions)
        # Another process wrote meanwhile, with a later time, and the condition holds still or
        # again: a refusal would contradict the state that it names.
        again = {
            name for name, one in conditions.items() if name in held and holds(one, held[name])
        }
        missed |= _present([name for name in held if name not in again], held)
        if not again:
            return missed
        if any(held[name] == former.get(name) for name in again):
            break
        former = held
        conditions = {name: conditions[name] for name in again}
        for upsert in upserts:
            for name in again & upsert.conditions.keys():
                upsert.times[name] = versions.after(held[name])
    raise OvertakenError


async def _attempts(
    index: Index, upserts: Sequence[Upsert], conditions: Mapping[str, Condition]
) -> dict[str, Standing | None]:
    """Write some documents; return the states of those that were not written."""
    absent = {name for name, one in conditions.items() if one == "absent"}
    fixed = {name: one for name, one in conditions.items() if name not in absent}
    held: dict[str, Standing | None] = {}
    for some, where in ((fixed.keys(), versions.clause(fixed)), (absent, None)):
        rows = _rows(index, upserts, some)
        if rows.num_rows:
            held |= await _attempt(index, rows, where)
    return held


async def _attempt(index: Index, rows: pa.Table, where: Sql | None) -> dict[str, Standing | None]:
    result = await (_replace(index, rows, where) if where is not None else _create(index, rows))
    written = applied(result)
    if written == rows.num_rows:
        return {}
    missed: list[str] = rows["id"].to_pylist()
    if written:
        missed = list(await index.missing(rows, result.version))
        if len(missed) + written != rows.num_rows:
            raise UncertainError
    # another process wrote meanwhile
    await refresh(index.table)
    standing = await index.standing(missed)
    return {name: standing.get(name) for name in missed}


async def _replace(
    index: Index, rows: pa.Table, where: Sql, on_bad_vectors: str = "error"
) -> MergeResult:
    """Replace older rows if a condition on ``target`` holds during the commit.

    LanceDB checks it again if another commit changes the same rows in between.
    """
    merge = index.table.merge_insert("id")
    merge = merge.when_matched_update_all(where=sql.every(OLDER, where))
    result: MergeResult = await merge.execute(rows, on_bad_vectors=on_bad_vectors)
    return result


async def _create(index: Index, rows: pa.Table) -> MergeResult:
    """Insert rows of documents that are absent or deleted during the commit."""
    merge = index.table.merge_insert("id")
    merge = merge.when_matched_update_all(
        where=sql.every(OLDER, sql.compare("target.deleted", "=", True))
    )
    result: MergeResult = await merge.when_not_matched_insert_all().execute(rows)
    return result


async def _plain(index: Index, upserts: Sequence[Upsert], *, repeated: bool) -> None:
    latest: dict[str, Upsert] = {
        name: upsert for upsert in upserts for name in upsert.ids if name not in upsert.conditions
    }
    rows = _rows(index, upserts, latest.keys())
    if rows.num_rows:
        times = await index.write(rows, rows["updated"].to_pylist(), repeated=repeated)
        for name, time in zip(rows["id"].to_pylist(), times, strict=True):
            latest[name].times[name] = time


def _rows(index: Index, upserts: Sequence[Upsert], ids: Iterable[str]) -> pa.Table:
    """Rows of some documents with their times; of each id the last."""
    wanted = set(ids)
    parts: list[pa.Table] = []
    times: list[int] = []
    for upsert in reversed(upserts):
        names = upsert.ids
        kept = [position for position, name in enumerate(names) if name in wanted]
        wanted.difference_update(names)
        if kept:
            rows = upsert.rows if len(kept) == len(names) else upsert.rows.take(kept)
            rows = records.completed(rows, index.schema)
            if rows.schema.names != index.schema.names:
                raise ConflictError("the index changed during the request: try again")
            times += [upsert.times[names[position]] for position in kept]
            parts.append(rows.replace_schema_metadata())
    if not parts:
        return index.schema.empty_table()
    whole = records.stamped(pa.concat_tables(parts), times)
    return whole.replace_schema_metadata(index.schema.metadata)


def _missed(upsert: Upsert, missed: Mapping[str, int | None]) -> VersionError | None:
    present = {name: missed[name] for name in upsert.conditions if name in missed}
    if not present:
        return None
    written = {n: upsert.times[n] for n in upsert.conditions if n not in present}
    return VersionError(present, written)


async def delete_everywhere(
    indexes: Indexes,
    name: str,
    uid: str,
    ids: Sequence[str],
    deleted: Mapping[str, int] | None = None,
    applied: Collection[str] = (),
) -> None:
    """Delete documents in all generations of an index, including those being created.

    A generation that appears later copies from generations where the documents are deleted.

    Args:
        indexes: of the store.
        name: of the index.
        uid: of the index for which the documents were checked.
        ids: of the documents.
        deleted: by id, when a generation has already deleted a document; later writes stay.
        applied: generations that have already deleted the documents.

    Raises:
        NotFoundError, ConflictError: the index is gone, or another index has its name now.
    """
    done = set(applied)
    for _ in range(ATTEMPTS):
        found = [g.index for g in await indexes.generations(name, still=True)]
        found[0].require(uid)
        fresh = [index for index in found if index.identity.generation not in done]
        if not fresh:
            await indexes.database.sync()
            return
        times = dict(deleted) if deleted else await _after(found, ids)
        for index in fresh:
            left = await index.tombstone(times)
            for _ in range(ATTEMPTS):
                if not left or deleted:
                    break
                await refresh(index.table)
                left = await index.tombstone(await _after([index], left))
            else:
                raise OvertakenError
            done.add(index.identity.generation)
    raise OvertakenError


async def _after(indexes: Sequence[Index], ids: Sequence[str]) -> dict[str, int]:
    """The time of deletion by id: now, or later if a generation holds a later write."""
    times = dict.fromkeys(ids, microseconds())
    for index in indexes:
        for document_id, written in (await index.updated(ids)).items():
            times[document_id] = max(times[document_id], written + 1)
    return times


# a commit copies its rows once; more would use too much memory
MOST_DOCUMENTS = 4096
# errors that no single document causes: all requests of a commit get them
_OF_ALL = (StoreError, NotFoundError, ConflictError, BuildingError, OSError)


@dataclass(slots=True)
class Change:
    """The write of one request.

    Attributes:
        uid: of the index for which the request was checked.
        upsert: documents to write, or None.
        deletes: ids of documents to delete.
        condition: on the one document to delete.
        seen: versions by id; documents to delete if they still have these.
        done: gets the versions of the written documents, by id, once they are durable; for ``seen``
            the times of deletion.
    """

    uid: str
    upsert: Upsert | None = None
    deletes: Sequence[str] = ()
    condition: Condition | None = None
    seen: Mapping[str, int] = field(default_factory=dict)
    done: asyncio.Future[dict[str, int]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def generation(self) -> str:
        """The one for which documents were made; empty for deletions, which reach all."""
        return "" if self.upsert is None else self.upsert.generation


class Writer:
    """Writes to one index, one commit at a time; writes during a commit share the next.

    Args:
        indexes: opens the index again for every commit.
        name: of the index.
        committed: called with the number of documents of each commit.
    """

    def __init__(self, indexes: Indexes, name: str, committed: Callable[[int], None]) -> None:
        self._indexes = indexes
        self._name = name
        self._committed = committed
        # held during each commit
        self.committing = asyncio.Lock()
        self._waiting: deque[Change] = deque()
        self._task: asyncio.Task[None] | None = None

    async def write(self, uid: str, upsert: Upsert) -> dict[str, int]:
        """Return when the documents are durable; commits keep the order of the calls.

        A caller that is cancelled before its commit begins writes nothing.

        Returns:
            The documents' versions by id.

        Raises:
            VersionError: a condition does not hold.
            NotFoundError, ConflictError: the index is gone, or another index has its name now.
        """
        return await self._take(Change(uid, upsert))

    async def delete(
        self, uid: str, ids: Sequence[str], condition: Condition | None = None
    ) -> None:
        """Return when the deletion is durable; see ``write``.

        Args:
            uid: of the index for which they were checked.
            ids: exactly one if there is a condition.
            condition: on its version.
        """
        await self._take(Change(uid, deletes=ids, condition=condition))

    async def delete_seen(self, uid: str, seen: Mapping[str, int]) -> dict[str, int]:
        """Delete the documents that still have the versions that a reader saw; see ``write``.

        Returns:
            When each was deleted, by id.
        """
        return await self._take(Change(uid, seen=seen))

    async def close(self) -> None:
        """Wait for the running commit and all waiting ones."""
        if self._task is not None:
            await self._task

    async def _take(self, change: Change) -> dict[str, int]:
        self._waiting.append(change)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await change.done

    async def _run(self) -> None:
        while group := self._group():
            await self._settle(group)

    async def _settle(self, group: Sequence[Change]) -> None:
        try:
            async with self.committing:
                outcomes = await self._commit(group)
        except Exception as error:  # noqa: BLE001 the requests get it
            for change in group:
                # One request's documents may be the cause: each request tries again separately. A
                # request with a condition does not: the failed commit may have changed the state.
                broken = isinstance(error, _OF_ALL) or disk_fault(error) or bucket.fault(error)
                if len(group) == 1 or broken or change.upsert is None or change.upsert.conditions:
                    _end(change, error)
                elif not change.done.done():
                    await self._settle([change])
            return
        for change, outcome in zip(group, outcomes, strict=True):
            _end(change, outcome)

    def _group(self) -> list[Change]:
        """The next changes that may share a commit, in their order."""
        group: list[Change] = []
        size = 0
        ids: set[str] = set()
        conditional: set[str] = set()
        while self._waiting:
            change = self._waiting[0]
            if change.done.cancelled():
                self._waiting.popleft()
                continue
            more = set(change.upsert.ids) if change.upsert else set()
            conditions = set(change.upsert.conditions) if change.upsert else set()
            size += len(more)
            if group and (
                size > MOST_DOCUMENTS
                or change.uid != group[0].uid
                or change.generation != group[0].generation
                or bool(change.deletes) != bool(group[0].deletes)
                or change.condition is not None
                or group[0].condition is not None
                or change.seen
                or group[0].seen
                # a condition applies to the state after the writes before it
                or ids & conditions
                or more & conditional
            ):
                break
            ids |= more
            conditional |= conditions
            group.append(self._waiting.popleft())
        return group

    async def _commit(self, group: Sequence[Change]) -> Sequence[dict[str, int] | Exception]:
        if group[0].seen:
            return [await self._delete_seen(group[0])]
        if group[0].deletes:
            await self._delete(group)
            return [{}] * len(group)
        upserts = [change.upsert for change in group if change.upsert is not None]
        generation = group[0].generation
        if any(upsert.conditions for upsert in upserts):
            # only the generation that answers knows the version of a document
            index = await self._indexes.open(self._name, still=True)
            if index.identity.generation != generation:
                raise OvertakenError
        else:
            index = await self._indexes.written(self._name, generation, still=True)
        index.require(group[0].uid)
        refused = await write(index, upserts)
        written = {
            name
            for upsert, error in zip(upserts, refused, strict=True)
            for name in (upsert.ids if error is None else error.written)
        }
        if written:
            self._committed(len(written))
        return [error or upsert.times for upsert, error in zip(upserts, refused, strict=True)]

    async def _delete(self, group: Sequence[Change]) -> None:
        [first, *_] = group
        ids = list(dict.fromkeys(i for change in group for i in change.deletes))
        deleted = None
        if first.condition is not None:
            index = await self._indexes.open(self._name, still=True)
            index.require(first.uid)
            deleted = {ids[0]: await delete(index, ids[0], first.condition)}
        await delete_everywhere(self._indexes, self._name, first.uid, ids, deleted)
        self._committed(len(ids))

    async def _delete_seen(self, change: Change) -> dict[str, int]:
        # only a complete generation knows the versions of documents
        index = await self._indexes.open(self._name, still=True)
        index.require(change.uid)
        gone = await delete_seen(index, change.seen)
        if gone:
            applied = {index.identity.generation}
            await delete_everywhere(
                self._indexes, self._name, change.uid, list(gone), gone, applied=applied
            )
            self._committed(len(gone))
        return gone


def _end(change: Change, outcome: dict[str, int] | Exception) -> None:
    if change.done.done():
        return
    if isinstance(outcome, Exception):
        change.done.set_exception(outcome)
    else:
        change.done.set_result(outcome)
