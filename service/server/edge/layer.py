"""The one ASGI layer before the routes: what every request passes, in order.

1. It gets an id, a log line, counts in the metrics and, if it is traced, a span.
2. A head that is too large is refused (431).
3. Middleware outside the keys: proxies' headers, pages, CORS.
4. Its API key is checked, and its work assigned to a client.
5. Its body is read within its bounds, and its memory reserved until the client has read the answer.
6. It is answered from memory if it repeats another one, else by its route, which ends when the
   client leaves.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

import structlog
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from service import executors, precedence
from service.embedding.batching.clients import working_for
from service.embedding.cache.answers import Answer
from service.embedding.charges import charged, charging
from service.errors import MalformedError, NotFoundError, RequestError, ServiceError
from service.server.edge import connections, deadline
from service.server.edge.bodies import ROOM, Bodies, Body, Inflight, stated_length
from service.server.edge.errors import response, translate
from service.server.edge.rights import CHECK, KEY, RIGHTS, identify, refusal
from service.tracing import stages

if TYPE_CHECKING:
    from service.keys.ring import Bucket
    from service.server.lifecycle import Service

log = structlog.get_logger("docsplit.access")

OPEN_PATHS = frozenset({"/health", "/livez", "/readyz", "/metrics", "/openapi.json", "/v1/models"})
# Routes whose answer depends only on the body and the bundle. They mark each answer that may be
# kept by calling ``repeatable``.
REPEATING = {"/", "/embed", "/v1/embeddings"}
# Bytes. A part waits until the client has read the parts before it, except for at most 64 KiB:
# uvicorn takes a whole answer at once, however slowly the client reads.
PART = 1 << 16
SECURITY = {
    # vectors reveal the text, so no cache may keep an answer for another client
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
_SECURITY = [(name.encode(), value.encode()) for name, value in SECURITY.items()]
# balancers and scrapers request these every few seconds: log at debug level, do not trace
_QUIET = {"/health", "/livez", "/readyz", "/metrics"}
_SAFE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
# a longer token is never a key; this limit keeps hashing cheap
_LONGEST_TOKEN = 512
_TIMES = {b"x-tokenization-time", b"x-queue-time", b"x-inference-time"}
_EXCHANGE, _REPEATABLE = "docsplit.exchange", "docsplit.repeatable"


class HeadError(RequestError, status=431, kind="TooLarge"):
    """The request line and the headers are too large."""


class ChunksError(RequestError, status=400, kind="HttpVersion"):
    """An answer of unknown length for a client of HTTP/1.0, which would read chunks as content."""


def repeatable(scope: Scope) -> None:
    """Allow the answer of this request for any other request with the same body."""
    scope[_REPEATABLE] = True


class Exchange:
    """A request and its answer, which it sends in parts, with the headers of every answer.

    Attributes:
        status: of the answer; 0 before it begins.
        ready: when the answer was ready, on the monotonic clock; None before.
        room: the memory of the request; an answer without room becomes 429.
        answered: called when the whole answer is ready.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        offered = self.headers.get(b"x-request-id", b"").decode("latin-1")
        self.id = offered if _SAFE_ID.fullmatch(offered) else uuid.uuid4().hex
        self.started = time.monotonic()
        self.status = 0
        self.ready: float | None = None
        self.room: Body | None = None
        self.answered: Callable[[], None] = lambda: None
        self._receive, self._send = receive, send
        self._replaced = False
        self._connection = connections.of(scope)
        if self._connection is not None:
            has_body = b"transfer-encoding" in self.headers or stated_length(self.headers)
            self._connection.begin(bool(has_body))

    async def receive(self) -> Message:
        message = await self._receive()
        if self._connection is not None and not message.get("more_body", False):
            self._connection.whole = True
        return message

    async def send(self, message: Message) -> None:
        if self._replaced:
            return
        if message["type"] == "http.response.start":
            try:
                self._check(message)
            except ServiceError as error:
                await response(self.scope["path"], error)(self.scope, self.receive, self._pass)
                self._replaced = True
                return
        await self._pass(message)

    def _check(self, start: Message) -> None:
        """Raise if the answer that begins has no room, or its client cannot read it."""
        length = stated_length(dict(start["headers"]))
        if length is None and self.scope.get("http_version") == "1.0" and start["status"] == 200:
            raise ChunksError(
                "an answer by lines needs HTTP/1.1: let the client or the proxy speak it, in nginx "
                "by proxy_http_version 1.1"
            )
        if self.room is not None and length is not None and length > PART:
            self.room.share(length)

    def end(self) -> None:
        """Called when the request has ended, with or without an answer."""
        if self._connection is not None:
            self._connection.answered()
            self._connection = None

    async def _pass(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            await self._send({**message, "headers": self._with_ours(message["headers"])})
            return
        body = memoryview(message.get("body", b""))
        more = message.get("more_body", False)
        if not more:
            self.ready = time.monotonic()
            self.answered()
        while len(body) > PART:
            await self._send({**message, "body": bytes(body[:PART]), "more_body": True})
            body = body[PART:]
        await self._send({**message, "body": bytes(body)})
        if not more:
            # the client may send its next request before this one has ended
            if self.room is not None:
                self.room.release()
            self.end()

    def _with_ours(self, headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        named = {name for name, _ in headers}
        ours = [(b"x-request-id", self.id.encode())]
        if traceparent := self.headers.get(b"traceparent"):
            ours.append((b"traceparent", traceparent))
        if revision := self.scope.get("docsplit.revision"):
            ours.append((b"x-index-revision", revision.encode()))
        return [*headers, *(one for one in _SECURITY if one[0] not in named), *ours]


class Edge:
    """Takes a request through the steps of this module.

    Args:
        service: its settings, keys, metrics, tracing and kept answers.
        paths: known routes; they count requests that were refused before routing.
        outside: middleware that needs no key; the first is the outermost.
    """

    def __init__(
        self, app: ASGIApp, service: Service, paths: Set[str], outside: Sequence[Middleware] = ()
    ) -> None:
        settings = service.settings
        self._app = app
        self._service = service
        self._settings = settings
        self._paths = paths
        self._bodies = Bodies(settings)
        self._inflight = Inflight(settings.max_inflight_bytes)
        service.metrics.inflight_bytes.set_function(lambda: self._inflight.total)
        front: ASGIApp = self._admit
        for one in reversed(outside):
            front = one.cls(front, *one.args, **one.kwargs)
        if settings.trusted_proxies:
            front = ProxyHeadersMiddleware(front, trusted_hosts=settings.trusted_proxies)  # type: ignore[arg-type,assignment]
        self._front = front

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        _give_plain_address(scope)
        exchange = scope[_EXCHANGE] = Exchange(scope, receive, send)
        try:
            with self._observed(exchange):
                try:
                    self._check_head(exchange)
                except ServiceError as error:
                    # in the native dialect for every path, as the OpenAPI document says of 431
                    await response("", error)(scope, exchange.receive, exchange.send)
                else:
                    await self._front(scope, exchange.receive, exchange.send)
        finally:
            exchange.end()

    @contextmanager
    def _observed(self, exchange: Exchange) -> Iterator[None]:
        """Log, measure and trace a request."""
        scope, path = exchange.scope, exchange.scope["path"]
        traceparent = exchange.headers.get(b"traceparent", b"").decode("latin-1")
        quiet = path in _QUIET
        span = None
        if self._service.tracing is not None and not quiet:
            state = exchange.headers.get(b"tracestate", b"").decode("latin-1")
            given = {"traceparent": traceparent, "tracestate": state}
            span = self._service.tracing.request(given, exchange.started)
        ids = {"request_id": exchange.id}
        if span is not None:
            ids["trace_id"] = span.trace_id
        elif caller := _TRACEPARENT.fullmatch(traceparent):
            ids["trace_id"] = caller[1]
        with structlog.contextvars.bound_contextvars(**ids), stages.current(span):
            try:
                yield
            finally:
                # without the time that the client takes to read
                ended = exchange.ready or time.monotonic()
                seconds = ended - exchange.started
                route = getattr(
                    scope.get("route"), "path", path if path in self._paths else "unmatched"
                )
                usage = scope.get("docsplit.usage", {})
                # 499 as in nginx: the client left before an answer
                outcome = exchange.status or 499
                metrics, method = self._service.metrics, scope["method"]
                metrics.requests.labels(route, method, str(outcome)).inc()
                metrics.request_seconds.labels(route, method).observe(seconds)
                (log.debug if quiet else log.info)(
                    "request",
                    method=method,
                    route=route,
                    status=outcome,
                    ms=round(seconds * 1000, 1),
                    client=(scope.get("client") or ("",))[0],
                    **({"key": scope[KEY]} if KEY in scope else {}),
                    **usage,
                )
                if span is not None:
                    span.answered(
                        ended,
                        request_id=exchange.id,
                        method=method,
                        scheme=scope["scheme"],
                        route=None if route == "unmatched" else route,
                        status=exchange.status or None,
                        usage=usage,
                    )

    def _check_head(self, exchange: Exchange) -> None:
        scope = exchange.scope
        if _CONTROL.search(b" ".join(value for _, value in scope["headers"])):
            raise MalformedError("a header has a control character")
        size = len(scope["raw_path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if size > self._settings.max_header_bytes:
            self._service.metrics.connections_closed.labels("head").inc()
            raise HeadError(
                "request line and headers are over the limit of "
                f"{self._settings.max_header_bytes} bytes",
                headers={"connection": "close"},
            )

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the key, and assign the work of a request to its client."""
        exchange: Exchange = scope[_EXCHANGE]
        try:
            tokens = self._check_key(exchange)
        except ServiceError as error:
            await response(scope["path"], error)(scope, receive, send)
            return
        size = exchange.headers.get(b"content-length", b"0")
        large = int(size) if size.isdigit() else precedence.LARGE + 1
        with (
            charging(tokens),
            working_for(identify(scope)),
            self._inflight.body() as room,
            precedence.request(large) as answered,
        ):
            exchange.room, exchange.answered = room, answered
            await self._take(exchange, room, receive, send)

    def _check_key(self, exchange: Exchange) -> Bucket | None:
        """Put the key's name and rights into the scope; what its work is charged to."""
        ring, scope = self._service.keys, exchange.scope
        if not ring.required or scope["path"] in OPEN_PATHS:
            return None
        scheme, _, token = exchange.headers.get(b"authorization", b"").partition(b" ")
        token = token.strip()
        bears = scheme.lower() == b"bearer" and len(token) <= _LONGEST_TOKEN
        check = partial(ring.check, token if bears else b"")
        verdict = check()
        if verdict.refusal is not None:
            self._service.metrics.keys_refused.labels(verdict.refusal).inc()
            raise refusal(verdict)
        scope[KEY], scope[RIGHTS], scope[CHECK] = verdict.key.name, verdict.key.rights, check
        return verdict.key.tokens

    async def _take(self, exchange: Exchange, room: Body, receive: Receive, send: Send) -> None:
        """Read the body, and let the route answer."""
        scope = exchange.scope
        try:
            _check_path(scope)
            timeout = exchange.headers.get(deadline.HEADER.encode())
            allowed = deadline.seconds(
                None if timeout is None else timeout.decode("latin-1"),
                self._settings.request_timeout,
                self._settings.max_request_timeout,
            )
            scope["docsplit.started"] = time.monotonic()
            scope["docsplit.deadline"] = scope["docsplit.started"] + allowed
            scope[ROOM] = room
            body = await self._bodies.read(scope, exchange.headers, receive, room)
        except ServiceError as error:
            await response(scope["path"], error)(scope, receive, send)
            return
        if isinstance(body, bytes):
            answer = self._repeat if scope["path"] in REPEATING else self._app
            whole: Message = {"type": "http.request", "body": body, "more_body": False}
            await self._run(answer, exchange, replaying(whole, receive), receive, send)
        elif body is not None:
            read = asyncio.Event()
            await self._run(
                self._app, exchange, _followed(body, receive, read), receive, send, read
            )

    async def _run(
        self,
        app: ASGIApp,
        exchange: Exchange,
        body: Receive,
        receive: Receive,
        send: Send,
        read: asyncio.Event | None = None,
    ) -> None:
        """Run the route, and cancel it when the client leaves.

        Args:
            read: set when the route has the whole body, or the client has left before that; until
                then only the route may call ``receive``.
        """

        async def gone() -> None:
            if read is not None:
                await read.wait()
            while (await receive())["type"] != "http.disconnect":
                pass

        scope = exchange.scope
        work = asyncio.ensure_future(app(scope, body, send))
        watch = asyncio.ensure_future(gone())
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
            if work.done() or exchange.ready is not None:
                await work
        except Exception as error:
            if exchange.status:
                raise
            await response(scope["path"], translate(error))(scope, receive, send)
        finally:
            for task in (work, watch):
                task.cancel()
            await asyncio.gather(work, watch, return_exceptions=True)

    async def _repeat(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a repeated request from memory, before anything parses it; keep other answers."""
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        request = await receive()
        body = request["body"]
        accept = scope[_EXCHANGE].headers.get(b"accept", b"")
        answers = self._service.answers
        target = scope["path"].encode() + b"?" + scope["query_string"]
        parts = self._service.tenants.current, target, accept, body
        # a thread hashes large bodies, because hashing would block the event loop
        key = (
            await executors.BODIES.run(answers.key, *parts)
            if len(body) > precedence.LARGE
            else answers.key(*parts)
        )
        held = answers.get(key)
        if held is not None:
            scope["docsplit.usage"] = held.usage
            self._service.metrics.repeated(held.usage)
            with charged(held.usage["tokens"]):
                await send({**held.start, "headers": _repeated_headers(scope, held.start)})
                await send({"type": "http.response.body", "body": held.body})
            return
        begun: Message = {}

        async def kept(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = message
            elif scope.get(_REPEATABLE) and not message.get("more_body") and begun["status"] == 200:
                usage = scope["docsplit.usage"]
                again = {**usage, "cached": usage["windows"]}
                answers.put(key, Answer(begun, message["body"], again))
            await send(message)

        await self._app(scope, replaying(request, receive), kept)


def replaying(first: Message, receive: Receive) -> Receive:
    """A ``receive`` that returns ``first`` once, and then the messages that follow."""
    replayed = False

    async def replay() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return first

    return replay


def _followed(body: Receive, receive: Receive, read: asyncio.Event) -> Receive:
    """What a route receives that reads the body itself; sets ``read`` at its end."""

    async def followed() -> Message:
        if read.is_set():
            return await receive()
        message = await body()
        if message["type"] == "http.disconnect":
            read.set()
            # until the route is cancelled
            await asyncio.Event().wait()
        if not message.get("more_body", False):
            read.set()
        return message

    return followed


def _give_plain_address(scope: Scope) -> None:
    """Give a client of IPv4 on a socket of IPv6 the address by which the settings name proxies."""
    client = scope.get("client")
    if client is not None and client[0].startswith("::ffff:"):
        address = ipaddress.IPv6Address(client[0])
        scope["client"] = (str(address.ipv4_mapped or address), client[1])


def _check_path(scope: Scope) -> None:
    # the server reads bytes that are not UTF-8 as U+FFFD, which another document may have in its id
    if "\ufffd" in scope["path"]:
        try:
            unquote_to_bytes(scope["raw_path"]).decode()
        except UnicodeDecodeError as error:
            raise NotFoundError("no such path: percent-encode it in UTF-8") from error


def _repeated_headers(scope: Scope, start: Message) -> list[tuple[bytes, bytes]]:
    milliseconds = 1000 * (time.monotonic() - scope["docsplit.started"])
    own = {
        b"x-cache": b"hit",
        b"x-total-time": f"{milliseconds:.1f}".encode(),
        **dict.fromkeys(_TIMES, b"0.0"),
    }
    return [(name, own.get(name, value)) for name, value in start["headers"]]
