"""Errors of the export room."""


class ExportError(Exception):
    """Why no bundle was written: one line that names what was wrong and how to fix it."""


class DataError(Exception):
    """Input that cannot be read; the message names the file and, where there is one, the line."""
