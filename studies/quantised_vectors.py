"""How many of the nearest windows do vectors as int8 or as bits find?

It takes the windows of stored indexes, searches each form for a sample of them, and compares the
ten nearest windows of other documents with those by float32.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.rig.stored_index import opened
from docsplit.windowing.pooling import Vectors, normalise
from service.index import reuse
from service.index.query import listing
from service.server.bodies.encoding import small_integers

NEAREST = 10
# candidates by bits that are ranked again
CANDIDATES = (20, 40, 100)
PAGE = 200
BLOCK = 50


async def windows(index_path: Path, name: str, most: int) -> tuple[Vectors, NDArray[np.int64]]:
    """Vectors ``[windows, dimensions]`` of an index and the number of each window's document.

    It takes documents in the order of their ids until it has ``most`` windows.
    """
    index = await (await opened(index_path, name)).open(name)
    parts: list[Vectors] = []
    counts: list[int] = []
    after: str | None = ""
    while after is not None and sum(counts) < most:
        page = await listing.page(index, after, PAGE)
        held = dict([pair async for pair in reuse.windows(index, [head.id for head in page.heads])])
        parts += [one.vectors for one in held.values()]
        counts += [len(one.vectors) for one in held.values()]
        after = page.next
    vectors = normalise(np.concatenate(parts).astype(np.float32))
    return vectors, np.repeat(np.arange(len(counts)), counts)


def nearest(scores: NDArray[np.float32], own: NDArray[np.bool_], most: int) -> NDArray[np.int64]:
    """The windows ``[queries, most]`` of other documents with the highest scores, in any order."""
    scores[own] = -np.inf
    return np.argpartition(-scores, most, axis=1)[:, :most]


def recalls(
    vectors: Vectors, documents: NDArray[np.int64], queries: NDArray[np.int64]
) -> dict[str, float]:
    """The share of the ten nearest windows that each form finds."""
    integers = small_integers(vectors).astype(np.float32)
    whole = normalise(integers)
    # the product of two such rows falls by two for every bit that differs
    signs = np.where(vectors > 0, np.float32(1), np.float32(-1))
    found: dict[str, list[float]] = {}

    def note(name: str, true: NDArray[np.int64], got: NDArray[np.int64]) -> None:
        shares = [len(np.intersect1d(a, b)) / NEAREST for a, b in zip(true, got, strict=True)]
        found.setdefault(name, []).extend(shares)

    for at in range(0, len(queries), BLOCK):
        rows = queries[at : at + BLOCK]
        own = documents[None, :] == documents[rows, None]
        exact = vectors[rows] @ vectors.T
        true = nearest(exact.copy(), own, NEAREST)
        note("int8, cosine", true, nearest(whole[rows] @ whole.T, own, NEAREST))
        note("int8, dot product", true, nearest(integers[rows] @ integers.T, own, NEAREST))
        hamming = signs[rows] @ signs.T
        note("binary", true, nearest(hamming.copy(), own, NEAREST))
        mixed = vectors[rows] @ signs.T
        note("binary, the query as float", true, nearest(mixed.copy(), own, NEAREST))
        for most in CANDIDATES:
            for name, first in (("binary", hamming), ("binary, the query as float", mixed)):
                some = nearest(first.copy(), own, most)
                for form, held in (("float", exact), ("int8", vectors[rows] @ whole.T)):
                    scores = np.take_along_axis(held, some, axis=1)
                    best = np.argpartition(-scores, NEAREST - 1, axis=1)[:, :NEAREST]
                    got = np.take_along_axis(some, best, axis=1)
                    note(f"{name}, {most} candidates ranked by {form}", true, got)
    return {name: float(np.mean(shares)) for name, shares in found.items()}


def main() -> None:
    """Print the recall of each form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("indexes", nargs="+", help="PATH/NAME; windows of several are put together")
    parser.add_argument("--most", type=int, default=200_000, help="windows of each index")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--dimensions", type=int, help="keep the first components only")
    given = parser.parse_args()
    places = map(Path, given.indexes)
    parts = [asyncio.run(windows(place.parent, place.name, given.most)) for place in places]
    # the documents of each index follow those of the one before
    firsts = np.cumsum([0, *(numbers[-1] + 1 for _, numbers in parts)])
    documents = np.concatenate([n + at for (_, n), at in zip(parts, firsts, strict=False)])
    vectors = normalise(np.concatenate([part for part, _ in parts])[:, : given.dimensions])
    queries = np.random.default_rng(1).choice(len(vectors), given.queries, replace=False)
    print(f"{len(vectors):,} windows of {documents[-1] + 1:,} documents")
    print(f"largest component {np.abs(vectors).max():.3f}, clipped {_clipped(vectors):.2e}")
    for name, share in recalls(vectors, documents, queries).items():
        print(f"{name:60} {share:.4f}")


def _clipped(vectors: Vectors) -> float:
    """The share of components outside the range of int8."""
    return float((np.abs(small_integers(vectors).astype(np.int16)) == 127).mean())


if __name__ == "__main__":
    main()
