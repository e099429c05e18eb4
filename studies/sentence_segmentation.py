"""Which sentence segmenter is fast and handles abbreviations? Studied on 2026-11-21.

    pip install blingfire pysbd
    python -m studies.sentence_segmentation examples/peps/documents.jsonl.gz

The script skips a segmenter that is not installed. The figures in docs/explanation/decisions.md
come from this script.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from docsplit.corpora.documents import read_texts

PROBE = (
    "Dr. Smith went to Washington, D.C. on Jan. 5th. She met Mr. J. Doe (cf. Fig. 3). "
    "See e.g. PEP 484. It costs $3.50 per kg. No way!"
)
EXPECTED = [
    "Dr. Smith went to Washington, D.C. on Jan. 5th.",
    "She met Mr. J. Doe (cf. Fig. 3).",
    "See e.g. PEP 484.",
    "It costs $3.50 per kg.",
    "No way!",
]

Segmenter = Callable[[str], list[str]]


def segmenters() -> dict[str, tuple[Segmenter, int]]:
    """Each installed segmenter, and the number of documents for a reasonable time."""
    found: dict[str, tuple[Segmenter, int]] = {}
    from sentencex import segment

    found["sentencex"] = (lambda text: list(segment("en", text)), 200)
    try:
        import blingfire

        found["blingfire"] = (lambda text: blingfire.text_to_sentences(text).split("\n"), 200)
    except ImportError:
        pass
    try:
        import pysbd

        found["pysbd"] = (pysbd.Segmenter(language="en", clean=False).segment, 5)
    except ImportError:
        pass
    return found


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("documents", type=Path, help="file or folder of documents")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    texts = [document.text for document in read_texts(given.documents)]
    print("| segmenter | MB/s | sentences of the probe (5 are right) | all right |")
    print("|---|---|---|---|")
    for name, (segmenter, count) in segmenters().items():
        sample = texts[:count]
        size = sum(len(text.encode()) for text in sample) / 1e6
        rates = []
        for _ in range(given.repeats):
            began = time.perf_counter()
            for text in sample:
                segmenter(text)
            rates.append(size / (time.perf_counter() - began))
        pieces = [piece.strip() for piece in segmenter(PROBE) if piece.strip()]
        right = "yes" if pieces == EXPECTED else "no"
        print(f"| {name} | {statistics.median(rates):.2f} | {len(pieces)} | {right} |")


if __name__ == "__main__":
    main()
