"""Embed documents as the service does. An interrupted run continues where it stopped."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from docsplit.bundles.manifest import HEAD_NAME
from docsplit.engines.choice import ArithmeticWish
from docsplit.windowing.pooling import Vectors
from training.evaluation.encoders.opening import opened
from training.evaluation.encoders.precision import add_precision_flag
from training.evaluation.progress import EmbeddingProgress


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add ``--precision`` and ``--cache``."""
    add_precision_flag(parser)
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(".cache/evaluation"),
        help="folder of the vectors, shared with docsplit-evaluate; default: .cache/evaluation",
    )


def head_name(text: str) -> str:
    """A name that a bundle takes.

    Raises:
        ArgumentTypeError: it is none.
    """
    if re.search(HEAD_NAME, text) is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no name of a head; give up to 63 lower-case letters, digits, - and _, "
            "first a letter or digit"
        )
    return text


def embed(
    bundle: Path, cache: Path, texts: Sequence[str], precision: ArithmeticWish = "auto"
) -> Vectors:
    """Unit vectors of whole documents, float32 ``[texts, dimensions]``."""
    progress = EmbeddingProgress(Console(stderr=True))
    with opened(str(bundle), cache, precision=precision, progress=progress) as encoder:
        vectors: Vectors = encoder.features(texts)
        return vectors
