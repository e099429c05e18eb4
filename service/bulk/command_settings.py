"""The settings of commands that need no server, and their logs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from docsplit.ranking.references import Rule
from service import logs
from service.configuration import load
from service.errors import CommandError
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


def parser_of(name: str, description: str) -> argparse.ArgumentParser:
    """The parser of ``docsplit-index NAME``; ``load_settings`` reads its flags of settings."""
    return argparse.ArgumentParser(
        f"docsplit-index {name}",
        description=description,
        epilog="Further flags are docsplit-serve's, such as --index-path and --bundle.",
        allow_abbrev=False,
    )


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


if TYPE_CHECKING:
    from service.index.documents import Index
    from service.index.found_links import Names, Report
    from service.index.indexes import Indexes


def add_link_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags to a parser."""
    parser.add_argument(
        "--find-links",
        action="store_true",
        help="at the end find the links that stand in the texts: ids and titles of documents",
    )
    parser.add_argument(
        "--link-rule",
        type=rule,
        action="append",
        default=[],
        metavar="IDS=NAME",
        help="with --find-links: a further name of documents, such as 'eip-*=ERC *'; with "
        "@TEXTS at its end only in texts of documents whose ids have this form",
    )
    parser.add_argument(
        "--link-field",
        action="append",
        default=[],
        metavar="NAME",
        help="with --find-links: metadata with identifiers, such as a DOI",
    )


def rule(given: str) -> Rule:
    """A rule, as ``Rule.parsed`` reads it.

    Raises:
        ArgumentTypeError: it has another form.
    """
    try:
        return Rule.parsed(given)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def link_names(given: argparse.Namespace) -> Names | None:
    """The names to look for; None without ``--find-links``.

    Raises:
        CommandError: its other flags stand without it.
    """
    if not given.find_links:
        if given.link_rule or given.link_field:
            raise CommandError("--link-rule and --link-field: give --find-links too")
        return None
    from service.index.found_links import Names

    return Names(fields=tuple(given.link_field), rules=tuple(given.link_rule))


async def find_links(indexes: Indexes, index: Index, names: Names) -> Report:
    """Find the links of an index and store them."""
    from service.index.found_links import find

    rows, report = await find(index, names)
    await indexes.found_links.replace(index.identity.uid, rows, report)
    return report
