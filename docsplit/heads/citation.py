"""The citation head: does a document cite another?

The head is a logistic regression on a few features of the pair
(``docsplit.heads.pairs``). With ``inputs="vectors"`` it is the network of DocSplit (section
3.5), which reads [u; v]; here it also reads the products u * v, as in InferSent (Conneau et al.
2017), and four signals of the search.
docs/explanation/experiments/heads.md compares the two.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from docsplit.heads.network import Learnt, Network, Vectors

NEGATIVES = 4  # for each link, among the citing document's other candidates
HELD_OUT = 5  # every fifth citing document is for testing
HIDDEN = 16
# limit of the numbers in all pairs' inputs; the first links in the order of the searches count
MOST_INPUTS = 40_000_000
# a head learns nothing from fewer links
LEAST_LINKS = 10
LEAST_CITING = 5
# limit of the citing documents to learn from; each costs two searches
MOST_CITING = 1000
# limit of the numbers in all candidates' vectors
MOST_NUMBERS = 40_000_000
# candidates of a hybrid search, at least
CANDIDATES = 100
LABELS = ["unlinked", "cites"]
# signals of a search for a network on vectors
SIGNALS = 4
# strong: there are only some thousand pairs for a thousand inputs
VECTORS_WEIGHT_DECAY = 30.0
FEATURES_WEIGHT_DECAY = 1.0

Inputs = Literal["features", "vectors"]

Labels = NDArray[np.int64]
Id = TypeVar("Id")


@dataclass(frozen=True, slots=True)
class Candidates:
    """The result of a search for one document.

    Attributes:
        query: its vector, float32 ``[dimensions]``, unit length.
        found: vectors of the candidates, ``[candidates, dimensions]``.
        signals: float32 ``[candidates, 4]``: cosine; score of the words as a share of the span from
            the last to the best; fused ranks, the best possible being 1; logarithm of one plus the
            number of other documents that cite the candidate.
        linked: bool ``[candidates]``: whether the document cites each of them.
        features: of each pair, see ``pairs.features``; empty for a network on vectors.
    """

    query: Vectors
    found: Vectors
    signals: Vectors
    linked: NDArray[np.bool_]
    features: Vectors = field(default_factory=lambda: np.zeros((0, 0), np.float32))


@dataclass(frozen=True, slots=True)
class Trained:
    """A citation head and its results on unseen citing documents.

    Attributes:
        links: number of links in training and test.
        citing: number of documents that the links start from.
        held_out: number of citing documents held out for the two measures.
        mrr: mean reciprocal rank of the first cited document in the head's order of candidates.
        hybrid_mrr: in the hybrid search's order; for a network on vectors in that of reciprocal
            rank fusion.
    """

    network: Network
    links: int
    citing: int
    held_out: int
    mrr: float
    hybrid_mrr: float


def sample(citing: Sequence[Id], dimensions: int) -> list[Id]:
    """The citing documents to learn from; always the same ones.

    If there are more than ``MOST_CITING``, or fewer with large vectors, the function draws some.
    """
    most = min(MOST_CITING, max(1, MOST_NUMBERS // (CANDIDATES * dimensions)))
    draw = np.random.default_rng(0)
    return [citing[i] for i in draw.permutation(len(citing))[:most]]


def learn(
    searches: Sequence[Candidates],
    links: int,
    citing: int,
    deadline: float,
    stop: threading.Event | None = None,
    inputs: Inputs = "features",
) -> Learnt:
    """A citation head and its report.

    Args:
        searches: of citing documents, each with a link among its candidates.
        links: number of links between all documents.
        citing: number of documents that cite.
        deadline: on ``time.monotonic``'s clock.
        stop: ends the training like the deadline, within a second.
        inputs: a logistic regression on the features of the pairs, or a network on the vectors.

    Raises:
        ValueError: too few links, with a remedy.
        TimeoutError: the deadline passed, or ``stop`` was set.
    """
    if links < LEAST_LINKS or len(searches) < LEAST_CITING:
        raise ValueError(
            f"this set of documents holds {links} links, and the hybrid search finds linked "
            f"documents for {len(searches)} of its documents: a citation head needs at least "
            f"{LEAST_LINKS} links, and {LEAST_CITING} such documents"
        )
    trained = train(searches, deadline, stop, inputs)
    report = {
        "links": links,
        "citing": citing,
        "inputs": inputs,
        "links_used": trained.links,
        "citing_used": trained.citing,
        "held_out": trained.held_out,
        "mrr": trained.mrr,
        "hybrid_mrr": trained.hybrid_mrr,
    }
    return Learnt(LABELS, trained.network, report)


def vector_features(citing: Vectors, cited: Vectors, signals: Vectors) -> Vectors:
    """``[u; v; u * v; signals]``, float32 ``[pairs, 3 * dimensions + 4]``."""
    products = citing * cited * np.float32(np.sqrt(citing.shape[1]))
    return np.hstack((citing, cited, products, signals)).astype(np.float32)


def train(
    searches: Sequence[Candidates],
    deadline: float,
    stop: threading.Event | None = None,
    inputs: Inputs = "features",
) -> Trained:
    """Train on the links that a search can find.

    Args:
        searches: of citing documents, at least five, each with a link among its candidates.
        deadline: on ``time.monotonic``'s clock.
        stop: ends the training like the deadline, within a second.
        inputs: see ``learn``.

    Raises:
        TimeoutError: the deadline passed, or ``stop`` was set.
    """
    from docsplit.heads import training

    order = np.random.default_rng(0).permutation(len(searches))
    tested = {int(i) for i in order[::HELD_OUT]}
    known = [search for i, search in enumerate(searches) if i not in tested]
    unseen = [search for i, search in enumerate(searches) if i in tested]
    judge = fit(known, inputs, deadline, stop)
    scores = [judge.logits(inputs_of(search, inputs)) for search in unseen]
    logits = np.concatenate(scores)
    labels = np.concatenate([search.linked for search in unseen]).astype(np.int64)
    temperature = training.calibrate(logits, labels)
    network = fit(searches, inputs, deadline, stop)
    return Trained(
        Network(network.weights, network.biases, temperature),
        int(sum(search.linked.sum() for search in searches)),
        len(searches),
        len(unseen),
        _mrr([score[:, 1] - score[:, 0] for score in scores], unseen),
        _mrr([_fused(search, inputs) for search in unseen], unseen),
    )


def _fused(search: Candidates, inputs: Inputs) -> Vectors:
    return search.features[:, 0] if inputs == "features" else search.signals[:, 2]


def inputs_of(search: Candidates, inputs: Inputs, rows: slice | Labels = slice(None)) -> Vectors:
    """The inputs of a network for some candidates, float32 ``[rows, inputs]``."""
    if inputs == "features":
        return search.features[rows]
    found = search.found[rows]
    citing = np.broadcast_to(search.query, found.shape)
    return vector_features(citing, found, search.signals[rows])


def fit(
    searches: Sequence[Candidates],
    inputs: Inputs,
    deadline: float,
    stop: threading.Event | None = None,
) -> Network:
    """A network that is not calibrated; for the arguments see ``train``."""
    return (_fit_features if inputs == "features" else _fit_vectors)(searches, deadline, stop)


def _fit_features(
    searches: Sequence[Candidates], deadline: float, stop: threading.Event | None
) -> Network:
    """A logistic regression on all candidates; its weights include the features' scales."""
    from docsplit.heads import training

    rows = np.vstack([inputs_of(search, "features") for search in searches])
    labels = np.concatenate([search.linked for search in searches]).astype(np.int64)
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    deviation[deviation < 1e-6] = 1
    rows = (rows - mean) / deviation
    network = training.fit(
        rows, labels, deadline, stop, hidden=0, weight_decay=FEATURES_WEIGHT_DECAY
    )
    weights = network.weights[0] / deviation[:, None]
    return Network((weights,), (network.biases[0] - mean @ weights,))


def _fit_vectors(
    searches: Sequence[Candidates], deadline: float, stop: threading.Event | None
) -> Network:
    from docsplit.heads import training

    draw = np.random.default_rng(0)
    inputs, labels = [], []
    size = 0
    for search in searches:
        links, others = np.flatnonzero(search.linked), np.flatnonzero(~search.linked)
        chosen = draw.choice(others, min(len(others), NEGATIVES * len(links)), replace=False)
        rows = np.concatenate((links, chosen))
        inputs.append(inputs_of(search, "vectors", rows))
        labels.append(search.linked[rows].astype(np.int64))
        size += inputs[-1].size
        if size > MOST_INPUTS:
            break
    return training.fit(
        np.vstack(inputs),
        np.concatenate(labels),
        deadline,
        stop,
        hidden=HIDDEN,
        weight_decay=VECTORS_WEIGHT_DECAY,
    )


def _mrr(scores: Sequence[Vectors], searches: Sequence[Candidates]) -> float:
    ranks = [
        1 + int((score > score[search.linked].max()).sum())
        for score, search in zip(scores, searches, strict=True)
    ]
    return float(np.mean(1 / np.array(ranks)))
