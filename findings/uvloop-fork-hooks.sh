#!/bin/sh
# uvloop starts a subprocess by a fork that runs Python's hooks of fork; asyncio does not.
#
# With uvloop 0.23.0 (Linux or macOS). Guess: `asyncio.create_subprocess_exec` is the same under both loops. Seen: under
# uvloop the functions of `os.register_at_fork(after_in_child=...)` run in the child before the program starts. A hook that
# takes a lock, writes a log or closes connections then does so for each subprocess, and at worst waits there for a thread
# that the child does not have. Code that was tested under asyncio meets this only behind a server that installs uvloop.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet uvloop==0.23.0
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import asyncio
import os
from pathlib import Path

import uvloop

EXPECTED = {"asyncio": 0, "uvloop": 1}
trace = Path("trace")


def leave_a_trace() -> None:
    with trace.open("a") as stream:
        stream.write("x")


os.register_at_fork(after_in_child=leave_a_trace)


async def start() -> None:
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()


def hooks(run) -> int:
    trace.write_text("")
    run(start())
    return len(trace.read_text())


print("uvloop", uvloop.__version__)
seen = {"asyncio": hooks(asyncio.run), "uvloop": hooks(uvloop.run)}
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
