"""The flag for the precision of bundles."""

import argparse
from typing import get_args

from docsplit.engines.choice import ArithmeticWish


def add_precision_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--precision``."""
    parser.add_argument(
        "--precision",
        choices=get_args(ArithmeticWish),
        default="auto",
        help="in which a bundle computes, as for docsplit-serve; default: auto, what the service "
        "chooses on this machine",
    )
