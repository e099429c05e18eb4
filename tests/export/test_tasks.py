"""Figures and losses of tasks for data and vectors with known answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from docsplit.bundles.manifest import Parity, TaskParity
from docsplit.corpora.fields import DataError, Fields
from docsplit.corpora.reading import read_judged, read_labelled
from docsplit.corpora.sets import Judged, Labelled
from export.errors import ExportError
from export.tasks import (
    LIMITS,
    HeldOut,
    Probe,
    Retrieval,
    Task,
    check_texts,
    figure,
    judge,
    read_tasks,
)
from export.thresholds import misses, refusal
from tests.export.held_out import write_judged, write_labelled, write_rows


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def judged(documents: int, queries: int) -> tuple[Judged, np.ndarray]:
    draw = np.random.default_rng(0)
    vectors = unit(draw.normal(size=(documents + queries, 8))).astype(np.float32)
    relevant = [
        {int(d): float(draw.integers(1, 4)) for d in draw.choice(documents, 1 + i % 5, False)}
        for i in range(queries)
    ]
    texts = [f"text {i}" for i in range(documents + queries)]
    return Judged("j", texts[:documents], texts[documents:], relevant), vectors


def test_retrieval_agrees_with_trec_eval() -> None:
    data, vectors = judged(90, 150)
    task = Retrieval(data)
    assert task.texts == [*data.documents, *data.queries]
    scores = vectors[90:] @ vectors[:90].T
    run = {f"q{i}": {f"d{j}": float(s) for j, s in enumerate(row)} for i, row in enumerate(scores)}
    qrels = {
        f"q{i}": {f"d{j}": int(grade) for j, grade in grades.items()}
        for i, grades in enumerate(data.relevant)
    }
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10"}).evaluate(run)
    expected = np.mean([one["ndcg_cut_10"] for one in theirs.values()])
    assert task.figure(vectors) == pytest.approx(expected, abs=1e-6)


def labelled(labels: np.ndarray) -> Labelled:
    texts = [f"text {i}" for i in range(300)]
    return Labelled("l", texts[:200], labels[:200], texts[200:], labels[200:], ["a", "b", "c"])


def test_a_probe_separates_distant_classes_only() -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(3, size=300)
    apart = unit(draw.normal(size=(3, 16))[labels] + 0.1 * draw.normal(size=(300, 16)))
    task = Probe(labelled(labels))
    assert task.figure(apart.astype(np.float32)) == 1
    assert task.figure(apart.astype(np.float32)) == 1
    chance = Probe(labelled(draw.permutation(labels))).figure(apart.astype(np.float32))
    assert 0.15 < chance < 0.5


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_vectors_that_are_not_finite_are_refused(wrong: float) -> None:
    data, vectors = judged(20, 5)
    vectors[3, 2] = wrong
    with pytest.raises(ExportError, match=r"int8: gives values .* not finite, on j .* 'text 3'"):
        figure(Retrieval(data), vectors, "int8")


def parity(tasks: list[TaskParity]) -> Parity:
    same = {"cosine_mean": 1.0, "cosine_min": 1.0, "neighbour_agreement": 1.0}
    return Parity(paragraphs=200, **same, engine="test", thresholds=same, tasks=tasks)


@pytest.mark.parametrize("kind", ["retrieval", "probe"])
def test_a_loss_up_to_the_limit_is_allowed(kind: str) -> None:
    labels = np.random.default_rng(0).integers(3, size=300)
    task = Retrieval(judged(20, 5)[0]) if kind == "retrieval" else Probe(labelled(labels))
    limit = {"retrieval": 0.005, "probe": 0.01}[kind]
    assert LIMITS[task.name] == limit
    kept = judge(task, 0.7, 0.7 - limit)
    assert misses(parity([kept, judge(task, 0.7, 0.9)])) == []
    lost = judge(task, 0.7, 0.7 - limit - 0.0001)
    assert judge(task, 0.7, 0.6, {task.name: 0.2}).threshold == 0.2
    assert len(misses(parity([kept, lost]))) == 1
    said = str(refusal("int8", parity([kept, lost])))
    assert said.startswith(
        f"int8 loses too much of the source; {kind} on {task.data}: {task.metric}"
    )
    assert said.count(task.metric) == 1
    assert (
        f"the source's 0.7000, a loss of {limit + 0.0001:.4f}, but only {limit} is allowed" in said
    )


def read(held_out: HeldOut, passages: Sequence[str] = ()) -> list[Task]:
    tasks = read_tasks(held_out, Path("calibration.txt"))
    check_texts(tasks, passages)
    return tasks


def test_held_out_data_is_read_like_in_the_evaluation(tmp_path: Path, pep_texts: list[str]) -> None:
    folder = write_judged(tmp_path / "claims", pep_texts)
    table = write_labelled(tmp_path / "topics.jsonl", pep_texts)
    retrieval, probe = read(HeldOut([folder], [table]))
    files = folder / "corpus.jsonl", folder / "queries.jsonl", folder / "qrels" / "test.tsv"
    assert retrieval.digest == read_judged(*files, "claims", Fields()).digest
    assert probe.digest == read_labelled(table, "topics", Fields()).digest
    few, less = read(HeldOut([folder], [table], Fields(limit=20)))
    # the data keeps every answer to a query
    assert (few.documents, less.documents, less.cases) == (90, 40, 20)


def test_unusable_data_is_named(tmp_path: Path, pep_texts: list[str]) -> None:
    folder = write_judged(tmp_path / "claims", pep_texts)
    table = write_labelled(tmp_path / "topics.jsonl", pep_texts)
    with pytest.raises(DataError, match=r"--retrieval .*absent: not a folder with corpus"):
        read(HeldOut([tmp_path / "absent"]))
    with pytest.raises(DataError, match=r"--probe .*absent\.csv: no such file"):
        read(HeldOut(probe=[tmp_path / "absent.csv"]))
    with pytest.raises(DataError, match=r"--probe .*claims: not a \.parquet"):
        read(HeldOut(probe=[folder]))
    with pytest.raises(DataError, match=r"corpus\.jsonl:1: no column label"):
        read(HeldOut(probe=[folder / "corpus.jsonl"]))
    with pytest.raises(ExportError, match="--probe: two sets are named topics"):
        read(HeldOut(probe=[table, table]))


def test_calibration_data_is_refused(tmp_path: Path, pep_texts: list[str]) -> None:
    folder = write_judged(tmp_path / "claims", pep_texts)
    with pytest.raises(ExportError, match=r"queries\.jsonl: calibrates the int8 graph"):
        read_tasks(HeldOut([folder]), folder / "queries.jsonl")
    lines = (folder / "corpus.jsonl").read_text().splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    words = texts[9].split()
    elsewhere = [" ".join(text.split()[:30]) for text in pep_texts]
    read(HeldOut([folder]), elsewhere)
    for shared in ("  ".join(words[5:30]) + " and more", texts[0]):
        with pytest.raises(ExportError, match="claims: holds a passage that calibrates"):
            read(HeldOut([folder]), [*elsewhere, shared])
    # a few words that also occur in a longer text are not a shared passage
    read(HeldOut([folder]), [" ".join(words[5:15])])


def test_a_table_without_labels_apart_is_split_by_digest(tmp_path: Path) -> None:
    rows = [{"text": f"text number {i}", "label": i % 2} for i in range(60)]
    write_rows(tmp_path / "plain.jsonl", rows)
    [probe] = read(HeldOut(probe=[tmp_path / "plain.jsonl"]))
    assert 0 < probe.cases < 30
