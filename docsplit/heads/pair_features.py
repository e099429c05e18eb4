"""Ranking features of pairs of documents: the inputs of a linear citation head."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from docsplit.heads.network import Floats, Vectors
from docsplit.ranking.fusion import standard

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
