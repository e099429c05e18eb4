"""Record spans with OpenTelemetry's SDK and send them by OTLP over HTTP; extra ``tracing``."""

import logging
import os
import threading
import time
import uuid
from collections.abc import Mapping

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from service.tracing.stages import Attributes

log = structlog.get_logger("docsplit.tracing")

_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}
_PATH = "/v1/traces"
_EXPORT_SECONDS = 5.0
_FLUSH_SECONDS = 3.0
_COMPLAIN_SECONDS = 60.0


class RecordedSpan:
    """A span of a recorded trace; times are on ``time.monotonic``'s clock.

    Args:
        shift: nanoseconds from ``time.monotonic``'s clock to Unix time. It is constant within a
            trace, so children stay within their parents when the wall clock changes.

    Attributes:
        ended: whether ``end`` was called. Work that outlives its request adds no spans to it.
    """

    __slots__ = ("_shift", "_span", "_tracer", "ended")

    def __init__(self, tracer: Tracer, span: trace.Span, shift: int) -> None:
        self._tracer = tracer
        self._span = span
        self._shift = shift
        self.ended = False

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits."""
        return trace.format_trace_id(self._span.get_span_context().trace_id)

    def child(self, name: str, started: float, *, client: bool = False) -> "RecordedSpan":
        """Begin a child span. ``client`` marks a call to another server."""
        span = self._tracer.start_span(
            name,
            trace.set_span_in_context(self._span, Context()),
            kind=SpanKind.CLIENT if client else SpanKind.INTERNAL,
            start_time=_nanoseconds(started) + self._shift,
        )
        return RecordedSpan(self._tracer, span, self._shift)

    def end(self, ended: float, attributes: Attributes, error: BaseException | None = None) -> None:
        """Finish the span; it keeps the class of ``error``, not the message."""
        if error is not None:
            attributes = {**attributes, "error.type": type(error).__name__}
        self.ended = True
        self._span.set_attributes(attributes)
        if "error.type" in attributes:
            self._span.set_status(StatusCode.ERROR)
        self._span.end(_nanoseconds(ended) + self._shift)

    def answered(
        self,
        ended: float,
        *,
        request_id: str,
        method: str,
        scheme: str,
        route: str | None,
        status: int | None,
        usage: Mapping[str, int],
    ) -> None:
        """Finish the span of a request by OpenTelemetry's conventions for HTTP.

        It records neither path nor query: they contain the callers' own ids.

        Args:
            route: its template; None if no route matched.
            status: None if the client left before an answer.
            usage: counts of documents, windows and tokens.
        """
        known = method if method in _METHODS else "_OTHER"
        attributes: dict[str, str | int | float | bool] = {
            "http.request.method": known,
            "url.scheme": scheme,
            "docsplit.request_id": request_id,
            **{f"docsplit.{name}": count for name, count in usage.items()},
        }
        name = "HTTP" if known == "_OTHER" else known
        if route is not None:
            name = f"{name} {route}"
            attributes["http.route"] = route
        if status is None:
            attributes["error.type"] = "client_disconnected"
        else:
            attributes["http.response.status_code"] = status
            if status >= 500:
                attributes["error.type"] = str(status)
        self._span.update_name(name)
        self.end(ended, attributes)


class Tracing:
    """Makes the spans of requests and sends them from its own thread.

    OpenTelemetry's variables ``OTEL_BSP_*`` and ``OTEL_EXPORTER_OTLP_*`` configure batches, queue
    and keys for the collector. This class sets no global of OpenTelemetry.

    Args:
        endpoint: URL of the collector; ``/v1/traces`` is added.
        ratio: share of requests to trace if the caller does not decide.
        attributes: of the process, besides ``service.*``.
    """

    def __init__(
        self, endpoint: str, ratio: float, version: str, attributes: Mapping[str, str]
    ) -> None:
        # the SDK's messages about an unreachable collector: seldom, and in our form
        sdk = logging.getLogger("opentelemetry")
        sdk.handlers = [_Seldom()]
        sdk.propagate = False
        resource = Resource.create(
            {
                "service.name": os.environ.get("OTEL_SERVICE_NAME") or "docsplit",
                "service.version": version,
                "service.instance.id": str(uuid.uuid4()),
                **attributes,
            }
        )
        url = endpoint.rstrip("/")
        self._exporter = OTLPSpanExporter(
            url if url.endswith(_PATH) else url + _PATH, timeout=_EXPORT_SECONDS
        )
        self._provider = TracerProvider(
            ParentBased(TraceIdRatioBased(ratio)), resource, shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("docsplit", version)
        self._propagator = TraceContextTextMapPropagator()

    def request(self, headers: Mapping[str, str], started: float) -> RecordedSpan | None:
        """Begin the span of a request; None if it is not sampled.

        Args:
            headers: their W3C ``traceparent`` and ``tracestate`` name and sample the parent.
            started: on ``time.monotonic``'s clock.
        """
        shift = time.time_ns() - time.monotonic_ns()
        span = self._tracer.start_span(
            "HTTP",
            self._propagator.extract(headers, Context()),
            kind=SpanKind.SERVER,
            start_time=_nanoseconds(started) + shift,
        )
        return RecordedSpan(self._tracer, span, shift) if span.is_recording() else None

    def close(self) -> None:
        """Send the waiting spans; stop after a few seconds, so that no collector delays the end."""
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        ending.join(_FLUSH_SECONDS)
        if ending.is_alive():
            log.warning("spans_lost", reason="the collector did not accept them in time")
            self._exporter.shutdown()  # type: ignore[no-untyped-call]


class _Seldom(logging.Handler):
    """Passes on one record a minute, with the number of suppressed records."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._next = 0.0
        self._kept = 0

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if now < self._next:
            self._kept += 1
            return
        self._next = now + _COMPLAIN_SECONDS
        log.warning("tracing_failed", reason=record.getMessage(), before=self._kept)
        self._kept = 0


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
