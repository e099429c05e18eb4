"""The re-ranker of a process."""

import statistics
import time
from collections.abc import Callable

import numpy as np
import structlog

from docsplit.bundles.format import RerankerBundle
from docsplit.engines.build import buckets, build
from docsplit.engines.choice import Choice, ChoiceError, Processor, choose
from docsplit.engines.interface import Engine, warm_up
from docsplit.engines.onnx import reserve
from docsplit.windowing.pairs import PairTokenizer
from service.embedding.batching.batcher import Batcher
from service.embedding.batching.queue import Model
from service.embedding.reranker import Reranker
from service.embedding.tokenising import Tokenising
from service.metrics import Metrics
from service.settings import Settings

log = structlog.get_logger("docsplit")

# shape of the batches that compare the speed of the models
_ROWS, _TOKENS, _ROUNDS = 2, 128, 3
# A ratio beyond comes from an interruption, not from the models.
_MOST = 100.0


class Reranking:
    """A re-ranker's bundle, and how it runs.

    Raises:
        ChoiceError: no engine can meet the settings on this machine.
        ValueError: the special tokens fill the re-ranker's window.
    """

    def __init__(self, bundle: RerankerBundle, settings: Settings, processor: Processor) -> None:
        self.bundle = bundle
        manifest = bundle.manifest
        try:
            self.choice: Choice = choose(
                settings.engine, settings.precision, processor, set(manifest.precisions)
            )
        except ChoiceError as error:
            raise ChoiceError(f"reranker: {error}") from error
        self.tokenizer = PairTokenizer(
            bundle.path("tokenizer.json"),
            manifest.max_tokens,
            manifest.segment_offset,
            settings.language,
        )
        self._max_document_tokens = settings.max_document_tokens

    def build(
        self,
        encoder: Engine,
        longest: int,
        batcher: Batcher,
        threads: int,
        tokenising: Tokenising,
        metrics: Metrics,
    ) -> Reranker:
        """Compile and warm up the graph.

        Args:
            encoder: shares the cores; the re-ranker has as many streams.
            longest: the encoder's window.
            batcher: computes the encoder's batches, and will compute the re-ranker's.
            threads: CPU cores to compute on.

        Raises:
            EngineError: the runtime refuses the graph, or it returns values that are not finite.
        """
        started = time.monotonic()
        manifest = self.bundle.manifest
        engine = build(self.choice, self.bundle, threads, encoder.streams)
        warm_up(engine, manifest)
        if engine.name == "onnx-cuda":
            reserve(engine, buckets(self.bundle), batcher.batch_tokens)
        cost = relative_cost(engine, encoder, min(_TOKENS, longest, manifest.max_tokens))
        model = Model(engine, manifest.pad_token_id, metrics.reranker_batch, cost)
        metrics.reranker.info(
            {
                "engine": engine.name,
                "precision": engine.arithmetic,
                "device": engine.device,
                "model": manifest.name,
                "revision": manifest.revision,
            }
        )
        log.info(
            "reranker_ready",
            engine=engine.name,
            precision=engine.arithmetic,
            reason=self.choice.reason,
            model=manifest.name,
            revision=manifest.revision[:12],
            token_cost=round(cost, 2),
            seconds=round(time.monotonic() - started, 2),
        )
        return Reranker(self.tokenizer, batcher, model, tokenising, self._max_document_tokens)


def relative_cost(
    engine: Engine,
    other: Engine,
    tokens: int,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Time of a token by ``engine`` over that by ``other``, measured in turn.

    Args:
        engine: warmed up.
        other: warmed up.
        tokens: length of the rows; both engines must have positions for it.
    """
    ids = np.ones((_ROWS, tokens), dtype=np.int64)
    taken: dict[Engine, list[float]] = {engine: [], other: []}
    for _ in range(_ROUNDS):
        for one, times in taken.items():
            began = clock()
            one.run(ids, np.ones_like(ids))
            times.append(clock() - began)
    found = statistics.median(taken[engine]) / max(statistics.median(taken[other]), 1e-9)
    return float(np.clip(found, 1 / _MOST, _MOST))
