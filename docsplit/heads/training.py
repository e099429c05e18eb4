"""Trains a head on frozen vectors: the papers' probe, one hidden layer (SimLTE, section 3.4).

Importing this module imports scikit-learn, which takes seconds; routes do it in a thread.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

from docsplit.heads.bounds import HIDDEN
from docsplit.heads.fitting import Check, Layers, Objective, Targets, descend
from docsplit.heads.network import Floats, Network, Vectors, softmax
from docsplit.heads.selftraining import extend

Labels = NDArray[np.int64]

FOLDS = 5
# The papers use Adam; with 5 labels a class of BBC News (5 draws, 425 held-out articles) Adam
# reaches .81 to .88 and L-BFGS .894, the same as logistic regression, in a third of the time.
WEIGHT_DECAY = 0.1
SCALE = 4.0
# L-BFGS restarts after each round
ROUNDS = 8
ITERATIONS = 25
# logits that are converted to probabilities at once
PART_LOGITS = 1_000_000


@dataclass(frozen=True, slots=True)
class Trained:
    """A head and its quality on unseen examples.

    Attributes:
        network: trained on all examples, calibrated by the held-out logits.
        folds: number of folds of the stratified cross-validation.
        accuracy: in cross-validation.
        macro_f1: in cross-validation.
        log_loss: of the calibrated held-out probabilities, in nats.
    """

    network: Network
    folds: int
    accuracy: float
    macro_f1: float
    log_loss: float


def until(deadline: float, stop: threading.Event | None) -> Check:
    """A check that raises ``TimeoutError`` after the deadline, or when ``stop`` is set."""

    def check() -> None:
        if time.monotonic() > deadline or (stop is not None and stop.is_set()):
            raise TimeoutError

    return check


def train(
    vectors: Vectors,
    labels: Labels,
    deadline: float,
    stop: threading.Event | None = None,
    unlabelled: Vectors | None = None,
    groups: Sequence[int] | None = None,
) -> Trained:
    """Cross-validate, calibrate, and train on all.

    Args:
        vectors: unit rows, float32 ``[examples, dimensions]``.
        labels: ``[examples]``, 0 to classes - 1, each in two groups or more.
        deadline: on ``time.monotonic``'s clock.
        stop: ends the training like the deadline, within a second.
        unlabelled: unit rows of further documents that get pseudo-labels.
        groups: a number for each example. Those of one number have the same label, and are held out
            together. Default: each example by itself.

    Raises:
        TimeoutError: the deadline passed, or ``stop`` was set.
    """
    check = until(deadline, stop)

    def fitted(vectors: Vectors, labels: Labels) -> Network:
        if unlabelled is None:
            return fit(vectors, labels, deadline, stop)
        with threadpool_limits(limits=1, user_api="blas"):
            rows, guesses, weights = extend(vectors, labels, unlabelled, check)
        # a hidden layer learns the errors of the guesses;
        # docs/explanation/experiments/heads.md, "A head for guessed labels"
        return fit(rows, guesses, deadline, stop, hidden=0, weights=weights)

    check()
    classes = int(labels.max()) + 1
    firsts, group = members(len(labels), groups)
    folds = min(FOLDS, int(np.bincount(labels[firsts]).min()))
    held_out = np.zeros((len(labels), classes), dtype=np.float32)
    splitter = StratifiedKFold(folds, shuffle=True, random_state=0)
    for _, chosen in splitter.split(firsts, labels[firsts]):
        held = np.isin(group, chosen)
        held_out[held] = fitted(vectors[~held], labels[~held]).logits(vectors[held])
    guessed = held_out.argmax(axis=1)
    temperature = calibrate(held_out, labels, check)
    network = fitted(vectors, labels)
    return Trained(
        Network(network.weights, network.biases, temperature),
        folds,
        float(accuracy_score(labels, guessed)),
        float(f1_score(labels, guessed, average="macro")),
        log_loss(held_out, labels, temperature),
    )


def members(examples: int, groups: Sequence[int] | None) -> tuple[Labels, Labels]:
    """The first example of each group, ``[groups]``, and the group of each example."""
    numbers = np.arange(examples) if groups is None else np.array(groups)
    _, firsts, group = np.unique(numbers, return_index=True, return_inverse=True)
    return firsts, group


def fit(
    vectors: Vectors,
    labels: Targets,
    deadline: float,
    stop: threading.Event | None = None,
    *,
    hidden: int = HIDDEN,
    weight_decay: float = WEIGHT_DECAY,
    weights: Floats | None = None,
) -> Network:
    """One network with one logit for each class; the same examples give the same network.

    Labels are numbers ``[examples]``, or 0 and 1 ``[examples, labels]``. ``weights`` weigh the
    examples. With 0 hidden units the network is a logistic regression.

    Raises:
        TimeoutError: the deadline passed, or ``stop`` was set.
    """
    outputs = int(labels.max()) + 1 if labels.ndim == 1 else labels.shape[1]
    check = until(deadline, stop)
    # Threads of OpenBLAS gain little on small matrices. If others compute on the same cores, the
    # threads wait for each other, many times as long.
    with threadpool_limits(limits=1, user_api="blas"):
        rows, basis = _span(vectors)
        objective = Objective(rows, labels, outputs, weight_decay, weights, check, SCALE)
        sizes = (vectors.shape[1], hidden, objective.logits)
        layers = Layers.drawn([size for size in sizes if size])
        if basis is not None:
            layers.weights[0] = basis.T @ layers.weights[0]
        for _ in range(ROUNDS):
            layers, done = descend(objective, layers, ITERATIONS)
            if done < ITERATIONS:
                break
        if basis is not None:
            layers.weights[0] = basis @ layers.weights[0]
    matrices = [np.asarray(w, dtype=np.float32) for w in layers.weights]
    biases = [np.asarray(b, dtype=np.float32) for b in layers.biases]
    if objective.logits < outputs:
        # two classes have one logit; a second logit of zero gives the same softmax
        matrices[-1] = np.hstack((np.zeros_like(matrices[-1]), matrices[-1]))
        biases[-1] = np.hstack((np.zeros_like(biases[-1]), biases[-1]))
    matrices[0] = matrices[0] * np.float32(SCALE)
    return Network(tuple(matrices), tuple(biases))


def _span(vectors: Vectors) -> tuple[Vectors, Floats | None]:
    """Few examples as coordinates in a basis of their span, and that basis, float64 ``[dimensions,
    examples]``; the vectors and None if there are many.

    A weight's part outside of the span changes no logit of an example. Only the penalty sees it,
    and is least where that part is zero. A training on 10 examples takes a tenth of the time.
    """
    if 2 * len(vectors) > vectors.shape[1]:
        return vectors, None
    basis = np.linalg.qr(vectors.T.astype(np.float64))[0]
    return (vectors @ basis).astype(np.float32), basis


def calibrate(logits: Vectors, labels: Labels, check: Check = lambda: None) -> float:
    """The temperature with the least log loss on held-out logits (Guo et al. 2017).

    If a few examples are all right, the best temperature would mean certainty. So each right one
    counts only with probability (n + 1) / (n + 2) (Platt 1999).
    """
    doubt = 1 / (len(labels) + 2)

    def loss(part: slice, temperature: float) -> float:
        check()
        logged = np.log(np.maximum(softmax(logits[part], temperature), 1e-12))
        right = logged[np.arange(len(logged)), labels[part]]
        wrong = (logged.sum(axis=1) - right) / (logits.shape[1] - 1)
        return -float(((1 - doubt) * right + doubt * wrong).sum())

    return best_temperature(lambda t: sum(loss(part, t) for part in parts(logits)) / len(logits))


def best_temperature(loss: Callable[[float], float]) -> float:
    """The temperature between a twentieth and 20 with the least ``loss``."""
    found = minimize_scalar(
        lambda logged: loss(float(np.exp(logged))),
        bounds=(np.log(0.05), np.log(20)),
        method="bounded",
    )
    return float(np.exp(found.x))


def parts(logits: Vectors) -> Iterator[slice]:
    """Rows of logits that are processed at once."""
    rows = max(1, PART_LOGITS // logits.shape[1])
    for first in range(0, len(logits), rows):
        yield slice(first, first + rows)


def log_loss(logits: Vectors, labels: Labels, temperature: float) -> float:
    """Mean negative log-likelihood in nats."""
    total = 0.0
    for part in parts(logits):
        chances = softmax(logits[part], temperature)
        chosen = chances[np.arange(len(chances)), labels[part]]
        total -= float(np.log(np.maximum(chosen, 1e-12)).sum())
    return total / len(logits)
