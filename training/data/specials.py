"""The plain tokenizer, and the special tokens that it adds to a text."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase


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
