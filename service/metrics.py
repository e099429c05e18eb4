"""Prometheus metrics; docs/reference/metrics.md explains each."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from service import executors
from service.embedding.batching.queue import BatchReport
from service.embedding.cache.layers import Source
from service.embedding.embedder import Embedded
from service.errors import ERRNOS, OBJECT_STORE
from service.executors import Pool

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
# the source of windows in a repeated answer
ANSWER = "answer"
_MODEL = ("model",)


class ModelMetrics:
    """Metrics with the name of a bundle as the label ``model``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        self.documents = counter(
            "docsplit_model_documents_total", "Documents embedded by this bundle", _MODEL
        )
        self._tokens = counter(
            "docsplit_model_tokens_total", "Tokens run through the engine of this bundle", _MODEL
        )
        self._busy = counter(
            "docsplit_model_busy_seconds_total",
            "Time of all batches of this bundle, those of parallel streams added up",
            _MODEL,
        )
        self._queue_tokens = gauge(
            "docsplit_model_queue_tokens", "Tokens waiting for the engine of this bundle", _MODEL
        )
        self._loaded = gauge(
            "docsplit_model_loaded", "1 while the engine of this bundle is in memory", _MODEL
        )
        self._memory_bytes = gauge(
            "docsplit_model_memory_bytes",
            "Estimate of the memory that this bundle takes once it is loaded",
            _MODEL,
        )
        self._engine = Info(
            "docsplit_model",
            "Engine, precision, device and revision of a loaded bundle",
            _MODEL,
            registry=registry,
        )

    def watch(
        self,
        model: str,
        *,
        memory_bytes: int,
        loaded: Callable[[], bool],
        queue_tokens: Callable[[], float],
    ) -> None:
        """Read these values of a bundle at every scrape."""
        self._memory_bytes.labels(model).set(memory_bytes)
        self._loaded.labels(model).set_function(loaded)
        self._queue_tokens.labels(model).set_function(queue_tokens)
        for counter in (self.documents, self._tokens, self._busy):
            counter.labels(model)

    def engine(self, model: str, facts: Mapping[str, str]) -> None:
        """Show what a bundle runs on."""
        self._engine.labels(model).info(dict(facts))

    def batch(self, report: BatchReport, model: str) -> None:
        """Count one batch."""
        self._tokens.labels(model).inc(report.tokens)
        self._busy.labels(model).inc(report.seconds)


class Metrics:
    """The metrics of one process, in their own registry."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry, buckets=_SECONDS)
        info = partial(Info, registry=self.registry)
        self.requests = counter(
            "docsplit_requests_total",
            "Requests answered, by route, method and status (499: the client left first)",
            ("route", "method", "status"),
        )
        self.request_seconds = histogram(
            "docsplit_request_seconds",
            "Time from the request's head to the end of the answer",
            ("route", "method"),
        )
        self.stage_seconds = histogram(
            "docsplit_stage_seconds", "Time an inference request spent in each stage", ("stage",)
        )
        self.documents = counter("docsplit_documents_total", "Documents embedded")
        self.windows = counter(
            "docsplit_windows_total",
            "Windows of embedded documents, by where their vectors came from",
            ("source",),
        )
        for source in (*Source, ANSWER):
            self.windows.labels(source)
        self.tokens = counter("docsplit_tokens_total", "Tokens run through the engine")
        self.padded_tokens = counter(
            "docsplit_padded_tokens_total", "Tokens run through the engine, padding included"
        )
        self.padding_waste = gauge(
            "docsplit_padding_waste_ratio", "Share of padding in all tokens computed so far"
        )
        self.batch_windows = histogram(
            "docsplit_batch_windows",
            "Windows per batch",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
        )
        self.batch_seconds = histogram("docsplit_batch_seconds", "Time the engine took for a batch")
        self.queue_tokens = gauge("docsplit_queue_tokens", "Tokens waiting for the engine")
        self.queue_age = gauge(
            "docsplit_queue_age_seconds", "How long the oldest waiting request has waited"
        )
        self.reranker = info(
            "docsplit_reranker",
            "Engine, precision, model and revision of the re-ranker; absent without one",
        )
        self.reranker_texts = counter(
            "docsplit_reranker_texts_total", "Texts that the re-ranker scored"
        )
        self.reranker_windows = counter("docsplit_reranker_windows_total", "Windows of these texts")
        self.reranker_tokens = counter(
            "docsplit_reranker_tokens_total",
            "Tokens run through the re-ranker, with the repeated query",
        )
        self.reranker_padded_tokens = counter(
            "docsplit_reranker_padded_tokens_total",
            "Tokens run through the re-ranker, padding included",
        )
        self.reranker_batch_seconds = histogram(
            "docsplit_reranker_batch_seconds", "Time the re-ranker took for a batch"
        )
        self.tokens_per_second = gauge(
            "docsplit_tokens_per_second",
            "Measured tokens per second that the engine computes while it is busy",
        )
        self.inflight_bytes = gauge("docsplit_inflight_bytes", "Memory reserved for requests")
        self.cache_bytes = gauge("docsplit_cache_bytes", "Memory of cached vectors and answers")
        self.index_cache_bytes = gauge("docsplit_index_cache_bytes", "Memory of indexes' caches")
        self.cache_up = gauge(
            "docsplit_cache_up",
            "1 while the configured external cache answers, 0 while the service does not use it",
            ("layer",),
        )
        self.cache_errors = counter(
            "docsplit_cache_errors_total",
            "Failed calls to Redis, damaged or forged values, and dropped writes",
            ("kind",),
        )
        self.index_commits = counter("docsplit_index_commits_total", "Commits to indexes")
        self.index_documents = counter(
            "docsplit_index_documents_total", "Documents written and deleted by commits"
        )
        self.index_damaged = counter(
            "docsplit_index_damaged_total",
            "Damaged rows that the service found when it read indexes, and did not return",
        )
        self.index_search_seconds = histogram(
            "docsplit_index_search_seconds",
            "Time of a search in an index, without embedding",
            ("mode",),
        )
        self.index_profiles = counter(
            "docsplit_index_profiles_total",
            "Profiles fitted to indexes, by whether searches use them",
            ("outcome",),
        )
        for outcome in ("adapted", "raw"):
            self.index_profiles.labels(outcome)
        self.index_reembed_documents = gauge(
            "docsplit_index_reembed_documents",
            "Documents that the service must still re-embed for the served bundle, in all indexes",
        )
        self.store_up = gauge(
            "docsplit_store_up",
            "1 while the store at index_path is the original one, 0 while it is gone",
        )
        self.store_errors = counter(
            "docsplit_store_errors_total",
            "Requests that failed because of the store, by reason",
            ("reason",),
        )
        # an alert sees a counter grow; it does not see a counter appear
        for reason in (*ERRNOS, *OBJECT_STORE, "damaged", "gone", "sync", "torn", "unusable"):
            self.store_errors.labels(reason)
        self.store_versions_removed = counter(
            "docsplit_store_versions_removed_total",
            "Versions of tables that the service moved aside because they were torn",
        )
        self.training_jobs = counter(
            "docsplit_training_jobs_total",
            "Trainings of classifiers in the background, by how they ended",
            ("outcome",),
        )
        # alerts compare with the former value: a count that begins at 1 never rises
        for outcome in ("done", "failed", "cancelled", "lost"):
            self.training_jobs.labels(outcome)
        self.jobs = counter(
            "docsplit_jobs_total", "Jobs that ended, by kind and state", ("kind", "state")
        )
        for job in product(("files", "map"), ("succeeded", "failed", "cancelled")):
            self.jobs.labels(*job)
        self.files_refused = counter(
            "docsplit_files_refused_total",
            "Files of uploads, files in archives and documents that jobs refused, by reason",
            ("reason",),
        )
        for reason in ("kind", "unreadable", "invalid", "duplicate", "engine"):
            self.files_refused.labels(reason)
        self.upload_bytes = gauge(
            "docsplit_upload_bytes", "Disk space of uploaded files that jobs have not read yet"
        )
        self.line_streams = gauge("docsplit_line_streams", "Requests by lines in progress")
        self.lines = counter(
            "docsplit_lines_total",
            "Lines of requests by lines that were answered, by result",
            ("result",),
        )
        for result in ("embedded", "refused"):
            self.lines.labels(result)
        self.connections = gauge("docsplit_connections", "Open connections of clients")
        self.connections_closed = counter(
            "docsplit_connections_closed_total",
            "Connections that the service closed early, by reason",
            ("reason",),
        )
        self.keys_refused = counter(
            "docsplit_keys_refused_total",
            "Requests refused because of their API key, by reason",
            ("reason",),
        )
        self.keys_stale = gauge(
            "docsplit_keys_stale",
            "Above 0 while the file of keys is unusable and the former keys still count",
        )
        self.threads_busy = gauge(
            "docsplit_threads_busy", "Busy threads, by kind of work", ("pool",)
        )
        for pool in executors.NAMES:
            self.threads_busy.labels(pool).set_function(partial(Pool.busy_threads, pool))
        self.ready = gauge("docsplit_ready", "1 when /readyz answers 200")
        self.engine = info("docsplit_engine", "Engine, precision, model and revision")
        self.models = ModelMetrics(self.registry)
        self._tokens = 0
        self._padded = 0

    def batch(self, report: BatchReport, model: str) -> None:
        """Count one batch of a bundle's engine."""
        self.models.batch(report, model)
        self.tokens.inc(report.tokens)
        self.padded_tokens.inc(report.padded_tokens)
        self._tokens += report.tokens
        self._padded += report.padded_tokens
        self.padding_waste.set(1 - self._tokens / self._padded)
        self.batch_windows.observe(report.windows)
        self.batch_seconds.observe(report.seconds)

    def reranker_batch(self, report: BatchReport) -> None:
        """Count one batch of the re-ranker."""
        self.reranker_tokens.inc(report.tokens)
        self.reranker_padded_tokens.inc(report.padded_tokens)
        self.reranker_batch_seconds.observe(report.seconds)

    def reranked(self, result: Embedded) -> None:
        """Count the texts that the re-ranker scored."""
        self.reranker_texts.inc(len(result.documents))
        self.reranker_windows.inc(len(result.windows))
        timing = result.timing
        for stage, seconds in (
            ("tokenise", timing.tokenising),
            ("queue", timing.queued),
            ("infer", timing.computing),
        ):
            self.stage_seconds.labels(stage).observe(seconds)

    def embedded(self, result: Embedded, model: str) -> None:
        """Count documents embedded by a bundle, and the sources of their windows' vectors."""
        self.documents.inc(len(result.documents))
        self.models.documents.labels(model).inc(len(result.documents))
        sources = [window.source for window in result.windows]
        for source in Source:
            self.windows.labels(source).inc(sources.count(source))
        timing = result.timing
        for stage, seconds in (
            ("tokenise", timing.tokenising),
            ("cache", timing.looking),
            ("queue", timing.queued),
            ("infer", timing.computing),
            ("pool", timing.pooling),
        ):
            self.stage_seconds.labels(stage).observe(seconds)

    def repeated(self, usage: Mapping[str, int]) -> None:
        """Count the documents and windows of a repeated answer."""
        self.documents.inc(usage["documents"])
        self.windows.labels(ANSWER).inc(usage["windows"])

    def watch(
        self,
        *,
        queue_tokens: Callable[[], float],
        queue_age: Callable[[], float],
        cache_bytes: Callable[[], float],
        tokens_per_second: Callable[[], float],
    ) -> None:
        """Read these values at every scrape."""
        self.queue_tokens.set_function(queue_tokens)
        self.queue_age.set_function(queue_age)
        self.cache_bytes.set_function(cache_bytes)
        self.tokens_per_second.set_function(tokens_per_second)
