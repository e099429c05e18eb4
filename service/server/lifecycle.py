"""The state of one process, from start to drain."""

from __future__ import annotations

import enum
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import structlog
from prometheus_client import generate_latest

from bundles.format import Bundle, RerankerBundle
from bundles.manifest import Contents
from service import executors
from service.embedding.background import BackgroundEmbedder
from service.embedding.batching.batcher import Batcher
from service.embedding.cache.answers import Answers
from service.embedding.cache.layers import Cache
from service.embedding.cache.process import ProcessCache
from service.embedding.cache.tenants import Tenants
from service.embedding.embedder import Embedder
from service.embedding.engines.buckets import reserve
from service.embedding.engines.calibration import Calibration, calibrate, splits
from service.embedding.engines.choose import Choice, buckets, build, choose
from service.embedding.engines.interface import Engine, EngineError
from service.embedding.engines.processor import Processor, detect
from service.embedding.engines.warm_up import warm_up
from service.embedding.lookup import CachedVectors
from service.embedding.prompts import resolve
from service.embedding.reranker import Reranker
from service.index.store import Store
from service.jobs.runner import Runner
from service.keys.ring import Keyring
from service.learning.background import Background
from service.learning.stored import HeadStore
from service.mapping.background import Mapping
from service.metrics import Metrics
from service.server.edge.clients import by_token
from service.server.reranking import Reranking
from service.server.scrape import Scrape
from service.server.shared_cache import shared_cache
from service.server.tracing import tracing
from service.settings import Settings
from service.uploads.background import Uploads
from windowing.tokens import DocumentTokenizer

if TYPE_CHECKING:
    from service.tracing.exporter import Tracing

log = structlog.get_logger("docsplit")


class Phase(enum.StrEnum):
    """The phase of a process; only READY serves inference and answers 200 on /readyz."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Running:
    """The parts that exist once the engine runs.

    Attributes:
        vectors: with the cache.
        fresh: without a cache.
        background: for trainings, whose documents often come again.
        reembedder: for indexes of other bundles; no cache, because each document comes once.
        reranker: ranks for /rerank; None if the settings name none.
    """

    engine: Engine
    batcher: Batcher
    vectors: CachedVectors
    fresh: CachedVectors
    embedder: Embedder
    background: BackgroundEmbedder
    reembedder: BackgroundEmbedder
    reranker: Reranker | None


@dataclass
class Service:
    """A bundle, its settings and its phase.

    Raises:
        EngineError: no engine can meet the settings on this machine.
        ValueError: the bundle's prompts do not fit its windows, tracing is not installed, or the
            file of keys is unusable.
    """

    settings: Settings
    bundle: Bundle
    reranker_bundle: RerankerBundle | None = None
    metrics: Metrics = field(default_factory=Metrics)
    processor: Processor = field(default_factory=detect)
    phase: Phase = Phase.STARTING
    started: float = field(default_factory=time.monotonic)
    choice: Choice = field(init=False)
    reranking: Reranking | None = field(init=False, default=None)
    tokenizer: DocumentTokenizer = field(init=False)
    cache: Cache = field(init=False)
    answers: Answers = field(init=False)
    tenants: Tenants = field(init=False)
    store: Store = field(init=False)
    heads: HeadStore = field(init=False)
    background: Background = field(init=False)
    jobs: Runner = field(init=False)
    uploads: Uploads = field(init=False)
    mapping: Mapping = field(init=False)
    tracing: Tracing | None = field(init=False)
    keys: Keyring = field(init=False)
    calibration: Calibration | None = None
    running: Running | None = None
    workers: Scrape | None = None

    def __post_init__(self) -> None:
        manifest = self.bundle.manifest
        self.choice = choose(
            self.settings.engine,
            self.settings.precision,
            self.processor,
            set(manifest.precisions),
        )
        self.tokenizer = DocumentTokenizer(
            self.bundle.path("tokenizer.json"), manifest.max_tokens, self.settings.language
        )
        if self.reranker_bundle is not None:
            self.reranking = Reranking(self.reranker_bundle, self.settings, self.processor)
        for_answers = self.settings.cache_bytes // 4
        self.answers = Answers(for_answers)
        self.cache = Cache(ProcessCache(self.settings.cache_bytes - for_answers))
        self.tenants = Tenants(
            separate=self.settings.caches_are_separate, aliases=by_token(self.settings.api_keys)
        )
        self.store = Store(
            self.settings.index_path,
            self.bundle,
            self.metrics,
            self.settings.durability,
            self.settings.index_cache_bytes,
        )
        self.metrics.store_up.set(1)
        self.heads = HeadStore(self.store, self.bundle)
        self.background = Background(self.heads, manifest, self.metrics)
        self.jobs = Runner(self.store, self.metrics)
        disk_bytes = self.settings.max_upload_disk_bytes
        self.uploads = Uploads(self.store, self.jobs, disk_bytes, self.metrics)
        self.mapping = Mapping(self.store, self.jobs)
        for name in manifest.prompts:
            if self.tokenizer.count(resolve(manifest, name)) >= self.tokenizer.capacity:
                raise ValueError(f"prompt {name!r} leaves no room for text in a window")
        self.tracing = tracing(self.settings, self.bundle, self.choice)
        self.keys = Keyring(self.settings.api_keys, self.settings.keys_file)
        self.metrics.keys_stale.set_function(lambda: self.keys.stale)

    @property
    def degraded(self) -> bool:
        """Whether Redis is configured but does not answer: answers are slower, never wrong."""
        return self.cache.shared is not None and not self.cache.shared.healthy

    @property
    def threads(self) -> int:
        """CPU cores to compute on."""
        return self.settings.threads or self.processor.cores

    @property
    def _on_cpu(self) -> bool:
        return self.choice.engine != "onnx-cuda"

    async def start(self) -> None:
        """Connect the shared cache, compile and warm up the engine in a thread, then get ready."""
        if self.settings.redis_url is not None:
            self.cache.shared = shared_cache(
                self.settings,
                self.bundle.manifest,
                self.choice.arithmetic,
                lambda kind: self.metrics.cache_errors.labels(kind).inc(),
            )
            self.metrics.cache_up.labels("redis").set_function(lambda: not self.degraded)
        try:
            self.running = await executors.START.run(self._build)
        except Exception as error:  # noqa: BLE001 errors of the runtimes share no base
            self.phase = Phase.FAILED
            log.error("engine_unusable", reason=str(error)[:500], kind=type(error).__name__)
            return
        if self.phase is Phase.STARTING:
            self.phase = Phase.READY
            self.metrics.ready.set(1)
        engine = self.running.engine
        log.info(
            "ready",
            engine=engine.name,
            precision=engine.arithmetic,
            device=engine.device,
            streams=engine.streams,
            reason=self.choice.reason,
            processor=self.processor.summary,
            model=self.bundle.manifest.name,
            revision=self.bundle.manifest.revision[:12],
            seconds=round(time.monotonic() - self.started, 2),
        )
        self._warn_of_misses(self.bundle.manifest)
        if self.reranker_bundle is not None:
            self._warn_of_misses(self.reranker_bundle.manifest)
        streams_chosen_here = self._on_cpu and not self.settings.streams
        if streams_chosen_here and engine.streams > 1:
            # the service is ready before this: it only speeds up a batch that runs by itself
            single = await executors.START.run(self._single_stream)
            self.running.batcher.model.single_stream = single

    def _warn_of_misses(self, manifest: Contents[Any]) -> None:
        for name, precision in manifest.precisions.items():
            if missed := precision.accepted:
                model = manifest.name
                log.warning("thresholds_missed", model=model, precision=name, accepted=missed)

    def _single_stream(self) -> Engine | None:
        """An engine of one stream that has all cores."""
        try:
            engine = build(self.choice, self.bundle, self.threads, 1)
            warm_up(engine, self.bundle.manifest)
        except EngineError as error:
            log.warning("lone_engine_unusable", reason=str(error))
            return None
        return engine

    def follow(self) -> None:
        """Once the engine runs, re-embed indexes of other bundles and take over lost trainings."""
        if self.running is not None:
            self.store.follow(self.running.reembedder)
            self.background.follow(self.running.background)

    def _build(self) -> Running:
        manifest = self.bundle.manifest
        streams = self.settings.streams or self.threads
        started = time.monotonic()
        engine = build(self.choice, self.bundle, self.threads, streams)
        build_seconds = time.monotonic() - started
        warm_up(engine, self.bundle.manifest)
        if self.settings.calibrate:
            engine = self._calibrated(engine, build_seconds)
        batch_tokens = self.settings.batch_tokens or engine.batch_tokens
        if not self._on_cpu:
            reserve(engine, buckets(self.bundle), batch_tokens)
        batcher = Batcher(
            engine,
            batch_tokens=batch_tokens,
            queue_tokens=self.settings.queue_tokens,
            age_limit=self.settings.queue_age_limit,
            pad_token_id=manifest.pad_token_id,
            report=self.metrics.batch,
        )
        vectors = CachedVectors(self.cache, batcher, self.tenants)
        fresh = CachedVectors(Cache(ProcessCache(0)), batcher)
        self.metrics.watch(
            queue_tokens=lambda: batcher.queued_tokens,
            queue_age=lambda: batcher.queue_age,
            cache_bytes=lambda: self.cache.process.held_bytes + self.answers.held_bytes,
            tokens_per_second=lambda: batcher.tokens_per_second,
        )
        self.metrics.engine.info(
            {
                "engine": engine.name,
                "precision": engine.arithmetic,
                "device": engine.device,
                "model": manifest.name,
                "revision": manifest.revision,
            }
        )
        prompt = resolve(manifest, None)
        embedder = Embedder(self.tokenizer, vectors, self.settings.max_document_tokens)
        # a stored document stays, even if the limit is lower now
        unlimited = Embedder(self.tokenizer, fresh, max_document_tokens=2**63, workers=1)
        background = BackgroundEmbedder(embedder, prompt, self.metrics.embedded)
        reembedder = BackgroundEmbedder(unlimited, prompt)
        threads = self.calibration.threads if self.calibration else self.threads
        reranker = None
        if self.reranking is not None:
            reranker = self.reranking.build(
                engine, manifest.max_tokens, batcher, threads, embedder.tokenising, self.metrics
            )
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

    def check_engine(self) -> None:
        """Mark the engine as failed if a batch takes longer than ``engine_timeout`` seconds."""
        if self.running is None or self.phase is Phase.FAILED:
            return
        if self.running.batcher.longest_batch > self.settings.engine_timeout:
            self.phase = Phase.FAILED
            self.metrics.ready.set(0)
            log.error("engine_wedged", seconds=self.settings.engine_timeout)

    async def scrape(self) -> bytes:
        """The metrics of all workers in Prometheus' text format."""
        if self.workers is not None:
            return await self.workers.all()
        return generate_latest(self.metrics.registry)

    def drain(self) -> None:
        """Turn /readyz to 503 and go on answering requests."""
        if self.phase is not Phase.FAILED:
            self.phase = Phase.DRAINING
        self.metrics.ready.set(0)

    async def stop(self) -> None:
        """End jobs, leave trainings to others, let commits and batches end, stop the threads."""
        await self.jobs.close()
        await self.uploads.close()
        await self.background.close()
        await self.store.close()
        if self.running is not None:
            self.running.embedder.close()
            self.running.reembedder.close()
            await executors.START.run(self.running.batcher.close)
            self.running = None
        if self.cache.shared is not None:
            await self.cache.shared.close()
        if self.tracing is not None:
            await executors.START.run(self.tracing.close)
        if self.workers is not None:
            await self.workers.close()
