"""A real S3 server for tests: moto's, in a process of its own.

moto checks ``If-None-Match`` and then writes. Here a lock makes this one step, as S3 does, so only
one of several writers of an object succeeds.
"""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import certifi
import httpx

from tests.conftest import ROOT, free_port, wait_until

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

# a bucket that works, one that ignores If-None-Match, and one that answers 501 to it
BUCKET, CARELESS, OLD = "docsplit", "careless", "oldfashioned"
# access keys that may do everything, only read, and nothing
WRITER, READER, STRANGER = "writer", "reader", "stranger"

_READS = ("GET", "HEAD")


class S3Server:
    """A running server; its buckets are in its memory.

    Attributes:
        port: on which it listens.
        variables: the environment of a client.
    """

    def __init__(self, log: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.variables = variables(self.port)
        command = [sys.executable, "-m", "tests.s3_server", str(self.port)]
        with log.open("wb") as stream:
            self._process = subprocess.Popen(command, cwd=ROOT, stderr=stream)
        wait_until(self._answers, 60)

    def _answers(self) -> bool:
        assert self._process.poll() is None, "the S3 server ended"
        try:
            return httpx.get(f"{self.url}/_keys/{BUCKET}").status_code == 200
        except httpx.TransportError:
            return False

    def keys(self, bucket: str = BUCKET) -> list[str]:
        """Names of the objects in a bucket."""
        found: list[str] = httpx.get(f"{self.url}/_keys/{bucket}").json()
        return found

    def remove(self, bucket: str) -> None:
        """Remove a bucket with its objects."""
        httpx.delete(f"{self.url}/_keys/{bucket}").raise_for_status()

    def create(self, bucket: str) -> None:
        """Create an empty bucket."""
        httpx.put(f"{self.url}/_keys/{bucket}").raise_for_status()

    def close(self) -> None:
        """End the server."""
        self._process.kill()
        self._process.wait()


def variables(port: int, key: str = WRITER) -> dict[str, str]:
    """The environment of a client of the server, or of a proxy before it."""
    return {
        "AWS_ENDPOINT": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": "secret",
        # LanceDB's client refuses to start without certificates, even for http://
        "SSL_CERT_FILE": certifi.where(),
    }


class _Server:
    """moto's application behind the lock, with buckets and keys that refuse requests."""

    def __init__(self) -> None:
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.moto_server.werkzeug_app import create_backend_app
        from moto.s3.models import s3_backends

        self._app: WSGIApplication = create_backend_app("s3")
        self._buckets: Any = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        self._lock = threading.Lock()
        for name in (BUCKET, CARELESS, OLD):
            self._buckets.create_bucket(name, "us-east-1")

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        # a slow client must not hold the lock
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        _, bucket, *_ = environ["PATH_INFO"].split("/")
        with self._lock:
            if bucket == "_keys":
                return self._control(environ, start)
            refusal = _refusal(environ, bucket)
            if refusal is not None:
                return _answer(start, *refusal)
            if bucket == CARELESS:
                environ.pop("HTTP_IF_NONE_MATCH", None)
            return list(self._app(environ, start))

    def _control(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        import json

        name = environ["PATH_INFO"].rpartition("/")[2]
        match environ["REQUEST_METHOD"]:
            case "DELETE":
                self._buckets.buckets[name].keys.clear()
                self._buckets.delete_bucket(name)
            case "PUT":
                self._buckets.create_bucket(name, "us-east-1")
        keys = sorted(self._buckets.buckets[name].keys) if name in self._buckets.buckets else []
        return _answer(start, "200 OK", json.dumps(keys))


def _refusal(environ: WSGIEnvironment, bucket: str) -> tuple[str, str] | None:
    if bucket == OLD and "HTTP_IF_NONE_MATCH" in environ:
        return "501 Not Implemented", _error("NotImplemented")
    key = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].partition("/")[0]
    if key == STRANGER:
        return "403 Forbidden", _error("InvalidAccessKeyId")
    if key == READER and environ["REQUEST_METHOD"] not in _READS:
        return "403 Forbidden", _error("AccessDenied")
    return None


def _error(code: str) -> str:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'


def _answer(start: StartResponse, status: str, body: str) -> Iterable[bytes]:
    content = body.encode()
    start(status, [("Content-Length", str(len(content)))])
    return [content]


def main() -> None:
    """Serve on the port that the command line names."""
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        # connections stay open
        protocol_version = "HTTP/1.1"

        def log(self, *_: Any) -> None:
            """Log nothing."""

    server = make_server(
        "127.0.0.1", int(sys.argv[1]), _Server(), threaded=True, request_handler=Handler
    )
    server.serve_forever()


if __name__ == "__main__":
    main()
