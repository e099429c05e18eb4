"""Errors of the readers."""


class DataError(Exception):
    """Input that cannot be read; the message names the file and, where there is one, the line."""
