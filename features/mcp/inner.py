"""Requests that a tool makes to the REST routes, in the name of the request to /mcp.

A tool has no other access. Keys, rates, limits and the deadline of the request to /mcp hold for it,
and every route checks the rights of the key.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Scope

from service.keys.rights import EVERYTHING, Right, Rights
from service.server.edge.errors import translate
from service.server.edge.keys import KEY, RIGHTS

_HEADERS = [(b"content-type", b"application/json"), (b"accept", b"application/json")]
_USAGE = "docsplit.usage"


class RefusedError(Exception):
    """A route refused the request. The message says what was wrong and how to fix it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The request to /mcp, and the routes below its middleware.

    Attributes:
        app: the rest of the application.
        scope: of the request, with its key, rights and deadline.
    """

    app: ASGIApp
    scope: Scope

    @property
    def may_write(self) -> bool:
        """Whether the request has a key that may write to an index."""
        rights: Rights = self.scope.get(RIGHTS, EVERYTHING)
        return KEY in self.scope and bool(rights.patterns.get(Right.WRITE_INDEXES))

    async def get(self, *segments: str) -> Any:
        """The answer of a route; the segments of its path may contain any character."""
        return await self._ask("GET", _path(segments), b"")

    async def post(self, *segments: str, body: dict[str, Any]) -> Any:
        """The answer of a route to a body."""
        return await self._ask("POST", _path(segments), json.dumps(body).encode())

    async def _ask(self, method: str, path: str, body: bytes) -> Any:
        scope = {
            **self.scope,
            "method": method,
            "path": path,
            "raw_path": quote(path).encode(),
            "query_string": b"",
            "headers": _HEADERS,
        }
        read = False
        status = 0
        answer = b""

        async def receive() -> Message:
            nonlocal read
            if read:
                # the guard of the request to /mcp notices that its client left
                await asyncio.Event().wait()
            read = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status, answer
            status = message.get("status", status)
            answer += message.get("body", b"")

        try:
            await self.app(scope, receive, send)
        except Exception as error:  # noqa: BLE001 what the routes do not answer, the guard would
            raise RefusedError(translate(error).message) from None
        if _USAGE in scope:
            self.scope[_USAGE] = scope[_USAGE]
        if status >= 400:
            raise RefusedError(json.loads(answer)["error"])
        return json.loads(answer)


def _path(segments: tuple[str, ...]) -> str:
    return "".join(f"/{one}" for one in segments)
