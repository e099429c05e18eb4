"""A document and its candidates: what a citation head reads of each pair.

The service and ``docsplit-train citation`` compute their features here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from docsplit.heads.network import Floats, Vectors
from docsplit.ranking.fusion import BEST, fuse, shares, standard
from docsplit.ranking.terms import Bag, title_in, titles_in

# without differences of fields, which have two each
FEATURES = 12
# fields of an index whose differences count; each costs two features
MOST_FIELDS = 4


@dataclass(frozen=True, slots=True)
class Pairs:
    """What is known of a document and its candidates; in each pair one cites the other.

    Attributes:
        cosines: of the vectors, ``[candidates]``.
        words: cosines of the words' weights, ``[candidates]``.
        fused: scores of the hybrid search, ``[candidates]``.
        popularity: number of documents besides the citing one that cite the cited one,
            ``[candidates]``.
        title: share of the words of the cited document's title that occur in the citing document,
            ``[candidates]``; NaN without a title.
        citing_length: characters of the citing document, ``[candidates]``.
        cited_length: characters of the cited document, ``[candidates]``.
        differences: metadata of the citing document minus that of the cited one, such as the year,
            ``[candidates, fields]``; NaN if one of the two is unknown.
    """

    cosines: Floats
    words: Floats
    fused: Floats
    popularity: NDArray[np.int64]
    title: Floats
    citing_length: Floats
    cited_length: Floats
    differences: Floats


def features(pairs: Pairs) -> Vectors:
    """The features of each pair, float32 ``[candidates, FEATURES + 2 * fields]``."""
    # a title that is missing says neither yes nor no
    title = np.nan_to_num(pairs.title, nan=0.5)
    known = np.isfinite(pairs.differences)
    differences = np.where(known, pairs.differences, 0.0)
    columns = (
        pairs.fused,
        standard(pairs.cosines),
        standard(pairs.words),
        pairs.cosines,
        pairs.words,
        _ranks(pairs.fused),
        _ranks(pairs.words),
        np.log1p(pairs.popularity),
        np.log1p(pairs.citing_length),
        np.log1p(pairs.cited_length),
        title,
        title > 0.999,
        *np.sign(differences).T,
        *np.log1p(np.abs(differences)).T,
    )
    return np.column_stack(columns).astype(np.float32)


def _ranks(scores: Floats) -> Floats:
    """The logarithms of the ranks, 0 for the highest score."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return np.log1p(ranks)


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
    """The features of each pair of a document and a candidate; see ``features``.

    Args:
        scores: of the candidates.
        about: the document.
        held: the candidates.
        popularity: number of other documents that cite the cited one of each pair.
        idf: of each bucket of ``docsplit.ranking.terms``.
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
