"""Token ids of sentences, memory-mapped from disk.

A cache is a folder::

    cache.json       counts and what the cache was made from
    tokens.bin       token ids of all sentences, one after the other (uint16 or uint32)
    sentences.bin    int64, where each sentence ends in tokens.bin
    documents.bin    int64, where each document ends in sentences.bin
    identities.bin   uint64, digest of each document's id; decides who is held out
    names.bin        the ids themselves, UTF-8, each ended by a newline
    kept.bin         bool, false for near-duplicates

All files are memory-mapped, so memory holds only the pages in use.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.integer[Any]]
Numbers = Sequence[int] | npt.NDArray[np.int64]

META = "cache.json"
TOKENS = "tokens.bin"
SENTENCES = "sentences.bin"
DOCUMENTS = "documents.bin"
IDENTITIES = "identities.bin"
NAMES = "names.bin"
SIGNATURES = "signatures.bin"
KEPT = "kept.bin"


@dataclass(frozen=True)
class CacheCounts:
    """How many documents were read, kept and left out."""

    read: int
    too_short: int
    duplicates: int
    sentences: int
    tokens: int
    token_type: str


class TokenCache:
    """Documents as lists of sentences as token ids, without special tokens."""

    def __init__(self, root: Path) -> None:
        """Map the cache in ``root`` that ``training.documents`` wrote."""
        self.root = root
        self.counts = CacheCounts(**json.loads((root / META).read_text(encoding="utf-8")))
        self._tokens = _map(root / TOKENS, self.counts.token_type)
        self._sentences = _map(root / SENTENCES, "int64")
        self._documents = _map(root / DOCUMENTS, "int64")
        self._identities = _map(root / IDENTITIES, "uint64")
        self._kept = _map(root / KEPT, "bool")

    def __len__(self) -> int:
        """Documents in the cache, near-duplicates included."""
        return len(self._documents)

    def sentences(self, document: int) -> list[Ids]:
        """Token ids of each sentence of one document, as views into the map."""
        first, last = self._span(document)
        ends = self._sentences[first:last]
        start = int(self._sentences[first - 1]) if first else 0
        return [self._tokens[a:b] for a, b in zip([start, *ends[:-1]], ends, strict=True)]

    def length(self, document: int) -> int:
        """Tokens of one document."""
        first, last = self._span(document)
        start = int(self._sentences[first - 1]) if first else 0
        return int(self._sentences[last - 1]) - start

    def _span(self, document: int) -> tuple[int, int]:
        first = int(self._documents[document - 1]) if document else 0
        return first, int(self._documents[document])

    def select(self, held_out: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Document numbers for training and for validation, without near-duplicates.

        Only the digest of its id decides whether a document is held out. Changes to other
        documents do not change the choice.

        Args:
            held_out: share of the documents.

        Returns:
            Training and held-out numbers, int64, ascending.
        """
        out = self._identities < np.uint64(int(held_out * 2**64))
        return np.flatnonzero(self._kept & ~out), np.flatnonzero(self._kept & out)

    def names(self, documents: Numbers) -> list[str]:
        """Ids of some documents, in the given order; reads the list of ids once."""
        wanted = {int(d) for d in documents}
        found: dict[int, str] = {}
        with (self.root / NAMES).open(encoding="utf-8", newline="\n") as stream:
            for number, line in enumerate(stream):
                if number in wanted:
                    found[number] = line[:-1]
        return [found[int(d)] for d in documents]


def _map(path: Path, dtype: str) -> npt.NDArray[Any]:
    if path.stat().st_size == 0:
        return np.empty(0, dtype=dtype)
    # a slice of np.memmap takes ten times as long as one of a plain array
    return np.asarray(np.memmap(path, dtype=dtype, mode="r"))
