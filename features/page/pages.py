"""ASGI middleware that serves the pages for browsers, before anything checks a key or a body.

The files of a page are in memory, and compressed.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.server.edge.layer import SECURITY as HEADERS

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# stands in a page for the path of its files
_PLACE = b"{files}"
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class File:
    """A file that browsers load.

    Args:
        body: its content.
        packed: the same, compressed by gzip.
        kind: its media type.
        digest: the first 16 digits of its SHA-256.
    """

    body: bytes
    packed: bytes
    kind: str
    digest: str


@dataclass(frozen=True)
class Folder:
    """A page and the files that it loads.

    Args:
        page: the HTML. It names its files below ``{name}/{digest}/``, so that browsers can keep
            them for ever: other files have another digest.
        files: the other files by name.
        digest: the first 16 digits of the SHA-256 of all files.
    """

    page: File
    files: dict[str, File]
    digest: str


@cache
def load(folder: str, name: str) -> Folder:
    """Read a folder beside this module.

    Args:
        folder: ``ui`` or ``swagger``; one of its files is ``index.html``.
        name: the path of its files, relative to the page.
    """
    paths = sorted(path for path in (_HERE / folder).iterdir() if path.suffix in _TYPES)
    bodies = {path.name: path.read_bytes() for path in paths}
    every = b"".join(b"%s %d\0%s" % (n.encode(), len(b), b) for n, b in bodies.items())
    digest = hashlib.sha256(every).hexdigest()[:16]
    page = bodies.pop("index.html").replace(_PLACE, f"{name}/{digest}".encode())
    files = {each: _file(each, body) for each, body in bodies.items()}
    return Folder(_file("index.html", page), files, digest)


def _file(name: str, body: bytes) -> File:
    digest = hashlib.sha256(body).hexdigest()[:16]
    return File(body, gzip.compress(body, mtime=0), _TYPES[Path(name).suffix], digest)


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
