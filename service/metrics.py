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
from service.model_metrics import ModelMetrics

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
# the source of windows in a repeated answer
ANSWER = "answer"


class Metrics:
    """The metrics of one process, in their own registry."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.requests = Counter(
            "docsplit_requests_total",
            "Requests answered, by route, method and status (499: the client left first)",
            ("route", "method", "status"),
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "docsplit_request_seconds",
            "Time from the request's head to the end of the answer",
            ("route", "method"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.stage_seconds = Histogram(
            "docsplit_stage_seconds",
            "Time an inference request spent in each stage",
            ("stage",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.documents = Counter(
            "docsplit_documents_total", "Documents embedded", registry=self.registry
        )
        self.windows = Counter(
            "docsplit_windows_total",
            "Windows of embedded documents, by where their vectors came from",
            ("source",),
            registry=self.registry,
        )
        for source in (*Source, ANSWER):
            self.windows.labels(source)
        self.tokens = Counter(
            "docsplit_tokens_total", "Tokens run through the engine", registry=self.registry
        )
        self.padded_tokens = Counter(
            "docsplit_padded_tokens_total",
            "Tokens run through the engine, padding included",
            registry=self.registry,
        )
        self.padding_waste = Gauge(
            "docsplit_padding_waste_ratio",
            "Share of padding in all tokens computed so far",
            registry=self.registry,
        )
        self.batch_windows = Histogram(
            "docsplit_batch_windows",
            "Windows per batch",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
            registry=self.registry,
        )
        self.batch_seconds = Histogram(
            "docsplit_batch_seconds",
            "Time the engine took for a batch",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.queue_tokens = Gauge(
            "docsplit_queue_tokens", "Tokens waiting for the engine", registry=self.registry
        )
        self.queue_age = Gauge(
            "docsplit_queue_age_seconds",
            "How long the oldest waiting request has waited",
            registry=self.registry,
        )
        self.reranker = Info(
            "docsplit_reranker",
            "Engine, precision, model and revision of the re-ranker; absent without one",
            registry=self.registry,
        )
        self.reranker_texts = Counter(
            "docsplit_reranker_texts_total",
            "Texts that the re-ranker scored",
            registry=self.registry,
        )
        self.reranker_windows = Counter(
            "docsplit_reranker_windows_total", "Windows of these texts", registry=self.registry
        )
        self.reranker_tokens = Counter(
            "docsplit_reranker_tokens_total",
            "Tokens run through the re-ranker, with the repeated query",
            registry=self.registry,
        )
        self.reranker_padded_tokens = Counter(
            "docsplit_reranker_padded_tokens_total",
            "Tokens run through the re-ranker, padding included",
            registry=self.registry,
        )
        self.reranker_batch_seconds = Histogram(
            "docsplit_reranker_batch_seconds",
            "Time the re-ranker took for a batch",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.tokens_per_second = Gauge(
            "docsplit_tokens_per_second",
            "Measured tokens per second that the engine computes while it is busy",
            registry=self.registry,
        )
        self.inflight_bytes = Gauge(
            "docsplit_inflight_bytes", "Memory reserved for requests", registry=self.registry
        )
        self.cache_bytes = Gauge(
            "docsplit_cache_bytes", "Memory of cached vectors and answers", registry=self.registry
        )
        self.index_cache_bytes = Gauge(
            "docsplit_index_cache_bytes", "Memory of indexes' caches", registry=self.registry
        )
        self.cache_up = Gauge(
            "docsplit_cache_up",
            "1 while the configured external cache answers, 0 while the service does not use it",
            ("layer",),
            registry=self.registry,
        )
        self.cache_errors = Counter(
            "docsplit_cache_errors_total",
            "Failed calls to Redis, damaged or forged values, and dropped writes",
            ("kind",),
            registry=self.registry,
        )
        self.index_commits = Counter(
            "docsplit_index_commits_total", "Commits to indexes", registry=self.registry
        )
        self.index_documents = Counter(
            "docsplit_index_documents_total",
            "Documents written and deleted by commits",
            registry=self.registry,
        )
        self.index_damaged = Counter(
            "docsplit_index_damaged_total",
            "Damaged rows that the service found when it read indexes, and did not return",
            registry=self.registry,
        )
        self.index_search_seconds = Histogram(
            "docsplit_index_search_seconds",
            "Time of a search in an index, without embedding",
            ("mode",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.index_profiles = Counter(
            "docsplit_index_profiles_total",
            "Profiles fitted to indexes, by whether searches use them",
            ("outcome",),
            registry=self.registry,
        )
        for outcome in ("adapted", "raw"):
            self.index_profiles.labels(outcome)
        self.index_reembed_documents = Gauge(
            "docsplit_index_reembed_documents",
            "Documents that the service must still re-embed for the served bundle, in all indexes",
            registry=self.registry,
        )
        self.store_up = Gauge(
            "docsplit_store_up",
            "1 while the store at index_path is the original one, 0 while it is gone",
            registry=self.registry,
        )
        self.store_errors = Counter(
            "docsplit_store_errors_total",
            "Requests that failed because of the store, by reason",
            ("reason",),
            registry=self.registry,
        )
        # an alert sees a counter grow; it does not see a counter appear
        for reason in (*ERRNOS, *OBJECT_STORE, "damaged", "gone", "sync", "torn", "unusable"):
            self.store_errors.labels(reason)
        self.store_versions_removed = Counter(
            "docsplit_store_versions_removed_total",
            "Versions of tables that the service moved aside because they were torn",
            registry=self.registry,
        )
        self.training_jobs = Counter(
            "docsplit_training_jobs_total",
            "Trainings of classifiers in the background, by how they ended",
            ("outcome",),
            registry=self.registry,
        )
        # alerts compare with the former value: a count that begins at 1 never rises
        for outcome in ("done", "failed", "cancelled", "lost"):
            self.training_jobs.labels(outcome)
        self.jobs = Counter(
            "docsplit_jobs_total",
            "Jobs that ended, by kind and state",
            ("kind", "state"),
            registry=self.registry,
        )
        for job in product(("files", "map"), ("succeeded", "failed", "cancelled")):
            self.jobs.labels(*job)
        self.files_refused = Counter(
            "docsplit_files_refused_total",
            "Files of uploads, files in archives and documents that jobs refused, by reason",
            ("reason",),
            registry=self.registry,
        )
        for reason in ("kind", "unreadable", "invalid", "duplicate", "engine"):
            self.files_refused.labels(reason)
        self.upload_bytes = Gauge(
            "docsplit_upload_bytes",
            "Disk space of uploaded files that jobs have not read yet",
            registry=self.registry,
        )
        self.line_streams = Gauge(
            "docsplit_line_streams", "Requests by lines in progress", registry=self.registry
        )
        self.lines = Counter(
            "docsplit_lines_total",
            "Lines of requests by lines that were answered, by result",
            ("result",),
            registry=self.registry,
        )
        for result in ("embedded", "refused"):
            self.lines.labels(result)
        self.connections = Gauge(
            "docsplit_connections", "Open connections of clients", registry=self.registry
        )
        self.connections_closed = Counter(
            "docsplit_connections_closed_total",
            "Connections that the service closed early, by reason",
            ("reason",),
            registry=self.registry,
        )
        self.keys_refused = Counter(
            "docsplit_keys_refused_total",
            "Requests refused because of their API key, by reason",
            ("reason",),
            registry=self.registry,
        )
        self.keys_stale = Gauge(
            "docsplit_keys_stale",
            "Above 0 while the file of keys is unusable and the former keys still count",
            registry=self.registry,
        )
        self.threads_busy = Gauge(
            "docsplit_threads_busy",
            "Busy threads, by kind of work",
            ("pool",),
            registry=self.registry,
        )
        for pool in executors.NAMES:
            self.threads_busy.labels(pool).set_function(partial(Pool.busy_threads, pool))
        self.ready = Gauge("docsplit_ready", "1 when /readyz answers 200", registry=self.registry)
        self.engine = Info(
            "docsplit_engine", "Engine, precision, model and revision", registry=self.registry
        )
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
        self.reranker_windows.inc(sum(len(document.windows) for document in result.documents))
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
        sources = [window.source for document in result.documents for window in document.windows]
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
