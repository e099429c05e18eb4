"""Train a head whose labels hold independently of each other: one network, a sigmoid a label.

Importing this module imports scikit-learn, as ``service.heads.training`` does.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.metrics import accuracy_score, f1_score

from service.documents.pooling import Vectors
from service.heads import training
from service.heads.network import Network, sigmoid
from service.heads.stratify import Indicators, folds


@dataclass(frozen=True, slots=True)
class Trained:
    """A multi-label head and how good it is on examples that it did not see.

    Attributes:
        network: trained on all examples, calibrated by the held-out logits.
        folds: of the stratified cross-validation.
        subset_accuracy: share of examples with all labels right, where .5 decides.
        micro_f1: over all pairs of an example and a label, where .5 decides.
        macro_f1: mean of the labels' own.
        log_loss: of the calibrated held-out probabilities, in nats an example and label.
    """

    network: Network
    folds: int
    subset_accuracy: float
    micro_f1: float
    macro_f1: float
    log_loss: float


def train(
    vectors: Vectors, indicators: Indicators, due: float, stop: threading.Event | None = None
) -> Trained:
    """Cross-validate, calibrate, and train on all.

    Args:
        vectors: unit rows, float32 ``[examples, dimensions]``.
        indicators: 1 where an example has a label, ``[examples, labels]``; two or more labels, each
            on two examples or more.
        due: deadline on ``time.monotonic``'s clock.
        stop: ends the training as the deadline does.

    Raises:
        TimeoutError: the deadline passed, or ``stop`` was set.
    """
    number = min(training.FOLDS, int(indicators.sum(axis=0).min()))
    fold = folds(indicators, number)
    held_out = np.zeros(indicators.shape, dtype=np.float32)
    for held in (fold == each for each in range(number)):
        judge = fit(vectors[~held], indicators[~held], due, stop)
        held_out[held] = judge.logits(vectors[held])
    guessed = (held_out >= 0).astype(np.int64)
    temperature = calibrate(held_out, indicators)
    scores = {
        average: float(f1_score(indicators, guessed, average=average, zero_division=0.0))
        for average in ("micro", "macro")
    }
    return Trained(
        replace(fit(vectors, indicators, due, stop), temperature=temperature),
        number,
        float(accuracy_score(indicators, guessed)),
        scores["micro"],
        scores["macro"],
        log_loss(held_out, indicators, temperature),
    )


def fit(
    vectors: Vectors, indicators: Indicators, due: float, stop: threading.Event | None = None
) -> Network:
    """One network with an independent logit a label."""
    return replace(training.fit(vectors, indicators, due, stop), kind="sigmoid")


def calibrate(logits: Vectors, indicators: Indicators) -> float:
    """The temperature of least log loss, with the doubt of ``training.calibrate``."""
    doubt = 1 / (len(indicators) + 2)
    expected = indicators * (1 - 2 * doubt) + doubt

    def loss(log_t: float) -> float:
        holds = np.clip(sigmoid(logits, float(np.exp(log_t))), 1e-12, 1 - 1e-12)
        return float(-(expected * np.log(holds) + (1 - expected) * np.log1p(-holds)).mean())

    found = minimize_scalar(loss, bounds=(np.log(0.05), np.log(20)), method="bounded")
    return float(np.exp(found.x))


def log_loss(logits: Vectors, indicators: Indicators, temperature: float) -> float:
    """Mean negative log-likelihood in nats an example and label."""
    holds = sigmoid(logits, temperature)
    right = np.where(indicators == 1, holds, 1 - holds)
    return float(-np.log(np.maximum(right, 1e-12)).mean())
