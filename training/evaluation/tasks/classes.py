"""Tasks on documents with labels."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from docsplit.corpora.sets import Labelled
from training.evaluation.encoders import Representation
from training.evaluation.metrics import accuracy, macro_f1
from training.evaluation.probes import classify, drawn
from training.evaluation.results import Figure, Measured, Series
from training.evaluation.tasks.task import Options, Task, UnfitError, over_draws

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
