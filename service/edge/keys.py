"""ASGI middleware that asks for an API key before it reads a body."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from pydantic import SecretStr
from starlette.types import ASGIApp, Receive, Scope, Send

from service.edge.errors import ApiError, response

OPEN_PATHS = frozenset(
    {"/health", "/livez", "/readyz", "/metrics", "/docs", "/openapi.json", "/v1/models"}
)
# where the scope holds which of the keys a request came with, by position
KEY = "docsplit.key"


class Keys:
    """``Authorization: Bearer KEY`` must hold one of the keys, except on ``OPEN_PATHS``.

    Args:
        app: what it protects.
        keys: accepted keys; with none, every request passes.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[SecretStr]) -> None:
        self._app = app
        self._keys = [key.get_secret_value().encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._keys or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        if (position := self._position(scope)) is not None:
            scope[KEY] = position
            await self._app(scope, receive, send)
            return
        error = ApiError(
            401,
            "no valid API key: send the header Authorization: Bearer KEY",
            code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )
        await response(scope["path"], error)(scope, receive, send)

    def _position(self, scope: Scope) -> int | None:
        value = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, offered = value.partition(b" ")
        # every key is compared, so that the time does not tell which came close
        matches = [hmac.compare_digest(offered.strip(), key) for key in self._keys]
        right = scheme.lower() == b"bearer" and any(matches)
        return matches.index(True) if right else None
