"""The four kinds of data that tasks read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from export.corpora.sets import DataSet, Judged, Labelled

__all__ = ["AnySet", "Documents", "Judged", "Labelled", "Linked"]


@dataclass(frozen=True)
class Linked(DataSet):
    """Documents that cite each other.

    Attributes:
        name: of the set.
        documents: texts.
        links: numbers of the documents that a citing one cites; never itself.
        left_out: documents without text, and links from or to documents that are not there.
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
    """Documents and nothing else."""

    name: str
    documents: Sequence[str]
    left_out: int = 0

    def _content(self) -> Any:
        return list(self.documents)


AnySet = Labelled | Linked | Judged | Documents
