"""Damaged files are read in a process of its own: one that ends loses only what it read."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path

import pytest

from service.errors import StoreError
from service.index.maintenance import optimize
from service.index.storage import files, layout, manifest
from service.index.storage.database import connect
from service.index.storage.ledger import Recorder
from service.index.storage.volume import Volume
from service.integrity import reading
from service.integrity.reader import EndedError, Reader
from tests.integrity import stores


async def value(given: int) -> int:
    return given


async def abort() -> None:
    os.abort()


async def wait() -> None:
    await asyncio.sleep(600)


async def refuse() -> None:
    raise ValueError("damaged")


def test_a_read_that_ends_its_process_is_an_error_and_the_next_one_works() -> None:
    async def scenario() -> None:
        with Reader() as reader:
            with pytest.raises(EndedError, match="ended the process"):
                await reader.run(abort)
            assert await reader.run(value, 7) == 7
            with pytest.raises(RuntimeError, match="damaged"):
                await reader.run(refuse)

    stores.run(scenario())


def test_a_read_that_never_ends_is_stopped() -> None:
    async def scenario() -> None:
        with Reader(seconds=0.1) as reader, pytest.raises(EndedError, match=r"more than 0\.1 s"):
            await reader.run(wait)

    stores.run(scenario())


def table_of(root: Path) -> tuple[str, Path]:
    """The table of the index ``x``, and its folder."""
    [table] = [t for d, t in layout.tables(root) if d == "indexes" and t.startswith("x.")]
    return table, layout.folder(root, "indexes", table)


def newest(folder: Path) -> manifest.Manifest:
    return manifest.read(folder / next(iter(layout.manifests(folder).values())))


def list_of_deleted(folder: Path) -> Path:
    [path] = [f.deletions for f in newest(folder).fragments if f.deletions is not None]
    return folder / path


def spoil(file: Path) -> None:
    """Change one bit of a length in a list of deleted rows, so that LanceDB ends its process."""
    content = bytearray(file.read_bytes())
    content[-34] ^= 4
    file.write_bytes(bytes(content))


async def deleted_ids(root: Path, table: str) -> None:
    """Read rows, then again after a deletion whose file gets a wrong bit, as a replica would."""
    volume = Volume(str(root), "commit", lambda _: None)
    held = await (await connect(f"{root}/indexes", volume)).open_table(table)
    assert await held.count_rows("id = 'x-3'") == 1
    if (root / "damage").exists():
        (root / "damage").unlink()
        other = await (await connect(f"{root}/indexes")).open_table(table)
        await other.delete("id = 'x-7'")
        if (root / "record").exists():
            Recorder(root).record("indexes", table)
        spoil(list_of_deleted(layout.folder(root, "indexes", table)))
    await held.query().select(["id"]).to_arrow()


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "not recorded"])
def test_a_flip_under_an_open_table_ends_a_process_once(
    store: Path, tmp_path: Path, recorded: bool
) -> None:
    """The next process refuses the table instead of ending the same way again."""
    root = stores.copy(store, tmp_path / "copy")
    table, _ = table_of(root)

    async def scenario() -> None:
        with Reader() as process:
            # a control: without damage, the same reads work
            await process.run(deleted_ids, root, table)
            (root / "damage").touch()
            if recorded:
                (root / "record").touch()
            with pytest.raises(EndedError):
                await process.run(deleted_ids, root, table)
            with pytest.raises(RuntimeError, match="a file of this table is damaged"):
                await process.run(deleted_ids, root, table)
        volume = Volume(str(root), "commit", lambda _: None)
        database = await connect(f"{root}/indexes", volume)
        with pytest.raises(StoreError, match="damaged"):
            await database.open_table(table)
        other = await (await stores.open_indexes(root)).open("y")
        assert await stores.wrong_in_sound(other) == []

    stores.run(scenario())


def test_a_list_of_deleted_rows_that_ends_the_process_is_found_and_written_again(
    store: Path, tmp_path: Path
) -> None:
    root = stores.copy(store, tmp_path / "copy")
    shutil.rmtree(root / "integrity")
    table, folder = table_of(root)
    path = list_of_deleted(folder)
    assert files.first_damaged(root, "indexes", table) is None
    spoil(path)

    async def scenario() -> None:
        with Reader() as reader, pytest.raises(EndedError):
            # a control: this file does end a process
            await reader.run(reading.take, str(folder.parent), table, ["id"], [2 << 32])
        name = path.relative_to(folder).as_posix()
        assert files.first_damaged(root, "indexes", table) == name
        report = await stores.checked(root, "x")
        assert name in [finding.file for finding in report.findings]
        outcome = await stores.repaired(root, "x")
        assert outcome.left == []
        assert (await stores.checked(root, "x")).findings == []
        index = await (await stores.open_indexes(root)).open("x")
        assert await stores.wrong_in_sound(index) == []
        assert await index.count() == len(stores.names("x"))

    stores.run(scenario())


@pytest.mark.parametrize(
    ("damaged", "named", "unnamed"),
    [
        # the large file, whose ids the index over ids has
        ("large", {f"x-{n}" for n in range(16)} - {"x-1", "x-2", "x-5"}, 0),
        # rows that are newer than the index
        ("small", set(), 4),
        # a file that a compaction wrote, and the index: former versions have the ids
        ("compacted", {*stores.names("x"), "x-5"}, 0),
    ],
)
def test_unreadable_documents_are_named(
    store: Path, tmp_path: Path, damaged: str, named: set[str], unnamed: int
) -> None:
    root = stores.copy(store, tmp_path / "copy")
    _, folder = table_of(root)

    async def scenario() -> None:
        if damaged == "compacted":
            index = await (await stores.open_indexes(root)).open("x")
            await optimize(index.table)
            for file in newest(folder).indices["id_idx"]:
                (folder / file.path).write_bytes(b"")
        rows = {fragment.rows: fragment for fragment in newest(folder).fragments}
        chosen = rows[4] if damaged == "small" else rows[max(rows)]
        for path in chosen.paths:
            (folder / path).write_bytes(b"")
        outcome = await stores.repaired(root, "x")
        lost = "\n".join(outcome.lost)
        assert set(re.findall("document '([^']+)'", lost)) == named, lost
        assert (f"rows whose ids cannot be read: {unnamed}" in lost) == bool(unnamed), lost
        assert (await stores.checked(root, "x")).findings == []
        index = await (await stores.open_indexes(root)).open("x")
        assert await index.count() == len(set(stores.names("x")) - named) - unnamed

    stores.run(scenario())
