"""Errors of the export."""


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
