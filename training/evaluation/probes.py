"""Small models on top of frozen features."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor

from training.evaluation.encoders import Features

# The papers' probe: an MLP on frozen embeddings. Several train at the same time.

LEARNING_RATE = 3e-4
BATCH = 8
HIDDEN = 128

Numbers = npt.NDArray[np.int64]
# Row numbers int64 [..., rows] to features float32 [..., rows, inputs].
Rows = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Schedule:
    """How long to train.

    Attributes:
        epochs: passes over the examples.
        least_steps: minimum number of optimiser steps.
    """

    epochs: int = 20
    least_steps: int = 1000

    def steps(self, examples: int) -> int:
        """Optimiser steps for a number of examples."""
        return max(self.least_steps, self.epochs * -(-examples // BATCH))


class Perceptrons:
    """Independent members of one shape: a hidden layer of 128 units, ReLU, a linear layer.

    Each member has its own weights, examples and optimiser state.
    """

    def __init__(self, members: int, inputs: int, classes: int, scale: float, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)

        def uniform(*shape: int, fan_in: int) -> Tensor:
            # the same distribution as in torch.nn.Linear
            values = torch.rand(*shape, generator=draw) * 2 - 1
            drawn: Tensor = (values / fan_in**0.5).requires_grad_()
            return drawn

        self.parameters = [
            uniform(members, inputs, HIDDEN, fan_in=inputs),
            uniform(members, 1, HIDDEN, fan_in=inputs),
            uniform(members, HIDDEN, classes, fan_in=HIDDEN),
            uniform(members, 1, classes, fan_in=HIDDEN),
        ]
        self._scale = scale

    def logits(self, features: Tensor, member: int | None = None) -> Tensor:
        """Float32 ``[members, rows, inputs]`` → ``[members, rows, classes]``; for one member
        ``[rows, inputs]`` → ``[rows, classes]``."""
        one = self.parameters if member is None else [p[member] for p in self.parameters]
        w1, b1, w2, b2 = one
        return F.relu(features * self._scale @ w1 + b1) @ w2 + b2

    def state(self) -> list[Tensor]:
        """A copy of the weights."""
        return [p.detach().clone() for p in self.parameters]

    def restore(self, state: list[Tensor]) -> None:
        """Restore weights."""
        for parameter, value in zip(self.parameters, state, strict=True):
            parameter.data.copy_(value)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread: for matrices of eight rows, several threads cost more than they save."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@_one_thread()
def train(
    rows: Rows,
    labels: Numbers,
    pools: Sequence[Numbers],
    *,
    classes: int,
    seed: int,
    schedule: Schedule,
    held: Sequence[Numbers] | None = None,
) -> Perceptrons:
    """Train a member on each pool of rows with Adam.

    One factor scales the features to a root mean square of 1, which hidden states roughly have. At
    this learning rate a model would hardly learn from unit vectors.

    Args:
        rows: features by row number.
        labels: int64 ``[members, rows]``, or ``[rows]`` if the members agree.
        pools: row numbers of each member's examples, of equal length.
        classes: number of classes.
        seed: seed of the initial weights and of the order.
        schedule: how long to train.
        held: by member, row numbers that choose the best epoch; None takes the last epoch.
    """
    members, examples = len(pools), len(pools[0])
    truth = torch.from_numpy(np.broadcast_to(labels, (members, labels.shape[-1])).copy())
    pooled = torch.from_numpy(np.stack(pools))
    sample = rows(pooled[:, : min(examples, 1000)])
    scale = 1.0 / max(float(sample.square().mean().sqrt()), 1e-12)
    model = Perceptrons(members, sample.shape[-1], classes, scale, seed)
    optimiser = torch.optim.Adam(model.parameters, lr=LEARNING_RATE, fused=True)
    order = _Order(pooled, seed)
    best = _Best(members, model) if held is not None else None
    per_epoch = -(-examples // BATCH)
    for step in range(1, schedule.steps(examples) + 1):
        chosen = order.next()
        loss = F.cross_entropy(
            model.logits(rows(chosen)).flatten(0, 1),
            truth.gather(1, chosen).flatten(),
            reduction="sum",
        )
        optimiser.zero_grad()
        torch.autograd.backward(loss / chosen.shape[1])
        optimiser.step()
        if best is not None and held is not None and step % per_epoch == 0:
            best.offer(model, [_accuracy(model, rows, truth, m, held[m]) for m in range(members)])
    if best is not None:
        best.give(model)
    return model


def predict(model: Perceptrons, rows: Rows, numbers: Numbers, member: int) -> Numbers:
    """The class that one member predicts for each row."""
    return np.asarray(scores(model, rows, numbers, member).argmax(axis=1))


def scores(
    model: Perceptrons, rows: Rows, numbers: Numbers, member: int
) -> npt.NDArray[np.float32]:
    """Logits of one member, float32 ``[rows, classes]``."""
    with torch.no_grad():
        parts = [
            model.logits(rows(p), member) for p in torch.split(torch.from_numpy(numbers), 8192)
        ]
    found: npt.NDArray[np.float32] = torch.cat(parts).numpy()
    return found


def _accuracy(
    model: Perceptrons, rows: Rows, truth: Tensor, member: int, numbers: Numbers
) -> float:
    expected = truth[member][torch.from_numpy(numbers)].numpy()
    return float((predict(model, rows, numbers, member) == expected).mean())


class _Best:
    """The weights of each member's best epoch, the first among equals."""

    def __init__(self, members: int, model: Perceptrons) -> None:
        self._scores = [-1.0] * members
        self._state = model.state()

    def offer(self, model: Perceptrons, found: Sequence[float]) -> None:
        """Keep the weights of members that improved."""
        for member, score in enumerate(found):
            if score > self._scores[member]:
                self._scores[member] = score
                for kept, now in zip(self._state, model.parameters, strict=True):
                    kept[member] = now.detach()[member]

    def give(self, model: Perceptrons) -> None:
        """Put the best weights into the model."""
        model.restore(self._state)


class _Order:
    """Batches of each member's examples, shuffled every epoch."""

    def __init__(self, pools: Tensor, seed: int) -> None:
        self._pools = pools
        self._draw = torch.Generator().manual_seed(seed + 1)
        self._queue = pools[:, :0]

    def next(self) -> Tensor:
        """Row numbers, int64 ``[members, batch]``; at most the number of examples."""
        members, examples = self._pools.shape
        size = min(BATCH, examples)
        if self._queue.shape[1] < size:
            places = torch.rand(members, examples, generator=self._draw).argsort(1)
            self._queue = torch.cat([self._queue, self._pools.gather(1, places)], 1)
        chosen, self._queue = self._queue[:, :size], self._queue[:, size:]
        return chosen


_HELD = 0.1
_LEAST_HELD = 20


def classify(
    features: Features,
    labels: Numbers,
    pools: Sequence[Numbers],
    tests: Features,
    *,
    classes: int,
    seed: int,
    schedule: Schedule,
    choose: bool = False,
) -> list[Numbers]:
    """Train one model on each pool and predict the classes of the tests.

    Args:
        features: features of the training texts, ``[rows, dimensions]``, dense or sparse.
        labels: int64 ``[pools, rows]``, or ``[rows]`` if the pools agree.
        pools: row numbers to train on, of equal length.
        tests: features ``[tests, dimensions]``.
        classes: number of classes.
        seed: seed of weights, order and held-out rows.
        schedule: how long to train a perceptron; the SVM ignores it.
        choose: hold out a tenth of each pool and choose the epoch that is best on it.

    Returns:
        int64 ``[tests]`` for each pool.
    """
    if not isinstance(features, np.ndarray):
        return _linear(features, labels, pools, tests)
    held = None
    if choose and len(pools[0]) * _HELD >= _LEAST_HELD:
        parts = [_parted(pool, seed + number) for number, pool in enumerate(pools)]
        pools, held = [a for a, _ in parts], [b for _, b in parts]
    table = torch.from_numpy(features)
    model = train(
        lambda numbers: table[numbers],
        labels,
        pools,
        classes=classes,
        seed=seed,
        schedule=schedule,
        held=held,
    )
    asked = torch.from_numpy(np.asarray(tests, dtype=np.float32))
    every = np.arange(len(tests))
    return [predict(model, lambda n: asked[n], every, member) for member in range(len(pools))]


def _linear(
    features: Features, labels: Numbers, pools: Sequence[Numbers], tests: Features
) -> list[Numbers]:
    from sklearn.svm import LinearSVC

    truth = np.broadcast_to(labels, (len(pools), labels.shape[-1]))
    return [
        np.asarray(LinearSVC(random_state=0).fit(features[pool], own[pool]).predict(tests))
        for pool, own in zip(pools, truth, strict=True)
    ]


def _parted(pool: Numbers, seed: int) -> tuple[Numbers, Numbers]:
    order = np.random.default_rng(seed).permutation(len(pool))
    held = round(len(pool) * _HELD)
    return pool[order[held:]], pool[order[:held]]


def drawn(
    labels: npt.NDArray[np.int64], per_class: int, draws: int, seed: int
) -> list[Numbers] | None:
    """Row numbers of ``per_class`` examples of each class, for each draw.

    None if a class has fewer.
    """
    by_class = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    if min(map(len, by_class)) < per_class:
        return None
    pools = []
    for number in range(draws):
        draw = np.random.default_rng([seed, per_class, number])
        chosen = [draw.choice(own, per_class, replace=False) for own in by_class]
        pools.append(np.concatenate(chosen).astype(np.int64))
    return pools
