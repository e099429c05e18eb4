"""The memory of requests, reserved from their heads until their clients have read the answers.

uvicorn takes a whole answer at once, however slowly the client reads. So ``in_parts`` sends it in
parts: otherwise a request would release its memory while the connection still holds the answer.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from service.embedding.batching import clients
from service.embedding.batching.clients import overflow
from service.errors import OverloadedError
from service.server.edge.errors import response

# Bytes. A part waits until the client has read the parts before it, except for at most 64 KiB.
PART = 1 << 16
# key in the scope: when the answer was ready, on the monotonic clock
READY = "docsplit.ready"


class FullError(OverloadedError):
    """There is no memory left for this client.

    Args:
        retry_after: estimated seconds until there is room.
    """

    def __init__(self, retry_after: float) -> None:
        super().__init__(
            retry_after,
            "overloaded: the requests in progress of this client, or of all clients, leave no "
            "memory for this one; send less at a time, or try again",
        )


class Inflight:
    """Memory reserved for requests in progress: limited, and shared among clients.

    Args:
        capacity: bytes for all requests; see ``threshold`` for a client's part.
    """

    def __init__(self, capacity: int) -> None:
        self.total = 0
        self.capacity = capacity
        self._held: Counter[clients.Client] = Counter()
        self._seconds = 0.0

    @contextmanager
    def body(self) -> Iterator["Body"]:
        """Reserve memory for one request of the task's client, until the request ends."""
        body = Body(self, clients.current())
        try:
            yield body
        finally:
            body.release()

    def take(self, client: clients.Client, amount: int) -> None:
        """Raise ``FullError`` if there is no room for ``amount`` more bytes."""
        too_much = overflow(self.capacity, self.total, self._held[client], amount)
        if too_much > 0:
            # Little's law: bytes held / seconds held = bytes released per second
            wait = self._seconds * too_much / max(self.total, 1)
            raise FullError(max(1.0, min(wait, self._seconds)))
        self.total += amount
        self._held[client] += amount

    def give(self, client: clients.Client, amount: int, seconds: float) -> None:
        """Give back ``amount`` bytes that a request has held for ``seconds``."""
        self.total -= amount
        self._held[client] -= amount
        if not self._held[client]:
            del self._held[client]
        self._seconds += 0.1 * (seconds - self._seconds) if self._seconds else seconds


class Body:
    """The memory of one request."""

    def __init__(self, inflight: Inflight, client: clients.Client) -> None:
        self.client = client
        self.bytes = 0
        self._inflight = inflight
        self._started = time.monotonic()

    def share(self, size: int) -> None:
        """Reserve ``size`` bytes in all, or half of the capacity if that is less.

        So the service can serve any request of a client that has no other one.

        Raises:
            FullError: there are not as many.
        """
        self.reach(min(size, self._inflight.capacity // 2))

    def reach(self, size: int) -> None:
        """Reserve ``size`` bytes in all; raise ``FullError`` if there are not as many."""
        if size > self.bytes:
            self._inflight.take(self.client, size - self.bytes)
            self.bytes = size

    def release(self) -> None:
        """Give back what the request has reserved."""
        if self.bytes:
            self._inflight.give(self.client, self.bytes, time.monotonic() - self._started)
            self.bytes = 0


def in_parts(
    scope: Scope, receive: Receive, send: Send, room: Body, answered: Callable[[], None]
) -> Send:
    """Return a ``send`` that waits for the client to read, and reserves the answer's memory.

    If there is no memory for the answer, the client gets 429 in its place.

    Args:
        scope: of the request; gets ``READY``.
        receive: of the request.
        send: takes the parts.
        room: the memory of the request.
        answered: called when the whole answer is ready.
    """
    refused = False

    async def parted(message: Message) -> None:
        nonlocal refused
        if refused:
            return
        if message["type"] == "http.response.start":
            length = Headers(raw=message["headers"]).get("content-length", "0")
            try:
                if int(length) > PART:
                    room.share(int(length))
            except FullError as error:
                refused = True
                await response(scope["path"], error)(scope, receive, send)
                return
        elif message["type"] == "http.response.body":
            body = memoryview(message.get("body", b""))
            more = message.get("more_body", False)
            if not more:
                scope[READY] = time.monotonic()
                answered()
            while len(body) > PART:
                await send({**message, "body": bytes(body[:PART]), "more_body": True})
                body = body[PART:]
            await send({**message, "body": bytes(body)})
            if not more:
                # the client may send its next request before this one has ended
                room.release()
            return
        await send(message)

    return parted
