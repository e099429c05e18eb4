"""Embed many documents behind the requests of others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import numpy as np

from service.embedding.batching.batcher import OverloadedError
from service.embedding.embedder import Embedded, Embedder, EmptyInputError, TooLongError
from service.errors import InvalidError
from windowing.pooling import Vectors, normalise

# The queue serves a batch like any request, and before all others when it has waited for
# ``queue_age_limit``: a batch that is done in a second never comes to that.
BATCH_SECONDS = 1.0
FIRST_CHARACTERS = 16_384
MOST_CHARACTERS = 400_000
MOST_DOCUMENTS = 256
_NEVER = 1e9


async def embed(
    embedder: Embedder,
    texts: Sequence[str],
    prompt: str,
    progress: Callable[[int, Embedded], None],
) -> Vectors:
    """Unit vectors of documents, float32 ``[texts, dimensions]``.

    Args:
        progress: called after each batch with the documents done so far and the batch.

    Raises:
        InvalidError: a document is empty or too long; its position is named.
        EngineFailedError: the engine failed on a document.
    """
    rows: list[Vectors] = []
    characters = FIRST_CHARACTERS
    while len(rows) < len(texts):
        batch = _take(texts, len(rows), characters)
        started = time.monotonic()
        result = await _embed(embedder, batch, prompt, len(rows))
        seconds = max(time.monotonic() - started, 1e-3)
        size = sum(map(len, batch)) * BATCH_SECONDS / seconds
        characters = int(min(max(size, FIRST_CHARACTERS / 4), characters * 2, MOST_CHARACTERS))
        rows += [normalise(document.vector()) for document in result.documents]
        progress(len(rows), result)
    return np.stack(rows)


def _take(texts: Sequence[str], first: int, characters: int) -> list[str]:
    batch = [texts[first]]
    size = len(texts[first])
    for text in texts[first + 1 : first + MOST_DOCUMENTS]:
        size += len(text)
        if size > characters:
            break
        batch.append(text)
    return batch


async def _embed(embedder: Embedder, texts: list[str], prompt: str, first: int) -> Embedded:
    while True:
        try:
            return await embedder.embed(texts, time.monotonic() + _NEVER, prompt=prompt)
        except OverloadedError as error:
            await asyncio.sleep(error.retry_after)
        except (EmptyInputError, TooLongError) as error:
            if len(texts) == 1:
                reason = str(error).removeprefix("input 0 ")
                raise InvalidError(f"input {first} {reason}", "inputs") from error
            for position, text in enumerate(texts):
                await _embed(embedder, [text], prompt, first + position)
            raise
