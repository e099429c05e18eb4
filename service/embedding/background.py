"""Embed many documents in the background; requests never wait for them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence

from service.embedding.batching.clients import BACKGROUND, Client, working_for
from service.embedding.cache import layers
from service.embedding.embedder import Document, Embedded, Embedder, UnusableInputError
from service.errors import OverloadedError

# Requests go first, but for 2 s at most, so that background work ends in a busy service.
PATIENCE_STEPS = 100
_STEP_SECONDS = 0.02
# The queue treats a batch like any request. After ``queue_age_limit`` it would go before all
# others, but a batch of one second never waits that long.
BATCH_SECONDS = 1.0
FIRST_CHARACTERS = 16_384
MOST_CHARACTERS = 400_000
MOST_DOCUMENTS = 256
# seconds, so long that there is no deadline
_NEVER = 1e9


class BackgroundEmbedder:
    """Embeds documents one batch at a time, when no request waits for the engine.

    The vectors are stored or train a head, so the cache returns only vectors that are sure.

    Args:
        prompt: text before every window.
        exclusive: no request uses the engine, so batches have their largest size.
        client: that the work is for; work for ``BACKGROUND`` is charged to no key.
        truncate: see ``Embedder.embed``.
    """

    def __init__(
        self,
        embedder: Embedder,
        prompt: str,
        report: Callable[[Embedded], None] | None = None,
        *,
        exclusive: bool = False,
        client: Client = BACKGROUND,
        truncate: bool = False,
    ) -> None:
        self._embedder = embedder
        self._prompt = prompt
        self._report = report
        self._exclusive = exclusive
        self._client = client
        self._truncate = truncate
        self._turn = asyncio.Lock()

    async def __call__(self, texts: Sequence[str]) -> list[Document | UnusableInputError]:
        """All results of ``each``."""
        return [outcome async for outcome in self.each(texts)]

    async def each(self, texts: Sequence[str]) -> AsyncIterator[Document | UnusableInputError]:
        """Documents in the order of their texts. An error replaces a document without a vector.

        Raises:
            EngineFailedError: from the batcher.
        """
        first = 0
        characters = MOST_CHARACTERS if self._exclusive else FIRST_CHARACTERS
        while first < len(texts):
            batch = _take(texts, first, characters)
            async with self._turn:
                await self._wait_for_requests()
                started = time.monotonic()
                result = await self._embed(batch)
                seconds = max(time.monotonic() - started, 1e-3)
            if not self._exclusive:
                size = sum(map(len, batch)) * BATCH_SECONDS / seconds
                most = min(characters * 2, MOST_CHARACTERS)
                characters = int(min(max(size, FIRST_CHARACTERS / 4), most))
            if self._report is not None:
                self._report(result)
            documents = iter(result.documents)
            for position in range(len(batch)):
                error = result.refused.get(position)
                if error is not None:
                    error.index = first + position
                yield next(documents) if error is None else error
            first += len(batch)

    async def _wait_for_requests(self) -> None:
        for _ in range(PATIENCE_STEPS):
            if not self._embedder.queued_tokens:
                break
            await asyncio.sleep(_STEP_SECONDS)

    async def _embed(self, texts: Sequence[str]) -> Embedded:
        while True:
            try:
                with working_for(self._client), layers.stored():
                    return await self._embedder.embed(
                        texts,
                        time.monotonic() + _NEVER,
                        prompt=self._prompt,
                        truncate=self._truncate,
                        refuse=True,
                    )
            except OverloadedError as error:
                await asyncio.sleep(error.retry_after)

    def close(self) -> None:
        """Stop the tokenising threads."""
        self._embedder.close()


def _take(texts: Sequence[str], first: int, characters: int) -> Sequence[str]:
    """The texts of the next batch: at least one."""
    size = len(texts[first])
    end = first + 1
    while end < min(len(texts), first + MOST_DOCUMENTS):
        size += len(texts[end])
        if size > characters:
            break
        end += 1
    return texts[first:end]
