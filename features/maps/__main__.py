"""The process that computes one map: ``python -m features.maps``.

It reads a line with ``path`` and ``table``. It answers ``{"step", "share"}`` often, then the map
with the lengths of its binary values, which follow.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from service import child
from service.logs import outline

# seconds between two lines
_PAUSE = 0.5


async def main(path: str, table: str) -> None:
    """Compute the map of a table.

    Args:
        path: of the store, a folder or a URI.
        table: of a generation, in the database ``indexes``.
    """
    from features.maps.compute import compute
    from service.index.documents import Index
    from service.index.query.words import Vocabulary
    from service.index.rows import schema
    from service.index.storage.database import connect

    reported = 0.0

    def tell(step: str, share: float) -> None:
        nonlocal reported
        if time.monotonic() - reported > _PAUSE:
            reported = time.monotonic()
            child.say({"step": step, "share": round(share, 3)})

    opened = await (await connect(f"{path}/indexes")).open_table(table)
    held = await opened.schema()
    index = Index(opened, held, schema.identity(held), Vocabulary())
    made = await compute(index, tell)
    blobs = {name: value for name, value in made.items() if isinstance(value, bytes)}
    head: dict[str, Any] = {**made, **{name: len(value) for name, value in blobs.items()}}
    child.say({"map": head, "blobs": list(blobs)}, *blobs.values())


def _work(wish: dict[str, Any]) -> None:
    asyncio.run(main(wish["path"], wish["table"]))


if __name__ == "__main__":
    child.serve(_work, outline)
