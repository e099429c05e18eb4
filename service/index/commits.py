"""One commit of the documents of many requests. Each request can set conditions on versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from service.errors import (
    ConflictError,
    NotFoundError,
    OvertakenError,
    UncertainError,
    VersionError,
)
from service.index import sql
from service.index.documents import OLDER, Index, applied
from service.index.rows import records, versions
from service.index.rows.versions import Condition, Standing, holds, microseconds
from service.index.sql import Sql
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
