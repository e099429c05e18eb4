"""Disk space for uploaded files, until a job has read them.

The files have no names: the system removes them when the process ends, however it ends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, ParamSpec, TypeVar

import structlog

from service import executors, temporary
from service.embedding.batching.clients import Client, Quota
from service.errors import OverloadedError, UnavailableError, errno_name

log = structlog.get_logger("docsplit.uploads")

P = ParamSpec("P")
T = TypeVar("T")

# bytes that one write to disk takes
_CHUNK = 1 << 20
# seconds after which a client may try again: a job frees space when it has read its files
_RETRY_SECONDS = 30.0


class Spool(Quota):
    """The disk space for all uploads of a process.

    Args:
        folder: holds the files; None takes the system's folder for temporary files.
        capacity: bytes of all uploads.
    """

    def __init__(self, folder: Path | None, capacity: int) -> None:
        super().__init__(capacity)
        self.folder = folder

    async def open(self, client: Client, *, anywhere: bool = False) -> Upload:
        """An empty upload of a client.

        Args:
            anywhere: if the folder fails, another one for temporary files may hold it.

        Raises:
            UnavailableError: the disk fails.
        """
        return await _safely(self._opened, client, anywhere)

    def take(self, client: Client, amount: int) -> None:
        """Reserve space.

        Raises:
            OverloadedError: there is no room for ``amount`` more bytes of this client.
        """
        if self.overflow(client, amount) > 0:
            raise OverloadedError(
                _RETRY_SECONDS,
                "overloaded: the uploaded files of this client, or of all clients, leave no disk "
                "space for this upload (max_upload_disk_bytes); send less, or try again",
            )
        self.add(client, amount)

    def _opened(self, client: Client, anywhere: bool) -> Upload:
        try:
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
            return Upload(self, client, tempfile.TemporaryFile(dir=self.folder), self.folder)
        except OSError:
            for place in map(Path, temporary.folders() if anywhere else ()):
                with suppress(OSError):
                    return Upload(self, client, tempfile.TemporaryFile(dir=place), place)
            raise


class Upload:
    """The files of one request, one after the other in one file on disk.

    Attributes:
        folder: of temporary files; None takes the system's.
    """

    def __init__(
        self, spool: Spool, client: Client, file: IO[bytes], folder: Path | None = None
    ) -> None:
        self.client = client
        self.folder = folder
        self.names: list[str] = []
        self._spool = spool
        self._file = file
        self._ends: list[int] = []
        self._size = 0
        self._reserved = 0
        self._waiting: list[bytes | bytearray] = []
        self._waiting_bytes = 0

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return self._size

    @property
    def last(self) -> int:
        """Bytes of the last file."""
        return self._size - (self._ends[-2] if len(self._ends) > 1 else 0)

    def reserve(self, size: int) -> None:
        """Reserve the space of ``size`` bytes in all; raises like ``Spool.take``."""
        if size > self._reserved:
            self._spool.take(self.client, size - self._reserved)
            self._reserved = size

    def begin(self, name: str) -> None:
        """Begin the next file."""
        self.names.append(name)
        self._ends.append(self._size)

    async def write(self, data: bytes | bytearray) -> None:
        """Add bytes to the last file.

        Raises:
            OverloadedError: there is no room for them.
            UnavailableError: the disk is full, or fails.
        """
        self.reserve(self._size + len(data))
        self._size += len(data)
        self._ends[-1] = self._size
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= _CHUNK:
            await self.flush()

    async def flush(self) -> None:
        """Write to disk what is still in memory; raises like ``write``."""
        data, self._waiting, self._waiting_bytes = b"".join(self._waiting), [], 0
        await _safely(self._append, data)

    def read(self, number: int) -> IO[bytes]:
        """A file of its own with the bytes of one file. It blocks.

        Raises:
            OSError: the disk is full, or fails.
        """
        start = self._ends[number - 1] if number else 0
        left = self._ends[number] - start
        with ExitStack() as stack:
            own = stack.enter_context(tempfile.TemporaryFile(dir=self.folder))
            self._file.seek(start)
            while left and (part := self._file.read(min(left, _CHUNK))):
                own.write(part)
                left -= len(part)
            own.seek(0)
            # the caller closes it
            stack.pop_all()
        return own

    def close(self) -> None:
        """Remove the files and give their space back."""
        _close(self._file)
        self._spool.add(self.client, -self._reserved)
        self._reserved = 0

    def _append(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()


async def _safely(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return await executors.UPLOADS.run(call, *args, **kwargs)
    except OSError as error:
        reason = errno_name(error)
        log.error("upload_not_stored", reason=reason)
        what = "is full" if reason in ("ENOSPC", "EDQUOT") else "fails"
        raise UnavailableError(
            f"the disk for uploaded files {what} ({reason}): the operator makes room, or gives the "
            "service another folder for temporary files"
        ) from error


def _close(file: IO[bytes]) -> None:
    # closing writes what a full disk refused
    with suppress(OSError):
        file.close()
