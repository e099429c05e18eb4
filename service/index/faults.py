"""What can be wrong with a request to an index; ``service.edge.errors`` answers it."""

from __future__ import annotations

import re

# what LanceDB says of files that are gone or damaged; it has no type of its own for that
_LANCE = re.compile(r"LanceError\((\w+)\)|^lance error: (Not found|Encountered corrupt file)")


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
    """Indexes and heads cannot be read or written where they should lie."""


class DamagedError(StoreError):
    """What is stored of a document does not fit its checksums."""

    def __init__(self) -> None:
        super().__init__(
            "what is stored of this document is damaged and is not served: write the document "
            "again, or let the operator run docsplit-index repair on the index"
        )


def lance_fault(error: BaseException) -> str | None:
    """What kind of fault LanceDB met in its files; None where the error is another one."""
    if not isinstance(error, RuntimeError | OSError | ValueError):
        return None
    found = _LANCE.search(str(error))
    return found and (found[1] or found[2])
