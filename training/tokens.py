"""Sentences and special tokens of a text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
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
