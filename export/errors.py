"""Errors of the export."""


class ExportError(Exception):
    """The export wrote no bundle. The message says in one line what is wrong and how to fix it."""


class IncompleteError(ExportError):
    """The bundle is in place, but lacks forms that failed. The message names them and says why."""
