"""Finds planted near-duplicates among real documents.

    python -m benchmarks.index.duplicates arxiv.parquet --documents 20000

Of some documents it adds a copy in which a share of the words is replaced by words of other
documents. It groups all of them as ``GET /indexes/{name}/duplicates`` does, without a server.
Recall is the share of copies in one group with their original. Precision is the share of the found
pairs that are an original with its copy. Pairs of two originals count as wrong here, and the
command prints the least similar ones: many real corpora contain duplicates.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import numpy as np

from benchmarks.rig import documents
from docsplit.ranking.duplicates import groups, keys, pairs, resemblance, shingles

SHARES = (0.01, 0.05, 0.2)
THRESHOLDS = (0.3, 0.4, 0.5)
LEAST_WORDS = 50
SHOWN = 3


def main() -> None:
    """Plant, find and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="a table with a column text")
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--copies", type=int, default=900)
    given = parser.parse_args()
    texts = documents.read(given.data, given.documents)
    draw = random.Random(1)
    words = [word for text in texts[:1000] for word in text.split()]
    long = [i for i, text in enumerate(texts) if len(text.split()) >= LEAST_WORDS]
    chosen = draw.sample(long, min(given.copies, len(long)))
    planted = {}
    for number, original in enumerate(chosen):
        share = SHARES[number % len(SHARES)]
        copy = [draw.choice(words) if draw.random() < share else w for w in texts[original].split()]
        planted[original, len(texts)] = share
        texts.append(" ".join(copy))
    began = time.monotonic()
    sets = [shingles(text) for text in texts]
    candidates = pairs(np.stack([keys(own) for own in sets])).tolist()
    seconds = time.monotonic() - began
    print(f"{len(texts)} documents, {len(candidates)} candidates, {seconds:.1f} s on one core")
    shares = {(one, other): resemblance(sets[one], sets[other]) for one, other in candidates}
    heads = "  ".join(f"recall {share:.0%}" for share in SHARES)
    print(f"threshold  {heads}  precision  pairs of originals")
    for threshold in THRESHOLDS:
        found = [pair for pair, share in shares.items() if share >= threshold]
        group_of = {
            one: number for number, group in enumerate(groups(len(texts), found)) for one in group
        }
        recall = [
            np.mean(
                [
                    one in group_of and group_of[one] == group_of.get(other)
                    for (one, other), planted_share in planted.items()
                    if planted_share == share
                ]
            )
            for share in SHARES
        ]
        right = sum(pair in planted for pair in found)
        row = "  ".join(f"{value:9.3f}" for value in recall)
        print(f"{threshold:9}  {row}  {right / len(found):9.3f}  {len(found) - right}")
    wrong = sorted((s, pair) for pair, s in shares.items() if s >= 0.4 and pair not in planted)
    for share, (one, other) in wrong[:SHOWN]:
        print(f"{share:.2f}: {texts[one][:90]!r} and {texts[other][:90]!r}")


if __name__ == "__main__":
    main()
