"""Embed the texts of a batch of lines: an error of one text is no error of the others."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from service.embedding.embedder import Document, Embedded, UnusableInputError
from service.embedding.prompts import resolve
from service.errors import EngineFailedError, OverloadedError, ServiceError
from service.server.edge.errors import translate
from service.server.encoder import Encoder
from service.server.lifecycle import Service
from service.server.lines.options import LineOptions
from service.server.routes import inference

Outcome = Document | ServiceError


@dataclass(slots=True)
class Lines:
    """Embeds texts of one request.

    Attributes:
        service: of this process.
        encoder: the bundle that embeds the texts.
        options: of the request.
        seconds: that each batch may take, the waiting for room in the queue included.
        usage: documents, windows, cached windows and tokens so far.
    """

    service: Service
    encoder: Encoder
    options: LineOptions
    seconds: float
    usage: Counter[str] = field(default_factory=Counter)

    async def embed(self, texts: Sequence[str]) -> list[Outcome]:
        """The documents of texts, in their order; an error replaces a document without a vector."""
        return await self._each(texts, time.monotonic() + self.seconds) if texts else []

    async def _each(self, texts: Sequence[str], deadline: float) -> list[Outcome]:
        try:
            result = await self._patiently(texts, deadline)
        except EngineFailedError as error:
            if len(texts) == 1:
                return [translate(error)]
            # the cache has what the engine computed, so only the text at fault fails again
            return [one for text in texts for one in await self._each([text], deadline)]
        except Exception as error:  # noqa: BLE001 each line of the batch tells it
            return [translate(error)] * len(texts)
        self._count(result)
        documents = iter(result.documents)
        refused = {at: _of_line(error) for at, error in result.refused.items()}
        return [refused.get(at) or next(documents) for at in range(len(texts))]

    async def _patiently(self, texts: Sequence[str], deadline: float) -> Embedded:
        """Embed texts; while the queue is full, wait for room until the deadline."""
        prompt = resolve(self.encoder.manifest, self.options.prompt_name)
        while True:
            try:
                async with asyncio.timeout_at(_loop_time(deadline)):
                    running = await inference.running_of(self.service, self.encoder)
                    return await running.embedder.embed(
                        texts,
                        deadline,
                        prompt=prompt,
                        truncate=self.options.truncate,
                        side=self.options.truncation_direction,
                        refuse=True,
                    )
            except OverloadedError as error:
                if time.monotonic() + error.retry_after >= deadline:
                    raise
                await asyncio.sleep(error.retry_after)

    def _count(self, result: Embedded) -> None:
        self.service.metrics.embedded(result, self.encoder.name)
        for document in result.documents:
            self.usage["documents"] += 1
            self.usage["windows"] += len(document.windows)
            self.usage["cached"] += document.cached
            self.usage["tokens"] += document.computed


def _of_line(error: UnusableInputError) -> ServiceError:
    """The same error, which does not name a position in the batch."""
    error.message = f"the text {error.reason}"
    return error


def _loop_time(deadline: float) -> float:
    return asyncio.get_running_loop().time() + deadline - time.monotonic()
