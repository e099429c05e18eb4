"""ASGI middleware that answers a repeated request from memory, before anything parses it."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import executors
from service.embedding.cache.answers import Answer, Answers
from service.embedding.cache.layers import Tenants
from service.embedding.lookup import charged
from service.metrics import Metrics
from service.precedence import LARGE
from service.server.edge.guard import replaying, sends_lines

# Routes whose answer depends only on the body and the bundle. They mark each answer that may be
# kept by calling ``repeatable``.
ROUTES = {"/", "/embed", "/v1/embeddings"}
_MARK = "docsplit.repeatable"
_TIMES = {b"x-tokenization-time", b"x-queue-time", b"x-inference-time"}


def repeatable(scope: Scope) -> None:
    """Allow the answer of this request for any other request with the same body."""
    scope[_MARK] = True


class Repeats:
    """Keeps answers and repeats them; runs inside the middleware for bodies and keys.

    Args:
        app: answers new requests.
        answers: the kept answers.
        tenants: decides which clients share answers.
        metrics: counts the documents of repeated answers.
    """

    def __init__(self, app: ASGIApp, answers: Answers, tenants: Tenants, metrics: Metrics) -> None:
        self._app = app
        self._answers = answers
        self._tenants = tenants
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["path"] not in ROUTES
            or scope["method"] != "POST"
            or sends_lines(scope)
        ):
            await self._app(scope, receive, send)
            return
        request = await receive()
        accept = next((v for k, v in scope["headers"] if k == b"accept"), b"")
        body = request.get("body", b"")
        target = scope["path"].encode() + b"?" + scope["query_string"]
        parts = self._tenants.current, target, accept, body
        # a thread hashes large bodies, because hashing would block the event loop
        key = (
            await executors.BODIES.run(self._answers.key, *parts)
            if len(body) > LARGE
            else self._answers.key(*parts)
        )
        held = self._answers.get(key)
        if held is not None:
            scope["docsplit.usage"] = held.usage
            self._metrics.repeated(held.usage)
            with charged(held.usage["tokens"]):
                await send({**held.start, "headers": _headers(scope, held.start)})
                await send({"type": "http.response.body", "body": held.body})
            return
        begun: Message = {}

        async def observed(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                # a copy, because middleware outside adds this request's id
                begun = {**message, "headers": list(message["headers"])}
            elif scope.get(_MARK) and not message.get("more_body") and begun["status"] == 200:
                usage = scope["docsplit.usage"]
                again = {**usage, "cached": usage["windows"]}
                self._answers.put(key, Answer(begun, message["body"], again))
            await send(message)

        await self._app(scope, replaying(request, receive), observed)


def _headers(scope: Scope, start: Message) -> list[tuple[bytes, bytes]]:
    milliseconds = 1000 * (time.monotonic() - scope["docsplit.started"])
    own = {
        b"x-cache": b"hit",
        b"x-total-time": f"{milliseconds:.1f}".encode(),
        **dict.fromkeys(_TIMES, b"0.0"),
    }
    return [(name, own.get(name, value)) for name, value in start["headers"]]
