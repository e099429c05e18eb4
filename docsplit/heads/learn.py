"""Trains a classifier on labelled vectors, and reports its quality.

Importing this module imports scikit-learn, which takes seconds; callers do it in a thread.
"""

import threading
import time
from dataclasses import fields

import numpy as np

from docsplit.heads import multilabel, training
from docsplit.heads.examples import Examples
from docsplit.heads.network import Learnt, Vectors


def learn(
    vectors: Vectors,
    examples: Examples,
    deadline: float,
    stop: threading.Event | None = None,
    unlabelled: Vectors | None = None,
) -> Learnt:
    """Train a classifier on documents' vectors.

    Copies of an example, with its text and labels, count once: they are no further evidence, and a
    head that has seen one would know the others.

    Args:
        vectors: unit rows, float32 ``[examples, dimensions]``.
        examples: of each label, two or more different texts.
        deadline: on ``time.monotonic``'s clock.
        stop: ends the training like the deadline.
        unlabelled: unit rows of further documents; only with one label a document.

    Raises:
        TimeoutError: the deadline passed, or ``stop`` was set.
    """
    started = time.monotonic()
    counts = examples.counts()
    labels = list(counts)
    column = {label: number for number, label in enumerate(labels)}
    distinct = examples.distinct()
    trained: training.Trained | multilabel.Trained
    if examples.multi_label:
        indicators = np.zeros((len(vectors), len(labels)), dtype=np.uint8)
        for row, given in enumerate(examples.labels):
            indicators[row, [column[label] for label in given]] = 1
        trained = multilabel.train(vectors[distinct], indicators[distinct], deadline, stop)
    else:
        numbers = np.array([column[label] for [label] in examples.labels])
        trained = training.train(vectors[distinct], numbers[distinct], deadline, stop, unlabelled)
    network = trained.network
    report = {
        "examples": len(vectors),
        **({} if unlabelled is None else {"unlabelled": len(unlabelled)}),
        "labels": counts,
        **{f.name: getattr(trained, f.name) for f in fields(trained) if f.name != "network"},
        "temperature": network.temperature,
        "training_seconds": time.monotonic() - started,
    }
    return Learnt(labels, network, report)
