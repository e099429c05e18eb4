"""Predict classes from features: a perceptron on vectors, a linear SVM on words."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from training.evaluation.encoders.interface import Features
from training.evaluation.probes.perceptron import Numbers, Schedule, predict, train

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
