"""Texts for the measurements."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from docsplit.corpora.tables import rows

PEPS = Path(__file__).resolve().parents[2] / "examples" / "peps" / "documents.jsonl.gz"


def read(path: Path, count: int, seed: int = 0, split: str | None = None) -> list[str]:
    """``count`` documents drawn without replacement.

    Args:
        path: a table with a column ``text``.
        count: number of documents.
        seed: seed of the draw.
        split: only rows with this value in the column ``split``.
    """
    found = rows(path, ["text"] if split is None else ["text", "split"], [])
    texts = [row["text"] for _, row in found if split is None or row["split"] == split]
    texts = [text for text in texts if text and text.strip()]
    return random.Random(seed).sample(texts, min(count, len(texts)))


def unseen(texts: Sequence[str], seed: int = 0) -> Iterator[str]:
    """An endless stream of the given documents with shuffled words, so every window is new.

    The service computes a text only once if two requests need it at the same time. A load that
    repeats texts would therefore measure something else.
    """
    draw = random.Random(seed)
    while True:
        for text in texts:
            words = text.split()
            draw.shuffle(words)
            yield " ".join(words)
