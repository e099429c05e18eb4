"""Texts to token ids and back to character offsets."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from service.documents.sentences import sentence_starts
from service.documents.windows import Ids, Positions

# Python lists of offsets take 150 bytes a token, so a long text is tokenised in pieces.
_PIECE = 65_536


@dataclass(frozen=True, slots=True)
class Tokens:
    """A tokenised text, special tokens excluded.

    Attributes:
        ids: int32 ``[tokens]``.
        starts: character offset of each token, int64 ``[tokens]``.
        prompt: how many of the first tokens belong to the prompt.
    """

    ids: Ids
    starts: Positions
    prompt: int


class DocumentTokenizer:
    """The bundle's tokenizer, applied to whole documents.

    Args:
        path: a ``tokenizer.json``.
        max_tokens: longest model input, special tokens included.
        language: of the sentence rules, see ``sentence_starts``.

    Raises:
        ValueError: the tokenizer puts more special tokens around a text than fit ``max_tokens``.
    """

    def __init__(self, path: Path, max_tokens: int, language: str = "en") -> None:
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._language = language
        plain = self._tokenizer.encode("a", add_special_tokens=False).ids
        full = self._tokenizer.encode("a").ids
        at = next((i for i in range(len(full)) if full[i : i + len(plain)] == plain), 0)
        self.prefix = np.array(full[:at], dtype=np.int32)
        self.suffix = np.array(full[at + len(plain) :], dtype=np.int32)
        self.capacity = max_tokens - len(self.prefix) - len(self.suffix)
        if self.capacity < 1:
            raise ValueError(f"{path}: special tokens leave no room in {max_tokens} tokens")

    @property
    def vocabulary(self) -> int:
        """How many token ids there are."""
        return self._tokenizer.get_vocab_size()

    @property
    def special(self) -> int:
        """Special tokens around every window."""
        return len(self.prefix) + len(self.suffix)

    def encode(self, text: str, prompt: str = "") -> Tokens:
        """Tokenise ``prompt + text`` whole, however long.

        Offsets count characters of ``text``; those of prompt tokens are 0.
        """
        steps = self.encoding(text, prompt)
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                tokens: Tokens = ended.value
                return tokens

    def encoding(self, text: str, prompt: str = "") -> Generator[None, None, Tokens]:
        """``encode`` that stops between pieces of a long text."""
        ids: list[NDArray[np.int32]] = []
        starts: list[NDArray[np.int64]] = []
        joined = prompt + text
        for begin, end in _pieces(joined, _PIECE):
            if begin:
                yield
            encoding = self._encode(joined[begin:end])
            ids.append(np.array(encoding.ids, dtype=np.int32))
            starts.append(_starts(encoding) + begin)
        all_starts = np.concatenate(starts)
        in_prompt = int(np.searchsorted(all_starts, len(prompt)))
        return Tokens(np.concatenate(ids), np.maximum(all_starts - len(prompt), 0), in_prompt)

    def count(self, text: str) -> int:
        """Tokens of ``text`` without special tokens."""
        return sum(len(self._encode(text[b:e]).ids) for b, e in _pieces(text, _PIECE))

    def _encode(self, text: str) -> Encoding:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def boundaries(self, text: str, tokens: Tokens) -> tuple[Positions, Positions]:
        """Token positions where sentences and where words start, both ascending, 0 excluded.

        Positions count from the first token after the prompt.
        """
        starts = tokens.starts[tokens.prompt :]
        at = np.searchsorted(
            starts, np.array(sentence_starts(text, self._language), dtype=np.int64)
        )
        sentences = np.unique(at[(at > 0) & (at < len(starts))])
        spaces = np.array([text[s - 1 : s].isspace() for s in starts[1:].tolist()], dtype=np.bool_)
        return sentences, np.flatnonzero(spaces) + 1

    def model_input(self, parts: Sequence[Ids]) -> Ids:
        """``parts`` joined and put between the special tokens."""
        return np.concatenate((self.prefix, *parts, self.suffix))


def _starts(encoding: Encoding) -> NDArray[np.int64]:
    return np.fromiter((o[0] for o in encoding.offsets), dtype=np.int64, count=len(encoding.ids))


def _pieces(text: str, size: int) -> Iterator[tuple[int, int]]:
    """Ranges of about ``size`` characters that begin with white space.

    Pre-tokenizers split before white space, so the pieces' tokens are those of the whole text.
    """
    begin = 0
    while len(text) - begin > size:
        end = begin + size
        while end < len(text) and not (text[end].isspace() and not text[end - 1].isspace()):
            end += 1
        yield begin, end
        begin = end
    yield begin, len(text)
