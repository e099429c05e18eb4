"""The process that maintains one large table: ``python -m service.index.merging``.

It reads a line of JSON with ``uri`` and ``options`` on stdin, merges small files, updates the
indexes, and writes ``{"merged": N}`` to stdout. For a further line, with ``keep`` in seconds, it
removes older versions, and writes ``{"removed": N}``. An error is ``{"error": MESSAGE}``. The
process ends when stdin does, so it never outlives the service.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import lance
import orjson

from service.index.merging.groups import GROUP_BYTES, Fragment, next_group

# bytes of rows that a merge decodes at a time
_BATCH_BYTES = 8 << 20
# writers may change the same fragments meanwhile
_ATTEMPTS = 3


def merge(uri: str, options: dict[str, str] | None) -> int:
    """Merge the small files of a table, each group in a commit of its own.

    Returns:
        The number of merged fragments.

    Raises:
        OSError: the store fails, or writers changed the same fragments each time.
    """
    merged = failed = 0
    while True:
        table = lance.dataset(uri, storage_options=options)
        held = fragments(table)
        group = next_group(held)
        if group is None:
            return merged
        try:
            removed = _merge(table, held, group)
        except OSError as error:
            failed += 1
            if "onflict" not in str(error) or failed == _ATTEMPTS:
                raise
            continue
        if not removed:
            return merged
        merged += removed


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


def main(lines: Iterator[bytes]) -> None:
    """Answer the lines of stdin."""
    given = orjson.loads(next(lines))
    uri, options = given["uri"], given["options"]
    merged = merge(uri, options)
    lance.dataset(uri, storage_options=options).optimize.optimize_indices()
    _say({"merged": merged})
    keep = timedelta(seconds=orjson.loads(next(lines))["keep"])
    found = lance.dataset(uri, storage_options=options).cleanup_old_versions(keep)
    _say({"removed": found.old_versions})


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


if __name__ == "__main__":
    # requests of the service come first, and the system ends this process first if it lacks memory
    os.nice(10)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        main(_lines())
    except Exception as error:  # noqa: BLE001 the parent raises it
        _say({"error": str(error)[:500]})
