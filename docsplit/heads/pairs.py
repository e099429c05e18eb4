"""A document and its candidates: what a citation head reads of each pair.

The service and ``docsplit-train citation`` compute their features here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from docsplit.heads.network import Floats, Vectors
from docsplit.heads.pair_features import Pairs, features
from docsplit.ranking.bags import Bag, title_in, titles_in
from docsplit.ranking.fusion import BEST, fuse, shares

Direction = Literal["cites", "cited_by"]


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about one document.

    Attributes:
        title: "" if it is unknown.
        words: empty if they are unknown.
        length: characters of the text.
        values: metadata whose differences count, float64 ``[fields]``; NaN if unknown.
    """

    title: str
    words: Bag
    length: int
    values: Floats


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of the candidates of a hybrid search.

    Attributes:
        cosines: of the vectors, ``[candidates]``.
        words: cosines of the words, ``[candidates]``.
        fused: of the search, ``[candidates]``.
    """

    cosines: Floats
    words: Floats
    fused: Floats


def of_pairs(
    scores: Scores,
    about: Facts,
    held: Sequence[Facts],
    popularity: NDArray[np.int64],
    idf: NDArray[np.float32],
    direction: Direction = "cites",
) -> Vectors:
    """The features of each pair of a document and a candidate; see ``pair_features``.

    Args:
        scores: of the candidates.
        about: the document.
        held: the candidates.
        popularity: number of other documents that cite the cited one of each pair.
        idf: of each bucket of ``docsplit.ranking.bags``.
        direction: of the pairs.
    """
    own = np.full(len(held), float(about.length))
    lengths = np.array([one.length for one in held], dtype=np.float64)
    differences = about.values - np.stack([one.values for one in held])
    if direction == "cites":
        title = titles_in([one.title for one in held], about.words, idf)
    else:
        title = title_in(about.title, [one.words for one in held], idf)
        own, lengths, differences = lengths, own, -differences
    return features(
        Pairs(
            scores.cosines,
            scores.words,
            scores.fused,
            popularity,
            title,
            own,
            lengths,
            differences,
        )
    )


def signals(scores: Scores, popularity: NDArray[np.int64]) -> Vectors:
    """``Candidates.signals``, for a network on vectors, float32 ``[candidates, 4]``.

    Args:
        scores: of the candidates.
        popularity: number of other documents that cite each candidate.
    """
    by_cosine, by_words = (
        np.argsort(-one, kind="stable").tolist() for one in (scores.cosines, scores.words)
    )
    fused, share = fuse(by_cosine, by_words), shares(by_words, scores.words[by_words].tolist())
    places = range(len(popularity))
    columns = (
        scores.cosines,
        [share[place] for place in places],
        [fused[place] / BEST for place in places],
        np.log1p(popularity),
    )
    return np.column_stack(columns).astype(np.float32)
