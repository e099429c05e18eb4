"""Exports the index ``x`` of a store of ``tests.integrity.stores``; tests kill it.

python -m tests.index.exporting STORE DEST
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from service.bulk.exporting.destination import Destination, Manifest, Plan
from service.bulk.exporting.run import Export
from tests.integrity import stores


async def export(store: Path, folder: Path, form: str = "parquet", rows: int = 1) -> Manifest:
    """Export what is missing in a folder, one document a file."""
    indexes = await stores.open_indexes(store)
    index = await indexes.open("x")
    destination = Destination(folder)
    with destination.locked():
        plan = Plan("x", index.identity.generation, form, True, rows)
        run = Export(indexes, index, destination, plan)
        await run.open()
        assert run.pinned
        await run.run(lambda _: None)
    return run.manifest


if __name__ == "__main__":
    asyncio.run(export(Path(sys.argv[1]), Path(sys.argv[2])))
