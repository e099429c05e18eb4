"""Errors of the readers."""


class DataError(Exception):
    """Unreadable input; the message names the file and, if there is one, the line."""
