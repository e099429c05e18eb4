"""Compare the probe with a plain torch training loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from docsplit.corpora.sets import Linked
from training.evaluation import probes
from training.evaluation.encoders import CachedEncoder, RandomVectors, Store
from training.evaluation.probes import Schedule, classify, drawn, predict, scores, train
from training.evaluation.tasks.labelled import CitationRetrieval
from training.evaluation.tasks.task import Options


def problem(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three noisy clusters of unit vectors."""
    draw = np.random.default_rng(seed)
    labels = np.arange(90) % 3
    rows = np.eye(12)[labels] + 0.35 * draw.standard_normal((90, 12))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32), labels


def by_hand(
    features: np.ndarray,
    labels: np.ndarray,
    pool: np.ndarray,
    start: list[torch.Tensor],
    rate: float,
) -> np.ndarray:
    """``nn.Sequential`` and ``torch.optim.Adam`` on the same batches."""
    w1, b1, w2, b2 = (value[0] for value in start)
    first, last = nn.Linear(12, w1.shape[1]), nn.Linear(w2.shape[0], 3)
    model = nn.Sequential(first, nn.ReLU(), last)
    with torch.no_grad():
        for layer, weight, bias in ((first, w1, b1), (last, w2, b2)):
            layer.weight.copy_(weight.T)
            layer.bias.copy_(bias[0])
    scale = 1 / np.sqrt((features[pool] ** 2).mean())
    table = torch.from_numpy(features * np.float32(scale))
    order = probes._Order(torch.from_numpy(pool)[None], 0)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(Schedule(2, 50).steps(len(pool))):
        chosen = order.next()[0]
        loss = nn.functional.cross_entropy(model(table[chosen]), torch.from_numpy(labels)[chosen])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        return np.asarray(model(table).numpy())


def test_equals_a_plain_loop() -> None:
    features, labels = problem()
    pool = np.arange(0, 90, 2)
    table = torch.from_numpy(features)
    model = train(lambda n: table[n], labels, [pool], classes=3, seed=0, schedule=Schedule(2, 50))
    start = probes.Perceptrons(1, 12, 3, 1.0, 0).state()
    ours = scores(model, lambda n: table[n], np.arange(90), 0)
    assert ours == pytest.approx(by_hand(features, labels, pool, start, 3e-4), abs=1e-4)
    assert np.abs(ours - by_hand(features, labels, pool, start, 1e-3)).max() > 0.01


def test_members_do_not_affect_each_other() -> None:
    features, labels = problem()
    table = torch.from_numpy(features)
    other = np.random.default_rng(0).permutation(labels)

    def first_member(second: np.ndarray) -> np.ndarray:
        model = train(
            lambda n: table[n],
            np.stack([labels, second]),
            [np.arange(40), np.arange(40)],
            classes=3,
            seed=0,
            schedule=Schedule(1, 30),
        )
        return scores(model, lambda n: table[n], np.arange(90), 0)

    assert first_member(labels) == pytest.approx(first_member(other), abs=1e-6)


def test_the_perceptron_learns_clusters() -> None:
    features, labels = problem()
    tests, truth = problem(1)
    shuffled = np.random.default_rng(0).permutation(labels)
    honest, control = classify(
        features,
        np.stack([labels, shuffled]),
        [np.arange(90)] * 2,
        tests,
        classes=3,
        seed=0,
        schedule=Schedule(),
    )
    assert (honest == truth).mean() > 0.8
    assert (control == truth).mean() < 0.6


def test_held_out_rows_choose_the_best_epoch() -> None:
    features, labels = problem()
    table = torch.from_numpy(features)
    held = np.arange(60, 90)
    model = train(
        lambda n: table[n],
        labels,
        [np.arange(60)],
        classes=3,
        seed=0,
        schedule=Schedule(30, 1),
        held=[held],
    )
    last = train(
        lambda n: table[n], labels, [np.arange(60)], classes=3, seed=0, schedule=Schedule(30, 1)
    )
    right = [
        (predict(m, lambda n: table[n], held, 0) == labels[held]).mean() for m in (model, last)
    ]
    assert right[0] >= right[1]
    assert not np.allclose(
        scores(model, lambda n: table[n], held, 0), scores(last, lambda n: table[n], held, 0)
    )


def test_a_draw_has_equally_many_of_each_class() -> None:
    labels = np.asarray([0] * 10 + [1] * 4)
    pools = drawn(labels, 3, draws=5, seed=0)
    assert pools is not None
    for pool in pools:
        assert np.bincount(labels[pool]).tolist() == [3, 3]
        assert len(set(pool.tolist())) == 6
    assert len({tuple(pool) for pool in pools}) == 5
    assert drawn(labels, 5, draws=1, seed=0) is None


def test_a_ranking_without_a_trained_perceptron_has_no_figures(tmp_path: Path) -> None:
    """The only citing document is in one fold, whose training part then has no link."""
    encoder = CachedEncoder(RandomVectors(), Store(tmp_path, "r"))
    texts = [f"text {number}" for number in range(30)]
    for links, held in (({0: frozenset({1, 2})}, False), ({i: {i + 1} for i in range(20)}, True)):
        data = Linked("papers", texts, {one: frozenset(cited) for one, cited in links.items()})
        found = CitationRetrieval().run(encoder, data, Options(epochs=1, steps=10)).figures
        assert ("mlp_mrr" in found, "mrr" in found) == (held, True)
