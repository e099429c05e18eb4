"""Probe classification."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from docsplit.corpora.sets import Labelled
from training.evaluation.encoders.interface import Representation
from training.evaluation.metrics.classification import accuracy, macro_f1
from training.evaluation.probes.classifier import classify
from training.evaluation.results import Measured
from training.evaluation.tasks.task import Options, Task, over_draws

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
