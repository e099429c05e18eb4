"""Trains a head with independent labels: one network, one sigmoid for each label.

Importing this module imports scikit-learn, like ``docsplit.heads.training``."""

import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docsplit.heads import training
from docsplit.heads.network import Floats, Network, Vectors, sigmoid
from docsplit.heads.training import Check

Indicators = NDArray[np.uint8]


def folds(indicators: Indicators, number: int, check: Check = lambda: None) -> NDArray[np.int64]:
    """The fold of each example, by iterative stratification (Sechidis et al. 2011, figure 1).

    The rarest label comes first; each of its examples goes to the fold that lacks most of it.

    Args:
        indicators: 1 if an example has a label, ``[examples, labels]``.
        number: of folds; no label may have fewer examples.
        check: raises to stop the training.

    Returns:
        0 to ``number - 1``, ``[examples]``. The same examples get the same folds.
    """
    draw = np.random.default_rng(0)
    fold = np.full(len(indicators), -1)
    room = np.full(number, len(indicators) / number)
    left = indicators.sum(axis=0, dtype=np.int64)
    wanted = np.repeat(left[None] / number, number, axis=0)
    while (fold < 0).any():
        if not left.any():
            for example in draw.permutation(np.flatnonzero(fold < 0)):
                check()
                fold[example] = _most(room, room, draw)
                room[fold[example]] -= 1
            break
        rarest = int(np.where(left > 0, left, len(indicators) + 1).argmin())
        for example in draw.permutation(np.flatnonzero((fold < 0) & (indicators[:, rarest] == 1))):
            check()
            chosen = _most(wanted[:, rarest], room, draw)
            fold[example] = chosen
            wanted[chosen] -= indicators[example]
            left -= indicators[example]
            room[chosen] -= 1
    return fold


def _most(wanted: Floats, room: Floats, draw: np.random.Generator) -> int:
    best = np.flatnonzero(wanted == wanted.max())
    best = best[room[best] == room[best].max()]
    return int(draw.choice(best))


@dataclass(frozen=True, slots=True)
class Trained:
    """A multi-label head and its quality on unseen examples.

    Attributes:
        network: trained on all examples, calibrated by the held-out logits.
        folds: number of folds of the stratified cross-validation.
        subset_accuracy: share of examples with all labels right, with the threshold .5.
        micro_f1: over all pairs of an example and a label, with the threshold .5.
        macro_f1: mean over the labels.
        log_loss: of the calibrated held-out probabilities, in nats per example and label.
    """

    network: Network
    folds: int
    subset_accuracy: float
    micro_f1: float
    macro_f1: float
    log_loss: float


def train(
    vectors: Vectors,
    indicators: Indicators,
    deadline: float,
    stop: threading.Event | None = None,
) -> Trained:
    """Cross-validate, calibrate, and train on all.

    Args:
        vectors: unit rows, float32 ``[examples, dimensions]``.
        indicators: 1 if an example has a label, ``[examples, labels]``; two or more labels, each
            of two examples or more.
        deadline: on ``time.monotonic``'s clock.
        stop: ends the training like the deadline.

    Raises:
        TimeoutError: the deadline passed, or ``stop`` was set.
    """
    check = training.until(deadline, stop)
    number = min(training.FOLDS, int(indicators.sum(axis=0, dtype=np.int64).min()))
    fold = folds(indicators, number, check)
    held_out = np.zeros(indicators.shape, dtype=np.float32)
    for held in (fold == each for each in range(number)):
        judge = fit(vectors[~held], indicators[~held], deadline, stop)
        held_out[held] = judge.logits(vectors[held])
    guessed = held_out >= 0
    temperature = calibrate(held_out, indicators, check)
    micro, macro = f1(indicators == 1, guessed)
    return Trained(
        replace(fit(vectors, indicators, deadline, stop), temperature=temperature),
        number,
        float((guessed == indicators).all(axis=1).mean()),
        micro,
        macro,
        log_loss(held_out, indicators, temperature),
    )


def fit(
    vectors: Vectors, indicators: Indicators, deadline: float, stop: threading.Event | None = None
) -> Network:
    """One network with an independent logit a label."""
    return replace(training.fit(vectors, indicators, deadline, stop), kind="sigmoid")


def f1(truth: NDArray[np.bool_], guessed: NDArray[np.bool_]) -> tuple[float, float]:
    """F1 over all pairs of an example and a label, and the mean over the labels.

    A label without examples and without guesses has 0.
    """
    right = (truth & guessed).sum(axis=0)
    sizes = truth.sum(axis=0) + guessed.sum(axis=0)
    each = 2 * right / np.maximum(sizes, 1)
    return float(2 * right.sum() / max(int(sizes.sum()), 1)), float(each.mean())


def calibrate(logits: Vectors, indicators: Indicators, check: Check = lambda: None) -> float:
    """The temperature with the least log loss, smoothed as in ``training.calibrate``."""
    doubt = 1 / (len(indicators) + 2)

    def loss(part: slice, temperature: float) -> float:
        check()
        expected = indicators[part] * (1 - 2 * doubt) + doubt
        return float(_surprise(logits[part], expected, temperature).sum())

    return training.best_temperature(
        lambda t: sum(loss(part, t) for part in training.parts(logits)) / logits.size
    )


def log_loss(logits: Vectors, indicators: Indicators, temperature: float) -> float:
    """Mean negative log-likelihood in nats per example and label."""
    return (
        sum(
            float(_surprise(logits[part], indicators[part], temperature).sum())
            for part in training.parts(logits)
        )
        / logits.size
    )


def _surprise(logits: Vectors, expected: NDArray[Any], temperature: float) -> Floats:
    """Cross-entropy in nats with the expected probabilities of the labels."""
    holds = np.clip(sigmoid(logits, temperature), 1e-12, 1 - 1e-12)
    return np.asarray(-(expected * np.log(holds) + (1 - expected) * np.log1p(-holds)))
