"""Errors of the export."""


class ExportError(Exception):
    """The export wrote no bundle. The message says in one line what is wrong and how to fix it."""
