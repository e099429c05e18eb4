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
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._right(scope):
            await self._app(scope, receive, send)
            return
        error = ApiError(
            401,
            "no valid API key: send the header Authorization: Bearer KEY",
            code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )
        await response(scope["path"], error)(scope, receive, send)

    def _right(self, scope: Scope) -> bool:
        if not self._keys:
            return True
        value = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, offered = value.partition(b" ")
        # every key is compared, so that the time does not tell which came close
        matches = [hmac.compare_digest(offered.strip(), key) for key in self._keys]
        return scheme.lower() == b"bearer" and any(matches)
