"""Embedding that requests never wait for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from service.embedding.batching.batcher import OverloadedError
from service.embedding.batching.clients import BACKGROUND, working_for
from service.embedding.embedder import Document, Embedder
from service.embedding.lookup import CachedVectors
from windowing.tokens import DocumentTokenizer

# a chunk lets requests go first, for 2 s at most: a service that is never idle gets done, too
PATIENCE_STEPS = 100
_STEP_SECONDS = 0.02
_NEVER = 1e9


class BackgroundEmbedder:
    """Embeds one chunk of documents at a time, as large as they are, when the queue is empty.

    Args:
        tokenizer: of the bundle.
        vectors: computes windows, for requests too. Without a cache: texts that are embedded once
            would drive out what requests need.
        prompt: put before every window.
    """

    def __init__(self, tokenizer: DocumentTokenizer, vectors: CachedVectors, prompt: str) -> None:
        self._vectors = vectors
        self._prompt = prompt
        self._turn = asyncio.Lock()
        # a document that was taken once stays, also where the limit was lowered since
        self._embedder = Embedder(tokenizer, vectors, max_document_tokens=2**63, workers=1)

    async def __call__(self, texts: Sequence[str]) -> list[Document]:
        """Windows and vectors of documents.

        Raises:
            EmptyInputError: a text without tokens.
            EngineFailedError: from the batcher.
        """
        async with self._turn:
            for _ in range(PATIENCE_STEPS):
                if not self._vectors.queued_tokens:
                    break
                await asyncio.sleep(_STEP_SECONDS)
            while True:
                try:
                    due = time.monotonic() + _NEVER
                    with working_for(BACKGROUND):
                        result = await self._embedder.embed(texts, due, prompt=self._prompt)
                    return result.documents
                except OverloadedError as error:
                    await asyncio.sleep(error.retry_after)

    def close(self) -> None:
        """Stop the tokenising thread."""
        self._embedder.close()
