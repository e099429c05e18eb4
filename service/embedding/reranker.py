"""From a query and whole documents to scores: tokenise, cut behind the query, compute."""

from collections.abc import Sequence

import numpy as np

from docsplit.windowing.pairs import Behind, PairTokenizer
from docsplit.windowing.tokens import Side
from docsplit.windowing.windows import Ids
from service.embedding.batching.batcher import Batcher
from service.embedding.batching.queue import Model
from service.embedding.cache.layers import Source
from service.embedding.charges import charged
from service.embedding.embedder import (
    Document,
    DocumentWindow,
    Embedded,
    EmptyInputError,
    TooLongError,
    UnusableInputError,
)
from service.embedding.tokenising import Steps, Tokenising, in_succession
from service.errors import TooLargeError
from service.tracing.stages import Stage


class LongQueryError(UnusableInputError, TooLargeError):
    """A query that leaves too little room for a document."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            0,
            f"has more than {limit} tokens, which is the most that the re-ranker reads of a query: "
            "shorten it, or set truncate=true where the request has it",
            "query_too_long",
        )


class Reranker:
    """Scores documents for a query by a cross-encoder.

    Args:
        tokenizer: of the re-ranker's bundle.
        max_document_tokens: longer documents are refused unless they are truncated.
    """

    def __init__(
        self,
        tokenizer: PairTokenizer,
        batcher: Batcher,
        model: Model,
        tokenising: Tokenising,
        max_document_tokens: int,
    ) -> None:
        self._tokenizer = tokenizer
        self._batcher = batcher
        self.model = model
        self._tokenising = tokenising
        self._max_tokens = max_document_tokens

    async def score(
        self,
        query: str,
        texts: Sequence[str],
        deadline: float,
        *,
        truncate: bool = False,
        side: Side = "right",
    ) -> Embedded:
        """Score every window of the texts, each behind the whole query.

        Args:
            query: at most half of the model's window.
            texts: of any length up to the limit.
            deadline: on ``time.monotonic``'s clock.
            truncate: keep one window of a longer text, and as much of a longer query as fits.
            side: side to cut off: ``right`` keeps the start, ``left`` keeps the end.

        Returns:
            The texts in their order. The vector of a window, float32 ``[1]``, is the model's
            output for it, higher for a better answer.

        Raises:
            EmptyInputError: the query, input 0, or a text has no tokens.
            LongQueryError: the query is too long.
            TooLongError: a text exceeds the limit.
            OverloadedError, DeadlineError, EngineFailedError: from the batcher.
        """
        result = Embedded([])
        with Stage("tokenise") as stage:
            ids = await self._tokenising.carry_out(self._query(query, truncate, side))
            most = self._tokenizer.most_query_tokens
            result.query_truncated = len(ids) > most
            behind = self._tokenizer.behind(ids[:most] if side == "right" else ids[-most:])
            works = (
                (text, self._split(behind, index, text, truncate, side))
                for index, text in enumerate(texts, start=1)
            )
            result.documents = await self._tokenising.carry_out(in_succession(works))
            computed, windows = result.computed, result.windows
            stage.note(
                {
                    "docsplit.documents": len(texts),
                    "docsplit.windows": len(windows),
                    "docsplit.tokens": computed,
                }
            )
        result.timing.tokenising = stage.seconds
        with charged(computed):
            rows = [window.ids for window in windows]
            found = await self._batcher.compute(rows, deadline, model=self.model)
        for window, output in zip(windows, found.vectors, strict=True):
            window.vector, window.source = output, Source.ENGINE
        result.timing.queued, result.timing.computing = found.queued, found.computing
        return result

    def _query(self, query: str, truncate: bool, side: Side) -> Steps[Ids]:
        """The query's tokens; a longer query's are at least one more than fit."""
        most = self._tokenizer.most_query_tokens
        tokens = yield from self._tokenizer.documents.encoding(query, "", most, side)
        if len(tokens.ids) == 0:
            raise EmptyInputError(0)
        if len(tokens.ids) > most and not truncate:
            raise LongQueryError(most)
        return tokens.ids

    def _split(
        self, behind: Behind, index: int, text: str, truncate: bool, side: Side
    ) -> Steps[Document]:
        documents = self._tokenizer.documents
        tokens = yield from documents.encoding(text, "", self._max_tokens, side)
        total = len(tokens.ids)
        if total == 0:
            raise EmptyInputError(index)
        if total > self._max_tokens and not truncate:
            raise TooLongError(index, self._max_tokens)
        windows = behind.split(text, tokens, side if truncate else None)
        made = [DocumentWindow(w.start, w.end, w.tokens, w.ids, 1) for w in windows]
        return Document(len(text), total, made, documents.unknown(tokens))


def best(document: Document) -> float:
    """The output of the best window of a scored document."""
    return float(np.max(document.matrix()))
