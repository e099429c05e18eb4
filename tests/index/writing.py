"""A process that writes to an index and prints acknowledgements; tests kill it.

    python -m tests.index.writing FOLDER [ROUNDS [BATCHES]]

The second batch of rounds, and each later one, waits for a line on standard input. The process
prints one line to standard output after each acknowledgement: ``+ID`` for an upsert, ``-ID`` for a
deletion.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

from service.index import commits
from service.index.indexes import Indexes, Model
from service.index.maintenance import optimize
from service.index.storage.database import connect
from service.index.storage.volume import Volume
from tests.index.processes import record

WRITERS = 4
ROUNDS = 6


async def opened(folder: Path) -> Indexes:
    volume = Volume(str(folder), "fsync", lambda _: None)
    await volume.claim()
    databases = [await connect(f"{folder}/{part}", volume) for part in ("indexes", "leases")]
    return Indexes(databases[0], databases[1], Model("model", "a" * 64, 4))


def acknowledge(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def write(indexes: Indexes, writer: int, rounds: int = ROUNDS, first: int = 0) -> None:
    """Upsert, now and then delete and compact; print each acknowledgement."""
    for number in range(first, first + rounds):
        index = await indexes.writable("x")
        name = f"{writer}.{number}"
        await index.put([record(name)])
        await indexes.database.sync()
        acknowledge(f"+{name}")
        if number % 3 == 2:
            await commits.delete_everywhere(indexes, "x", index.identity.uid, [name])
            acknowledge(f"-{name}")
        if writer == 0 and number % 2:
            # another writer's commit may conflict; the service also tries again later
            with suppress(RuntimeError):
                await optimize(index.table, indexes.database.sync)


async def main(folder: Path, rounds: int = ROUNDS, batches: int = 1) -> None:
    indexes = await opened(folder)
    await indexes.create("x", {})
    acknowledge("+")
    for batch in range(batches):
        if batch:
            await asyncio.to_thread(sys.stdin.readline)
        first = batch * rounds
        await asyncio.gather(*(write(indexes, writer, rounds, first) for writer in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))
