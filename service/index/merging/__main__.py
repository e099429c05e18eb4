"""The process that maintains one large table: ``python -m service.index.merging``.

It reads lines of JSON on stdin: the work (``do``), the ``uri`` and ``options`` of the table, and
what else the work needs. After each work it writes its result or ``{"error": MESSAGE}`` to stdout.
It ends when stdin does, so it never outlives the service.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from functools import partial
from queue import SimpleQueue
from threading import Thread

import lance
import lancedb
import orjson
from lancedb.index import IvfRq
from lancedb.table import AsyncTable

from service.index.merging.groups import GROUP_BYTES, Fragment, joins_covered, next_group
from service.index.merging.segments import newest
from service.index.rows.columns import prepare
from service.index.rows.keyed import conflicting
from service.precedence import give_way

# bytes of rows that a merge decodes at a time
_BATCH_BYTES = 8 << 20
# Fewer new rows count as this many, so small segments of an index are merged each time: in
# milliseconds.
FEW = 1_024
# writers may change the same fragments meanwhile
_ATTEMPTS = 3


def merge(
    uri: str, options: dict[str, str] | None, most: int | None = None, *, every: bool = False
) -> int:
    """Merge the small files of a table, each group in a commit of its own.

    Each merge of files that indexes cover writes these indexes again. A table of an earlier version
    has many such files, so each maintenance merges one group of them.

    Args:
        uri: of the table.
        options: of its store.
        most: number of groups; all by default.
        every: merge all groups that indexes cover, not only one.

    Returns:
        The number of merged fragments.

    Raises:
        OSError, RuntimeError: the store fails, or writers changed the same fragments each time.
    """
    merged = failed = groups = 0
    covered = True
    while True:
        if groups == most:
            return merged
        table = lance.dataset(uri, storage_options=options)
        held = fragments(table)
        group = next_group(held, covered=covered)
        if group is None:
            return merged
        try:
            removed = _merge(table, held, group)
        except (OSError, RuntimeError) as error:
            failed += 1
            if not conflicting(error) or failed == _ATTEMPTS:
                raise
            continue
        if not removed:
            return merged
        merged += removed
        groups += 1
        covered = covered and (every or not joins_covered(group))


def fragments(table: lance.LanceDataset) -> list[Fragment]:
    """The fragments of a table in their order."""
    covering: dict[int, set[str]] = {}
    for index in table.describe_indices():
        for part in index.segments:
            for one in part.fragment_ids:
                covering.setdefault(one, set()).add(part.uuid)
    found = []
    for fragment in table.get_fragments():
        held = fragment.metadata
        sizes = [file.file_size_bytes for file in held.files]
        known = [size for size in sizes if size]
        found.append(
            Fragment(
                held.id,
                held.physical_rows,
                held.num_deletions or 0,
                sum(known) if len(known) == len(sizes) else None,
                frozenset(covering.get(held.id, ())),
            )
        )
    return found


def _merge(table: lance.LanceDataset, held: list[Fragment], group: list[Fragment]) -> int:
    chosen = {one.id for one in group}
    rows = max(1, sum(one.rows for one in group))
    size = sum(one.bytes or GROUP_BYTES for one in group)
    found = table.optimize.compact_files(
        target_rows_per_fragment=rows,
        max_bytes_per_file=GROUP_BYTES,
        materialize_deletions_threshold=0.0,
        num_threads=1,
        batch_size=max(1, _BATCH_BYTES * rows // max(1, size)),
        # rows are copied without decoding them unless some are deleted
        compaction_mode="try_binary_copy",
        excluded_fragment_ids=[one.id for one in held if one.id not in chosen],
    )
    removed: int = found.fragments_removed
    return removed


def update(uri: str, options: dict[str, str] | None) -> list[str]:
    """Add new rows to the indexes of a table.

    Returns:
        The names of the vector indexes that should be built again: they doubled since their
        clusters were computed.

    Raises:
        OSError, RuntimeError: the store fails, or another process changed the indexes.
    """
    table = lance.dataset(uri, storage_options=options)
    rows = {one.fragment_id: one.metadata.physical_rows for one in table.get_fragments()}
    names: dict[int, list[str]] = defaultdict(list)
    doubled = []
    for index in table.describe_indices():
        covers = sorted(sorted(part.fragment_ids) for part in index.segments)
        held = [sum(rows.get(one, 0) for one in part) for part in covers]
        new = sum(rows.values()) - sum(held)
        if new <= 0:
            continue
        if index.index_type.startswith("IVF"):
            # the oldest segment has the clusters of all
            merged = newest(held[1:], new, 1)
            if new + sum(held[1:]) >= sum(held[:1]):
                doubled.append(index.name)
        else:
            merged = newest(held, new, FEW)
        names[merged].append(index.name)
    for merged, those in names.items():
        table.optimize.optimize_indices(index_names=those, num_indices_to_merge=merged)
    return doubled


def main(lines: Iterator[bytes]) -> None:
    """Do what each line of stdin says."""
    for line in lines:
        given = orjson.loads(line)
        uri, options = given["uri"], given["options"]
        answer: dict[str, object] = {}
        match given["do"]:
            case "merge":
                try:
                    most, every = given["most"], given["every"]
                    answer["merged"] = merge(uri, options, most, every=every)
                except (OSError, RuntimeError) as error:
                    if not conflicting(error):
                        raise
                    answer["merged"] = None
            case "update":
                answer["doubled"] = update(uri, options)
            case "remove":
                age = timedelta(seconds=given["older_than"])
                lance.dataset(uri, storage_options=options).cleanup_old_versions(age)
            case "prepare":
                asyncio.run(_build(uri, options, partial(prepare, again=given["again"])))
            case "index":
                config = IvfRq(distance_type="cosine", num_bits=given["bits"])
                build = partial(AsyncTable.create_index, column=given["column"], config=config)
                asyncio.run(_build(uri, options, build))
        _say(answer)


async def _build(
    uri: str, options: dict[str, str] | None, work: Callable[[AsyncTable], Awaitable[None]]
) -> None:
    folder, _, name = uri.rpartition("/")
    database = await lancedb.connect_async(folder, storage_options=options)
    await work(await database.open_table(name.removesuffix(".lance")))


def _say(what: object) -> None:
    sys.stdout.buffer.write(orjson.dumps(what) + b"\n")
    sys.stdout.flush()


def _lines() -> Iterator[bytes]:
    """Lines of stdin as they come; the process ends with stdin, whatever it does then."""
    waiting = SimpleQueue[bytes]()

    def read() -> None:
        for line in sys.stdin.buffer:
            waiting.put(line)
        os._exit(1)

    Thread(target=read, daemon=True).start()
    while True:
        yield waiting.get()


def run() -> None:
    """Do what the lines of this process's stdin say, until it ends."""
    give_way()
    try:
        main(_lines())
    except Exception as error:  # noqa: BLE001 the parent raises it
        _say({"error": str(error)[:500]})


if __name__ == "__main__":
    run()
