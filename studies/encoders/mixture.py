"""Draw the unlabelled documents that all trials of a study read, from the training parts.

    python -m studies.encoders.development_parts data runs/parts
    python -m studies.encoders.mixture runs/parts/training mix.jsonl.zst

All of BBC News and FakeNews, and as many documents of each larger corpus as ``DRAWN`` or
``--drawn`` says; of each document its first ``CHARACTERS`` characters, in an order drawn by
``--seed``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import zstandard

DRAWN: dict[str, int | None] = {
    "bbc": None,
    "fakenews": None,
    "arxiv": 4500,
    "news20": 4500,
    "enwiki2015": 2450,
    "enwiki2018": 2450,
}
CHARACTERS = 6000


def drawn(
    folder: Path, seed: int, counts: Mapping[str, int | None] = DRAWN
) -> list[dict[str, str]]:
    """Documents with id and text, in the order of the file; without a count, all of a corpus."""
    draw = np.random.default_rng(seed)
    found: list[dict[str, str]] = []
    for name, count in counts.items():
        rows = pq.read_table(folder / f"{name}.parquet", columns=["id", "text"]).to_pylist()
        chosen = np.sort(draw.permutation(len(rows))[:count]) if count else range(len(rows))
        found += [
            {"id": f"{name}-{rows[place]['id']}", "text": rows[place]["text"][:CHARACTERS]}
            for place in chosen
        ]
    draw.shuffle(found)
    return found


def _count(given: str) -> tuple[str, int | None]:
    name, equals, count = given.partition("=")
    if name not in DRAWN or not equals or (count != "all" and not count.isdecimal()):
        raise argparse.ArgumentTypeError(f"{given!r}: give a corpus and a number or all: arxiv=900")
    return name, None if count == "all" else int(count)


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.encoders.mixture",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("training", type=Path, help="folder of the training parts")
    parser.add_argument("out", type=Path, help="a name that ends in .jsonl.zst")
    parser.add_argument(
        "--drawn",
        type=_count,
        action="append",
        default=[],
        metavar="CORPUS=COUNT",
        help="documents of a corpus, or all; repeatable",
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    documents = drawn(given.training, given.seed, DRAWN | dict(given.drawn))
    with zstandard.open(given.out, "wt", encoding="utf-8") as stream:
        stream.writelines(f"{json.dumps(one, ensure_ascii=False)}\n" for one in documents)
    print(f"{given.out}: {len(documents):,} documents")


if __name__ == "__main__":
    main()
