"""Hard negatives: documents that a search finds for a document, and that are not linked to it.

Cohan et al. 2020, "SPECTER", section 3.2, take documents at two links' distance. Ostendorff et al.
2022, "SciNCL", section 3, take neighbours of vectors by rank and leave out the nearest ones, which
may be unlabelled positives.
"""

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from docsplit.ranking.fusion import hybrid
from training.data.cache import Numbers, TokenCache
from training.data.clusters import Neighbourhood
from training.data.stored_arrays import StoredArrays
from training.links.graph import LinkGraph

# Ranks of a hybrid search whose documents become negatives. The nearest are too often related.
FIRST, LAST = 20, 100
# documents that the vectors find, before the words of both order them
_DEPTH = 400
_AT_ONCE = 64


@dataclass(frozen=True)
class HardNegatives(StoredArrays):
    """Negatives of each linked document.

    Attributes:
        documents: int64 ``[documents]``, ascending.
        negatives: int64 ``[documents, 80]``, the likeliest first; -1 where there are fewer.
        made_from: what determines them, as text.
    """

    documents: npt.NDArray[np.int64]
    negatives: npt.NDArray[np.int64]
    made_from: str

    def of(self, document: int) -> npt.NDArray[np.int64]:
        """Negatives of a document."""
        row = self.negatives[int(np.searchsorted(self.documents, document))]
        found: npt.NDArray[np.int64] = row[row >= 0]
        return found


def mine(cache: TokenCache, graph: LinkGraph, start: Neighbourhood) -> HardNegatives:
    """Hard negatives of all linked documents.

    The 400 nearest documents by the start weights' vectors are ordered by the hybrid score of
    vectors and words. Those at ranks 20 to 99 that are not linked are negatives.

    Args:
        cache: the documents.
        graph: their links.
        start: the start weights' vectors of all training documents.
    """
    words = _words(cache, start.documents)
    asked = graph.documents
    places = np.searchsorted(start.documents, asked)
    depth = min(_DEPTH, len(start.documents) - 1)
    found = np.full((len(asked), LAST - FIRST), -1, dtype=np.int64)
    for first in range(0, len(asked), _AT_ONCE):
        block = places[first : first + _AT_ONCE]
        cosines = start.vectors[block] @ start.vectors.T
        cosines[np.arange(len(block)), block] = -np.inf
        nearest = np.argpartition(-cosines, depth - 1, axis=1)[:, :depth]
        for row, (place, near) in enumerate(zip(block, nearest, strict=True)):
            near.sort()
            shared = (words[near] @ words[[place]].T).toarray()[:, 0].clip(0, 1)
            score = hybrid(cosines[row, near].astype(np.float64), shared.astype(np.float64))
            ranked = start.documents[near[np.argsort(-score, kind="stable")]][FIRST:LAST]
            kept = ranked[~graph.related([int(asked[first + row])], ranked)[0]]
            found[first + row, : len(kept)] = kept
    return HardNegatives(asked, found, made_from(graph, start))


def made_from(graph: LinkGraph, start: Neighbourhood) -> str:
    """What determines the hard negatives, as text."""
    return json.dumps([graph.digest, start.made_from, FIRST, LAST, _DEPTH])


def _words(cache: TokenCache, documents: Numbers) -> csr_array:
    """TF-IDF of tokens, ``[documents, vocabulary]``, rows of unit length."""
    counted = [
        np.unique(np.concatenate(cache.sentences(int(one))), return_counts=True)
        for one in documents
    ]
    ends = np.cumsum([0, *(len(tokens) for tokens, _ in counted)])
    tokens = np.concatenate([tokens for tokens, _ in counted]).astype(np.int64)
    frequency = np.bincount(tokens)
    idf = np.log(len(counted) / np.maximum(frequency, 1))
    weights = (1 + np.log(np.concatenate([count for _, count in counted]))) * idf[tokens]
    rows = csr_array((weights.astype(np.float32), tokens, ends))
    length = np.sqrt(rows.power(2).sum(axis=1))
    rows.data /= np.repeat(np.maximum(length, 1e-9), np.diff(ends)).astype(np.float32)
    return rows
