"""What can be wrong with a request to an index; ``service.server.edge.errors`` answers it."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping


class NotFoundError(LookupError):
    """No index, document, classifier or head of that name."""


class ConflictError(Exception):
    """The stored thing belongs to another model, or differs from what was asked for."""


class BuildingError(Exception):
    """The index is not yet complete for the served bundle.

    Attributes:
        done: documents that are.
        total: documents of the index.
    """

    def __init__(self, done: int, total: int) -> None:
        super().__init__(
            f"the index is being re-embedded for the served bundle: {done:,} of {total:,} documents"
        )
        self.done = done
        self.total = total


class VersionError(Exception):
    """Documents have other versions than a write asked for.

    Attributes:
        present: the versions that stand, by id; None where there is no document.
        written: the versions of the documents that were written all the same, by id.
    """

    def __init__(
        self, present: Mapping[str, int | None], written: Mapping[str, int] | None = None
    ) -> None:
        super().__init__("a document has another version than the one that the write is for")
        self.present = present
        self.written = written or {}


class InvalidError(ValueError):
    """A value that does not fit the index.

    Args:
        message: what was wrong and how to mend it; never the caller's text.
        param: the field at fault.
    """

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class StoreError(Exception):
    """Indexes and heads cannot be read or written where they should lie.

    Args:
        message: what was wrong and how to mend it.
        reason: for metrics: an errno's name, or ``gone``, ``sync``, ``torn``,
            ``damaged`` or ``unusable``.
    """

    def __init__(self, message: str, reason: str = "unusable") -> None:
        super().__init__(message)
        self.reason = reason


class DamagedError(StoreError):
    """What is stored of a document does not fit its checksums."""

    def __init__(self) -> None:
        super().__init__(
            "what is stored of this document is damaged and is not served: write the document "
            "again, or let the operator run docsplit-index repair on the index",
            "damaged",
        )


class UncertainError(StoreError):
    """A commit failed, and whether it stands cannot be told."""

    def __init__(self) -> None:
        super().__init__("it is not known whether the documents were written: read them")


_DISK = {
    "ENOSPC": "the volume of index_path is full: delete indexes, or make it larger",
    "EDQUOT": "the quota of index_path is used up: delete indexes, or raise it",
    "EROFS": "the volume of index_path is read-only, so nothing can be written",
    "EIO": "the volume of index_path fails: look at its disk",
    "ESTALE": "the volume of index_path was mounted anew: restart the service",
}
ERRNOS = tuple(_DISK)
# LanceDB has no type of its own for what the system refuses
_OS_ERROR = re.compile(r"\(os error (\d+)\)")

# what it says of files that are gone or damaged
_LANCE = re.compile(r"LanceError\((\w+)\)|^lance error: (Not found|Encountered corrupt file)")


def errno_name(error: OSError) -> str:
    """The system's name of an error, such as ENOSPC."""
    return errno.errorcode.get(error.errno or 0, "unknown")


def disk_fault(error: BaseException) -> StoreError | None:
    """The error as one of the volume, where it is one: full, read-only or failing."""
    name = errno_name(error) if isinstance(error, OSError) and error.errno else ""
    if name not in _DISK and (told := _OS_ERROR.search(str(error))):
        name = errno.errorcode.get(int(told[1]), "")
    return StoreError(_DISK[name], name) if name in _DISK else None


def lance_fault(error: BaseException) -> str | None:
    """What kind of fault LanceDB met in its files; None where the error is another one."""
    # a class that cannot be imported
    if type(error).__name__ == "RustPanic":
        return "panic"
    if not isinstance(error, RuntimeError | OSError | ValueError):
        return None
    found = _LANCE.search(str(error))
    return found and (found[1] or found[2])
