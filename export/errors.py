"""Errors of the export."""

from collections.abc import Iterator
from contextlib import contextmanager


class ExportError(Exception):
    """The export wrote no bundle. The message says in one line what is wrong and how to fix it."""


class IncompleteError(ExportError):
    """The bundle is in place, but lacks forms that failed. The message names them and says why."""


def explained(error: Exception) -> str:
    """The message for users of an error that they can fix.

    Raises:
        OSError: one of a connection, which has no number; only those of files can be fixed.
    """
    if not isinstance(error, OSError):
        return str(error)
    if error.errno is None:
        raise error
    return f"{error}; free space or correct the path, then repeat the command"


def first_line(error: Exception) -> str:
    """The first line of an error's message, and the second one if the first announces it."""
    first, *rest = str(error).strip().splitlines() or [type(error).__name__]
    return f"{first} {rest[0].strip()}" if first.endswith(":") and rest else first


@contextmanager
def refused(what: str) -> Iterator[None]:
    """Make any other error in this context, of whatever library, an ``ExportError``.

    Args:
        what: the beginning of its message.
    """
    try:
        yield
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(f"{what}: {first_line(error)}") from error
