"""Limit the quality that a graph may lose at tasks."""

from collections.abc import Mapping

import numpy as np

from docsplit.bundles.manifest import TaskName, TaskParity
from docsplit.windowing.pooling import Vectors
from export.errors import ExportError
from export.tasks.task import Task

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

    Args:
        task: the task of both measurements.
        source: figure of the fp32 source.
        graph: figure of the graph.
        limits: largest loss by the name of a task.
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
