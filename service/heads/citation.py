"""The citation head: does a document cite another? A network on their two vectors.

DocSplit (section 4.3) trains an MLP on [u; v] alone. Here the products u * v stand beside it, as in
InferSent (Conneau et al. 2017): from hundreds of links a small network does not learn to multiply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.documents.pooling import Vectors
from service.heads.network import Floats, Network

NEGATIVES = 2  # of each kind for a link: any document, and one of the citing document's neighbours
NEIGHBOURS = 30
HELD_OUT = 5  # every fifth citing document is for testing

Links = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Trained:
    """A citation head and how it did on citing documents that it did not see.

    Attributes:
        links: pairs it was trained and tested on.
        held_out: of these, links of the citing documents held out.
        average_precision: over the held-out links and as many times ``2 * NEGATIVES`` others.
        cosine_average_precision: of the plain cosine on the same pairs.
    """

    network: Network
    links: int
    held_out: int
    average_precision: float
    cosine_average_precision: float


def features(citing: Vectors, cited: Vectors) -> Vectors:
    """``[u; v; u * v]`` of unit rows, float32 ``[pairs, 3 * dimensions]``."""
    products = citing * cited * np.float32(np.sqrt(citing.shape[1]))
    return np.hstack((citing, cited, products))


def probabilities(network: Network, citing: Vectors, cited: Vectors) -> Floats:
    """That each row of ``citing`` cites its row of ``cited``, ``[pairs]``."""
    return network.probabilities(features(citing, cited))[:, 1]


def train(vectors: Vectors, links: Sequence[tuple[int, int]], due: float) -> Trained:
    """Train on an index's own links.

    Args:
        vectors: unit rows of all documents.
        links: (citing, cited) row numbers, at least ten, from at least five citing documents.
        due: deadline on ``time.monotonic``'s clock.

    Raises:
        TimeoutError: the deadline passed.
    """
    from sklearn.metrics import average_precision_score

    from service.heads import training

    pairs, labels = sample(vectors, links)
    citing = np.unique(pairs[:, 0])
    tested = np.isin(pairs[:, 0], np.random.default_rng(0).permutation(citing)[::HELD_OUT])
    inputs = features(vectors[pairs[:, 0]], vectors[pairs[:, 1]])
    judge = training.fit(inputs[~tested], labels[~tested], due)
    held_out = judge.logits(inputs[tested])
    cosines = (vectors[pairs[tested, 0]] * vectors[pairs[tested, 1]]).sum(axis=1)
    temperature = training.calibrate(held_out, labels[tested])
    network = training.fit(inputs, labels, due)
    return Trained(
        Network(network.weights, network.biases, temperature),
        len(links),
        int(labels[tested].sum()),
        float(average_precision_score(labels[tested], held_out[:, 1] - held_out[:, 0])),
        float(average_precision_score(labels[tested], cosines)),
    )


def sample(vectors: Vectors, links: Sequence[tuple[int, int]]) -> tuple[Links, Links]:
    """Links and documents that are not linked.

    Returns:
        Row numbers ``[pairs, 2]`` and labels ``[pairs]``, 1 for a link.
    """
    draw = np.random.default_rng(0)
    known = set(links)
    pairs: list[tuple[int, int]] = []
    labels: list[int] = []
    near: dict[int, Links] = {}
    for citing, cited in links:
        pairs.append((citing, cited))
        labels.append(1)
        if citing not in near:
            near[citing] = np.argsort(-(vectors @ vectors[citing]))[1 : NEIGHBOURS + 1]
        others = [
            *draw.integers(0, len(vectors), NEGATIVES),
            *draw.choice(near[citing], NEGATIVES),
        ]
        for other in map(int, others):
            if other != citing and (citing, other) not in known:
                pairs.append((citing, other))
                labels.append(0)
    return np.array(pairs), np.array(labels)
