"""Shuffling and batching."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.batches import (
    BatchOrder,
    ClusterOrder,
    Neighbourhood,
    chunk_tokens,
    fitting,
    plan_chunks,
    shared,
)
from training.errors import CheckpointError, SettingsError
from training.processes import Processes
from training.settings import Settings
from training.trainer.loop import TrainingRun
from training.trainer.opening import NEIGHBOURHOOD

MakeSettings = Callable[..., Settings]


@given(
    count=st.integers(8, 90),
    batch_size=st.integers(2, 8),
    group=st.integers(1, 5),
    seed=st.integers(0, 9),
)
def test_an_epoch_gives_each_document_at_most_once(
    count: int, batch_size: int, group: int, seed: int
) -> None:
    documents = [10 * i for i in range(count)]
    order = BatchOrder(documents, lambda d: d % 70, batch_size=batch_size, group=group, seed=seed)
    batches = [order[i] for i in range(order.per_epoch)]
    drawn = [d for batch in batches for d in batch]
    assert all(len(batch) == batch_size for batch in batches)
    assert len(set(drawn)) == len(drawn)
    assert len(drawn) > count - batch_size
    assert set(drawn) <= set(documents)
    # Each batch is available by its number.
    again = BatchOrder(documents, lambda d: d % 70, batch_size=batch_size, group=group, seed=seed)
    assert again[order.per_epoch - 1] == batches[-1]


def test_epochs_differ_and_groups_have_similar_lengths() -> None:
    def spread(group: int) -> int:
        order = BatchOrder(range(400), lambda d: d, batch_size=10, group=group, seed=0)
        return sum(max(order[i]) - min(order[i]) for i in range(40))

    order = BatchOrder(range(400), lambda d: d, batch_size=10, group=8, seed=0)
    assert [order[i] for i in range(40)] != [order[i] for i in range(40, 80)]
    assert spread(8) < spread(1) / 4


@given(
    lengths=st.lists(st.integers(3, 512), min_size=1, max_size=60),
    budget=st.integers(16, 4_096),
    processes=st.integers(1, 4),
)
def test_chunks_hold_every_row_once(lengths: list[int], budget: int, processes: int) -> None:
    chunks = plan_chunks(lengths, budget, processes)
    assert sorted(i for chunk in chunks for i in chunk) == list(range(len(lengths)))
    for chunk in chunks:
        assert len(chunk) == 1 or padded(chunk, lengths) <= budget
        assert lengths[chunk[0]] == max(lengths[i] for i in chunk)
    assert len(chunks) % processes == 0 or len(chunks) == len(lengths)


def padded(chunk: list[int], lengths: list[int]) -> int:
    return len(chunk) * max(lengths[i] for i in chunk)


def test_chunks_are_shared_evenly() -> None:
    chunks = plan_chunks([100] * 64, 10_000, 4)
    assert [len(chunk) for chunk in chunks] == [16] * 4
    lengths = np.random.default_rng(0).integers(3, 512, 200).tolist()
    sizes = [padded(chunk, lengths) for chunk in plan_chunks(lengths, 4_096, 3)]
    parts = [shared(len(sizes), rank, 3) for rank in range(3)]
    assert sorted(i for part in parts for i in part) == list(range(len(sizes)))
    work = [sum(sizes[i] for i in part) for part in parts]
    assert max(work) < 1.2 * min(work)
    # Control: without turns the first process would get the largest chunk of every round.
    assert sum(sizes[::3]) > max(work)


def test_a_long_row_does_not_lengthen_short_ones() -> None:
    lengths = [512, *[16] * 400]
    chunks = plan_chunks(lengths, 8_192, 1)
    assert sum(padded(chunk, lengths) for chunk in chunks) < 1.25 * sum(lengths)
    assert len(chunks) == 2
    # Control: rows of one chunk have its length.
    assert padded(list(range(100)), lengths) == 51_200


def neighbourhood(count: int, size: int) -> Neighbourhood:
    """Documents around four directions, in an order that mixes them."""
    rng = np.random.default_rng(0)
    centres = np.eye(4, 6)[np.arange(count) % 4]
    vectors = centres + rng.normal(scale=0.1, size=(count, 6))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    documents = 3 * rng.permutation(count)
    return Neighbourhood.of(documents, vectors, size=size, seed=0, made_from="a test")


@given(count=st.integers(8, 90), batch_size=st.integers(2, 8), size=st.integers(0, 30))
def test_an_epoch_of_clusters_gives_each_document_at_most_once(
    count: int, batch_size: int, size: int
) -> None:
    near = neighbourhood(count, size)
    order = ClusterOrder(near, batch_size=batch_size, seed=1)
    batches = [order[i] for i in range(order.per_epoch)]
    drawn = [document for batch in batches for document in batch]
    assert all(len(batch) == batch_size for batch in batches)
    assert len(set(drawn)) == len(drawn) > count - batch_size
    assert set(drawn) <= set(near.documents.tolist())
    # a batch of a later epoch is available by its number
    later = order[order.per_epoch]
    assert ClusterOrder(near, batch_size=batch_size, seed=1)[order.per_epoch] == later


def test_a_thread_that_asks_for_the_next_epoch_leaves_a_batch_of_this_one_as_it_is() -> None:
    order = ClusterOrder(neighbourhood(40, 10), batch_size=4, seed=1)
    first = order[0]

    class Overtaken(tuple[int, Any]):
        """Drawn batches that another thread replaces once their epoch is read."""

        def __getitem__(self, place: Any) -> Any:
            if place == 0:
                order._drawn = None
                assert order[order.per_epoch] != first
            return super().__getitem__(place)

    assert order._drawn is not None
    order._drawn = Overtaken(order._drawn)
    assert order[0] == first


def test_batches_of_clusters_hold_documents_that_resemble_each_other() -> None:
    def cosines(near: Neighbourhood) -> float:
        order = ClusterOrder(near, batch_size=10, seed=0)
        place = {document: row for row, document in enumerate(near.documents.tolist())}
        batches = [near.vectors[[place[d] for d in order[i]]] for i in range(order.per_epoch)]
        return float(np.mean([batch @ batch.T for batch in batches]))

    assert cosines(neighbourhood(400, 100)) > 0.9
    # the control: a single cluster
    assert cosines(neighbourhood(400, 0)) < 0.4


def test_near_documents_are_found_and_survive_on_disk(tmp_path: Path) -> None:
    made = neighbourhood(20, 5)
    made.save(tmp_path / "held.npz")
    near = Neighbourhood.load(tmp_path / "held.npz")
    assert near.made_from == "a test"
    chosen = near.documents[[7, 2, 11]].tolist()
    cosines = near.vectors[[7, 2, 11]] @ near.vectors[[7, 2, 11]].T
    least = float(np.sort(cosines[np.triu_indices(3, 1)])[1])
    found = near.cosines(chosen, chosen) >= least
    assert found.diagonal().all()
    assert found.sum() == 3 + 4
    assert ((near.cosines(chosen, chosen[:2]) >= least) == found[:, :2]).all()


def test_too_few_documents_for_a_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="8 documents are fewer than a batch of 9"):
        ClusterOrder(neighbourhood(8, 0), batch_size=9, seed=0)


def test_a_refused_run_leaves_the_clusters_of_the_former_one(
    make_settings: MakeSettings, corpus: Path, tmp_path: Path
) -> None:
    documents = tmp_path / "documents.jsonl"
    shutil.copy(corpus, documents)

    def run(cluster_size: int = 8, **changed: Any) -> None:
        optimisation = {"cluster_size": cluster_size, "max_steps": 2}
        settings = make_settings(
            data={"path": str(documents)}, optimisation=optimisation, run=changed
        )
        TrainingRun(settings, Processes(cpu=True)).run(stop_after=1)

    run()
    held = (tmp_path / "run" / NEIGHBOURHOOD).read_bytes()
    with pytest.raises(CheckpointError, match="cluster_size was 8, is 20"):
        run(cluster_size=20)
    documents.write_text("".join(documents.read_text().splitlines(True)[:-1]), encoding="utf-8")
    with pytest.raises(CheckpointError, match="the documents, the tokenizer"):
        run()
    assert (tmp_path / "run" / NEIGHBOURHOOD).read_bytes() == held
    # it does not read the documents first
    documents.unlink()
    with pytest.raises(SettingsError, match="already holds a run"):
        run(resume=False)


@pytest.mark.parametrize(
    ("gigabytes", "layers", "width", "tokens"),
    [(80, 6, 384, 65_536), (16, 6, 384, 16_384), (24, 12, 768, 4_096), (2, 48, 4096, 1_024)],
)
def test_a_chunk_fits_into_the_memory_of_the_device(
    gigabytes: int, layers: int, width: int, tokens: int
) -> None:
    assert fitting(gigabytes * 10**9, layers * width) == tokens


def test_a_chunk_on_a_cpu_is_small() -> None:
    assert chunk_tokens(torch.device("cpu"), None) == 2_048
