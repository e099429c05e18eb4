"""Texts to measure with."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

PEPS = Path(__file__).resolve().parent.parent / "examples" / "peps" / "documents.jsonl.gz"


def read(path: Path, count: int, seed: int = 0) -> list[str]:
    """``count`` documents drawn without replacement.

    Args:
        path: JSONL (plain or gzip) or Parquet with a column ``text``.
        count: how many.
        seed: of the draw.
    """
    if path.suffix == ".parquet":
        import pyarrow.parquet

        texts = pyarrow.parquet.read_table(path, columns=["text"])["text"].to_pylist()
    else:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as lines:
            texts = [json.loads(line)["text"] for line in lines]
    texts = [text for text in texts if text and text.strip()]
    return random.Random(seed).sample(texts, min(count, len(texts)))
