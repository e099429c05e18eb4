"""Texts to measure with."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from corpora.tables import rows

PEPS = Path(__file__).resolve().parents[2] / "examples" / "peps" / "documents.jsonl.gz"


def read(path: Path, count: int, seed: int = 0, split: str | None = None) -> list[str]:
    """``count`` documents drawn without replacement.

    Args:
        path: a table with a column ``text``.
        count: how many.
        seed: of the draw.
        split: only the rows whose column ``split`` says so.
    """
    found = rows(path, ["text"] if split is None else ["text", "split"], [])
    texts = [row["text"] for _, row in found if split is None or row["split"] == split]
    texts = [text for text in texts if text and text.strip()]
    return random.Random(seed).sample(texts, min(count, len(texts)))


def unseen(texts: Sequence[str], seed: int = 0) -> Iterator[str]:
    """Documents without end, each new in every window: those given, their words shuffled.

    The service computes a text that is in flight twice only once, so a load that repeats texts
    would measure something else.
    """
    draw = random.Random(seed)
    while True:
        for text in texts:
            words = text.split()
            draw.shuffle(words)
            yield " ".join(words)
