"""Rows of a query and a text, as a cross-encoder reads them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from docsplit.windowing.tokens import DocumentTokenizer, Side, Tokens
from docsplit.windowing.windows import Ids, Positions, Window, split


class PairTokenizer:
    """A re-ranker's tokenizer, applied to a query and whole documents.

    Args:
        source: path of a ``tokenizer.json``, or its loaded content.
        max_tokens: longest model input, special tokens included.
        segment_offset: what the ids of the second segment are raised by.
        language: language of the sentence rules; see ``sentence_starts``.

    Raises:
        ValueError: the special tokens around a pair leave no room in ``max_tokens``.
    """

    def __init__(
        self,
        source: Path | Tokenizer,
        max_tokens: int,
        segment_offset: int = 0,
        language: str = "en",
    ) -> None:
        tokenizer = Tokenizer.from_file(str(source)) if isinstance(source, Path) else source
        self._source, self._segment_offset = tokenizer, segment_offset
        self.documents = DocumentTokenizer(tokenizer, max_tokens, language)
        pair = Tokenizer.from_str(tokenizer.to_str())
        pair.no_padding()
        pair.no_truncation()
        encoding = pair.encode("a", "a")
        ids = np.array(encoding.ids, dtype=np.int32)
        ids += segment_offset * np.array(encoding.type_ids, dtype=np.int32)
        of = [-1 if number is None else number for number in encoding.sequence_ids]
        first, second = (np.flatnonzero(np.array(of) == number) for number in (0, 1))
        self._before = ids[: first[0]]
        self._between = ids[first[-1] + 1 : second[0]]
        self._after = ids[second[-1] + 1 :]
        self._raised = segment_offset * encoding.type_ids[second[0]]
        self.room = max_tokens - len(self._before) - len(self._between) - len(self._after)
        if self.room < 2:
            raise ValueError(f"special tokens leave no room in {max_tokens} tokens")

    @property
    def most_query_tokens(self) -> int:
        """Longest query. Half of the room, so that a document takes at most twice its tokens."""
        return self.room // 2

    def shortened(self, max_tokens: int) -> "PairTokenizer":
        """The same tokenizer for shorter rows."""
        return PairTokenizer(self._source, max_tokens, self._segment_offset)

    def behind(self, query: Ids) -> "Behind":
        """Cuts documents into windows behind ``query``, token ids without special tokens."""
        return Behind(self, query)

    def row(self, query: str, text: str) -> Ids:
        """The model's input for a query and the start of a text, as far as it fits."""
        ids = self.documents.encode(query).ids[: self.most_query_tokens]
        return self.behind(ids).split(text, self.documents.encode(text), "right")[0].ids

    def join(self, query: Ids, parts: Sequence[Ids]) -> Ids:
        """A query and a text, both without special tokens, as one row."""
        second = np.concatenate(parts) + np.int32(self._raised)
        return np.concatenate((self._before, query, self._between, second, self._after))


class Behind:
    """Cuts documents into windows that each hold the query first.

    Args:
        tokenizer: makes the rows.
        query: token ids without special tokens.
    """

    def __init__(self, tokenizer: PairTokenizer, query: Ids) -> None:
        self._tokenizer = tokenizer
        self._query = query
        self.capacity = tokenizer.room - len(query)

    def split(self, text: str, tokens: Tokens, keep: Side | None = None) -> list[Window]:
        """The windows of a document, see ``docsplit.windowing.windows.split``."""
        return split(self, text, tokens, keep)

    def boundaries(self, text: str, tokens: Tokens) -> tuple[Positions, Positions]:
        """See ``DocumentTokenizer.boundaries``."""
        return self._tokenizer.documents.boundaries(text, tokens)

    def model_input(self, parts: Sequence[Ids]) -> Ids:
        """``parts`` of a document, joined behind the query."""
        return self._tokenizer.join(self._query, parts)
