"""The four kinds of sets that tasks read."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt


class DataSet:
    """A set whose content has a digest."""

    def _content(self) -> Any:
        raise NotImplementedError

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the data that tasks read."""
        encoded = json.dumps(self._content(), separators=(",", ":")).encode()
        return hashlib.sha256(encoded).hexdigest()


@dataclass(frozen=True)
class Labelled(DataSet):
    """Documents with one class each.

    Attributes:
        name: of the set.
        train, test: texts.
        train_labels, test_labels: int64 ``[texts]``, numbers of the classes.
        classes: names of the classes, sorted.
        left_out: rows without text or label.
    """

    name: str
    train: Sequence[str]
    train_labels: npt.NDArray[np.int64]
    test: Sequence[str]
    test_labels: npt.NDArray[np.int64]
    classes: Sequence[str]
    left_out: int = 0

    @property
    def documents(self) -> Sequence[str]:
        """Texts for tasks without labels: the test part."""
        return self.test

    def _content(self) -> Any:
        labels = [self.train_labels.tolist(), self.test_labels.tolist()]
        return [list(self.train), list(self.test), labels, list(self.classes)]


@dataclass(frozen=True)
class Judged(DataSet):
    """Queries and the documents that answer them.

    Attributes:
        name: of the set.
        documents: texts of the corpus.
        queries: texts.
        relevant: grades above 0 by document number, for each query.
        left_out: documents and queries without text, and judgements of missing ones.
        itself: for queries that are documents of the corpus, as in ArguAna, the document's number
            by the query's.
    """

    name: str
    documents: Sequence[str]
    queries: Sequence[str]
    relevant: Sequence[Mapping[int, float]]
    left_out: int = 0
    itself: Mapping[int, int] = field(default_factory=dict)

    def without_themselves(
        self, scores: npt.NDArray[np.floating], first: int = 0
    ) -> npt.NDArray[np.floating]:
        """Scores ``[queries, documents]`` from query ``first`` on, changed in place: ``-inf`` where
        the document is the query."""
        own = [(query - first, document) for query, document in self.itself.items()]
        for row, column in own:
            if 0 <= row < len(scores):
                scores[row, column] = -np.inf
        return scores

    def _content(self) -> Any:
        grades = [sorted(grades.items()) for grades in self.relevant]
        content = [list(self.documents), list(self.queries), grades]
        # digests of other sets stay as they were
        return [*content, sorted(self.itself.items())] if self.itself else content


@dataclass(frozen=True)
class Linked(DataSet):
    """Documents that cite each other.

    Attributes:
        name: of the set.
        documents: texts.
        links: for each citing document the numbers of the documents it cites; never itself.
        left_out: documents without text, and links from or to missing documents.
    """

    name: str
    documents: Sequence[str]
    links: Mapping[int, frozenset[int]]
    left_out: int = 0

    @property
    def pairs(self) -> npt.NDArray[np.int64]:
        """Citing and cited, int64 ``[links, 2]``, sorted."""
        found = sorted((a, b) for a, cited in self.links.items() for b in cited)
        return np.asarray(found, dtype=np.int64).reshape(-1, 2)

    def _content(self) -> Any:
        return [list(self.documents), self.pairs.tolist()]


@dataclass(frozen=True)
class Documents(DataSet):
    """Documents without labels, links or judgements."""

    name: str
    documents: Sequence[str]
    left_out: int = 0

    def _content(self) -> Any:
        return list(self.documents)


AnySet = Labelled | Linked | Judged | Documents
