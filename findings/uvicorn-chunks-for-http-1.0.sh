#!/bin/sh
# uvicorn with httptools sends chunks to a client of HTTP/1.0, which cannot read them; with h11 it does not.
#
# With uvicorn 0.54.0. Guess: both parsers answer HTTP/1.0 alike, and a stream ends by closing the connection. Seen: with
# httptools, the faster one that `uvicorn[standard]` installs and chooses, the body has the lengths of the chunks in it. Health
# checks of balancers, `ab`, and proxies that speak 1.0 to their upstream by default get "3", "one", "0" as content; an answer
# with a content-length is right in both. So streams need HTTP/1.1 in the proxy's configuration.
# Joined here: balancers and streams.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet uvicorn==0.54.0 httptools==0.9.0
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import socket
import subprocess
import sys
import time
from pathlib import Path

import uvicorn

EXPECTED = {
    "h11": b"onetwo",
    "httptools": b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n",
}
Path("app.py").write_text(
    """
async def app(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"one", "more_body": True})
    await send({"type": "http.response.body", "body": b"two"})
"""
)


def body(parser: str) -> bytes:
    """What a client of HTTP/1.0 gets after the headers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port), "--http", parser]
    server = subprocess.Popen([*command, "--log-level", "error", "--lifespan", "off"])
    try:
        for _ in range(200):
            try:
                client = socket.create_connection(("127.0.0.1", port), 10)
                break
            except OSError:
                time.sleep(0.1)
        with client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            got = b""
            while more := client.recv(65536):
                got += more
        return got.partition(b"\r\n\r\n")[2]
    finally:
        server.terminate()
        server.wait()


print("uvicorn", uvicorn.__version__)
seen = {parser: body(parser) for parser in EXPECTED}
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
