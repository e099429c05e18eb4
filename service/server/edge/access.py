"""ASGI middleware: the id, the log line, the metrics and the span of every request."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Set
from typing import TYPE_CHECKING

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.metrics import Metrics
from service.server.edge.inflight import READY
from service.server.edge.keys import KEY
from service.tracing import stages

if TYPE_CHECKING:
    from service.tracing.exporter import Tracing

log = structlog.get_logger("docsplit.access")

_SAFE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
# balancers and scrapers request these every few seconds: log at debug level, do not trace
_QUIET = {"/health", "/livez", "/readyz", "/metrics"}


class Access:
    """Gives every request an id, measures it and logs it.

    Args:
        app: the application that it observes.
        metrics: counts requests by route and status.
        paths: known routes; they count requests that were refused before routing.
        tracing: sends spans; None if tracing is not configured.
    """

    def __init__(
        self, app: ASGIApp, metrics: Metrics, paths: Set[str], tracing: Tracing | None = None
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._paths = paths
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        offered = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = offered if _SAFE_ID.fullmatch(offered) else uuid.uuid4().hex
        traceparent = headers.get(b"traceparent", b"").decode("latin-1")
        quiet = scope["path"] in _QUIET
        started = time.monotonic()
        span = None
        if self._tracing is not None and not quiet:
            state = headers.get(b"tracestate", b"").decode("latin-1")
            span = self._tracing.request({"traceparent": traceparent, "tracestate": state}, started)
        ids = {"request_id": request_id}
        if span is not None:
            ids["trace_id"] = span.trace_id
        elif caller := _TRACEPARENT.fullmatch(traceparent):
            ids["trace_id"] = caller[1]
        status = 0

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                answer = MutableHeaders(scope=message)
                answer["x-request-id"] = request_id
                if traceparent:
                    answer["traceparent"] = traceparent
            await send(message)

        with structlog.contextvars.bound_contextvars(**ids), stages.current(span):
            try:
                await self._app(scope, receive, observed)
            finally:
                # without the time that the client takes to read
                ended = scope.get(READY, time.monotonic())
                seconds = ended - started
                named = scope["path"] if scope["path"] in self._paths else "unmatched"
                route = getattr(scope.get("route"), "path", named)
                usage = scope.get("docsplit.usage", {})
                # 499 as in nginx: the client left before an answer
                outcome = str(status or 499)
                self._metrics.requests.labels(route, scope["method"], outcome).inc()
                self._metrics.request_seconds.labels(route, scope["method"]).observe(seconds)
                emit = log.debug if quiet else log.info
                emit(
                    "request",
                    method=scope["method"],
                    route=route,
                    status=int(outcome),
                    ms=round(seconds * 1000, 1),
                    client=(scope.get("client") or ("",))[0],
                    **({"key": scope[KEY]} if KEY in scope else {}),
                    **usage,
                )
                if span is not None:
                    span.answered(
                        ended,
                        request_id=request_id,
                        method=scope["method"],
                        scheme=scope["scheme"],
                        route=None if route == "unmatched" else route,
                        status=status or None,
                        usage=usage,
                    )
