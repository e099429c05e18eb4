"""Embed documents with a bundle. An interrupted run continues where it stopped."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from training.evaluation.encoders.opening import opened
from training.evaluation.progress import EmbeddingProgress
from windowing.pooling import Vectors


def add_cache_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--cache``."""
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(".cache/evaluation"),
        help="folder of the vectors, shared with docsplit-evaluate; default: .cache/evaluation",
    )


def embed(bundle: Path, cache: Path, texts: Sequence[str]) -> Vectors:
    """Unit vectors of whole documents, float32 ``[texts, dimensions]``."""
    progress = EmbeddingProgress(Console(stderr=True))
    with opened(str(bundle), cache, progress=progress) as encoder:
        vectors: Vectors = encoder.features(texts)
        return vectors
