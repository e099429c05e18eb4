"""A service of its own for the time of a training: heads are trained on served vectors."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from training.errors import HeadError

_READY_SECONDS = 120
_REQUEST_SECONDS = 86_400
_ENGINE_SECONDS = 1_800


class Client:
    """JSON over HTTP.

    Args:
        url: of the service.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def json(self, method: str, path: str, body: Any = None) -> Any:
        """The answer's body.

        Raises:
            HeadError: the service refused; its message.
        """
        content = self.read(method, path, body)
        return json.loads(content) if content else None

    def read(self, method: str, path: str, body: Any = None) -> bytes:
        """The answer's bytes, as ``json``."""
        data = None if body is None else json.dumps(body).encode()
        headers = {
            "content-type": "application/json",
            "x-request-timeout": str(_REQUEST_SECONDS),
        }
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310 - our own http URL
        try:
            with urllib.request.urlopen(request, timeout=_REQUEST_SECONDS) as answer:  # noqa: S310
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            raise HeadError(str(json.load(error).get("error", error))) from None


@contextmanager
def served(bundle: Path, index_path: Path) -> Iterator[Client]:
    """The service over a bundle, on a free port of the loopback address.

    Raises:
        HeadError: it does not start; says why.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "service", "--host", "127.0.0.1", "--port", str(port)]
    command += [*flags(bundle, index_path), "--drain-seconds", "0", "--log-level", "error"]
    # whole data sets, which nobody else can send
    command += ["--max-body-bytes", str(2**31), "--max-body-values", str(2**31)]
    command += ["--max-inflight-bytes", str(2**40)]
    command += ["--max-request-timeout", str(_REQUEST_SECONDS)]
    # Windows of a whole set: texts of one window are read again as first windows.
    command += ["--cache-bytes", str(2**29)]
    # On a machine that is busy otherwise a batch may be slow and the engine in order.
    command += ["--engine-timeout", str(_ENGINE_SECONDS)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stderr=log, env=environment())  # noqa: S603
        try:
            _wait(process, f"http://127.0.0.1:{port}/readyz", log)
            yield Client(f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait()


def flags(bundle: Path, index_path: Path) -> list[str]:
    """Where the service finds the bundle and keeps what it learns."""
    return ["--bundle", str(bundle), "--index-path", str(index_path)]


def environment() -> dict[str, str]:
    """The environment without the settings of a service that runs for others."""
    return {k: v for k, v in os.environ.items() if not k.startswith("DOCSPLIT_")}


def _wait(process: subprocess.Popen[bytes], url: str, log: Any) -> None:
    until = time.monotonic() + _READY_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            log.seek(0)
            said = log.read().decode(errors="replace").strip().splitlines()
            raise HeadError(f"the service did not start: {said[-1] if said else 'no reason given'}")
        try:
            urllib.request.urlopen(url).close()  # noqa: S310
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise HeadError(f"the service is not ready after {_READY_SECONDS} s")
