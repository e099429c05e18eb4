"""Train a head on frozen vectors: the papers' probe, one hidden layer (SimLTE, section 4).

Importing this module imports scikit-learn, which takes seconds; routes do it in a thread.
"""

from __future__ import annotations

import threading
import time
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from service.documents.pooling import Vectors
from service.heads.network import Network, softmax
from service.heads.selftraining import extend

Labels = NDArray[np.int64]

HIDDEN = 128
FOLDS = 5
# The papers use Adam; with 5 labels a class of BBC News (5 draws, 425 held-out articles) Adam
# reaches .81 to .88 and L-BFGS .894, the same as logistic regression, in a third of the time.
WEIGHT_DECAY = 0.1
SCALE = 4.0
# L-BFGS runs in rounds, so that a deadline can end it between two
ROUNDS = 8
ITERATIONS = 25


@dataclass(frozen=True, slots=True)
class Trained:
    """A head and how good it is on examples that it did not see.

    Attributes:
        network: trained on all examples, calibrated by the held-out logits.
        folds: of the stratified cross-validation.
        accuracy: of it.
        macro_f1: of it.
        log_loss: of the calibrated held-out probabilities, in nats.
    """

    network: Network
    folds: int
    accuracy: float
    macro_f1: float
    log_loss: float


def train(
    vectors: Vectors,
    labels: Labels,
    due: float,
    stop: threading.Event | None = None,
    unlabelled: Vectors | None = None,
) -> Trained:
    """Cross-validate, calibrate, and train on all.

    Args:
        vectors: unit rows, float32 ``[examples, dimensions]``.
        labels: ``[examples]``, 0 to classes - 1, each at least twice.
        due: deadline on ``time.monotonic``'s clock.
        stop: ends the training as the deadline does.
        unlabelled: unit rows of further documents, to learn from by pseudo-labels.

    Raises:
        TimeoutError: the deadline passed, or ``stop`` was set.
    """

    def fitted(vectors: Vectors, labels: Labels) -> Network:
        if unlabelled is None:
            return fit(vectors, labels, due, stop)
        with threadpool_limits(limits=1, user_api="blas"):
            rows, guesses, weights = extend(vectors, labels, unlabelled)
        return fit(rows, guesses, due, stop, weights=weights, rounds=1)

    classes = int(labels.max()) + 1
    folds = min(FOLDS, int(np.bincount(labels).min()))
    held_out = np.zeros((len(labels), classes), dtype=np.float32)
    splitter = StratifiedKFold(folds, shuffle=True, random_state=0)
    for rest, held in splitter.split(vectors, labels):
        held_out[held] = fitted(vectors[rest], labels[rest]).logits(vectors[held])
    guessed = held_out.argmax(axis=1)
    temperature = calibrate(held_out, labels)
    network = fitted(vectors, labels)
    return Trained(
        Network(network.weights, network.biases, temperature),
        folds,
        float(accuracy_score(labels, guessed)),
        float(f1_score(labels, guessed, average="macro")),
        log_loss(held_out, labels, temperature),
    )


def fit(
    vectors: Vectors,
    labels: Labels,
    due: float,
    stop: threading.Event | None = None,
    *,
    hidden: int = HIDDEN,
    weight_decay: float = WEIGHT_DECAY,
    weights: NDArray[np.float64] | None = None,
    rounds: int = ROUNDS,
) -> Network:
    """One network with a logit a class; the same examples give the same network.

    Labels are numbers ``[examples]``, or 0 and 1 ``[examples, labels]``; ``weights`` say how much
    each example counts, ``rounds`` how long to go on, by ``ITERATIONS``.
    """
    model = MLPClassifier(
        (hidden,),
        solver="lbfgs",
        alpha=weight_decay,
        max_iter=ITERATIONS,
        warm_start=True,
        random_state=0,
    )
    scaled = vectors * np.float32(SCALE)
    for _ in range(rounds):
        if time.monotonic() > due or (stop is not None and stop.is_set()):
            raise TimeoutError
        # Several threads of OpenBLAS gain little on small matrices, and where others compute on the
        # same cores they wait for each other, for many times as long.
        with threadpool_limits(limits=1, user_api="blas"), warnings.catch_warnings():
            # that a round ends before the optimum is its purpose
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(scaled, labels, sample_weight=weights)
        if model.n_iter_ < ITERATIONS:
            break
    first, last = (np.asarray(w, dtype=np.float32) for w in model.coefs_)
    bias, offset = (np.asarray(b, dtype=np.float32) for b in model.intercepts_)
    if last.shape[1] == 1:
        # scikit-learn gives two classes one logit; with a zero beside it the softmax is the same
        last = np.hstack((np.zeros_like(last), last))
        offset = np.hstack((np.zeros_like(offset), offset))
    return Network((first * np.float32(SCALE), last), (bias, offset))


def calibrate(logits: Vectors, labels: Labels) -> float:
    """The temperature of least log loss on held-out logits (Guo et al. 2017).

    A few examples that are all right would ask for certainty; so each counts as right by
    (n + 1) / (n + 2) only (Platt 1999).
    """
    doubt = 1 / (len(labels) + 2)

    def loss(log_t: float) -> float:
        logged = np.log(np.maximum(softmax(logits, float(np.exp(log_t))), 1e-12))
        right = logged[np.arange(len(labels)), labels]
        wrong = (logged.sum(axis=1) - right) / (logits.shape[1] - 1)
        return float(-((1 - doubt) * right + doubt * wrong).mean())

    found = minimize_scalar(
        loss,
        bounds=(np.log(0.05), np.log(20)),
        method="bounded",
    )
    return float(np.exp(found.x))


def log_loss(logits: Vectors, labels: Labels, temperature: float) -> float:
    """Mean negative log-likelihood in nats."""
    chosen = softmax(logits, temperature)[np.arange(len(labels)), labels]
    return float(-np.log(np.maximum(chosen, 1e-12)).mean())
