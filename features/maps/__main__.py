"""The process that computes one map: ``python -m features.maps``.

It reads a JSON object with ``path`` and ``table`` on stdin, and ends when stdin does: so it never
outlives the service. On stdout it writes lines of JSON: ``{"step", "share"}`` often, then the map
with the lengths of its binary values, which follow.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from typing import Any, BinaryIO

import orjson

from service.logs import outline
from service.precedence import give_way

# seconds between two lines
_PAUSE = 0.5


async def main(path: str, table: str, out: BinaryIO) -> None:
    """Compute the map of a table.

    Args:
        path: of the store, a folder or a URI.
        table: of a generation, in the database ``indexes``.
        out: gets the lines and the map.
    """
    from features.maps.compute import compute
    from service.index.documents import Index
    from service.index.query.words import Vocabulary
    from service.index.rows import schema
    from service.index.storage.database import connect

    told = 0.0

    def tell(step: str, share: float) -> None:
        nonlocal told
        if time.monotonic() - told > _PAUSE:
            told = time.monotonic()
            out.write(orjson.dumps({"step": step, "share": round(share, 3)}) + b"\n")
            out.flush()

    opened = await (await connect(f"{path}/indexes")).open_table(table)
    held = await opened.schema()
    index = Index(opened, held, schema.identity(held), Vocabulary())
    made = await compute(index, tell)
    blobs = {name: value for name, value in made.items() if isinstance(value, bytes)}
    head: dict[str, Any] = {**made, **{name: len(value) for name, value in blobs.items()}}
    out.write(orjson.dumps({"map": head, "blobs": list(blobs)}) + b"\n")
    for value in blobs.values():
        out.write(value)
    out.flush()


def _end_with_stdin() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    give_way()
    wish = orjson.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        asyncio.run(main(wish["path"], wish["table"], sys.stdout.buffer))
    except Exception as error:  # noqa: BLE001 the service logs it
        sys.stdout.buffer.write(orjson.dumps({"error": outline(error)}) + b"\n")
        sys.stdout.flush()
    # without waiting for the thread
    os._exit(0)
