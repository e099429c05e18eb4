"""The process that reads a Parquet file of texts, which can then only compute and answer.

It reads the file from its standard input, and writes an object with ``id`` and ``text`` in a line
for each row. So a flaw in the library gives an attacker nothing but the attacker's own file. Where
the system has no seccomp filters, only the bounds on memory and processor time hold, and the
process says so on its standard error.
"""

from __future__ import annotations

import io
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from extraction.content import FREE
from extraction.system_calls import deny

# exit statuses
UNREADABLE, NO_TEXT, WRONG_TEXT, WRONG_ID = 3, 4, 5, 6
# bytes beyond what the process has when it begins
MEMORY = 1 << 30
# of processor time
SECONDS = 600
# few, because each of them may be long
_ROWS = 64


def main() -> int:
    """Read the file; returns the exit status."""
    sample = io.BytesIO()
    pq.write_table(pa.table({"id": ["a"], "text": ["a"]}), sample)
    # loads what reading loads: later the process cannot open files
    _read(sample, io.BytesIO())
    if not _confine():
        sys.stderr.buffer.write(FREE)
        sys.stderr.flush()
    try:
        return _read(sys.stdin.buffer, sys.stdout.buffer)
    except Exception:  # noqa: BLE001 the library may raise anything for a damaged file
        return UNREADABLE


def _read(source: BinaryIO, target: BinaryIO) -> int:
    # no threads: the process cannot start any
    file = pq.ParquetFile(source, pre_buffer=False)
    names = [name for name in ("id", "text") if name in file.schema_arrow.names]
    if "text" not in names:
        return NO_TEXT
    if not _is_text(file.schema_arrow.field("text").type):
        return WRONG_TEXT
    if "id" in names and not _is_id(file.schema_arrow.field("id").type):
        return WRONG_ID
    for batch in file.iter_batches(_ROWS, columns=names, use_threads=False):
        for row in batch.to_pylist():
            # a text that is missing is as good as an empty one
            row["text"] = row["text"] or ""
            target.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
    target.flush()
    return 0


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_id(kind: pa.DataType) -> bool:
    return _is_text(kind) or bool(pa.types.is_integer(kind))


def _confine() -> bool:
    """Give up what reading does not need; returns whether the system denies calls."""
    taken = 0
    with suppress(OSError):
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    bounds = {
        resource.RLIMIT_AS: taken + MEMORY,
        resource.RLIMIT_CPU: SECONDS,
        # neither files nor a dump; the answer goes into a pipe
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in bounds.items():
        # not every system bounds the address space
        with suppress(OSError, ValueError):
            resource.setrlimit(kind, (most, most))
    return deny()


if __name__ == "__main__":
    # handlers at exit may need what is denied
    os._exit(main())
