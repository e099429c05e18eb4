"""Errors of the export room."""


class ExportError(Exception):
    """Why no bundle was written: one line that names what was wrong and how to fix it."""
