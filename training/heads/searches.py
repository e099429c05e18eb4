"""Hybrid searches among documents in memory, as an index of the service makes them."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from lancedb import connect_async
from lancedb.index import FTS
from lancedb.table import AsyncTable

from heads.citation import CANDIDATES, Candidates, sample, signals
from ranking.fusion import fuse, shares
from ranking.terms import SAMPLE, count
from windowing.pooling import Vectors


class Searches:
    """Finds for a document the others that are near by their vectors and by their words.

    Args:
        table: of the columns ``number`` and ``text``, with a full-text index.
        texts: of the documents.
        vectors: their unit vectors, float32 ``[documents, dimensions]``.
    """

    def __init__(self, table: AsyncTable, texts: Sequence[str], vectors: Vectors) -> None:
        self._table = table
        self._texts = texts
        self._vectors = vectors
        self._frequencies = count(texts[:SAMPLE])

    async def candidates(
        self, number: int, cited: set[int], popularity: Mapping[int, int]
    ) -> Candidates:
        """What a search for a document finds.

        Args:
            number: of the document.
            cited: what it cites.
            popularity: how many documents cite each.
        """
        query = self._vectors[number]
        cosines = self._vectors @ query
        cosines[number] = -np.inf
        near = np.argsort(-cosines, kind="stable")[: min(CANDIDATES, len(cosines) - 1)].tolist()
        worded, scores = await self._by_words(number)
        fused = fuse(near, worded)
        words = shares(worded, scores)
        found = list(fused)[:CANDIDATES]
        return Candidates(
            query,
            self._vectors[found],
            signals(
                cosines[found].astype(np.float64),
                np.array([words.get(one, 0.0) for one in found]),
                np.array([fused[one] for one in found]),
                # its own link would give the answer away
                np.array([popularity.get(one, 0) - (one in cited) for one in found]),
            ),
            np.array([one in cited for one in found], dtype=np.bool_),
        )

    async def _by_words(self, number: int) -> tuple[list[int], list[float]]:
        terms = self._frequencies.top_terms(self._texts[number])
        search = self._table.query().nearest_to_text(terms, columns=["text"])
        search = search.where(f"number != {number}").select(["number", "_score"])
        found = await search.limit(CANDIDATES).to_arrow()
        return found["number"].to_pylist(), found["_score"].to_pylist()


def searches(
    texts: Sequence[str], vectors: Vectors, links: Mapping[int, set[int]]
) -> list[Candidates]:
    """Searches for citing documents that find some cited document, and some other.

    Args:
        texts: of the documents.
        vectors: their unit vectors, float32 ``[documents, dimensions]``.
        links: numbers of the documents that each citing document cites.
    """
    found = asyncio.run(_searches(texts, vectors, links))
    return [one for one in found if one.linked.any() and not one.linked.all()]


async def _searches(
    texts: Sequence[str], vectors: Vectors, links: Mapping[int, set[int]]
) -> list[Candidates]:
    popularity = Counter(one for cited in links.values() for one in cited)
    rows = pa.table({"number": pa.array(range(len(texts)), pa.int64()), "text": list(texts)})
    with tempfile.TemporaryDirectory() as folder:
        table = await (await connect_async(folder)).create_table("documents", rows)
        await table.create_index("text", config=FTS(with_position=False))
        search = Searches(table, texts, vectors)
        return [
            await search.candidates(number, links[number], popularity)
            for number in sample(sorted(links), vectors.shape[1])
        ]
