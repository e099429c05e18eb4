"""``python -m service.healthcheck``: is the service of this container ready?

It reads DOCSPLIT_HOST and DOCSPLIT_PORT from the environment, as the service does. It starts anew
every few seconds, so it takes a bare socket: ``http.client`` would more than double its start.
"""

from __future__ import annotations

import os
import socket
import sys

# an address that listens everywhere cannot be connected to on every system
_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
_TIMEOUT = 2.5


def main() -> int:
    """Ask for /readyz.

    Returns:
        Exit status: 0 when it answers 200, 1 when it answers anything else or nothing.
    """
    host = os.environ.get("DOCSPLIT_HOST", "")
    host = _LOOPBACK.get(host, host)
    port = os.environ.get("DOCSPLIT_PORT", "") or "8080"
    try:
        with socket.create_connection((host, int(port)), _TIMEOUT) as connection:
            connection.sendall(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n")
            with connection.makefile("rb") as answer:
                status = answer.readline(256).decode("latin-1").strip()
    except (OSError, ValueError) as error:
        print(f"{host}:{port}: {error}")  # noqa: T201
        return 1
    print(f"{host}:{port}/readyz: {status or 'closed without an answer'}")  # noqa: T201
    return 0 if status.split()[1:2] == ["200"] else 1


if __name__ == "__main__":
    sys.exit(main())
