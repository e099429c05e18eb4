"""The rows of a Parquet file as lines of JSON, from a confined process."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import IO, cast

import structlog

from extraction.content import FREE
from extraction.sandbox import environment
from service.errors import InvalidError

log = structlog.get_logger("docsplit.textfiles")

_MAGIC = b"PAR1"
_PIECE = 1 << 16
# Arrow's own allocators, and the threads of others, take address space that the process never uses
_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
# by the exit statuses of ``service.textfiles.confined``, which imports too much for this module
_REASONS = {
    3: "it is no readable Parquet file: write it again",
    4: "it has no column text: rename the column of the texts",
    5: "its column text holds no strings: choose the column of the texts",
    6: "its column id holds neither strings nor integers: convert it, or leave it out",
}
_CRASHED = "its reader ended early: the file is damaged, or a row group needs too much memory"


def check(file: IO[bytes]) -> None:
    """Compare the first and the last bytes with those of every Parquet file; it blocks.

    Raises:
        InvalidError: they differ. The check is a thousandth of the work of ``lines``.
    """
    ends = [file.read(len(_MAGIC))]
    file.seek(max(0, file.seek(0, os.SEEK_END) - len(_MAGIC)))
    ends.append(file.read())
    file.seek(0)
    if ends != [_MAGIC, _MAGIC]:
        raise _error(3)


async def lines(file: IO[bytes]) -> AsyncGenerator[bytes, None]:
    """An object with ``id`` and ``text`` for each row, in pieces.

    Args:
        file: a real one, at its start.

    Raises:
        InvalidError: it is not what it must be, or cannot be read.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "service.textfiles.confined",
        stdin=file,
        stdout=PIPE,
        stderr=PIPE,
        cwd="/",
        env={**environment(), **_ENVIRONMENT},
    )
    try:
        stdout = cast("asyncio.StreamReader", process.stdout)
        while piece := await stdout.read(_PIECE):
            yield piece
        stderr = cast("asyncio.StreamReader", process.stderr)
        if await stderr.read(len(FREE)) == FREE:
            log.warning("tables_not_confined", remedy="install libseccomp, on Linux")
        status = await process.wait()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if status:
        raise _error(status)


def _error(status: int) -> InvalidError:
    return InvalidError(f"the file: {_REASONS.get(status, _CRASHED)}")
