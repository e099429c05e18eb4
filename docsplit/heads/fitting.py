"""Fits a small network by L-BFGS, in limited memory; a training can stop at any moment.

Objective, gradient and start are those of scikit-learn's ``MLPClassifier``, or without a hidden
layer those of ``LogisticRegression``; tests/heads/test_fitting.py compares them. Those cannot stop
within an iteration, which may take minutes. Here the examples are read in parts, and ``check`` may
stop the training before each part.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from docsplit.heads.network import Floats, Vectors

# limit of the layers' outputs, and products, for one part of the examples: .2 s of a core
PART_OUTPUTS = 1_000_000
PART_PRODUCTS = 500_000_000
# scikit-learn's tolerance: limit of the gradient's largest entry
TOLERANCE = 1e-4
# memory of scipy's L-BFGS: 25 numbers a parameter, plus points and gradients
NUMBERS_A_PARAMETER = 32

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
