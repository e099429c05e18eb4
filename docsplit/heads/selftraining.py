"""Adds pseudo-labels for unlabelled documents when there are few labels.

Self-training (Scudder 1965; as pseudo-labels, Lee 2013): a classifier trained on the labels
guesses the labels of further documents, is trained again with its surest guesses, and so on.
Measured in docs/how-to/classify.md.
"""

import numpy as np
from numpy.typing import NDArray

from docsplit.heads.fitting import Check, Layers, Objective, descend
from docsplit.heads.network import Floats, Vectors, sigmoid, softmax

Labels = NDArray[np.int64]

ROUNDS = 4
# Only this share of each class's guesses is kept, the surest: with all, accuracy falls two points.
SHARE = 0.8
LEAST = 5
# one given label counts as much as this many guessed ones
WEIGHT = 3.0
# penalty of the inner classifier, a logistic regression
PENALTY = 0.1
ITERATIONS = 100


def extend(
    vectors: Vectors, labels: Labels, unlabelled: Vectors, check: Check = lambda: None
) -> tuple[Vectors, Labels, NDArray[np.float64]]:
    """The examples, followed by the unlabelled documents that got a label.

    Args:
        vectors: unit rows of the examples, float32 ``[examples, dimensions]``.
        labels: ``[examples]``.
        unlabelled: unit rows, float32 ``[documents, dimensions]``.
        check: raises to stop the training.

    Returns:
        Vectors, labels and sample weights.
    """
    weights = np.full(len(vectors), WEIGHT)
    rows, guesses = vectors, labels
    if not len(unlabelled):
        return rows, guesses, weights
    classes = int(labels.max()) + 1
    probabilities = _guess(Objective(vectors, labels, classes, PENALTY, None, check), unlabelled)
    for turn in range(ROUNDS):
        guessed = probabilities.argmax(axis=1)
        kept = _surest(guessed, probabilities.max(axis=1))
        rows = np.vstack((vectors, unlabelled[kept]))
        guesses = np.concatenate((labels, guessed[kept]))
        weights = np.concatenate((np.full(len(vectors), WEIGHT), np.ones(len(kept))))
        if turn < ROUNDS - 1:
            objective = Objective(rows, guesses, classes, PENALTY, weights, check)
            probabilities = _guess(objective, unlabelled)
    return rows, guesses, weights


def _guess(objective: Objective, rows: Vectors) -> Floats:
    """Probabilities of each class by a logistic regression, ``[rows, classes]``."""
    start = Layers.drawn((rows.shape[1], objective.logits))
    layers, _ = descend(objective, start, ITERATIONS)
    [logits] = layers.outputs(rows)
    if objective.logits > 1:
        return softmax(logits)
    second = sigmoid(logits)
    return np.hstack((1 - second, second))


def _surest(guessed: Labels, certainty: NDArray[np.float64]) -> Labels:
    kept = []
    for label in np.unique(guessed):
        of_class = np.flatnonzero(guessed == label)
        most = max(LEAST, round(SHARE * len(of_class)))
        kept.append(of_class[np.argsort(-certainty[of_class], kind="stable")][:most])
    return np.concatenate(kept)
