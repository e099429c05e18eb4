"""The flags of ``docsplit-index`` that find links in the texts."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from docsplit.ranking.references import Rule
from service.errors import CommandError

if TYPE_CHECKING:
    from service.index.documents import Index
    from service.index.indexes import Indexes
    from service.index.links.found import Report
    from service.index.links.search import Names


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
    from service.index.links.search import Names

    return Names(fields=tuple(given.link_field), rules=tuple(given.link_rule))


async def find_links(indexes: Indexes, index: Index, names: Names) -> Report:
    """Find the links of an index and store them."""
    from service.index.links.search import find

    rows, report = await find(index, names)
    await indexes.found_links.replace(index.identity.uid, rows, report)
    return report
