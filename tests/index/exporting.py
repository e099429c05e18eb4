"""Exports the index ``x`` of a store of ``tests.integrity.stores``.

``main`` stops in the middle, and waits until a test kills it.
"""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from service.bulk.exporting.destination import MANIFEST, Destination, Manifest, Plan
from service.bulk.exporting.run import Export
from service.index.indexes import Indexes
from tests.integrity import stores

# the process stops when it has written so many documents, the last one into an open file
MIDDLE = 10


def read(folder: Path) -> pa.Table:
    """All rows of a complete export, after a check of its digests."""
    held = json.loads((folder / MANIFEST).read_text())
    assert held["complete"]
    for file in held["files"]:
        content = (folder / file["name"]).read_bytes()
        assert file["sha256"] == hashlib.sha256(content).hexdigest()
    assert {f["name"] for f in held["files"]} | {MANIFEST} == {p.name for p in folder.iterdir()}
    tables = [
        pq.read_table(folder / file["name"])
        if held["plan"]["form"] == "parquet"
        else pa.ipc.open_file(folder / file["name"]).read_all()
        for file in held["files"]
    ]
    assert [table.num_rows for table in tables] == [file["rows"] for file in held["files"]]
    return pa.concat_tables(tables)


async def export(store: Path, folder: Path, form: str = "parquet", rows: int = 1) -> Manifest:
    """Export what is missing in a folder, by default one document a file."""
    return await export_of(await stores.open_indexes(store), "x", folder, form, rows)


async def export_of(
    indexes: Indexes,
    name: str,
    folder: Path,
    form: str = "parquet",
    rows: int = 1,
    show: Callable[[int], None] = lambda _: None,
) -> Manifest:
    """Export what is missing of an index."""
    index = await indexes.open(name)
    destination = Destination(folder)
    with destination.locked():
        plan = Plan(name, index.identity.generation, form, True, rows)
        run = Export(indexes, index, destination, plan)
        await run.open()
        assert run.pinned
        await run.run(show)
    return run.manifest


async def main(store: Path, folder: Path) -> None:
    def stop(done: int) -> None:
        if done == MIDDLE:
            signal.pause()

    await export_of(await stores.open_indexes(store), "x", folder, show=stop)
