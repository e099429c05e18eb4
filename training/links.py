"""Links between documents as supervision: linked documents are the positive pairs.

Cohan et al. 2020, "SPECTER", and Ostendorff et al. 2022, "SciNCL", train on citations in this way.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from docsplit.corpora.documents import read_links
from docsplit.corpora.fields import DataError
from docsplit.corpora.reading import links_among
from docsplit.ranking.fusion import hybrid
from training.batches import Neighbourhood, StoredArrays
from training.documents import read_authors
from training.settings import DataSettings
from training.tokens import Numbers, TokenCache
from training.views import Document, Drawer, Drawn, View, ViewContext

# The links among the training documents.


@dataclass(frozen=True)
class LinkGraph:
    """Which documents are linked, in either direction.

    Attributes:
        neighbours: for each linked document the numbers of the documents that cite it or that it
            cites, int64, ascending.
        links: number of linked pairs.
        outside: links from or to a document that is not trained on.
        same_author: pairs that were left out because they share an author.
        digest: SHA-256 of the pairs.
    """

    neighbours: Mapping[int, npt.NDArray[np.int64]]
    links: int
    outside: int
    same_author: int
    digest: str

    @classmethod
    def of(
        cls, pairs: Iterable[tuple[int, int]], *, outside: int = 0, same_author: int = 0
    ) -> "LinkGraph":
        """A graph of pairs of different documents; a repeated or reversed pair counts once."""
        unique = sorted({(min(pair), max(pair)) for pair in pairs})
        found: dict[int, list[int]] = {}
        for one, other in unique:
            found.setdefault(one, []).append(other)
            found.setdefault(other, []).append(one)
        return cls(
            {one: np.array(sorted(linked), dtype=np.int64) for one, linked in found.items()},
            len(unique),
            outside,
            same_author,
            hashlib.sha256(repr(unique).encode()).hexdigest(),
        )

    @property
    def counts(self) -> dict[str, int]:
        """Numbers for the record of a run."""
        return {"used": self.links, "outside": self.outside, "same_author": self.same_author}

    @property
    def documents(self) -> npt.NDArray[np.int64]:
        """Numbers of the linked documents, ascending."""
        return np.array(sorted(self.neighbours), dtype=np.int64)

    def related(self, documents: Numbers, others: Numbers) -> npt.NDArray[np.bool_]:
        """Which pairs are linked or the same document, bool ``[documents, others]``."""
        columns = np.asarray(others)
        return np.array(
            [(columns == one) | np.isin(columns, self.neighbours.get(one, ())) for one in documents]
        )


def open_graph(
    path: Path, settings: DataSettings, cache: TokenCache, documents: Numbers
) -> LinkGraph:
    """The links of a table among some documents of the cache.

    Raises:
        DataError: the files are unreadable, or no link is left.
    """
    names = cache.names(documents)
    among, outside = links_among(names, read_links(path))
    pairs = {(min(a, b), max(a, b)) for a, cited in among.items() for b in cited}
    field = settings.author_field
    authors = {} if field is None else dict(read_authors(settings, field))
    none: frozenset[str] = frozenset()
    kept = [
        (one, other)
        for one, other in pairs
        if authors.get(names[one], none).isdisjoint(authors.get(names[other], none))
    ]
    if not kept:
        raise DataError(
            f"{path}: no link between two documents of {settings.path} is left "
            f"({outside} links lead to documents that are missing, held out, too short or "
            f"near-duplicates, {len(pairs)} pairs share an author)"
        )
    return LinkGraph.of(
        ((int(documents[one]), int(documents[other])) for one, other in kept),
        outside=outside,
        same_author=len(pairs) - len(kept),
    )


# Hard negatives: documents that a search finds for a document, and that are not linked to it.
#
# Cohan et al. 2020, "SPECTER", section 3.2, take documents at two links' distance. Ostendorff
# et al. 2022, "SciNCL", section 3, take neighbours of vectors by rank and leave out the nearest
# ones, which may be unlabelled positives.

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


class LinkedViews:
    """A passage of a document, one of a linked document, and some of hard negatives.

    A passage consists of neighbouring sentences, as many as the windows of a view hold.

    Args:
        cache: the documents.
        graph: their links.
        negatives: the hard negatives of each linked document; None for none.
        context: the settings, and the room of a window.
        other: draws the views of documents without links, and a share of the others.
    """

    def __init__(
        self,
        cache: TokenCache,
        graph: LinkGraph,
        negatives: HardNegatives | None,
        context: ViewContext,
        other: Drawer | None,
    ) -> None:
        self._cache, self._graph, self._negatives = cache, graph, negatives
        self._count = context.objective.hard_negatives or 0
        self._share = context.objective.mix_share
        self._room = context.window * context.objective.windows
        self._other = other

    def __call__(self, document: int, rng: np.random.Generator) -> Drawn:
        """The views of one document."""
        linked = self._graph.neighbours.get(document)
        if self._other is not None and (linked is None or rng.random() < self._share):
            return self._other(document, rng)
        if linked is None:
            raise ValueError(f"document {document} has no link")
        partner = int(rng.choice(linked))
        first, second = (self._passage(one, rng) for one in (document, partner))
        return Drawn((first, second), partner, self._hard(document, rng))

    def _hard(self, document: int, rng: np.random.Generator) -> list[tuple[int, View]]:
        if self._negatives is None:
            return []
        hard = self._negatives.of(document)
        chosen = rng.permutation(hard)[: self._count].tolist()
        return [(one, self._passage(one, rng)) for one in chosen]

    def _passage(self, document: int, rng: np.random.Generator) -> View:
        return passage(self._cache.sentences(document), self._room, rng)


def passage(document: Document, room: int, rng: np.random.Generator) -> View:
    """Neighbouring sentences that begin anywhere and fill ``room`` tokens, as far as there are
    enough. A shorter document is its own passage."""
    # tokens from the beginning of each sentence to the end of the document
    left = np.cumsum([len(sentence) for sentence in reversed(document)])[::-1]
    starts = max(1, int((left >= room).sum()))
    start = int(rng.integers(starts))
    last = int((left > left[start] - room).sum())
    return list(document[start:last])
