"""Does a document find the documents that it cites?"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from docsplit.corpora.sets import Linked
from export.tasks import Ranked, rank
from training.evaluation.encoders.interface import Features, Representation
from training.evaluation.probes.pairs import balanced
from training.evaluation.probes.perceptron import scores, train
from training.evaluation.results import Figure, Measured
from training.evaluation.tasks.citation_links import halves, pair_rows
from training.evaluation.tasks.task import Options, Task

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
