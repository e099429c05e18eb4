"""The commands of ``docsplit-index`` apart from indexing: ``docsplit-index COMMAND …``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from service.bulk import integrity, optimizing
from service.bulk.exporting import command as exporting

Command = Callable[[Sequence[str], list[str]], int]
"""Runs a command with its own arguments, and with flags of settings."""

COMMANDS: dict[str, Command] = {
    "check": partial(integrity.main, "check"),
    "repair": partial(integrity.main, "repair"),
    "export": exporting.main,
    "optimize": optimizing.main,
}


def command(arguments: Sequence[str]) -> Command | None:
    """What runs a command; None if it indexes a file, which may have a command's name.

    Args:
        arguments: without flags of settings.
    """
    if any(a == "--index" or a.startswith("--index=") for a in arguments):
        return None
    return COMMANDS.get(arguments[0]) if arguments else None
