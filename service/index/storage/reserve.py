"""Space on the volume for deletions only, so that they can free more on a full volume."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path

NAME = "docsplit-reserve"
# a deletion writes some ten files of up to 40 kB before it removes any
BYTES = 1 << 20


class Reserve:
    """A file that is removed before a deletion on a full volume, and created again after it.

    All calls block.

    Args:
        path: of the store's folder.
    """

    def __init__(self, path: Path) -> None:
        self._file = path / NAME

    def keep(self, *, room: int = 0) -> None:
        """Create the file if it is missing and there is space for it.

        Args:
            room: bytes that must stay free.
        """
        try:
            if self._file.exists() and self._file.stat().st_size == BYTES:
                return
            volume = os.statvfs(self._file.parent)
            if volume.f_bavail * volume.f_frsize < BYTES + room:
                return
        except OSError:
            return
        scratch = self._file.with_name(f".{NAME}.{uuid.uuid4().hex}")
        try:
            # random bytes: some file systems store no blocks for zeros
            scratch.write_bytes(os.urandom(BYTES))
            scratch.replace(self._file)
        except OSError:
            # the volume is full, or read-only
            with suppress(OSError):
                scratch.unlink(missing_ok=True)

    def release(self) -> None:
        """Free the space."""
        self._file.unlink(missing_ok=True)
