"""The settings of commands that need no server, and their logs."""

from collections.abc import Sequence

from service import logs
from service.configuration import load
from service.settings import Settings


def separate(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part a command line into the command's own arguments and flags of settings with their values.

    The parser of a command does not know which flags of settings take a value: it would take the
    folder after ``--index-path`` for the source or the destination.
    """
    own: list[str] = []
    flags: list[str] = []
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if argument == "--":
            return [*own, argument, *left], flags
        flag, equals, _ = argument.partition("=")
        if flag not in _TAKES_VALUE:
            own.append(argument)
            continue
        flags.append(argument)
        if _TAKES_VALUE[flag] and not equals and left and not left[0].startswith("--"):
            flags.append(left.pop(0))
    return own, flags


def load_settings(arguments: list[str], program: str = "docsplit-index") -> Settings:
    """Read the settings and configure the logs; raises like ``service.configuration.load``.

    Logs go to standard error, next to the progress. Unless the settings say otherwise, they are
    warnings and errors as text.
    """
    settings = load(arguments, program)
    given = settings.model_fields_set
    level = settings.log_level if "log_level" in given else "warning"
    logs.configure(level, settings.log_format if "log_format" in given else "text")
    return settings


def _flags() -> dict[str, bool]:
    found = {}
    for name, field in Settings.model_fields.items():
        flag = name.replace("_", "-")
        found[f"--{flag}"] = field.annotation is not bool
        if field.annotation is bool:
            found[f"--no-{flag}"] = False
    return found


_TAKES_VALUE = _flags()
"""Whether a value follows a flag of a setting."""
