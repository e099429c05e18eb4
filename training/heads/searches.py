"""Candidates of the citation head among documents in memory, as in an index of the service."""

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
from ranking.bags import bag
from ranking.fusion import fuse, shares
from ranking.terms import count
from windowing.pooling import Vectors

# documents whose words are counted
SAMPLE = 512


class Searches:
    """Finds documents with vectors and words similar to those of a document.

    Args:
        table: the columns ``number`` and ``text``, with a full-text index.
        texts: texts of the documents.
        vectors: unit vectors of the documents, float32 ``[documents, dimensions]``.
    """

    def __init__(self, table: AsyncTable, texts: Sequence[str], vectors: Vectors) -> None:
        self._table = table
        self._texts = texts
        self._vectors = vectors
        self._frequencies = count(bag(text) for text in texts[:SAMPLE])

    async def candidates(
        self, number: int, cited: set[int], popularity: Mapping[int, int]
    ) -> Candidates:
        """The results of a search for a document.

        Args:
            number: number of the document.
            cited: documents that it cites.
            popularity: number of documents that cite each document.
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
                # its own link would reveal the answer
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
    """Searches for citing documents that find at least one cited and one other document.

    Args:
        texts: texts of the documents.
        vectors: unit vectors of the documents, float32 ``[documents, dimensions]``.
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
        await table.create_index(
            "text", config=FTS(with_position=False, base_tokenizer="icu/split")
        )
        search = Searches(table, texts, vectors)
        return [
            await search.candidates(number, links[number], popularity)
            for number in sample(sorted(links), vectors.shape[1])
        ]
