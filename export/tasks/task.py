"""The interface of the gate's tasks: texts to encode and a figure of their vectors."""

from collections.abc import Sequence
from typing import Protocol

from docsplit.bundles.manifest import TaskName
from docsplit.windowing.pooling import Vectors


class Task(Protocol):
    """One set of held-out data.

    Attributes:
        name: name of the task.
        metric: name of the metric that ``figure`` returns.
        data: name of the set.
        digest: SHA-256 of everything read from the set.
        texts: the texts to encode.
        documents: the number of documents among the texts.
        cases: the number of answers that the figure averages.
    """

    @property
    def name(self) -> TaskName: ...

    @property
    def metric(self) -> str: ...

    @property
    def data(self) -> str: ...

    @property
    def digest(self) -> str: ...

    @property
    def texts(self) -> Sequence[str]: ...

    @property
    def documents(self) -> int: ...

    @property
    def cases(self) -> int: ...

    def figure(self, vectors: Vectors) -> float:
        """From unit vectors float32 ``[texts, dimensions]``; 0 is worst and 1 best."""
        ...
