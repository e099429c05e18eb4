"""Classes of documents predicted from frozen vectors."""

import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np

from docsplit.corpora.sets import Labelled
from docsplit.windowing.pooling import Vectors

_ITERATIONS = 1000


class Probe:
    """A logistic regression on the train part, measured on the test part.

    ``docsplit-evaluate`` trains perceptrons from several initialisations. Here the model has one
    optimum, so only the vectors make a graph differ from its source.
    """

    name: Literal["probe"] = "probe"
    metric = "accuracy"

    def __init__(self, labelled: Labelled) -> None:
        self._labelled = labelled
        self.data = labelled.name
        self.digest = labelled.digest
        self.texts: Sequence[str] = [*labelled.train, *labelled.test]
        self.documents = len(self.texts)
        self.cases = len(labelled.test)

    def figure(self, vectors: Vectors) -> float:
        """Accuracy on the test part; ``vectors`` are those of the train, then of the test part."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        # A root mean square of 1, because the penalty assumes features of that size.
        scaled = vectors.astype(np.float64) * np.sqrt(vectors.shape[1])
        train, test = scaled[: -self.cases], scaled[-self.cases :]
        with warnings.catch_warnings():
            # Both sides end after the same number of steps.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = LogisticRegression(max_iter=_ITERATIONS).fit(train, self._labelled.train_labels)
        return float((model.predict(test) == self._labelled.test_labels).mean())
