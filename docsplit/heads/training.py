"""Trains a head on frozen vectors: the papers' probe, one hidden layer (SimLTE, section 3.4).

Importing this module imports scikit-learn, which takes seconds; routes do it in a thread."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

from docsplit.heads.examples import HIDDEN
from docsplit.heads.network import Floats, Network, Vectors, contrast, sigmoid, softmax

# limit of the layers' outputs, and products, for one part of the examples: .2 s of a core
PART_OUTPUTS = 1_000_000
PART_PRODUCTS = 500_000_000
# scikit-learn's tolerance: limit of the gradient's largest entry
TOLERANCE = 1e-4

Targets = NDArray[np.integer]
Check = Callable[[], None]


@dataclass(slots=True)
class Layers:
    """Weights and biases, float64 ``[inputs, outputs]`` and ``[outputs]`` a layer."""

    weights: list[Floats]
    biases: list[Floats]

    @classmethod
    def drawn(cls, sizes: Sequence[int]) -> "Layers":
        """Random layers by Glorot and Bengio (2010), always the same; zeros for a single layer."""
        if len(sizes) == 2:
            return cls([np.zeros((sizes[0], sizes[1]))], [np.zeros(sizes[1])])
        layers = cls([], [])
        draw = np.random.RandomState(0)
        for inputs, outputs in pairwise(sizes):
            bound = np.sqrt(6 / (inputs + outputs))
            layers.weights.append(draw.uniform(-bound, bound, (inputs, outputs)))
            layers.biases.append(draw.uniform(-bound, bound, outputs))
        return layers

    def outputs(self, inputs: NDArray[np.floating]) -> list[Floats]:
        """The outputs of each layer, after the ReLU except in the last."""
        given: list[Floats] = []
        last = inputs.astype(np.float64)
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            last = last @ weight
            last += bias
            if number < len(self.weights) - 1:
                np.maximum(last, 0, out=last)
            given.append(last)
        return given


@dataclass(slots=True)
class Objective:
    """Mean cross-entropy and a penalty on the weights.

    Attributes:
        inputs: ``[examples, inputs]``.
        targets: numbers of outputs ``[examples]``, or 0 and 1 ``[examples, outputs]``. In the first
            case two outputs have one logit, of the second against the first.
        outputs: number of outputs.
        penalty: factor of half the squared weights, divided by the sum of ``counts``.
        counts: weight of each example, ``[examples]``; None for 1.
        check: raises to stop the training.
        scale: multiplies the inputs.
    """

    inputs: Vectors
    targets: Targets
    outputs: int
    penalty: float
    counts: Floats | None
    check: Check
    scale: float = 1.0

    @property
    def logits(self) -> int:
        """The number of logits of the last layer."""
        return 1 if self.targets.ndim == 1 and self.outputs == 2 else self.outputs

    def at(self, layers: Layers) -> tuple[float, Layers]:
        """The objective's value and gradient."""
        slopes = Layers(
            [np.zeros_like(w) for w in layers.weights], [np.zeros_like(b) for b in layers.biases]
        )
        loss = 0.0
        for part in self._parts(layers):
            self.check()
            loss += self._add(part, layers, slopes)
        total = float(len(self.inputs) if self.counts is None else self.counts.sum())
        for weight, slope, bias in zip(layers.weights, slopes.weights, slopes.biases, strict=True):
            loss += 0.5 * self.penalty * float(np.vdot(weight, weight))
            slope += self.penalty * weight
            slope /= total
            bias /= total
        return loss / total, slopes

    def _parts(self, layers: Layers) -> Iterator[slice]:
        wide = self.inputs.shape[1] + sum(bias.size for bias in layers.biases)
        products = sum(weight.size for weight in layers.weights)
        rows = max(8, min(PART_OUTPUTS // wide, PART_PRODUCTS // (6 * products)))
        for first in range(0, len(self.inputs), rows):
            yield slice(first, first + rows)

    def _add(self, part: slice, layers: Layers, slopes: Layers) -> float:
        """The loss of some examples; adds their gradient to ``slopes``."""
        inputs = self.inputs[part].astype(np.float64)
        inputs *= self.scale
        given = layers.outputs(inputs)
        counts = None if self.counts is None else self.counts[part]
        loss, delta = _cross_entropy(given[-1], self.targets[part], counts)
        for number in range(len(given) - 1, -1, -1):
            before = given[number - 1] if number else inputs
            slopes.weights[number] += before.T @ delta
            slopes.biases[number] += delta.sum(axis=0)
            if number:
                delta = delta @ layers.weights[number].T
                delta[before == 0] = 0
        return loss


def descend(objective: Objective, layers: Layers, iterations: int) -> tuple[Layers, int]:
    """The layers after some iterations of L-BFGS, and the number of iterations.

    A number below ``iterations`` means that the optimum was reached.

    Raises:
        Exception: from the objective's ``check``.
    """

    def value(packed: Floats) -> tuple[float, Floats]:
        loss, slopes = objective.at(_unpacked(packed, layers))
        return loss, _packed(slopes)

    found = minimize(
        value,
        _packed(layers),
        method="L-BFGS-B",
        jac=True,
        options={"maxiter": iterations, "maxfun": 15_000, "gtol": TOLERANCE},
    )
    return _unpacked(found.x, layers), int(found.nit)


def _cross_entropy(logits: Floats, targets: Targets, counts: Floats | None) -> tuple[float, Floats]:
    """The sum over examples, and its derivative by the logits."""
    rows = np.arange(len(logits))
    if targets.ndim == 1 and logits.shape[1] > 1:
        logits = logits - logits.max(axis=1, keepdims=True)
        logged = np.log(np.exp(logits).sum(axis=1))
        losses = logged - logits[rows, targets]
        delta = np.exp(logits - logged[:, None])
        delta[rows, targets] -= 1
    else:
        wanted = targets.reshape(len(targets), -1)
        losses = (np.logaddexp(0, logits) - wanted * logits).sum(axis=1)
        delta = 0.5 + 0.5 * np.tanh(0.5 * logits)
        delta -= wanted
    if counts is not None:
        losses = losses * counts
        delta *= counts[:, None]
    return float(losses.sum()), delta


def _packed(layers: Layers) -> Floats:
    return np.concatenate([part.ravel() for part in (*layers.weights, *layers.biases)])


def _unpacked(packed: Floats, like: Layers) -> Layers:
    """Views of one vector, in the shapes of ``like``."""
    parts = []
    first = 0
    for part in (*like.weights, *like.biases):
        parts.append(packed[first : first + part.size].reshape(part.shape))
        first += part.size
    return Layers(parts[: len(like.weights)], parts[len(like.weights) :])


Labels = NDArray[np.int64]

# rounds of guesses, each with the surest of the round before
GUESSES = 4
# Only this share of each class's guesses is kept, the surest: with all, accuracy falls two points.
SHARE = 0.8
LEAST = 5
# one given label counts as much as this many guessed ones
WEIGHT = 3.0
# penalty of the inner classifier, a logistic regression
PENALTY = 0.1
INNER_ITERATIONS = 100


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
    for turn in range(GUESSES):
        guessed = probabilities.argmax(axis=1)
        kept = _surest(guessed, probabilities.max(axis=1))
        rows = np.vstack((vectors, unlabelled[kept]))
        guesses = np.concatenate((labels, guessed[kept]))
        weights = np.concatenate((np.full(len(vectors), WEIGHT), np.ones(len(kept))))
        if turn < GUESSES - 1:
            objective = Objective(rows, guesses, classes, PENALTY, weights, check)
            probabilities = _guess(objective, unlabelled)
    return rows, guesses, weights


def _guess(objective: Objective, rows: Vectors) -> Floats:
    """Probabilities of each class by a logistic regression, ``[rows, classes]``."""
    start = Layers.drawn((rows.shape[1], objective.logits))
    layers, _ = descend(objective, start, INNER_ITERATIONS)
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


FOLDS = 5
# The papers use Adam; with 5 labels a class of BBC News (5 draws, 425 held-out articles) Adam
# reaches .81 to .88 and L-BFGS .894, the same as logistic regression, in a third of the time.
WEIGHT_DECAY = 0.1
SCALE = 4.0
# L-BFGS restarts after each round
ROUNDS = 8
ITERATIONS = 25
# share of the held-out examples that the threshold takes for texts of none of the labels
NONE_SHARE = 0.05
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
        none_below: the ``contrast`` that all but ``NONE_SHARE`` of the held-out examples reach.
    """

    network: Network
    folds: int
    accuracy: float
    macro_f1: float
    log_loss: float
    none_below: float


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
) -> Trained:
    """Cross-validate, calibrate, and train on all.

    Args:
        vectors: unit rows, float32 ``[examples, dimensions]``.
        labels: ``[examples]``, 0 to classes - 1, each of two examples or more.
        deadline: on ``time.monotonic``'s clock.
        stop: ends the training like the deadline, within a second.
        unlabelled: unit rows of further documents that get pseudo-labels.

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
    folds = min(FOLDS, int(np.bincount(labels).min()))
    held_out = np.zeros((len(labels), classes), dtype=np.float32)
    splitter = StratifiedKFold(folds, shuffle=True, random_state=0)
    for known, held in splitter.split(vectors, labels):
        held_out[held] = fitted(vectors[known], labels[known]).logits(vectors[held])
    guessed = held_out.argmax(axis=1)
    temperature = calibrate(held_out, labels, check)
    network = fitted(vectors, labels)
    return Trained(
        Network(network.weights, network.biases, temperature),
        folds,
        float(accuracy_score(labels, guessed)),
        float(f1_score(labels, guessed, average="macro")),
        log_loss(held_out, labels, temperature),
        float(np.quantile(contrast(held_out), NONE_SHARE)),
    )


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
