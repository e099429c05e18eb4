"""Do two spans come from one document?"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from sklearn.metrics import roc_auc_score

from docsplit.corpora.sets import AnySet, Documents, Judged, Labelled, Linked
from training.evaluation.encoders.interface import Features, Representation
from training.evaluation.metrics.geometry import row_cosines
from training.evaluation.metrics.thresholds import two_fold
from training.evaluation.results import Figure, Measured
from training.evaluation.tasks.task import Options, Task, UnfitError, sampled
from training.evaluation.validation import two_spans

SPAN_WORDS = 48
_LEAST_WORDS = 16


class SameDocument(Task):
    """Pairs of spans that do not overlap, from one document or from two."""

    name = "same-document"
    title = "Same-document discrimination"
    source = "Contrastive unsupervised text representations, section 5"
    differences = (
        "Spans have 48 words (about 64 tokens), fewer in short documents. The report's spans have "
        "64 tokens and come from Wikipedia. Each document gives one pair of its own spans and one "
        "with another document of the sample. A threshold on the cosine decides, fitted on one "
        "half of the documents and measured on the other, both ways. The report does not say how "
        "it decides."
    )
    columns: ClassVar[Mapping[str, str]] = {"accuracy": "accuracy", "auc": "area under ROC"}
    kinds = (Labelled, Linked, Judged, Documents)
    uses = ("seed", "sample")
    version = 2
    main = "accuracy"

    def run(self, representation: Representation, data: AnySet, options: Options) -> Measured:
        """Accuracy and area under the ROC curve."""
        first, second = span_pairs(data.documents, options.sample, options.seed)
        own = representation.fitted(data.documents)
        one, two = own.features(first), own.features(second)
        same, other = row_cosines(one, two), row_cosines(one, _rolled(two))
        truth = np.repeat([1, 0], len(same))
        area = roc_auc_score(truth, np.concatenate([same, other]))
        right = two_fold(same, other)
        pairs = [*zip(first, second, strict=True)]
        pairs += zip(first, second[1:] + second[:1], strict=True)
        return Measured(
            figures={
                "accuracy": Figure(value=float(right.mean())),
                "auc": Figure(value=float(area)),
            },
            samples={"same document": same.tolist(), "other document": other.tolist()},
            counts={"documents": len(first)},
            items=self.items(data, options, list(map("\n".join, pairs)), {"accuracy": right}),
        )


def span_pairs(documents: Sequence[str], most: int, seed: int) -> tuple[list[str], list[str]]:
    """Two spans of each of ``most`` documents that are long enough.

    Raises:
        UnfitError: fewer than four documents are long enough.
    """
    longest = [i for i, text in enumerate(documents) if len(text.split()) >= 2 * _LEAST_WORDS]
    if len(longest) < 4:
        raise UnfitError(f"fewer than four documents have {2 * _LEAST_WORDS} words")
    first: list[str] = []
    second: list[str] = []
    for place in sampled(len(longest), most, seed):
        words = documents[longest[place]].split()
        draw = np.random.default_rng([seed, int(place)])
        for span, kept in zip(
            two_spans(np.arange(len(words)), SPAN_WORDS, draw), (first, second), strict=True
        ):
            kept.append(" ".join(words[i] for i in span))
    return first, second


def _rolled(rows: Features) -> Features:
    return rows[np.roll(np.arange(rows.shape[0]), -1)]
