"""Measure the quality that a graph loses at tasks on held-out data."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from docsplit.bundles.manifest import TaskName, TaskParity
from docsplit.corpora.catalogue import judged_files
from docsplit.corpora.fields import DataError, Fields
from docsplit.corpora.files import TABLES, stem
from docsplit.corpora.reading import read_judged, read_labelled
from docsplit.corpora.sets import Judged, Labelled
from docsplit.corpora.tables import is_table
from docsplit.windowing.pooling import Vectors
from export.errors import ExportError

# Measures of a ranking.

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ranked:
    """One value for each query, float64 ``[queries]``.

    Attributes:
        reciprocal_rank: of the first relevant document; its mean is the MRR.
        recall: share of the relevant documents among the first ``cut``.
        ndcg: discounted cumulative gain of the first ``cut`` over the best possible (Järvelin &
            Kekäläinen 2002; linear gain, logarithm to base 2, as trec_eval's ``ndcg_cut``).
    """

    reciprocal_rank: Floats
    recall: Floats
    ndcg: Floats


def rank(
    scores: npt.NDArray[np.floating], relevant: Sequence[Mapping[int, float]], cut: int = 10
) -> Ranked:
    """Measure rankings by descending score; among equal scores the lower number comes first.

    Args:
        scores: float ``[queries, documents]``; ``-inf`` removes a document from the ranking.
        relevant: grade above 0 of each relevant document by its number, at least one per query.
        cut: depth of recall and nDCG.
    """
    reciprocal, recall, ndcg = [], [], []
    discounts = 1.0 / np.log2(np.arange(2, cut + 2))
    for row, grades in zip(scores, relevant, strict=True):
        order = np.argsort(-row, kind="stable")
        order = order[np.isfinite(row[order])]
        gains = np.zeros(len(row))
        gains[list(grades)] = list(grades.values())
        found = gains[order]
        hits = found > 0
        reciprocal.append(1.0 / (1 + int(hits.argmax())) if hits.any() else 0.0)
        recall.append(float(hits[:cut].sum()) / len(grades))
        best = np.sort(list(grades.values()))[::-1][:cut]
        gain = float(found[:cut] @ discounts[: len(found[:cut])])
        ndcg.append(gain / float(best @ discounts[: len(best)]))
    return Ranked(np.asarray(reciprocal), np.asarray(recall), np.asarray(ndcg))


_ITERATIONS = 1000


class Probe:
    """A logistic regression on the train part, measured on the test part.

    ``docsplit-evaluate`` trains perceptrons from several initialisations. Here the model has one
    optimum, so only the vectors make a graph differ from its source.

    Attributes:
        name, metric: of the task, and of what ``figure`` returns.
        data, digest: name of the set, and SHA-256 of everything read from it.
        texts: to encode; ``documents`` of them are no queries.
        cases: answers that the figure averages.
    """

    name: Literal["probe"] = "probe"
    metric = "accuracy"

    def __init__(self, labelled: Labelled) -> None:
        self._labelled = labelled
        self.data = labelled.name
        self.digest = labelled.digest
        self.texts: Sequence[str] = [*labelled.train, *labelled.test]
        self.documents = len(self.texts)
        self.cases = len(labelled.test)

    def figure(self, vectors: Vectors) -> float:
        """Accuracy on the test part; ``vectors`` are those of the train, then of the test part."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        # A root mean square of 1, because the penalty assumes features of that size.
        scaled = vectors.astype(np.float64) * np.sqrt(vectors.shape[1])
        train, test = scaled[: -self.cases], scaled[-self.cases :]
        with warnings.catch_warnings():
            # Both sides end after the same number of steps.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = LogisticRegression(max_iter=_ITERATIONS).fit(train, self._labelled.train_labels)
        return float((model.predict(test) == self._labelled.test_labels).mean())


# bounds the scores in memory
_QUERIES_AT_ONCE = 64


class Retrieval:
    """A judged set whose corpus is ranked by cosine for each query (BEIR, Thakur et al. 2021).

    Its attributes are those of ``Probe``.
    """

    name: Literal["retrieval"] = "retrieval"
    metric = "nDCG@10"

    def __init__(self, judged: Judged) -> None:
        self._judged = judged
        self.data = judged.name
        self.digest = judged.digest
        self.texts: Sequence[str] = [*judged.documents, *judged.queries]
        self.documents = len(judged.documents)
        self.cases = len(judged.queries)

    def figure(self, vectors: Vectors) -> float:
        """Mean nDCG at 10 over the queries; ``vectors`` are those of documents, then queries."""
        documents, queries = vectors[: self.documents], vectors[self.documents :]
        found = [
            rank(
                self._judged.without_themselves(
                    queries[start : start + _QUERIES_AT_ONCE] @ documents.T, start
                ),
                self._judged.relevant[start : start + _QUERIES_AT_ONCE],
            ).ndcg
            for start in range(0, self.cases, _QUERIES_AT_ONCE)
        ]
        return float(np.concatenate(found).mean())


Task = Probe | Retrieval

# Shorter runs of words can be equal by chance.
_SHARED_WORDS = 24


@dataclass(frozen=True)
class HeldOut:
    """Data that neither the training nor the calibration of a bundle reads.

    Attributes:
        retrieval: folders with corpus, queries and qrels.
        probe: tables with a label.
        fields: names of columns, and the number of documents to read from a set.
    """

    retrieval: Sequence[Path] = ()
    probe: Sequence[Path] = ()
    fields: Fields = field(default_factory=Fields)


def read_tasks(held_out: HeldOut, calibration: Path) -> list[Task]:
    """Read the data, and check that they are not the calibration data of int8.

    Args:
        held_out: the data to read.
        calibration: the calibration file.

    Raises:
        DataError: a folder or file cannot be read.
        ExportError: the data are the calibration file, or two sets have the same name.
    """
    tasks: list[Task] = []
    for folder in held_out.retrieval:
        files = judged_files(folder)
        if files is None:
            raise DataError(f"--retrieval {folder}: not a folder with corpus, queries and qrels")
        _check_file(files, calibration)
        name = folder.resolve().name
        tasks.append(Retrieval(read_judged(*files, name, held_out.fields)))
    for path in held_out.probe:
        if not path.exists():
            raise DataError(f"--probe {path}: no such file")
        if not is_table(path):
            raise DataError(f"--probe {path}: not a {', '.join(TABLES)} file")
        _check_file([path], calibration)
        tasks.append(Probe(read_labelled(path, stem(path), held_out.fields)))
    names = [(task.name, task.data) for task in tasks]
    for name, data in names:
        if names.count((name, data)) > 1:
            raise ExportError(f"--{name}: two sets are named {data}; rename one of them")
    return tasks


def _check_file(files: Sequence[Path], calibration: Path) -> None:
    for path in files:
        if path.resolve() == calibration.resolve():
            raise ExportError(
                f"{path}: calibrates the int8 graph, so it cannot measure it; give held-out data, "
                "or other text with --calibration"
            )


def check_texts(tasks: Sequence[Task], passages: Sequence[str]) -> None:
    """Search the texts for the beginnings of long passages; short ones must be whole texts.

    Args:
        tasks: from ``read_tasks``.
        passages: the passages that calibrate int8.

    Raises:
        ExportError: a text holds a passage.
    """
    words = [tuple(passage.split()) for passage in passages]
    whole = {own for own in words if len(own) < _SHARED_WORDS}
    begun = {own[:_SHARED_WORDS] for own in words if len(own) >= _SHARED_WORDS}
    first = {own[0] for own in begun}
    for name, text in ((task.data, text) for task in tasks for text in task.texts):
        own = tuple(text.split())
        if own in whole or any(
            word in first and own[i : i + _SHARED_WORDS] in begun for i, word in enumerate(own)
        ):
            raise ExportError(
                f"{name}: holds a passage that calibrates the int8 graph, in the text "
                f"{text[:60]!r}; give other text with --calibration"
            )


# Largest allowed difference between the source's figure and the graph's.
LIMITS: Mapping[TaskName, float] = {"retrieval": 0.005, "probe": 0.01}


def figure(task: Task, vectors: Vectors, side: str) -> float:
    """The task's figure of unit vectors, float32 ``[texts, dimensions]``.

    Raises:
        ExportError: a vector is not finite. The message names ``side``, the origin of the vectors.
    """
    wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(wrong):
        raise ExportError(
            f"{side}: gives values that are not finite, on {task.data} for instance of "
            f"{task.texts[wrong[0]][:60]!r}"
        )
    return round(task.figure(vectors), 7)


def judge(
    task: Task, source: float, graph: float, limits: Mapping[TaskName, float] = LIMITS
) -> TaskParity:
    """The manifest's entry for a graph at a task, without a check.

    ``source`` and ``graph`` are their figures, ``limits`` the largest losses by names of tasks.
    """
    return TaskParity(
        task=task.name,
        data=task.data,
        data_sha256=task.digest,
        documents=task.documents,
        cases=task.cases,
        metric=task.metric,
        source=source,
        graph=graph,
        threshold=limits[task.name],
    )
