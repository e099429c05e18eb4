"""ASGI middleware that requires an API key before it reads a body."""

import asyncio
from functools import partial

from prometheus_client import Counter
from starlette.types import ASGIApp, Receive, Scope, Send

from service.embedding.lookup import charging
from service.errors import ForbiddenError, OverloadedError, ServiceError, UnauthorizedError
from service.keys.ring import Keyring, Refusal, Verdict
from service.server.edge.errors import response

OPEN_PATHS = frozenset({"/health", "/livez", "/readyz", "/metrics", "/openapi.json", "/v1/models"})
# keys in the scope: the name of the request's API key, and its rights
KEY = "docsplit.key"
RIGHTS = "docsplit.rights"
_CHECK = "docsplit.check"
# a longer token is never a key; this limit keeps hashing cheap
_LONGEST_TOKEN = 512


class Keys:
    """Requires ``Authorization: Bearer KEY`` with one of the keys, except on ``OPEN_PATHS``.

    Args:
        app: the application that it protects.
        ring: the keys; if none are required, every request passes.
        refused: counts refusals by reason.
    """

    def __init__(self, app: ASGIApp, ring: Keyring, refused: Counter) -> None:
        self._app = app
        self._ring = ring
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._ring.required or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        check = partial(self._ring.check, _token(scope))
        verdict = check()
        if verdict.refusal is not None:
            self._refused.labels(verdict.refusal).inc()
            await response(scope["path"], _error(verdict.refusal, verdict))(scope, receive, send)
            return
        scope[KEY] = verdict.key.name
        scope[RIGHTS] = verdict.key.rights
        scope[_CHECK] = check
        with charging(verdict.key.tokens):
            await self._app(scope, receive, send)


async def next_request(scope: Scope) -> None:
    """Count another request of the key, for more work of this one, when its rates allow that.

    Raises:
        ForbiddenError, UnauthorizedError: the key was revoked, has expired or was removed.
    """
    while (check := scope.get(_CHECK)) is not None:
        verdict: Verdict = check()
        if verdict.refusal is None:
            return
        if verdict.refusal is not Refusal.RATE:
            raise _error(verdict.refusal, verdict)
        await asyncio.sleep(verdict.wait)


def _token(scope: Scope) -> bytes:
    value = dict(scope["headers"]).get(b"authorization", b"")
    scheme, _, offered = value.partition(b" ")
    offered = offered.strip()
    return offered if scheme.lower() == b"bearer" and len(offered) <= _LONGEST_TOKEN else b""


def _error(refusal: Refusal, verdict: Verdict) -> ServiceError:
    match refusal:
        case Refusal.REVOKED:
            return ForbiddenError("this API key has been revoked", code="key_revoked")
        case Refusal.EXPIRED:
            return ForbiddenError("this API key has expired", code="key_expired")
        case Refusal.RATE:
            return OverloadedError(
                max(1.0, verdict.wait),
                "this API key exceeds its rate; try again",
                "rate_limit_exceeded",
            )
    return UnauthorizedError(
        "no valid API key: send the header Authorization: Bearer KEY",
        code="invalid_api_key",
        headers={"www-authenticate": "Bearer"},
    )
