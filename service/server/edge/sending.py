"""Sends large answers in parts, so that a request lasts until its client has read the answer.

uvicorn takes a whole answer at once, however slowly the client reads. Without parts, a request
would release its memory while the connection still holds the answer.
"""

import time
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from service.server.edge.errors import response
from service.server.edge.inflight import Body, FullError

# Bytes. A part waits until the client has read the parts before it, except for at most 64 KiB.
PART = 1 << 16
# key in the scope: when the answer was ready, on the monotonic clock
READY = "docsplit.ready"


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
                    room.answer(int(length))
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
            message = {**message, "body": bytes(body)}
        await send(message)

    return parted
