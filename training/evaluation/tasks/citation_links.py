"""Do two documents have a citation link?"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from docsplit.corpora.sets import Linked
from training.evaluation.encoders.interface import Features, Representation
from training.evaluation.metrics.geometry import row_cosines
from training.evaluation.metrics.thresholds import Right, best_threshold, right_sides
from training.evaluation.probes.pairs import Pairs, PairSplit, split_pairs
from training.evaluation.probes.perceptron import Rows, predict, train
from training.evaluation.results import Measured
from training.evaluation.tasks.task import Options, Task, UnfitError, over_draws

TEST_SHARE = 0.4


class CitationLinks(Task):
    """An MLP on two embeddings says whether the first document cites the second."""

    name = "citation-links"
    title = "Citation links"
    source = "DocSplit, section 3.5 (Table 3)"
    differences = (
        "The paper takes pairs of the whole ACL Anthology Network and does not say how it draws "
        "or splits them. Here four tenths of the documents are the test part. The task drops "
        "pairs that cross the split, so training sees no document of a test pair. For each link "
        "it adds a pair of the same citing document and a random one of the part. The first "
        "column is the paper's MLP on [u; v]; the second adds u·v component by component; the "
        "third is a threshold on the cosine, fitted on the training pairs. TF-IDF has a linear "
        "SVM on [u; v] and no second column. Mean and deviation over --draws splits."
    )
    columns: ClassVar[Mapping[str, str]] = {
        "accuracy": "accuracy, MLP on [u; v]",
        "product_accuracy": "accuracy, MLP on [u; v; u·v]",
        "cosine_accuracy": "accuracy, cosine",
    }
    kinds = (Linked,)
    uses = ("seed", "reading", "draws", "epochs", "steps")
    version = 2
    main = "product_accuracy"

    def run(self, representation: Representation, data: Linked, options: Options) -> Measured:
        """Accuracy on balanced test pairs."""
        own = representation.fitted(data.documents)
        vectors = own.features(data.documents, options.reading)
        splits = [
            split_pairs(data, TEST_SHARE, options.seed + number) for number in range(options.draws)
        ]
        if min(min(len(s.train), len(s.test)) for s in splits) < 2:
            raise UnfitError(f"{data.name}: too few links for a split by document")
        found = {"cosine_accuracy": [_by_cosine(vectors, split) for split in splits]}
        if own.sparse:
            found["accuracy"] = [_linear(vectors, split) for split in splits]
        else:
            for name, product in (("accuracy", False), ("product_accuracy", True)):
                found[name] = by_perceptron(vectors, splits, product, options)
        citing = np.unique(np.concatenate([split.test[:, 0] for split in splits]))
        return Measured(
            figures={name: over_draws([float(r.mean()) for r in v]) for name, v in found.items()},
            counts={
                "documents": len(data.documents),
                "links": len(data.pairs),
                "test pairs a draw": round(float(np.mean([len(s.test) for s in splits]))),
                "draws": options.draws,
            },
            items=self.items(
                data,
                options,
                [data.documents[i] for i in citing],
                {
                    name: by_citing(right, splits)[citing] * len(citing)
                    for name, right in found.items()
                },
            ),
        )


def by_citing(right: Sequence[Right], splits: Sequence[PairSplit]) -> npt.NDArray[np.float64]:
    """What the pairs of each citing document add to the mean accuracy over the splits.

    Pairs of one citing document, in any split, are not independent; citing documents are units.

    Args:
        right: for each split whether each test pair is classified right.
        splits: pairs of documents.

    Returns:
        float64 ``[documents]``, up to the last that cites; the sum is the accuracy.
    """
    owner = np.concatenate([split.test[:, 0] for split in splits])
    shares = [found / (len(found) * len(splits)) for found in right]
    return np.bincount(owner, np.concatenate(shares)).astype(np.float64)


def halves(pairs: Pairs) -> npt.NDArray[np.int64]:
    """1 for the linked pairs, which come first, and 0 for the others."""
    return np.repeat([1, 0], len(pairs) // 2)


def pair_rows(vectors: npt.NDArray[np.float32], pairs: Pairs, product: bool) -> Rows:
    """Features of numbered pairs: ``[u; v]``, with ``product`` ``[u; v; u * v]``.

    The product is scaled to the size of the other components.
    """
    table = torch.from_numpy(vectors)
    numbered = torch.from_numpy(pairs)
    width = vectors.shape[1] ** 0.5

    def rows(numbers: Tensor) -> Tensor:
        chosen = numbered[numbers]
        first, second = table[chosen[..., 0]], table[chosen[..., 1]]
        parts = [first, second, first * second * width] if product else [first, second]
        return torch.cat(parts, dim=-1)

    return rows


def by_perceptron(
    vectors: npt.NDArray[np.float32], splits: list[PairSplit], product: bool, options: Options
) -> list[Right]:
    """Whether an MLP classifies each test pair right; with ``product`` on ``[u; v; u * v]``."""
    every = np.concatenate([part for split in splits for part in (split.train, split.test)])
    labels = np.concatenate([halves(part) for s in splits for part in (s.train, s.test)])
    rows = pair_rows(vectors, every, product)
    pools, tests, first = [], [], 0
    least = min(len(split.train) for split in splits)
    for number, split in enumerate(splits):
        own = np.arange(first, first + len(split.train))
        # The members train side by side, on equally many pairs.
        order = np.random.default_rng([options.seed, number]).permutation(len(own))
        pools.append(own[order[:least]])
        first += len(split.train)
        tests.append(np.arange(first, first + len(split.test)))
        first += len(split.test)
    model = train(rows, labels, pools, classes=2, seed=options.seed, schedule=options.schedule)
    return [
        np.asarray(labels[test] == predict(model, rows, test, member))
        for member, test in enumerate(tests)
    ]


def _by_cosine(vectors: Features, split: PairSplit) -> Right:
    linked, other = (_cosines(vectors, part) for part in np.split(split.train, 2))
    threshold = best_threshold(linked, other)
    linked, other = (_cosines(vectors, part) for part in np.split(split.test, 2))
    return right_sides(linked, other, threshold)


def _cosines(vectors: Features, pairs: Pairs) -> npt.NDArray[np.float64]:
    return row_cosines(vectors[pairs[:, 0]], vectors[pairs[:, 1]])


def _linear(vectors: Any, split: PairSplit) -> Right:
    from scipy.sparse import hstack
    from sklearn.svm import LinearSVC

    def features(pairs: Pairs) -> Any:
        return hstack([vectors[pairs[:, 0]], vectors[pairs[:, 1]]]).tocsr()

    model = LinearSVC(random_state=0).fit(features(split.train), halves(split.train))
    return np.asarray(halves(split.test) == model.predict(features(split.test)))
