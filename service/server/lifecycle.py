"""The state of one process, from start to drain."""

from __future__ import annotations

import enum
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog
from prometheus_client import generate_latest

from docsplit.engines.choice import Processor, detect
from service import executors
from service.embedding.cache.answers import Answers
from service.embedding.cache.codec import Fault
from service.embedding.cache.layers import Tenants
from service.errors import ConflictError
from service.index.store import Store
from service.jobs.runner import Runner
from service.keys.ring import Keyring
from service.learning.trainings import HeadStore, Trainings
from service.metrics import Metrics
from service.server.edge.rights import by_token
from service.server.encoder import Running, warn_of_misses
from service.server.encoders import Bundles, Encoders
from service.server.reranking import Reranking
from service.server.workers import Scrape
from service.settings import Settings
from service.tracing import tracing

if TYPE_CHECKING:
    from service.features import Feature
    from service.tracing.exporter import Tracing

log = structlog.get_logger("docsplit")

# between two checks of the engine: longer, and the process was stopped or its host suspended
PAUSE_SECONDS = 1.0


class Phase(enum.StrEnum):
    """The phase of a process; only READY serves inference and answers 200 on /readyz."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass
class Service:
    """Bundles, their settings and their phase.

    Raises:
        ChoiceError: no engine can meet the settings on this machine.
        ValueError: the prompts of a bundle do not fit its windows, a bundle does not fit into the
            memory for bundles, tracing is not installed, or the file of keys is unusable.
    """

    settings: Settings
    bundles: Bundles
    metrics: Metrics = field(default_factory=Metrics)
    processor: Processor = field(default_factory=detect)
    phase: Phase = Phase.STARTING
    started: float = field(default_factory=time.monotonic)
    encoders: Encoders = field(init=False)
    answers: Answers = field(init=False)
    tenants: Tenants = field(init=False)
    store: Store = field(init=False)
    heads: HeadStore = field(init=False)
    jobs: Runner = field(init=False)
    trainings: Trainings = field(init=False)
    tracing: Tracing | None = field(init=False)
    keys: Keyring = field(init=False)
    workers: Scrape | None = None
    # whether work was cancelled when the service stopped
    cut_off: bool = False
    features: dict[str, Feature] = field(default_factory=dict)
    # times of the clock of ``started``
    _checked: float = field(init=False, default=math.inf)
    _excused: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        settings = self.settings
        self.tenants = Tenants(
            separate=settings.caches_are_separate, aliases=by_token(settings.api_keys)
        )
        for_answers = settings.cache_bytes // 4
        self.answers = Answers(for_answers)
        self.encoders = Encoders(
            self.bundles,
            settings,
            self.processor,
            self.metrics,
            self.tenants,
            settings.cache_bytes - for_answers,
        )
        self.metrics.watch(
            queue_tokens=lambda: sum(encoder.queued_tokens for encoder in self.encoders),
            queue_age=lambda: max(encoder.queue_age for encoder in self.encoders),
            cache_bytes=lambda: (
                sum(encoder.cache.process.held_bytes for encoder in self.encoders)
                + self.answers.held_bytes
            ),
            tokens_per_second=lambda: self.encoders.default.tokens_per_second,
        )
        encoders = self.bundles.encoders
        self.store = Store(
            settings.index_path,
            {name: bundle.manifest for name, bundle in encoders.items()},
            self.metrics,
            settings.durability,
            settings.index_cache_bytes,
            settings.bucket_timeout,
            settings.erase_within,
            self.bundles.former,
        )
        self.metrics.store_up.set(1)
        self.heads = HeadStore(self.store, list(encoders.values()))
        self.jobs = Runner(self.store)
        self.trainings = Trainings(self.heads, self.jobs, self.encoders, self.metrics)
        default = self.encoders.default
        self.tracing = tracing(
            settings.otlp_endpoint, settings.trace_ratio, default.bundle, default.choice
        )
        self.keys = Keyring(settings.api_keys, settings.keys_file)
        self.metrics.keys_stale.set_function(lambda: self.keys.stale)

    @property
    def reranking(self) -> Reranking | None:
        """The re-ranker; None if the settings name none."""
        return self.encoders.reranking

    @property
    def running(self) -> Running | None:
        """The engine of the default bundle, once it runs."""
        return self.encoders.default.running

    @property
    def ready(self) -> bool:
        """Whether the default engine runs; it may be draining."""
        return self.running is not None and self.phase not in (Phase.STARTING, Phase.FAILED)

    @property
    def ending(self) -> bool:
        """Whether no new work may begin that outlives its request."""
        return self.phase in (Phase.DRAINING, Phase.FAILED)

    @property
    def degraded(self) -> bool:
        """Whether Redis is configured but does not answer: answers are slower, never wrong."""
        return any(encoder.degraded for encoder in self.encoders)

    async def start(self) -> None:
        """Load the default bundle, then get ready."""
        default = self.encoders.default
        if self.settings.redis_url is not None:
            self.metrics.cache_up.labels("redis").set_function(lambda: not self.degraded)
            # an alert sees a counter grow; it does not see a counter appear
            for kind in ("read", "write", "dropped", *Fault):
                self.metrics.cache_errors.labels(kind)
        former = False
        try:
            former = await self.store.needs_former()
        except ConflictError as error:
            log.error("former_bundle_unusable", reason=str(error))
            self.phase = Phase.FAILED
            return
        except Exception as error:  # noqa: BLE001 the store may come back
            log.warning("former_bundle_unchecked", reason=str(error)[:300])
        try:
            await default.start()
            if former:
                await self.encoders.running(list(self.encoders)[-1])
        except Exception:  # noqa: BLE001 it is logged; errors of the runtimes share no base
            self.phase = Phase.FAILED
            return
        if self.phase is Phase.STARTING:
            self.phase = Phase.READY
            self.metrics.ready.set(1)
        seconds = round(time.monotonic() - self.started, 2)
        log.info("ready", **default.summary, seconds=seconds)
        if self.reranking is not None:
            warn_of_misses(self.reranking.bundle.manifest)

    async def speed_up(self) -> None:
        """Add an engine for a batch that runs by itself, as those of single requests do."""
        await self.encoders.default.speed_up()

    def follow(self) -> None:
        """Once the engine runs, re-embed indexes of other bundles and take over lost work."""
        if self.running is not None:
            self.store.follow(self.encoders.reembedder)
            self.jobs.follow()

    def check_engine(self) -> None:
        """Mark the engine as failed if a batch takes longer than ``engine_timeout`` seconds.

        Called ten times a second. After a pause, of the process or its host, a batch has the whole
        time again, because it did not run meanwhile.
        """
        now = time.monotonic()
        if now - self._checked > PAUSE_SECONDS:
            self._excused = now + self.settings.engine_timeout
        self._checked = now
        wedged = now >= self._excused and any(encoder.wedged for encoder in self.encoders)
        if self.phase is not Phase.FAILED and wedged:
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
        """End jobs or leave them to others, let commits and batches end, stop the threads."""
        await self.jobs.close()
        await self.store.close()
        await self.encoders.close()
        if self.tracing is not None:
            await executors.START.run(self.tracing.close)
        if self.workers is not None:
            await self.workers.close()
