"""Requests that fail or are cancelled: which results are kept, and which work never begins."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from docsplit.bundles.format import DEFAULT_BUNDLE
from docsplit.engines.choice import Arithmetic, EngineName
from docsplit.windowing.tokens import SIZE as PIECE
from docsplit.windowing.tokens import DocumentTokenizer, Side, Tokens
from service.embedding.batching.batcher import Batcher
from service.embedding.batching.clients import Client, working_for
from service.embedding.cache.layers import Cache, ProcessCache, Source
from service.embedding.embedder import CachedVectors, Embedder
from service.errors import EngineFailedError
from tests.conftest import until


class Engine:
    """Returns vectors of ones; fails on rows that contain a token."""

    name: EngineName = "onnx-cpu"
    arithmetic: Arithmetic = "f32"
    device = "CPU"
    streams = 1
    batch_tokens = 2048

    def __init__(self) -> None:
        self.bad = -1
        self.windows = 0

    def run(self, input_ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        if (input_ids == self.bad).any():
            raise RuntimeError("bad")
        self.windows += len(input_ids)
        return np.ones((len(input_ids), 4), dtype=np.float32)


class CountingTokenizer(DocumentTokenizer):
    """The bundle's tokenizer; counts the pieces it has begun, and stops before each at a gate."""

    begun = 0

    def __init__(self) -> None:
        super().__init__(DEFAULT_BUNDLE / "tokenizer.json", 512)
        self.gate = threading.Event()
        self.gate.set()

    def encoding(
        self, text: str, prompt: str = "", limit: int | None = None, side: Side = "right"
    ) -> Generator[None, None, Tokens]:
        steps = super().encoding(text, prompt, limit, side)
        while True:
            self.begun += 1
            self.gate.wait(10)
            try:
                next(steps)
            except StopIteration as ended:
                tokens: Tokens = ended.value
                return tokens
            yield


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def tokenizer() -> CountingTokenizer:
    return CountingTokenizer()


@pytest.fixture
def embedder(engine: Engine, tokenizer: CountingTokenizer) -> Iterator[Embedder]:
    batcher = Batcher(engine, batch_tokens=2048, queue_tokens=100_000, age_limit=2, pad_token_id=0)
    vectors = CachedVectors(Cache(ProcessCache(1 << 20)), batcher)
    made = Embedder(tokenizer, vectors, max_document_tokens=100_000)
    yield made
    tokenizer.gate.set()
    made.close()
    batcher.close()


def soon() -> float:
    return time.monotonic() + 60


async def test_repeating_a_failed_request_computes_only_the_rest(
    embedder: Embedder, engine: Engine, tokenizer: CountingTokenizer, peps: dict[str, str]
) -> None:
    texts = [peps["pep-8"][:9000], "xylophone", peps["pep-20"][:9000]]
    engine.bad = int(tokenizer.encode("xylophone").ids[0])

    with pytest.raises(EngineFailedError):
        await embedder.embed(texts, soon())
    computed = engine.windows
    assert computed > 0
    engine.bad = -1
    again = await embedder.embed(texts, soon())
    sources = [w.source for document in again.documents for w in document.windows]
    assert sources.count(Source.PROCESS) == computed
    assert engine.windows == len(sources)


async def test_texts_of_clients_that_left_are_not_tokenised(
    embedder: Embedder, engine: Engine, tokenizer: CountingTokenizer
) -> None:
    tokenizer.gate.clear()
    text = "word " * PIECE
    waiting = [asyncio.create_task(embedder.embed([text], soon())) for _ in range(512)]
    await until(lambda: tokenizer.begun == 2)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    tokenizer.gate.set()
    await embedder.embed(["a short probe"], soon())
    # two threads had begun one piece each, and the probe has one
    assert tokenizer.begun == 3
    assert engine.windows == 1


async def test_one_clients_long_texts_delay_anothers_short_one_by_a_piece_each(
    embedder: Embedder, tokenizer: CountingTokenizer
) -> None:
    async def ask(name: str, text: str) -> int:
        with working_for(Client(name)):
            await embedder.embed([text], soon())
        return tokenizer.begun

    tokenizer.gate.clear()
    text = "word " * PIECE
    flood = [asyncio.create_task(ask("flood", text)) for _ in range(8)]
    await until(lambda: tokenizer.begun == 2)
    other = asyncio.create_task(ask("other", "a short probe"))
    await asyncio.sleep(0)
    tokenizer.gate.set()
    begun = await other
    assert begun < 16, "of the flood's 32 pieces"
    await asyncio.gather(*flood)
    assert tokenizer.begun > 32
