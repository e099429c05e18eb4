"""Sentences and special tokens of a text, and the cache of the token ids of documents.

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

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from sentencex import segment
from tokenizers import Tokenizer

from docsplit.windowing.sentences import LONGEST_PARAGRAPH, sentence_starts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


# Sentence segmentation.
#
# The project uses ``sentencex``, not blingfire or pysbd: ``docs/explanation/decisions.md`` has
# their speed and how they treat abbreviations.

_HALVES = re.compile("[\ud800-\udfff]")
_EMPTY_LINES = re.compile(r"\n{2,}")


def split_sentences(text: str, language: str = "en") -> list[str]:
    """Non-empty sentences of ``text`` in order, without surrounding white space.

    Args:
        text: any text.
        language: ISO 639-1 code. A language without its own rules uses those of a related
            language or of English.
    """
    pieces: list[str] = []
    for paragraph in _EMPTY_LINES.split(valid(text)):
        if len(paragraph) <= LONGEST_PARAGRAPH:
            pieces += segment(language, paragraph)
            continue
        # sentencex would take hours for some paragraphs of megabytes, such as Chinese ones
        places = [0, *sentence_starts(paragraph, language), len(paragraph)]
        pieces += [paragraph[start:end] for start, end in pairwise(places)]
    return [piece for piece in map(str.strip, pieces) if piece]


def valid(text: str) -> str:
    """The text with U+FFFD for halves of surrogate pairs, which JSON can hold and no tokenizer
    reads."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _HALVES.sub("\ufffd", text)
    return text


def whole_text_tokenizer(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """The fast tokenizer without the truncation and padding that its file may set."""
    backend: Tokenizer = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    return backend


@dataclass(frozen=True)
class Specials:
    """The special tokens of a tokenizer.

    Attributes:
        prefix: ids before the text.
        suffix: ids after the text.
        pad: the padding token.
        mask: the mask token, -1 where there is none.
        vocabulary: number of tokens.
    """

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    pad: int
    mask: int
    vocabulary: int

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> Self:
        """Find the special tokens by tokenising one word."""
        backend = whole_text_tokenizer(tokenizer)
        bare = backend.encode("a", add_special_tokens=False).ids
        full = backend.encode("a", add_special_tokens=True).ids
        start = next(i for i in range(len(full) - len(bare) + 1) if full[i : i + len(bare)] == bare)
        pad, mask = tokenizer.pad_token_id, tokenizer.mask_token_id
        return cls(
            prefix=tuple(full[:start]),
            suffix=tuple(full[start + len(bare) :]),
            pad=0 if pad is None else int(pad),
            mask=-1 if mask is None else int(mask),
            vocabulary=len(tokenizer),
        )

    @property
    def count(self) -> int:
        """Number of special tokens in a row."""
        return len(self.prefix) + len(self.suffix)

    def wrap(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
        """One row: prefix, the ids of the text, suffix."""
        return np.concatenate([self.prefix, ids, self.suffix]).astype(np.int64)


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
