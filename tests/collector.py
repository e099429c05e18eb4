"""A collector that speaks OTLP over HTTP and keeps the received spans."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


@dataclass(frozen=True)
class Received:
    """A received span; times are Unix nanoseconds, ids are hexadecimal."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    started: int
    ended: int
    failed: bool
    attributes: dict[str, str | int]

    def encloses(self, other: Received) -> bool:
        return self.started <= other.started <= other.ended <= self.ended


class Collector:
    """The exports received so far.

    Attributes:
        bodies: body of every export.
        paths: path of every export.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.bodies: list[bytes] = []
        self.paths: set[str] = set()
        self.arrived = threading.Condition()

    def take(self, path: str, body: bytes) -> None:
        """Keep an export."""
        with self.arrived:
            self.paths.add(path)
            self.bodies.append(body)
            self.arrived.notify_all()

    @property
    def spans(self) -> list[Received]:
        """All spans, in the order of their starts."""
        found = [
            _received(span)
            for request in self._requests()
            for group in request.resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda span: span.started)

    @property
    def resources(self) -> list[dict[str, str | int]]:
        """Attributes of the sending processes."""
        requests = self._requests()
        return [_values(g.resource.attributes) for r in requests for g in r.resource_spans]

    def servers(self) -> list[Received]:
        """The spans of requests."""
        return [span for span in self.spans if span.kind == "SPAN_KIND_SERVER"]

    def below(self, parent: Received) -> dict[str, Received]:
        """A span's children by name; each name must occur once."""
        children = [span for span in self.spans if span.parent_id == parent.span_id]
        named = {span.name: span for span in children}
        assert len(named) == len(children)
        return named

    def request(self, request_id: str) -> Received:
        """The span of a request, which ends after its children; waits until it has arrived."""

        def found() -> list[Received]:
            return [s for s in self.servers() if s.attributes["docsplit.request_id"] == request_id]

        with self.arrived:
            assert self.arrived.wait_for(found, 30)
        [span] = found()
        return span

    def _requests(self) -> list[ExportTraceServiceRequest]:
        return [ExportTraceServiceRequest.FromString(body) for body in self.bodies]


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a loopback port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.path, self.rfile.read(int(self.headers["content-length"])))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield collector
        server.shutdown()


def _received(span: Span) -> Received:
    return Received(
        span.name,
        Span.SpanKind.Name(span.kind),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.code == Status.STATUS_CODE_ERROR,
        _values(span.attributes),
    )


def _values(attributes: Iterator[KeyValue]) -> dict[str, str | int]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value") or "") for a in attributes}
