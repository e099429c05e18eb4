"""Tokens of the words that came before: most words of a text are among a few thousand.

BERT's tokenizers read each word by itself, so a word has the same tokens in every text. To look
them up takes a tenth of the time that the tokenizer takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

# Words to keep, and the longest, in characters; together some 8 MB.
_MOST = 32_768
_LONGEST = 32
# id, first character and end of a token
_FIELDS = 3
_BYTES = _FIELDS * np.dtype(np.int32).itemsize


def reads_words(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer gives each word, as blanks divide them, the same tokens in every text.

    One with an added token that has a blank inside does not, nor does one whose normalised text
    decides where an added token takes the blanks around it.
    """
    added = tokenizer.get_added_tokens_decoder().values()
    return (
        not any(one.normalized and (one.lstrip or one.rstrip) for one in added)
        and not any(" " in one.content for one in added)
        and isinstance(tokenizer.model, WordPiece)
        and isinstance(tokenizer.normalizer, BertNormalizer | None)
        and isinstance(tokenizer.pre_tokenizer, BertPreTokenizer)
    )


class KnownWords:
    """The tokens of words, in memory; thread-safe.

    Args:
        tokenize: a tokenizer that ``reads_words``.
        added: tokens that it finds before it reads words.
    """

    def __init__(self, tokenize: Callable[[str], Encoding], added: Iterable[str]) -> None:
        self._tokenize = tokenize
        self._added = list(added)
        self._known: dict[str, bytes] = {}

    def read(self, text: str) -> tuple[NDArray[np.int32], Callable[[], NDArray[np.int64]]] | None:
        """Ids of a text, and what computes the start and end of each token, ``[tokens, 2]``.

        Returns:
            None if the text has an added token: some of them take the blanks around them.
        """
        if any(token in text for token in self._added):
            return None
        words = text.replace("\n", " ").split(" ")
        found = list(map(self._known.get, words))
        learnt = self._learn(words, found) if None in found else {}
        every = zip(words, found, strict=True)
        pieces = [learnt[word] if piece is None else piece for word, piece in every]
        tokens = np.frombuffer(b"".join(pieces), dtype=np.int32).reshape(-1, _FIELDS)

        def offsets() -> NDArray[np.int64]:
            counts = np.fromiter(map(len, pieces), np.int64, len(pieces)) // _BYTES
            shifts: NDArray[np.int64] = np.repeat(_starts(words), counts)[:, None]
            return tokens[:, 1:] + shifts

        return tokens[:, 0].copy(), offsets

    def _learn(self, text: list[str], known: list[bytes | None]) -> dict[str, bytes]:
        """The tokens of the words of a text that are not known."""
        every = zip(text, known, strict=True)
        words = list(dict.fromkeys(word for word, piece in every if piece is None))
        encoding = self._tokenize(" ".join(words))
        offsets, starts = offsets_of(encoding), _starts(words)
        edges = np.searchsorted(offsets[:, 0], starts)
        offsets -= np.repeat(starts, np.diff(edges, append=len(offsets)))[:, None]
        ids = np.array(encoding.ids, dtype=np.int64)
        raw = np.column_stack((ids, offsets)).astype(np.int32).tobytes()
        spans = pairwise([*(edges * _BYTES).tolist(), len(raw)])
        learnt = {word: raw[first:last] for word, (first, last) in zip(words, spans, strict=True)}
        if len(self._known) + len(words) > _MOST:
            # the frequent ones come back soon
            self._known = {}
        self._known |= {word: raw for word, raw in learnt.items() if len(word) <= _LONGEST}
        return learnt


def offsets_of(encoding: Encoding) -> NDArray[np.int64]:
    """Start and end of each token, ``[tokens, 2]``, in characters."""
    return np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)


def _starts(words: list[str]) -> NDArray[np.int64]:
    """The first character of each word in the words joined by blanks."""
    lengths = np.fromiter(map(len, words), np.int64, len(words)) + 1
    return np.cumsum(lengths) - lengths
