"""Static files of one page, in memory and compressed."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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
