"""Where temporary files can lie. A read-only container may lack the usual folders."""

import os
import tempfile
from contextlib import suppress

MEMORY = "/dev/shm"  # noqa: S108 container engines mount it for each container


def folders() -> list[str]:
    """The folders that can be written: the system's one first, then the one in memory."""
    found = []
    with suppress(FileNotFoundError):
        found.append(tempfile.gettempdir())
    if os.access(MEMORY, os.W_OK | os.X_OK):
        found.append(MEMORY)
    return found
