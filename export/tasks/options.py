"""The command line's options for held-out data. This module imports nothing heavy."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from docsplit.corpora.fields import Fields, add_field_flags

if TYPE_CHECKING:
    from export.tasks.held_out import HeldOut


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--retrieval``, ``--probe`` and their related options."""
    group = parser.add_argument_group(
        "held-out data",
        "The gate also measures the loss of each graph against the source at tasks. It reads whole "
        "documents as the service does: by windows, their weighted mean, and the default "
        "prompt.",
    )
    group.add_argument(
        "--retrieval",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="corpus, queries and qrels, as in BEIR; nDCG@10 may fall by .005; repeatable",
    )
    group.add_argument(
        "--probe",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a table of texts with labels, .parquet, .csv, .tsv or .jsonl; the accuracy of a "
        "logistic regression may fall by .01; repeatable",
    )
    group.add_argument(
        "--documents",
        type=_count,
        metavar="N",
        help="read at most N documents of a set (of a table N of each part), always the same ones, "
        "and every answer to a query (default: all)",
    )
    add_field_flags(group, "text", "id", "title", "label")


def held_out(options: argparse.Namespace) -> HeldOut:
    """The data that the options name."""
    from export.tasks.held_out import HeldOut

    return HeldOut(
        retrieval=options.retrieval,
        probe=options.probe,
        fields=Fields.given(options, options.documents),
    )


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1 document is needed")
    return number
