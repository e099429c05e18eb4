"""The commands of ``docsplit-index`` apart from indexing: ``docsplit-index COMMAND …``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from service.bulk import integrity, optimizing
from service.bulk.exporting import command as exporting

COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "check": integrity.main,
    "repair": integrity.main,
    "export": lambda arguments: exporting.main(arguments[1:]),
    "optimize": lambda arguments: optimizing.main(arguments[1:]),
}


def command(arguments: Sequence[str]) -> Callable[[Sequence[str]], int] | None:
    """What runs a command line; None if it indexes a file, which may have a command's name."""
    if any(a == "--index" or a.startswith("--index=") for a in arguments):
        return None
    return COMMANDS.get(arguments[0]) if arguments else None
