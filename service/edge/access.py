"""ASGI middleware: request ids, one log line and the metrics of every request."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Set

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.metrics import Metrics

log = structlog.get_logger("docsplit.access")

_SAFE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
# asked every few seconds by balancers and scrapers; logged at debug level
_QUIET = {"/health", "/livez", "/readyz", "/metrics"}


class Access:
    """Gives every request an id, measures it, logs it.

    Args:
        app: what it observes.
        metrics: counts requests by route and status.
        paths: routes by whose name a request is counted that was refused before routing.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: Set[str]) -> None:
        self._app = app
        self._metrics = metrics
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        offered = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = offered if _SAFE_ID.fullmatch(offered) else uuid.uuid4().hex
        trace = headers.get(b"traceparent")
        started = time.perf_counter()
        status = 0

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                answer = MutableHeaders(scope=message)
                answer["x-request-id"] = request_id
                if trace is not None:
                    answer["traceparent"] = trace.decode("latin-1")
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, receive, observed)
            finally:
                seconds = time.perf_counter() - started
                named = scope["path"] if scope["path"] in self._paths else "unmatched"
                route = getattr(scope.get("route"), "path", named)
                # 499 as nginx has it: the client left before an answer
                outcome = str(status or 499)
                self._metrics.requests.labels(route, scope["method"], outcome).inc()
                self._metrics.request_seconds.labels(route).observe(seconds)
                emit = log.debug if scope["path"] in _QUIET else log.info
                emit(
                    "request",
                    method=scope["method"],
                    route=route,
                    status=int(outcome),
                    ms=round(seconds * 1000, 1),
                    client=(scope.get("client") or ("",))[0],
                    **scope.get("docsplit.usage", {}),
                )
