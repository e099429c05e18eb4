"""Does one half of a document find the other?"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from docsplit.corpora.sets import AnySet, Documents, Judged, Labelled, Linked
from export.tasks import rank
from training.data.sentences import split_sentences
from training.evaluation.encoders.interface import Representation
from training.evaluation.encoders.store import text_digest
from training.evaluation.results import Figure, Measured
from training.evaluation.tasks.task import Options, Task, UnfitError, sampled
from training.whitening.halves import split


class Halves(Task):
    """The second halves of all documents, ranked for each first half."""

    name = "halves"
    title = "Halves of documents"
    source = "DocSplit, section 2.2 (the positive pairs of its training)"
    differences = (
        "No paper has a figure to compare with. A coin decides for each sentence to which half it "
        "belongs; the digest of the document and --seed throw it. The second halves of all "
        "documents of the sample are candidates, ranked by cosine. Copies of a document and "
        "documents of one sentence are left out. Accuracy: the document's own half is the first."
    )
    version = 2
    columns: ClassVar[Mapping[str, str]] = {"mrr": "MRR", "accuracy": "accuracy"}
    kinds = (Labelled, Linked, Judged, Documents)
    uses = ("seed", "sample", "reading")
    main = "mrr"

    def run(self, representation: Representation, data: AnySet, options: Options) -> Measured:
        """MRR and accuracy over the sampled documents."""
        texts = _drawn(data.documents, options)
        pairs = [
            split(text, int.from_bytes(text_digest(f"{options.seed}:{text}")[:8])) for text in texts
        ]
        own = representation.fitted(data.documents)
        first, second = (own.features(half, options.reading) for half in zip(*pairs, strict=True))
        product = first @ second.T
        found = rank(
            product if isinstance(product, np.ndarray) else product.toarray(),
            [{number: 1.0} for number in range(len(texts))],
        )
        outcomes = {
            "mrr": found.reciprocal_rank,
            "accuracy": np.asarray(found.reciprocal_rank == 1, dtype=np.float64),
        }
        return Measured(
            figures={name: Figure(value=float(v.mean())) for name, v in outcomes.items()},
            counts={"documents": len(texts)},
            items=self.items(data, options, texts, outcomes),
        )


def _drawn(documents: Sequence[str], options: Options) -> list[str]:
    """The sampled documents of two sentences or more, without copies."""
    different = list(dict.fromkeys(documents))
    found: list[str] = []
    for place in sampled(len(different), len(different), options.seed):
        if len(split_sentences(different[place])) >= 2:
            found.append(different[place])
        if len(found) == options.sample:
            break
    if len(found) < 2:
        raise UnfitError("fewer than two different documents have two sentences")
    return found
