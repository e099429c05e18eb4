"""Options that several commands share. This module imports nothing heavy."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from docsplit.corpora.fields import Fields, add_field_flags
from export.thresholds import parse

if TYPE_CHECKING:
    from export.tasks import HeldOut


def add_gate_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--calibration``, ``--paragraphs``, ``--threshold`` and ``--threads``."""
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="real text to calibrate int8 and to measure parity, on different passages: one "
        "document per line, or a table with a column text, packed or not (default: examples/peps)",
    )
    parser.add_argument(
        "--paragraphs",
        type=_paragraphs,
        default=300,
        metavar="N",
        help="number of paragraphs to measure parity, at least 200 (default: 300)",
    )
    parser.add_argument(
        "--threshold",
        type=_threshold,
        action="append",
        default=[],
        metavar="PRECISION.FIGURE=VALUE",
        help="another threshold, for example int8.cosine_min=.98; figures: cosine_mean, "
        "cosine_min, neighbour_agreement (lowest allowed), retrieval, probe (largest allowed "
        "loss); of a re-ranker: kendall_tau, same_first (lowest allowed), score_error_mean, "
        "score_error_max (largest allowed); repeatable",
    )
    parser.add_argument(
        "--threads",
        type=count,
        default=cores(),
        help="processor threads (default: all cores)",
    )


def count(text: str) -> int:
    """A whole number above 0.

    Raises:
        ArgumentTypeError: it is none.
    """
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return value


def _paragraphs(text: str) -> int:
    number = count(text)
    if number < 200:
        raise argparse.ArgumentTypeError("parity needs at least 200 paragraphs")
    return number


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _threshold(text: str) -> tuple[str, float]:
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


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
        type=count,
        metavar="N",
        help="read at most N documents of a set (of a table N of each part), always the same ones, "
        "and every answer to a query (default: all)",
    )
    add_field_flags(group, "text", "id", "title", "label")


def held_out(options: argparse.Namespace) -> HeldOut:
    """The data that the options name."""
    from export.tasks import HeldOut

    return HeldOut(
        retrieval=options.retrieval,
        probe=options.probe,
        fields=Fields.given(options, options.documents),
    )


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt during the block, so that unfinished files are removed."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
