"""The process that maintains one large table: ``python -m service.index.merger``.

It reads lines of JSON on stdin: the work (``do``), the ``uri`` and ``options`` of the table, and
what else the work needs. After each work it writes its result or ``{"error": MESSAGE}`` to stdout.
It ends when stdin does, so it never outlives the service.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import Any

import lance
import lancedb
from lancedb.index import IvfRq
from lancedb.table import AsyncTable

from service import child
from service.index.rows.schema import prepare
from service.index.storage.database import conflicting

# A segment is merged with newer rows when it has at most so many times their number.
RATIO = 4


def newest(segments: Sequence[int], rows: int, few: int) -> int:
    """How many of the newest segments of an index to merge with new rows.

    Lance itself merges them with the newest segment. An index that was built at once has only that
    one, so each maintenance would write all indexes again: 190 MB for a million documents
    (docs/explanation/experiments/scale.md, "Indexes of a million documents"). Here a row is rarely
    written more often than ``RATIO`` times for each factor of ``RATIO`` + 1 in size, as in a
    log-structured merge tree. Each segment costs every search a millisecond; a million documents
    have at most five.

    Args:
        segments: number of rows of each segment, the oldest first.
        rows: number of rows that no segment covers.
        few: fewer new rows count as this many, so segments of up to ``RATIO`` times as many rows
            are always merged.
    """
    newer = rows
    merged = 0
    for held in reversed(segments):
        if held > RATIO * max(newer, few):
            break
        newer += held
        merged += 1
    return merged


# A read of single rows opens every file that has some, in 0.1 ms, so there should be few. A merge
# takes up to 0.8 GB of memory, most of it for the indexes. Larger files are not merged again.
GROUP_BYTES = 512 << 20
# a fragment of this size is left as it is
FULL_BYTES = GROUP_BYTES // 2
# Each merge of rows that indexes cover changes these indexes, so it waits for so many fragments.
COVERED = 8
# share of deleted rows with which a fragment is written again
DELETED = 0.1


@dataclass(frozen=True, slots=True)
class Fragment:
    """Rows that were written together.

    Attributes:
        id: in the table; fragments are in the order of their ids.
        rows: deleted ones too.
        deleted: number of deleted rows.
        bytes: of its files; None if the table does not know them.
        covered: names of the parts of indexes that cover it.
    """

    id: int
    rows: int
    deleted: int
    bytes: int | None
    covered: frozenset[str] = frozenset()


def next_group(fragments: Sequence[Fragment], *, covered: bool = True) -> list[Fragment] | None:
    """Neighbours to merge, or one fragment to write without its deleted rows; None at the end.

    Lance merges all fragments of fewer than a million rows each time, so each maintenance would
    read and write nearly the whole table. Here a fragment is rarely written more often than once
    for each factor of ``COVERED`` in size, as in a log-structured merge tree.

    Args:
        fragments: of a table, in their order.
        covered: also merge neighbours that indexes cover.
    """
    found = _groups(fragments)
    return next((group for group in found if covered or not joins_covered(group)), None)


def joins_covered(group: Sequence[Fragment]) -> bool:
    """Whether a group has several fragments, which indexes cover."""
    return len(group) > 1 and bool(group[0].covered)


def _groups(fragments: Sequence[Fragment]) -> Iterator[list[Fragment]]:
    for fragment in fragments:
        if _full(fragment) and fragment.deleted > DELETED * fragment.rows:
            yield [fragment]
    for (full, covered), run in groupby(fragments, lambda one: (_full(one), one.covered)):
        if full:
            continue
        for group in _parts(list(run)):
            large = sum(one.bytes or 0 for one in group) >= FULL_BYTES
            if len(group) > 1 and (not covered or large or len(group) >= COVERED):
                yield group


def _full(fragment: Fragment) -> bool:
    return fragment.bytes is None or fragment.bytes >= FULL_BYTES


def _parts(run: Sequence[Fragment]) -> Iterator[list[Fragment]]:
    """Neighbours in parts of at most ``GROUP_BYTES``."""
    part: list[Fragment] = []
    total = 0
    for one in run:
        size = one.bytes or 0
        if part and total + size > GROUP_BYTES:
            yield part
            part, total = [], 0
        part.append(one)
        total += size
    if part:
        yield part


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


def erase(uri: str, options: dict[str, str] | None) -> int:
    """Write each fragment with deleted rows again, without them.

    Returns:
        Their number.

    Raises:
        OSError, RuntimeError: as for ``merge``.
    """
    written = failed = 0
    while True:
        table = lance.dataset(uri, storage_options=options)
        held = fragments(table)
        one = next((fragment for fragment in held if fragment.deleted), None)
        if one is None:
            return written
        try:
            if not _merge(table, held, [one]):
                raise RuntimeError("a file with deleted rows was not written again")
            written += 1
        except (OSError, RuntimeError) as error:
            failed += 1
            if not conflicting(error) or failed == _ATTEMPTS:
                raise


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


def work(given: dict[str, Any]) -> None:
    """Do what a line of stdin says."""
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
        case "look":
            held = fragments(lance.dataset(uri, storage_options=options))
            answer["removed"] = any(one.deleted for one in held)
        case "erase":
            answer["written"] = erase(uri, options)
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
    child.say(answer)


async def _build(
    uri: str, options: dict[str, str] | None, work: Callable[[AsyncTable], Awaitable[None]]
) -> None:
    folder, _, name = uri.rpartition("/")
    database = await lancedb.connect_async(folder, storage_options=options)
    await work(await database.open_table(name.removesuffix(".lance")))


def run() -> None:
    """Do what the lines of this process's stdin say, until it ends."""
    child.serve(work, lambda error: str(error)[:500])


if __name__ == "__main__":
    run()
