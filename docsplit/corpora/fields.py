"""Names of columns, and the flags that set them in every tool. Imports only small modules."""

import argparse
from dataclasses import dataclass


class DataError(Exception):
    """Unreadable input; the message names the file and, if there is one, the line."""


_NAMES = ("text", "id", "title", "label")


@dataclass(frozen=True)
class Fields:
    """Names of columns, and the limit of documents.

    Attributes:
        text, id, title, label: columns of these contents.
        limit: most documents of a set; for a labelled set, of each of its parts.
    """

    text: str = "text"
    id: str = "id"
    title: str = "title"
    label: str = "label"
    limit: int | None = None

    @classmethod
    def given(cls, options: argparse.Namespace, limit: int | None = None) -> "Fields":
        """The values of the flags of ``add_field_flags``; defaults if a tool lacks a flag."""
        names = {name: getattr(options, f"{name}_field", name) for name in _NAMES}
        return cls(**names, limit=limit)


def add_field_flags(parser: argparse._ActionsContainer, *names: str) -> None:
    """Add flags such as ``--text-field`` for some of ``text``, ``id``, ``title`` and ``label``."""
    for name in names:
        parser.add_argument(
            f"--{name}-field",
            default=name,
            metavar="COLUMN",
            help=f"column of the {name} (default: {name})",
        )
