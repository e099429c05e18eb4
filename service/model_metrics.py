"""Metrics of each served bundle; docs/reference/metrics.md explains each."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Info

from service.embedding.batching.queue import BatchReport

_MODEL = ("model",)


class ModelMetrics:
    """Metrics with the name of a bundle as the label ``model``.

    Args:
        registry: of the process.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.documents = Counter(
            "docsplit_model_documents_total",
            "Documents embedded by this bundle",
            _MODEL,
            registry=registry,
        )
        self._tokens = Counter(
            "docsplit_model_tokens_total",
            "Tokens run through the engine of this bundle",
            _MODEL,
            registry=registry,
        )
        self._busy = Counter(
            "docsplit_model_busy_seconds_total",
            "Time of all batches of this bundle, those of parallel streams added up",
            _MODEL,
            registry=registry,
        )
        self._queue_tokens = Gauge(
            "docsplit_model_queue_tokens",
            "Tokens waiting for the engine of this bundle",
            _MODEL,
            registry=registry,
        )
        self._loaded = Gauge(
            "docsplit_model_loaded",
            "1 while the engine of this bundle is in memory",
            _MODEL,
            registry=registry,
        )
        self._memory_bytes = Gauge(
            "docsplit_model_memory_bytes",
            "Estimate of the memory that this bundle takes once it is loaded",
            _MODEL,
            registry=registry,
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
