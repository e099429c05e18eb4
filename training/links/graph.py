"""The links among the training documents."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from docsplit.corpora.documents import read_links
from docsplit.corpora.fields import DataError
from docsplit.corpora.reading import links_among
from training.data.cache import Numbers, TokenCache
from training.data.sources import read_authors
from training.settings import DataSettings


@dataclass(frozen=True)
class LinkGraph:
    """Which documents are linked, in either direction.

    Attributes:
        neighbours: for each linked document the numbers of the documents that cite it or that it
            cites, int64, ascending.
        links: number of linked pairs.
        outside: links from or to a document that is not trained on.
        same_author: pairs that were left out because they share an author.
        digest: SHA-256 of the pairs.
    """

    neighbours: Mapping[int, npt.NDArray[np.int64]]
    links: int
    outside: int
    same_author: int
    digest: str

    @classmethod
    def of(
        cls, pairs: Iterable[tuple[int, int]], *, outside: int = 0, same_author: int = 0
    ) -> "LinkGraph":
        """A graph of pairs of different documents; a repeated or reversed pair counts once."""
        unique = sorted({(min(pair), max(pair)) for pair in pairs})
        found: dict[int, list[int]] = {}
        for one, other in unique:
            found.setdefault(one, []).append(other)
            found.setdefault(other, []).append(one)
        return cls(
            {one: np.array(sorted(linked), dtype=np.int64) for one, linked in found.items()},
            len(unique),
            outside,
            same_author,
            hashlib.sha256(repr(unique).encode()).hexdigest(),
        )

    @property
    def counts(self) -> dict[str, int]:
        """Numbers for the record of a run."""
        return {"used": self.links, "outside": self.outside, "same_author": self.same_author}

    @property
    def documents(self) -> npt.NDArray[np.int64]:
        """Numbers of the linked documents, ascending."""
        return np.array(sorted(self.neighbours), dtype=np.int64)

    def related(self, documents: Numbers, others: Numbers) -> npt.NDArray[np.bool_]:
        """Which pairs are linked or the same document, bool ``[documents, others]``."""
        columns = np.asarray(others)
        return np.array(
            [(columns == one) | np.isin(columns, self.neighbours.get(one, ())) for one in documents]
        )


def open_graph(
    path: Path, settings: DataSettings, cache: TokenCache, documents: Numbers
) -> LinkGraph:
    """The links of a table among some documents of the cache.

    Raises:
        DataError: the files are unreadable, or no link is left.
    """
    names = cache.names(documents)
    among, outside = links_among(names, read_links(path))
    pairs = {(min(a, b), max(a, b)) for a, cited in among.items() for b in cited}
    field = settings.author_field
    authors = {} if field is None else dict(read_authors(settings, field))
    none: frozenset[str] = frozenset()
    kept = [
        (one, other)
        for one, other in pairs
        if authors.get(names[one], none).isdisjoint(authors.get(names[other], none))
    ]
    if not kept:
        raise DataError(
            f"{path}: no link between two documents of {settings.path} is left "
            f"({outside} links lead to documents that are missing, held out, too short or "
            f"near-duplicates, {len(pairs)} pairs share an author)"
        )
    return LinkGraph.of(
        ((int(documents[one]), int(documents[other])) for one, other in kept),
        outside=outside,
        same_author=len(pairs) - len(kept),
    )
