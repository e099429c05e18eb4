"""ASGI middleware that serves the pages for browsers, before anything checks a key or a body."""

from __future__ import annotations

from types import SimpleNamespace

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from features.page.folder import File, load
from service.server.edge.layer import SECURITY as HEADERS

_OWN = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
_NO_OTHERS = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# with trusted types, a browser refuses any attempt to turn a text into HTML or a script
_UI_POLICY = (
    f"{_OWN}img-src 'self'; {_NO_OTHERS}; require-trusted-types-for 'script'; trusted-types 'none'"
)
# the icons of Swagger UI are data in its style sheet
_DOCS_POLICY = f"{_OWN}img-src 'self' data:; {_NO_OTHERS}"

_REVALIDATE = "no-cache"
_FOR_EVER = "public, max-age=31536000, immutable"

# the root without the page
_ROOT = b'{"service":"docsplit","docs":"/docs","openapi":"/openapi.json","ready":"/readyz"}'


class Pages:
    """Serves Swagger UI at ``/docs`` and, if wanted, the page at ``/``.

    It answers GET and HEAD. All other requests pass on, also those of unknown files.

    Args:
        ui: whether to serve the page at ``/``; otherwise JSON there names the documentation.
    """

    def __init__(self, app: ASGIApp, ui: bool) -> None:
        self._app = app
        self._pages = {"/docs": ("docs", load("swagger", "docs"), _DOCS_POLICY)}
        if ui:
            self._pages["/"] = ("page", load("ui", "page"), _UI_POLICY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = None
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
            answer = self._answer(scope)
        await (self._app if answer is None else answer)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response | None:
        path = scope["path"]
        # ``Access`` counts and logs the path of a route
        if path in self._pages:
            _, folder, policy = self._pages[path]
            scope["route"] = SimpleNamespace(path=path)
            return _response(scope, folder.page, _REVALIDATE, policy)
        if path == "/":
            scope["route"] = SimpleNamespace(path=path)
            shown = b"" if scope["method"] == "HEAD" else _ROOT
            length = {"content-length": str(len(_ROOT))}
            return Response(shown, headers=HEADERS | length, media_type="application/json")
        for name, folder, policy in self._pages.values():
            if path.startswith(f"/{name}/"):
                digest, _, file = path.removeprefix(f"/{name}/").partition("/")
                if file in folder.files:
                    scope["route"] = SimpleNamespace(path=f"/{name}/{{file}}")
                    # the page of another replica may name files of another version
                    lasting = _FOR_EVER if digest == folder.digest else _REVALIDATE
                    return _response(scope, folder.files[file], lasting, policy)
        return None


def _response(scope: Scope, file: File, caching: str, policy: str) -> Response:
    given = Headers(scope=scope)
    etag = f'"{file.digest}"'
    headers = HEADERS | {
        "cache-control": caching,
        "content-security-policy": policy,
        "etag": etag,
        "vary": "accept-encoding",
    }
    if etag in given.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    body = file.body
    if "gzip" in given.get("accept-encoding", ""):
        headers["content-encoding"] = "gzip"
        body = file.packed
    headers["content-length"] = str(len(body))
    shown = b"" if scope["method"] == "HEAD" else body
    return Response(shown, headers=headers, media_type=file.kind)
