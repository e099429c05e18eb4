"""The command line's options for the gate. This module imports nothing heavy."""

import argparse
import os

from export.checks.thresholds import parse


def add_gate_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--threshold`` and ``--threads``."""
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
