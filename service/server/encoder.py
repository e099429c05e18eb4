"""A served bundle: how it runs, its caches, and its engine once it is loaded."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from docsplit.bundles.format import Bundle
from docsplit.bundles.manifest import Contents, Manifest
from docsplit.engines.build import buckets, build
from docsplit.engines.choice import Arithmetic, Choice, Processor, choose
from docsplit.engines.interface import Engine, EngineError, warm_up
from docsplit.engines.onnx import reserve
from docsplit.windowing.tokens import DocumentTokenizer
from docsplit.windowing.windows import Weighing
from service import executors, memory
from service.embedding.background import BackgroundEmbedder
from service.embedding.batching.batcher import Batcher
from service.embedding.batching.shares import Shares
from service.embedding.cache.codec import Codec
from service.embedding.cache.layers import Cache, ProcessCache, Tenants
from service.embedding.calibration import LEAST_CORES, Calibration, calibrate, splits
from service.embedding.embedder import CachedVectors, Embedder
from service.embedding.prompts import resolve
from service.metrics import Metrics
from service.settings import Settings

if TYPE_CHECKING:
    from service.embedding.cache.shared import SharedCache
    from service.embedding.reranker import Reranker
    from service.server.reranking import Reranking

log = structlog.get_logger("docsplit")

# Memory of an engine, and of a further one of one stream, in sizes of the graph's files. OpenVINO
# took 3.9 to 4.7 in bf16 and float32 and 3.9 to 7.1 in int8 (graphs of 23 to 208 MB), and 2.8 more.
_ENGINE, _SINGLE_STREAM = 4, 3
_MOST_TOKENISING = 8


@dataclass(frozen=True, slots=True)
class Running:
    """The parts that exist once the engine runs.

    Attributes:
        vectors: with the cache.
        fresh: without a cache.
        background: for trainings, whose documents often come again.
        reembedder: for indexes of other bundles; no cache, because each document comes once.
        reranker: ranks for /rerank; None if the settings name none, or another encoder runs it.
    """

    engine: Engine
    batcher: Batcher
    vectors: CachedVectors
    fresh: CachedVectors
    embedder: Embedder
    background: BackgroundEmbedder
    reembedder: BackgroundEmbedder
    reranker: Reranker | None


@dataclass(eq=False)
class Encoder:
    """A bundle under the name that requests and indexes know it by.

    Attributes:
        cache_bytes: memory for cached vectors of windows.
        shares: of the cores; ``weight`` is the bundle's.
        reranking: a re-ranker to run in one queue with this encoder.
        default: whether it serves requests that name no bundle. Only its start measures the
            fastest threads, streams and batch size: later, others compute at the same time.

    Raises:
        ChoiceError: no engine can meet the settings on this machine.
        ValueError: a prompt of the bundle leaves no room for text in a window.
    """

    name: str
    bundle: Bundle
    settings: Settings
    processor: Processor
    metrics: Metrics
    tenants: Tenants
    cache_bytes: int
    shares: Shares
    weight: float = 1.0
    reranking: Reranking | None = None
    default: bool = True
    choice: Choice = field(init=False)
    tokenizer: DocumentTokenizer = field(init=False)
    cache: Cache = field(init=False)
    calibration: Calibration | None = None
    running: Running | None = None
    failed: bool = False

    def __post_init__(self) -> None:
        settings, manifest = self.settings, self.manifest
        self.choice = choose(
            settings.engine, settings.precision, self.processor, set(manifest.precisions)
        )
        self.tokenizer = DocumentTokenizer(
            self.bundle.path("tokenizer.json"), manifest.max_tokens, settings.language
        )
        for prompt in manifest.prompts:
            if self.tokenizer.count(resolve(manifest, prompt)) >= self.tokenizer.capacity:
                raise ValueError(f"prompt {prompt!r} leaves no room for text in a window")
        self.cache = Cache(ProcessCache(self.cache_bytes))
        self.metrics.models.watch(
            self.name,
            memory_bytes=self.memory_bytes,
            loaded=lambda: self.running is not None,
            queue_tokens=lambda: self.queued_tokens,
        )

    @property
    def manifest(self) -> Manifest:
        """The content of its ``bundle.json``."""
        return self.bundle.manifest

    @property
    def revision(self) -> str:
        """The revision of its bundle."""
        return self.bundle.manifest.revision

    @property
    def threads(self) -> int:
        """CPU cores to compute on."""
        return self.settings.threads or self.processor.cores

    @property
    def memory_bytes(self) -> int:
        """Estimate of the memory that the bundle takes once it is loaded, from its files' size."""
        graph = self.manifest.precisions.get(self.choice.graph)
        if graph is None:
            return 0
        stem = graph.file.rpartition(".")[0]
        files = self.manifest.files.items()
        size = sum(entry.bytes for name, entry in files if name.startswith(f"{stem}."))
        return size * (_ENGINE + _SINGLE_STREAM * self._chooses_streams)

    @property
    def queued_tokens(self) -> int:
        """Tokens that wait for the engine."""
        return 0 if self.running is None else self.running.batcher.queued_tokens

    @property
    def queue_age(self) -> float:
        """Seconds that the oldest waiting request has waited."""
        return 0.0 if self.running is None else self.running.batcher.queue_age

    @property
    def tokens_per_second(self) -> float:
        """Measured rate of the busy engine; 0 before the first batch."""
        return 0.0 if self.running is None else self.running.batcher.tokens_per_second

    @property
    def degraded(self) -> bool:
        """Whether Redis is configured but does not answer: answers are slower, never wrong."""
        return self.cache.shared is not None and not self.cache.shared.healthy

    @property
    def wedged(self) -> bool:
        """Whether a batch takes longer than ``engine_timeout`` seconds."""
        running, most = self.running, self.settings.engine_timeout
        return running is not None and running.batcher.longest_batch > most

    @property
    def _on_cpu(self) -> bool:
        return self.choice.engine != "onnx-cuda"

    @property
    def _tokenising_threads(self) -> int:
        """A CPU engine needs the cores itself; a GPU waits for tokens."""
        if self._on_cpu:
            return 2
        return min(_MOST_TOKENISING, max(2, self.threads // 2))

    @property
    def _chooses_streams(self) -> bool:
        return self._on_cpu and not self.settings.streams and self.threads > 1

    @property
    def summary(self) -> dict[str, Any]:
        """The running engine and the bundle, for the log."""
        found: dict[str, Any] = {}
        if self.running is not None:
            engine = self.running.engine
            found = {
                "engine": engine.name,
                "precision": engine.arithmetic,
                "device": engine.device,
                "streams": engine.streams,
            }
        return found | {
            "reason": self.choice.reason,
            "processor": self.processor.summary,
            "model": self.name,
            "revision": self.revision[:12],
        }

    async def start(self) -> Running:
        """Connect the shared cache; compile and warm up the engine in a thread.

        Raises:
            Exception: the engine does not start; the errors of the runtimes share no base.
        """
        if self.settings.redis_url is not None and self.cache.shared is None:
            self.cache.shared = shared_cache(
                self.settings,
                self.manifest,
                self.choice.arithmetic,
                lambda kind: self.metrics.cache_errors.labels(kind).inc(),
            )
        try:
            running = await executors.START.run(self._build)
        except Exception as error:
            self.failed = True
            reason, kind = str(error)[:500], type(error).__name__
            log.error("engine_unusable", model=self.name, reason=reason, kind=kind)
            raise
        self.running = running
        warn_of_misses(self.manifest)
        return running

    async def speed_up(self) -> None:
        """Add an engine with all cores, for a batch that runs by itself."""
        running = self.running
        if running is not None and self._chooses_streams and running.engine.streams > 1:
            running.batcher.model.single_stream = await executors.START.run(self._single_stream)

    async def close(self) -> None:
        """Let running batches end, and stop the threads."""
        if self.running is not None:
            self.running.embedder.close()
            self.running.reembedder.close()
            await executors.START.run(self.running.batcher.close)
            self.running = None
        if self.cache.shared is not None:
            await self.cache.shared.close()

    def _single_stream(self) -> Engine | None:
        try:
            engine = build(self.choice, self.bundle, self.threads, 1)
            warm_up(engine, self.manifest)
        except EngineError as error:
            log.warning("single_stream_unusable", model=self.name, reason=str(error))
            return None
        memory.trim()
        return engine

    def _build(self) -> Running:
        settings, manifest = self.settings, self.manifest
        started = time.monotonic()
        engine = build(self.choice, self.bundle, self.threads, settings.streams or self.threads)
        build_seconds = time.monotonic() - started
        warm_up(engine, manifest)
        enough = self.threads >= LEAST_CORES or not self._on_cpu
        if settings.calibrate and self.default and enough:
            engine = self._calibrated(engine, build_seconds)
        batch_tokens = settings.batch_tokens or engine.batch_tokens
        if not self._on_cpu:
            reserve(engine, buckets(self.bundle), batch_tokens)
        memory.trim()
        batcher = Batcher(
            engine,
            batch_tokens=batch_tokens,
            queue_tokens=settings.queue_tokens,
            age_limit=settings.queue_age_limit,
            pad_token_id=manifest.pad_token_id,
            report=partial(self.metrics.batch, model=self.name),
            shares=self.shares,
            weight=self.weight,
        )
        vectors = CachedVectors(self.cache, batcher, self.tenants)
        fresh = CachedVectors(Cache(ProcessCache(0)), batcher)
        prompt = resolve(manifest, None)
        weighing = Weighing(manifest.window_weights.unit, manifest.window_weights.first)
        embedder = Embedder(
            self.tokenizer,
            vectors,
            settings.max_document_tokens,
            workers=self._tokenising_threads,
            weighing=weighing,
        )
        # a stored document stays, even if the limit is lower now
        unlimited = Embedder(
            self.tokenizer,
            fresh,
            max_document_tokens=2**63,
            workers=1,
            weighing=weighing,
        )
        embedded = partial(self.metrics.embedded, model=self.name)
        background = BackgroundEmbedder(embedder, prompt, embedded)
        reembedder = BackgroundEmbedder(unlimited, prompt)
        threads = self.calibration.threads if self.calibration else self.threads
        reranker = None
        if self.reranking is not None:
            reranker = self.reranking.build(
                engine, manifest.max_tokens, batcher, threads, embedder.tokenising, self.metrics
            )
        facts = {
            "engine": engine.name,
            "precision": engine.arithmetic,
            "device": engine.device,
            "revision": self.revision,
        }
        self.metrics.models.engine(self.name, facts)
        if self.default:
            self.metrics.engine.info(facts | {"model": self.name})
        return Running(engine, batcher, vectors, fresh, embedder, background, reembedder, reranker)

    def _calibrated(self, engine: Engine, build_seconds: float) -> Engine:
        settings = self.settings
        found = calibrate(
            engine,
            lambda threads, streams: build(self.choice, self.bundle, threads, streams),
            threads=self.threads,
            others=splits(settings.threads, settings.streams, self.threads) if self._on_cpu else (),
            batch_tokens=settings.batch_tokens,
            build_seconds=build_seconds,
            vocabulary=self.tokenizer.vocabulary,
            limit=settings.calibrate,
        )
        found.engine.batch_tokens = found.batch_tokens
        log.info(
            "calibrated",
            threads=found.threads,
            streams=found.engine.streams,
            batch_tokens=found.batch_tokens,
            reason=found.reason,
            seconds=found.seconds,
            measured=[asdict(measurement) for measurement in found.measured],
        )
        self.calibration = found
        return found.engine


def warn_of_misses(manifest: Contents[Any]) -> None:
    """Log the thresholds that the graphs of a bundle miss."""
    for name, precision in manifest.precisions.items():
        if missed := precision.accepted:
            log.warning("thresholds_missed", model=manifest.name, precision=name, accepted=missed)


def shared_cache(
    settings: Settings,
    manifest: Manifest,
    arithmetic: Arithmetic,
    on_error: Callable[[str], None],
) -> SharedCache | None:
    """The cache in Redis; None if the settings name none.

    Args:
        arithmetic: of the engine: its vectors stay apart from those of others.
        on_error: called with the kind of each error.
    """
    if settings.redis_url is None:
        return None
    # the client of Redis takes a while to import
    from service.embedding.cache.shared import SharedCache

    secret = settings.cache_secret
    codec = Codec(manifest.dimensions, None if secret is None else secret.get_secret_value())
    if not codec.signed:
        log.warning(
            "cache_not_authenticated",
            reason="anyone who can write to Redis can put wrong vectors into answers; set "
            "cache_secret. Until then, upserts and trainings do not use Redis",
        )
    return SharedCache(
        settings.redis_url.get_secret_value(),
        prefix=f"docsplit:{codec.label}:{manifest.revision[:32]}:{arithmetic}:",
        codec=codec,
        ttl=settings.redis_ttl,
        timeout=settings.redis_timeout,
        on_error=on_error,
    )
