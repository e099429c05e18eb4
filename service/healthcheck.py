"""``python -m service.healthcheck``: check that the service of this container is ready.

It reads DOCSPLIT_HOST and DOCSPLIT_PORT from the environment, as the service does. It runs every
few seconds, so it uses a bare socket: importing ``http.client`` would more than double its time.
"""

import os
import socket
import sys

# some systems cannot connect to the address that means "listen everywhere"
_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
_TIMEOUT = 2.5


def main() -> int:
    """Request /readyz.

    Returns:
        Exit status: 0 after the answer 200, 1 after any other answer or none.
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
