"""ASGI middleware that restricts what browsers and caches may do with an answer."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = {
    # vectors reveal the text, so no cache may keep an answer for another client
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
_POLICY = "default-src 'none'; frame-ancestors 'none'"
# FastAPI's page loads Swagger UI from there, and starts it with an inline script
_DOCS_POLICY = (
    "default-src 'none'; connect-src 'self'; "
    "script-src 'unsafe-inline' https://cdn.jsdelivr.net; "
    "style-src 'unsafe-inline' https://cdn.jsdelivr.net; "
    "img-src data: https://fastapi.tiangolo.com; frame-ancestors 'none'"
)


class SecurityHeaders:
    """Adds these headers to every answer.

    Args:
        app: the application that answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        policy = _DOCS_POLICY if scope["path"] == "/docs" else _POLICY

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers["content-security-policy"] = policy
            await send(message)

        await self._app(scope, receive, secured)
