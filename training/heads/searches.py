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

from docsplit.corpora.documents import Document
from docsplit.heads.citation import CANDIDATES, Candidates, sample
from docsplit.heads.pairs import Facts, Scores, of_pairs, signals
from docsplit.ranking.fusion import DEEP, hybrid
from docsplit.ranking.terms import SAMPLE, bag, cosines, count
from docsplit.ranking.words import INDEX, every
from docsplit.windowing.pooling import Vectors


class Searches:
    """Finds documents with vectors and words similar to those of a document.

    Args:
        table: the columns ``number`` and ``text``, with an index over the words of the texts.
        documents: with their texts and titles.
        vectors: unit vectors of the documents, float32 ``[documents, dimensions]``.
    """

    def __init__(self, table: AsyncTable, documents: Sequence[Document], vectors: Vectors) -> None:
        self._table = table
        self._texts = [one.text for one in documents]
        self._vectors = vectors
        unknown = np.zeros(0)
        self._facts = [
            Facts(one.title or "", bag(one.text), len(one.text), unknown) for one in documents
        ]
        self._frequencies = count(one.words for one in self._facts[:SAMPLE])

    async def candidates(
        self, number: int, cited: set[int], popularity: Mapping[int, int]
    ) -> Candidates:
        """The results of a hybrid search for a document.

        Args:
            number: number of the document.
            cited: documents that it cites.
            popularity: number of documents that cite each document.
        """
        query, about = self._vectors[number], self._facts[number]
        near = self._vectors @ query
        near[number] = -np.inf
        first = np.argsort(-near, kind="stable")[: min(CANDIDATES, len(near) - 1)].tolist()
        found = np.array(list(dict.fromkeys([*await self._by_words(number), *first])))
        bags = [self._facts[one].words for one in found]
        words = cosines(about.words, bags, self._frequencies.weights)
        dense = near[found].astype(np.float64)
        fused = hybrid(dense, words)
        best = np.argsort(-fused, kind="stable")[:CANDIDATES]
        scores = Scores(dense[best], words[best], fused[best])
        names = found[best].tolist()
        # its own link would reveal the answer
        others = np.array([popularity.get(one, 0) - (one in cited) for one in names])
        held = [self._facts[one] for one in names]
        return Candidates(
            query,
            self._vectors[names],
            signals(scores, others),
            np.array([one in cited for one in names], dtype=np.bool_),
            of_pairs(scores, about, held, others, self._frequencies.idf),
        )

    async def _by_words(self, number: int) -> list[int]:
        terms = self._frequencies.deep_terms(self._texts[number])
        search = self._table.query().nearest_to_text(terms, columns=["text"])
        search = search.where(f"number != {number}").select(["number", "_score"])
        found: list[int] = (await search.limit(DEEP).to_arrow())["number"].to_pylist()
        return found


def searches(
    documents: Sequence[Document], vectors: Vectors, links: Mapping[int, set[int]]
) -> list[Candidates]:
    """Searches for citing documents that find at least one cited and one other document.

    Args:
        documents: with their texts and titles.
        vectors: unit vectors of the documents, float32 ``[documents, dimensions]``.
        links: numbers of the documents that each citing document cites.
    """
    found = asyncio.run(_searches(documents, vectors, links))
    return [one for one in found if one.linked.any() and not one.linked.all()]


async def _searches(
    documents: Sequence[Document], vectors: Vectors, links: Mapping[int, set[int]]
) -> list[Candidates]:
    popularity = Counter(one for cited in links.values() for one in cited)
    numbers = pa.array(range(len(documents)), pa.int64())
    rows = pa.table({"number": numbers, "text": [" ".join(every(one.text)) for one in documents]})
    with tempfile.TemporaryDirectory() as folder:
        table = await (await connect_async(folder)).create_table("documents", rows)
        await table.create_index("text", config=FTS(**INDEX))
        search = Searches(table, documents, vectors)
        return [
            await search.candidates(number, links[number], popularity)
            for number in sample(sorted(links), vectors.shape[1])
        ]
