"""Tables that a power failure tore: the service opens the newest whole version."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest

from service.errors import NotFoundError, StoreError
from service.index.indexes import Indexes, Model
from service.index.maintenance import optimize
from service.index.query import listing
from service.index.storage import recovery
from service.index.storage.database import connect
from service.index.storage.recovery import Apart, EndedError
from service.index.storage.volume import Disk, Durability, Volume
from tests.conftest import NIGHTLY, Server, serving
from tests.forked import Child
from tests.index.conftest import call, upsert
from tests.index.processes import record

MODEL = Model("model", "a" * 64, 4)
TEARS: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda _: b"",
    "cut": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
    "half zeros": lambda content: content[: len(content) // 2] + bytes(len(content) // 2),
    "garbage": lambda content: random.Random(5).randbytes(len(content)),
}


def tear(path: Path, how: str = "emptied") -> None:
    path.write_bytes(TEARS[how](path.read_bytes()))


def newest(table: Path) -> Path:
    return next(iter(recovery.versions(table).values()))


def table_of(folder: Path, name: str) -> Path:
    [found] = (folder / "indexes").glob(f"{name}.*.lance")
    return found


def age(table: Path) -> None:
    """Let the versions of a table be so old that damage to several is no torn commit."""
    for number, path in enumerate(recovery.versions(table).values()):
        made = path.stat().st_mtime - 2 * recovery.TORN_SECONDS * number
        os.utime(path, (made, made))


class Process:
    """A process on a store, without an engine."""

    def __init__(
        self, folder: Path, durability: Durability = "fsync", model: Model = MODEL
    ) -> None:
        self.model = model
        self.removed = 0
        self.folder = folder
        self.volume = Volume(str(folder), durability, self._count)

    def _count(self, versions: int) -> None:
        self.removed += versions

    async def open(self) -> Indexes:
        await self.volume.claim()
        databases = [
            await connect(f"{self.folder}/{part}", self.volume) for part in ("indexes", "leases")
        ]
        return Indexes(databases[0], databases[1], self.model)


# the store of ``begun``, once it was made
_made: list[TemporaryDirectory[str]] = []


async def begun(folder: Path) -> Indexes:
    """A store of two indexes; ``x`` has the documents 0 to 4, each from one commit."""
    if not _made:
        made = TemporaryDirectory()
        await _make(Path(made.name))
        _made.append(made)
    shutil.copytree(_made[0].name, folder, dirs_exist_ok=True)
    return await Process(folder).open()


async def _make(folder: Path) -> None:
    indexes = await Process(folder).open()
    for name in ("x", "y", "former"):
        await indexes.create(name, {})
    await indexes.drop("former")
    await (await indexes.open("y")).put([record("0")])
    for number in range(5):
        await (await indexes.open("x")).put([record(f"{number}", f"text {number}")])
    await indexes.database.sync()


async def ids(indexes: Indexes, name: str) -> list[str]:
    page = await listing.page(await indexes.open(name), "", 100)
    return [head.id for head in page.heads]


@pytest.mark.parametrize("how", TEARS)
def test_the_manifest_before_replaces_a_torn_one(tmp_path: Path, how: str) -> None:
    async def main() -> None:
        await begun(tmp_path)
        tear(newest(table_of(tmp_path, "x")), how)
        after = Process(tmp_path)
        indexes = await after.open()
        assert await ids(indexes, "x") == ["0", "1", "2", "3"]
        assert await ids(indexes, "y") == ["0"]
        assert after.removed == 1
        assert len(list((tmp_path / "quarantine" / "indexes").glob("x.*/*.manifest"))) == 1
        # this and other processes can write to it
        await (await indexes.open("x")).put([record("5")])
        assert await ids(await Process(tmp_path).open(), "x") == ["0", "1", "2", "3", "5"]

    asyncio.run(main())


@pytest.mark.parametrize("how", ["emptied", "zeros"])
@pytest.mark.parametrize("table", ["dropped", "leases"])
def test_a_torn_table_of_the_store_stops_no_index(tmp_path: Path, table: str, how: str) -> None:
    async def main() -> None:
        await begun(tmp_path)
        for path in (tmp_path / "leases" / f"{table}.lance" / "_versions").glob("*.manifest"):
            if table == "leases" or path == newest(path.parent.parent):
                tear(path, how)
        indexes = await Process(tmp_path).open()
        assert await ids(indexes, "x") == ["0", "1", "2", "3", "4"]
        assert await indexes.names() == ["x", "y"]
        await indexes.create("z", {})
        await indexes.drop("y")
        assert await indexes.names() == ["x", "z"]

    asyncio.run(main())


@pytest.mark.parametrize("how", [*TEARS, "missing"])
@pytest.mark.parametrize("kind", ["data", "_deletions", "_indices"])
def test_a_version_that_needs_a_torn_file_hides_nothing_acknowledged(
    tmp_path: Path, kind: str, how: str
) -> None:
    async def main() -> None:
        indexes = await begun(tmp_path)
        folder = table_of(tmp_path, "x")
        before = {path for path in folder.rglob("*") if path.is_file()}
        index = await indexes.open("x")
        # no client got an answer for this write
        if kind == "data":
            await index.put([record("5")])
        elif kind == "_deletions":
            # one of two rows in a file is deleted, so that the file stays and its deletion is noted
            await optimize(index.table)
            await indexes.database.sync()
            before = {path for path in folder.rglob("*") if path.is_file()}
            await index.table.delete("id = '4'")
        else:
            await optimize(index.table)
        [torn, *_] = sorted(set((folder / kind).rglob("*.*")) - before)
        if how == "missing":
            torn.unlink()
        else:
            tear(torn, how)
        process = Process(tmp_path)
        again = await process.open()
        assert await ids(again, "x") == ["0", "1", "2", "3", "4"]
        assert process.removed

    asyncio.run(main())


def test_damage_to_an_old_file_hides_no_later_write(tmp_path: Path) -> None:
    """A control: the same file of a commit of just before counts as torn."""

    async def main() -> None:
        await begun(tmp_path)
        folder = table_of(tmp_path, "x")
        [*_, damaged] = sorted((folder / "data").iterdir(), key=lambda path: path.stat().st_mtime)
        content = damaged.read_bytes()
        later = (await Process(tmp_path).open()).open("x")
        await (await later).put([record("5")])
        held = recovery.versions(folder)
        age(folder)
        tear(damaged)
        indexes = await Process(tmp_path).open()
        with pytest.raises(StoreError, match="restore a backup"):
            await indexes.open("x")
        assert recovery.versions(folder) == held
        assert await ids(indexes, "y") == ["0"]
        damaged.write_bytes(content)
        assert await ids(indexes, "x") == ["0", "1", "2", "3", "4", "5"]
        for path in held.values():
            os.utime(path)
        tear(damaged)
        assert await ids(await Process(tmp_path).open(), "x") == ["0", "1", "2", "3"]

    asyncio.run(main())


def scan(folder: str) -> int:
    """The number of rows of a table."""
    import lance

    return lance.dataset(folder).to_table(columns=["id"]).num_rows


def test_a_call_that_ends_its_process_is_an_error_and_the_next_one_works() -> None:
    async def main() -> None:
        apart = Apart()
        with pytest.raises(EndedError, match="ended the process"):
            await apart.run(os.abort)
        assert await apart.run(os.path.basename, "a/b") == "b"
        with pytest.raises(RuntimeError, match="No such file"):
            await apart.run(os.stat, str(Path("/no/such/file")))
        apart.close()

    asyncio.run(main())


def keep_apart(*, closes: bool) -> None:
    """End while a process of its own waits for the next call, or has been asked to end."""

    async def main() -> None:
        apart = Apart()
        assert await apart.run(abs, -3) == 3
        if closes:
            apart.close()

    asyncio.run(main())


@pytest.mark.parametrize("closes", [True, False])
def test_a_worker_ends_though_it_has_a_process_of_its_own(closes: bool) -> None:
    # by chance, one in two of those that had closed it never ended
    for _ in range(5):
        worker = Child(partial(keep_apart, closes=closes))
        try:
            assert worker.wait(60) == 0
        finally:
            worker.kill()


def test_a_file_that_ends_a_process_stops_only_its_index(tmp_path: Path) -> None:
    """LanceDB believes the lengths in its files."""

    async def main() -> None:
        indexes = await begun(tmp_path)
        folder = table_of(tmp_path, "x")
        index = await indexes.open("x")
        await optimize(index.table)
        await index.table.delete("id = '4'")
        await index.put([record("5")])
        apart = Apart()
        assert await apart.run(scan, str(folder)) == 5
        [file] = (folder / "_deletions").iterdir()
        content = bytearray(file.read_bytes())
        content[-34] ^= 4
        file.write_bytes(bytes(content))
        with pytest.raises(EndedError):
            await apart.run(scan, str(folder))
        apart.close()
        age(folder)
        again = await Process(tmp_path).open()
        with pytest.raises(StoreError, match="restore a backup"):
            await again.open("x")
        assert await ids(again, "y") == ["0"]

    asyncio.run(main())


def test_an_index_without_a_readable_version_stops_no_other(tmp_path: Path) -> None:
    async def main() -> None:
        await begun(tmp_path)
        for path in recovery.versions(table_of(tmp_path, "x")).values():
            tear(path)
        indexes = await Process(tmp_path).open()
        with pytest.raises(StoreError, match="restore a backup"):
            await indexes.open("x")
        assert await ids(indexes, "y") == ["0"]
        # the creation of the other index was never acknowledged
        for path in recovery.versions(table_of(tmp_path, "y")).values():
            tear(path)
        for path in (table_of(tmp_path, "y") / "data").iterdir():
            path.unlink()
        with pytest.raises(NotFoundError):
            await (await Process(tmp_path).open()).open("y")

    asyncio.run(main())


def test_processes_that_recover_at_once_never_move_a_whole_version(tmp_path: Path) -> None:
    async def main() -> None:
        await begun(tmp_path)
        folder = table_of(tmp_path, "x")
        for _ in range(5 if NIGHTLY else 2):
            tear(newest(folder))
            processes = [await Process(tmp_path).open() for _ in range(4)]

            async def write(number: int, indexes: Indexes) -> None:
                await (await indexes.open("x")).put([record(f"w{number}")])

            await asyncio.gather(*(write(n, p) for n, p in enumerate(processes)))
            held = await ids(await Process(tmp_path).open(), "x")
            assert {f"w{n}" for n in range(4)} <= set(held)

    asyncio.run(main())


def test_a_commit_that_replaced_a_torn_version_is_not_moved(tmp_path: Path) -> None:
    class Slow(Apart):
        """Gives its answer after another process has moved the version and committed the next."""

        async def run(self, *args: Any, **kwargs: Any) -> Any:
            said = await super().run(*args, **kwargs)
            if said is not None:
                await recovery.recover(Apart(), folder.parent, folder.stem)
                await (await (await Process(tmp_path).open()).open("x")).put([record("w")])
                assert newest(folder) == torn
            return said

    async def main() -> None:
        await recovery.recover(Slow(), folder.parent, folder.stem)
        assert await ids(await Process(tmp_path).open(), "x") == ["0", "1", "2", "3", "w"]

    asyncio.run(begun(tmp_path))
    folder = table_of(tmp_path, "x")
    torn = newest(folder)
    tear(torn)
    asyncio.run(main())


def test_a_running_service_continues_with_the_version_before(
    tmp_path: Path, light: tuple[str, ...]
) -> None:
    def logged(server: Server) -> list[str]:
        lines = [json.loads(line) for line in server.log.read_text().splitlines() if "{" in line]
        return [line["table"] for line in lines if line["event"] == "version_unreadable"]

    with serving(tmp_path / "log", *light) as server:
        for name in ("x", "y", "former"):
            call(server, "PUT", f"/indexes/{name}", {}, status=201)
        call(server, "DELETE", "/indexes/former", status=204)
        for number in range(3):
            upsert(server, "x", {"id": f"{number}", "text": f"text {number}"})
        folder = tmp_path / "index"
        tear(newest(table_of(folder, "x")))
        tear(newest(folder / "leases" / "dropped.lance"))
        tear(newest(folder / "leases" / "leases.lance"))
        listed = call(server, "GET", "/indexes/x/documents", params={"limit": 10})["documents"]
        assert [document["id"] for document in listed] == ["0", "1"]
        upsert(server, "x", {"id": "2", "text": "text 2"})
        call(server, "DELETE", "/indexes/y", status=204)
        assert call(server, "GET", "/indexes") == {"indexes": ["x"]}
        assert server.metric("docsplit_store_versions_removed_total") == 3
        assert [name.split(".")[0] for name in logged(server)] == ["x", "dropped", "leases"]
        assert httpx.get(f"{server.url}/readyz").json()["degraded"] is False


def test_commits_share_a_sync_that_began_after_them(tmp_path: Path) -> None:
    async def main() -> None:
        with ThreadPoolExecutor(2) as executor:
            disk = Disk(tmp_path, executor)
            written = 0
            covered: list[int] = []

            def flush() -> None:
                covered.append(written)

            disk._flush = flush

            async def commit() -> None:
                nonlocal written
                written += 1
                mine = written
                await disk.sync()
                assert max(covered) >= mine

            await asyncio.gather(*(commit() for _ in range(50)))
            assert len(covered) == 1
            for _ in range(3):
                await commit()
            assert covered == [50, 51, 52, 53]

    asyncio.run(main())


def test_after_a_failed_sync_no_write_is_acknowledged(tmp_path: Path) -> None:
    async def main() -> None:
        with ThreadPoolExecutor(2) as executor:
            disk = Disk(tmp_path, executor)
            fails = True

            def flush() -> None:
                if fails:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))

            disk._flush = flush
            with pytest.raises(StoreError) as caught:
                await disk.sync()
            assert caught.value.reason == "sync"
            # the kernel now reports success
            fails = False
            with pytest.raises(StoreError):
                await disk.sync()
            assert disk.failed

    asyncio.run(main())
