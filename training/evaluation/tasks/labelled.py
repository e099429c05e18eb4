"""Tasks on documents with labels or links, and quality by length."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from docsplit.corpora.sets import Labelled, Linked
from export.tasks import Ranked, rank
from training.evaluation.encoders import Features, Reading, Representation
from training.evaluation.metrics import (
    Right,
    accuracy,
    best_threshold,
    macro_f1,
    right_sides,
    row_cosines,
)
from training.evaluation.probes import Rows, classify, drawn, predict, scores, train
from training.evaluation.tasks.task import (
    Figure,
    Measured,
    Options,
    Series,
    Task,
    UnfitError,
    over_draws,
)

# Probe classification.

_STARTS = 3
# Texts of a class have similar vectors and get the same wrong label. One shuffle therefore gives
# only as many independent trials as there are classes.
_SHUFFLES = 5


class Probe(Task):
    """Full data: one MLP on frozen embeddings."""

    name = "probe"
    title = "Probe classification"
    source = "DocSplit, section 3.3 and appendix A.3 (Table 2, upper half); SimLTE, appendix B"
    differences = (
        "The papers set learning rate 3e-4 and batch 8 and leave width, epochs and scale open. "
        "Here the MLP has one hidden layer of 128 units and trains with Adam for 20 epochs. The "
        "epoch that is best on a tenth of the training part counts. Embeddings are scaled to a "
        "root mean square of 1. The figures are mean and deviation over three initialisations. "
        "The papers cut at 512 tokens. The last column trains on shuffled labels, five times, and "
        "must be at chance. The splits are those of the files. arXiv and FakeNews hold other "
        "documents and classes than the papers'."
    )
    columns: ClassVar[Mapping[str, str]] = {
        "accuracy": "accuracy",
        "macro_f1": "macro-F1",
        "shuffled_accuracy": "accuracy, labels shuffled",
    }
    kinds = (Labelled,)
    uses = ("seed", "reading", "epochs", "steps")
    version = 3
    main = "accuracy"

    def run(self, representation: Representation, data: Labelled, options: Options) -> Measured:
        """Accuracy and macro-F1 on the test part."""
        own = representation.fitted(data.train)
        train = own.features(data.train, options.reading)
        tests = own.features(data.test, options.reading)
        every = np.arange(len(data.train))
        starts = 1 if own.sparse else _STARTS
        rng = np.random.default_rng(options.seed)
        shuffled = [rng.permutation(data.train_labels) for _ in range(_SHUFFLES)]
        predicted = classify(
            train,
            np.stack([data.train_labels] * starts + shuffled),
            [every] * (starts + _SHUFFLES),
            tests,
            classes=len(data.classes),
            seed=options.seed,
            schedule=options.schedule,
            choose=True,
        )
        honest, controls = predicted[:starts], predicted[starts:]
        right = np.stack(honest) == data.test_labels
        return Measured(
            figures={
                "accuracy": over_draws(right.mean(axis=1).tolist()),
                "macro_f1": over_draws([macro_f1(data.test_labels, p) for p in honest]),
                "shuffled_accuracy": over_draws([accuracy(data.test_labels, p) for p in controls]),
            },
            counts={
                "train": len(data.train),
                "test": len(data.test),
                "classes": len(data.classes),
            },
            items=self.items(data, options, data.test, {"accuracy": right.mean(axis=0)}),
        )


class FewShot(Task):
    """The probe, trained on a few examples of each class."""

    name = "few-shot"
    title = "Few-shot classification"
    source = "DocSplit, section 3.4 and appendix A.3 (Table 2, lower half; Figure 2)"
    differences = (
        "The model is that of the probe, without held-out examples. It trains for at least 1,000 "
        "steps and 20 epochs and keeps the last weights. The papers show 5 examples of each "
        "class, and 10 for arXiv and FakeNews. The curve covers each number of --shots for which "
        "every class has enough examples."
    )
    columns: ClassVar[Mapping[str, str]] = {
        "accuracy_5": "accuracy, 5 a class",
        "macro_f1_5": "macro-F1, 5",
        "accuracy_10": "accuracy, 10 a class",
        "macro_f1_10": "macro-F1, 10",
    }
    kinds = (Labelled,)
    uses = ("seed", "reading", "draws", "shots", "epochs", "steps")
    version = 3
    main = "accuracy_5"

    def run(self, representation: Representation, data: Labelled, options: Options) -> Measured:
        """Accuracy and macro-F1 on the test part, over the draws.

        Raises:
            UnfitError: a class has fewer examples than any of ``options.shots``.
        """
        fewest = int(np.unique(data.train_labels, return_counts=True)[1].min())
        if fewest < min(options.shots):
            raise UnfitError(
                f"{data.name}: its smallest class has {fewest} training examples, but the "
                f"smallest of --shots is {min(options.shots)}"
            )
        own = representation.fitted(data.train)
        train = own.features(data.train, options.reading)
        tests = own.features(data.test, options.reading)
        figures: dict[str, Figure] = {}
        curve: list[tuple[int, Figure]] = []
        by_document: dict[str, npt.NDArray[np.float64]] = {}
        by_draw: dict[str, npt.NDArray[np.float64]] = {}
        for shots in options.shots:
            pools = drawn(data.train_labels, shots, options.draws, options.seed)
            if pools is None:
                continue
            predicted = classify(
                train,
                data.train_labels,
                pools,
                tests,
                classes=len(data.classes),
                seed=options.seed,
                schedule=options.schedule,
            )
            right = np.stack(predicted) == data.test_labels
            name = f"accuracy_{shots}"
            by_document[name], by_draw[name] = right.mean(axis=0), right.mean(axis=1)
            figures[name] = over_draws(by_draw[name].tolist())
            curve.append((shots, figures[name]))
            figures[f"macro_f1_{shots}"] = over_draws(
                [macro_f1(data.test_labels, p) for p in predicted]
            )
        series = Series(
            x=[float(shots) for shots, _ in curve],
            y=[found.value for _, found in curve],
            deviation=[found.deviation or 0.0 for _, found in curve],
        )
        return Measured(
            figures=figures,
            series={"accuracy": series},
            counts={"draws": options.draws, "test": len(data.test), "classes": len(data.classes)},
            items=self.items(data, options, data.test, by_document, by_draw),
        )


# Pairs of documents with and without a link, split by document.

Pairs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PairSplit:
    """Balanced pairs. The two parts share no document.

    Attributes:
        train, test: document numbers, int64 ``[pairs, 2]``, the citing one first; the linked pairs
            are the first half.
    """

    train: Pairs
    test: Pairs


def split_pairs(data: Linked, test_share: float, seed: int) -> PairSplit:
    """Split the documents, keep the links within a part, add equally many pairs without a link.

    A pair without a link joins a citing document of the part with another document of the part.
    """
    draw = np.random.default_rng(seed)
    order = draw.permutation(len(data.documents))
    tests = round(len(order) * test_share)
    test, train = order[:tests], order[tests:]
    return PairSplit(balanced(data, train, draw), balanced(data, test, draw))


def balanced(data: Linked, documents: npt.NDArray[np.int64], draw: np.random.Generator) -> Pairs:
    """The links among some documents, and equally many pairs without a link."""
    inside = np.zeros(len(data.documents), dtype=bool)
    inside[documents] = True
    pairs = data.pairs
    linked = pairs[inside[pairs].all(axis=1)]
    others = [(int(a), _unlinked(data, int(a), documents, draw)) for a, _ in linked]
    unlinked = [(a, b) for a, b in others if b is not None]
    kept = linked[: len(unlinked)]
    return np.concatenate([kept, np.asarray(unlinked, dtype=np.int64).reshape(-1, 2)])


def _unlinked(
    data: Linked, citing: int, documents: npt.NDArray[np.int64], draw: np.random.Generator
) -> int | None:
    forbidden: Collection[int] = data.links[citing] | {citing}
    for _ in range(100):
        other = int(draw.choice(documents))
        if other not in forbidden and citing not in data.links.get(other, frozenset()):
            return other
    return None


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


_FOLDS = 5
_SHORTLIST = 100


class CitationRetrieval(Task):
    """All other documents, ranked for each citing one."""

    name = "citation-retrieval"
    title = "Citation retrieval"
    source = "DocSplit, section 3.5 (its setting; the paper reports only accuracy on pairs)"
    differences = (
        "No paper has a figure to compare with. Every other document of the set is a candidate. "
        "There are two rankings: by cosine, and by cosine + MLP. The second ranks the best 100 by "
        "cosine again, by the sum of cosine and the logit of an MLP on [u; v; u·v], each "
        "standardised over the 100. The MLP is trained on balanced pairs; in each of five folds "
        "no pair contains a citing document of the fold. TF-IDF has only cosine, as have sets too "
        "small for the folds. --mask deletes identifiers that name the cited document; some known "
        "sets have a mask by default."
    )
    columns: ClassVar[Mapping[str, str]] = {
        "mrr": "MRR",
        "recall_10": "recall@10",
        "ndcg_10": "nDCG@10",
        "mlp_mrr": "MRR, + MLP",
        "mlp_recall_10": "recall@10, + MLP",
        "mlp_ndcg_10": "nDCG@10, + MLP",
    }
    kinds = (Linked,)
    uses = ("seed", "reading", "epochs", "steps")
    version = 2
    main = "mrr"

    def run(self, representation: Representation, data: Linked, options: Options) -> Measured:
        """MRR, recall at 10 and nDCG at 10 over the citing documents."""
        own = representation.fitted(data.documents)
        vectors = own.features(data.documents, options.reading)
        queries = np.asarray(sorted(data.links))
        similar = cosines(vectors, queries)
        outcomes = _outcomes(rank(similar, _relevant(data, queries)), "")
        reranked = None if own.sparse else _reranked(vectors, data, queries, similar, options)
        if reranked is not None:
            outcomes |= _outcomes(reranked, "mlp_")
        return Measured(
            figures={name: Figure(value=float(v.mean())) for name, v in outcomes.items()},
            counts={
                "documents": len(data.documents),
                "citing": len(queries),
                "links": len(data.pairs),
            },
            items=self.items(data, options, [data.documents[i] for i in queries], outcomes),
        )


def cosines(vectors: Features, queries: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Cosine of some documents to all, ``[queries, documents]``; ``-inf`` to themselves."""
    product = vectors[queries] @ vectors.T
    dense = np.array(product if isinstance(product, np.ndarray) else product.toarray())
    dense[np.arange(len(queries)), queries] = -np.inf
    return dense


def _relevant(data: Linked, queries: npt.NDArray[np.int64]) -> list[dict[int, float]]:
    return [dict.fromkeys(data.links[int(query)], 1.0) for query in queries]


def _reranked(
    vectors: npt.NDArray[np.float32],
    data: Linked,
    queries: npt.NDArray[np.int64],
    similar: npt.NDArray[np.float32],
    options: Options,
) -> Ranked | None:
    """The ranking by cosine and MLP; None if a fold leaves no pair to train it."""
    draw = np.random.default_rng(options.seed)
    fold = draw.permutation(len(queries)) % _FOLDS
    trained = []
    for number in range(_FOLDS):
        seen = np.setdiff1d(np.arange(len(data.documents)), queries[fold == number])
        trained.append(balanced(data, seen, draw))
    least = min(map(len, trained))
    if least < 2:
        return None
    # linked and unlinked pairs in turn, so that a truncated pool stays balanced
    turns = [pairs.reshape(2, -1, 2).transpose(1, 0, 2).reshape(-1, 2) for pairs in trained]
    labels = np.concatenate([halves(p).reshape(2, -1).T.ravel() for p in trained])
    every = np.concatenate(turns)
    starts = np.cumsum([0, *map(len, turns)])[:-1]
    pools = [start + draw.permutation(least) for start in starts]
    model = train(
        pair_rows(vectors, every, True),
        labels,
        pools,
        classes=2,
        seed=options.seed,
        schedule=options.schedule,
    )
    depth = min(_SHORTLIST, len(data.documents) - 1)
    combined = similar.astype(np.float64) - 1e6
    for number in range(_FOLDS):
        own = np.flatnonzero(fold == number)
        best = np.argsort(-similar[own], axis=1, kind="stable")[:, :depth]
        pairs = np.stack([np.repeat(queries[own], depth), best.ravel()], axis=1)
        rows = pair_rows(vectors, pairs, True)
        logits = scores(model, rows, np.arange(len(pairs)), number)
        said = (logits[:, 1] - logits[:, 0]).reshape(len(own), depth)
        summed = _standard(np.take_along_axis(similar[own], best, 1)) + _standard(said)
        combined[own[:, None], best] = summed
    return rank(combined, _relevant(data, queries))


def _standard(values: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    wide = values.astype(np.float64)
    spread = wide.std(axis=1, keepdims=True)
    return np.asarray((wide - wide.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1))


def _outcomes(found: Ranked, prefix: str) -> dict[str, npt.NDArray[np.float64]]:
    return {
        f"{prefix}mrr": found.reciprocal_rank,
        f"{prefix}recall_10": found.recall,
        f"{prefix}ndcg_10": found.ndcg,
    }


_LEAST = 10
# The papers' buckets (SimLTE, appendix A) end with "more than 300"; long documents need more.
_EDGES = (50, 100, 200, 300, 600, 1200, 2400)
BUCKETS = ("0-50", "51-100", "101-200", "201-300", "301-600", "601-1200", "1201-2400", "> 2400")


class Length(Task):
    """Probe accuracy, or reciprocal rank by cosine, of the documents of each length."""

    name = "length"
    title = "Quality by length"
    source = "LA(SER)³, section 1 (length generalisability); buckets of SimLTE, appendix A"
    differences = (
        "No paper has a figure to compare with. Labelled sets: accuracy of the probe, with one "
        "initialisation, trained on documents read in the same way. Linked sets: MRR by cosine, "
        "by the citing document's length. The curve leaves out buckets of fewer than ten "
        "documents. First window: the tokens from the start of a document that fill a window."
    )
    columns: ClassVar[Mapping[str, str]] = {
        "whole": "whole",
        "first": "first window",
        "difference": "whole − first",
        "difference_long": "the same, over 300 words",
    }
    kinds = (Labelled, Linked)
    uses = ("seed", "epochs", "steps")
    version = 2

    def run(
        self, representation: Representation, data: Labelled | Linked, options: Options
    ) -> Measured:
        """Quality of each document, averaged by bucket."""
        texts = data.test if isinstance(data, Labelled) else data.documents
        found: dict[str, npt.NDArray[np.float64]] = {}
        for reading in representation.readings:
            if isinstance(data, Labelled):
                found[reading] = _right(representation, data, reading, options)
            else:
                found[reading] = _reciprocal_ranks(representation, data, reading)
        if isinstance(data, Linked):
            texts = [data.documents[i] for i in sorted(data.links)]
        buckets = bucket_of(texts)
        long = buckets > BUCKETS.index("201-300")
        figures = {name: Figure(value=float(values.mean())) for name, values in found.items()}
        if "first" in found:
            gain = found["whole"] - found["first"]
            figures["difference"] = Figure(value=float(gain.mean()))
            if long.any():
                figures["difference_long"] = Figure(value=float(gain[long].mean()))
        shown = [i for i in range(len(BUCKETS)) if (buckets == i).sum() >= _LEAST]
        series = {
            name: Series(
                x=[BUCKETS[i] for i in shown],
                y=[float(values[buckets == i].mean()) for i in shown],
            )
            for name, values in found.items()
        }
        counts = {f"{BUCKETS[i]} words": int((buckets == i).sum()) for i in range(len(BUCKETS))}
        return Measured(
            figures=figures,
            series=series,
            counts=counts,
            items=self.items(data, options, texts, found),
        )


def _right(
    representation: Representation, data: Labelled, reading: Reading, options: Options
) -> npt.NDArray[np.float64]:
    own = representation.fitted(data.train)
    [predicted] = classify(
        own.features(data.train, reading),
        data.train_labels,
        [np.arange(len(data.train))],
        own.features(data.test, reading),
        classes=len(data.classes),
        seed=options.seed,
        schedule=options.schedule,
        choose=True,
    )
    return np.asarray(predicted == data.test_labels, dtype=np.float64)


def _reciprocal_ranks(
    representation: Representation, data: Linked, reading: Reading
) -> npt.NDArray[np.float64]:
    own = representation.fitted(data.documents)
    queries = np.asarray(sorted(data.links))
    relevant = [dict.fromkeys(data.links[int(query)], 1.0) for query in queries]
    similar = cosines(own.features(data.documents, reading), queries)
    return rank(similar, relevant).reciprocal_rank


def bucket_of(texts: Sequence[str]) -> npt.NDArray[np.int64]:
    """Number of the bucket of each text by its words, int64 ``[texts]``."""
    words = np.asarray([len(text.split()) for text in texts])
    return np.asarray(np.searchsorted(_EDGES, words, side="left"), dtype=np.int64)
