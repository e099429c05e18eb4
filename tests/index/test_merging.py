"""Which files of a large table are merged, and the process that does it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import lance
import pytest
from lancedb.table import AsyncTable
from structlog.testing import capture_logs

from docsplit.corpora.documents import Document
from service.bulk import loader, optimizing
from service.bulk.loader import Batch, Encoded, Outcome, Updater, here
from service.index import maintenance, merger, merging
from service.index.commits import Upsert, Writer
from service.index.indexes import Indexes
from service.index.maintenance import Maintainer, optimize
from service.index.merger import (
    COVERED,
    FULL_BYTES,
    GROUP_BYTES,
    Fragment,
    merge,
    next_group,
    update,
)
from service.index.rows.records import encoded
from service.index.storage import recovery
from tests.conftest import NIGHTLY, until
from tests.index import piped
from tests.integrity import stores

SMALL = 1 << 20


def small(number: int, **other: object) -> Fragment:
    return Fragment(**{"id": number, "rows": 10, "deleted": 0, "bytes": SMALL, **other})  # type: ignore[arg-type]


def ids(group: list[Fragment] | None) -> list[int] | None:
    return None if group is None else [one.id for one in group]


class TestGroups:
    def test_small_neighbours_are_merged(self) -> None:
        assert ids(next_group([small(0), small(1), small(2)])) == [0, 1, 2]
        assert next_group([small(0)]) is None
        assert next_group([]) is None

    def test_a_group_has_bounded_bytes(self) -> None:
        half = [small(number, bytes=FULL_BYTES - 1) for number in range(5)]
        assert ids(next_group(half)) == [0, 1]
        many = [small(number, bytes=GROUP_BYTES // 100) for number in range(500)]
        assert ids(next_group(many)) == list(range(100))

    def test_full_fragments_stay_and_separate_their_neighbours(self) -> None:
        full = small(1, bytes=FULL_BYTES)
        assert next_group([small(0), full, small(2)]) is None
        assert ids(next_group([small(0), full, small(2), small(3)])) == [2, 3]
        # one whose size is unknown may be large
        assert next_group([small(0), small(1, bytes=None), small(2)]) is None

    def test_a_full_fragment_with_many_deleted_rows_is_written_again(self) -> None:
        full = small(0, bytes=FULL_BYTES, rows=100, deleted=11)
        assert ids(next_group([full, small(1), small(2)])) == [0]
        assert next_group([small(0, bytes=FULL_BYTES, rows=100, deleted=10)]) is None

    def test_fragments_that_indexes_cover_wait_for_more(self) -> None:
        covered = [small(number, covered=frozenset("a")) for number in range(COVERED)]
        assert next_group(covered[1:]) is None
        assert ids(next_group(covered)) == list(range(COVERED))
        # new ones are not merged with them
        assert ids(next_group([*covered[1:], small(8), small(9)])) == [8, 9]
        # a merge that makes a full one is worth it
        large = [small(number, bytes=FULL_BYTES // 2, covered=frozenset("a")) for number in (0, 1)]
        assert ids(next_group(large)) == [0, 1]
        # others and deleted rows come first if the indexes are not to be written again
        assert next_group(large, covered=False) is None
        assert ids(next_group([*large, small(2), small(3)], covered=False)) == [2, 3]
        gone = small(4, bytes=FULL_BYTES, deleted=2, covered=frozenset("a"))
        assert ids(next_group([*large, gone], covered=False)) == [4]


def files(folder: Path) -> set[str]:
    """The files of rows of a table's newest version."""
    found = lance.dataset(folder).get_fragments()
    data = {f"data/{file.path}" for one in found for file in one.metadata.files}
    return data | {path for one in found if (path := one.deletion_file()) is not None}


async def put(table_of: Indexes, first: int, number: int) -> AsyncTable:
    index = await table_of.open("x")
    for one in range(first, first + number):
        await index.put([stores.record(f"d{one}", stores.text_of("word") * 50)])
    return index.table


@pytest.mark.folder
def test_a_full_file_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "SMALL_BYTES", 0)

    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)
        await indexes.create("x", {"year": "integer"})
        table = await put(indexes, 0, 20)
        folder = tmp_path / "indexes" / f"{table.name}.lance"
        assert len(files(folder)) == 20
        bytes_of_one = await merging.size(table) // 20
        monkeypatch.setattr(merger, "FULL_BYTES", 10 * bytes_of_one)
        monkeypatch.setattr(merger, "GROUP_BYTES", 12 * bytes_of_one)
        uri = await table.uri()
        assert await asyncio.to_thread(merge, uri, None) == 20
        [full] = sorted(
            file for file in files(folder) if (folder / file).stat().st_size > 10 * bytes_of_one
        )
        await put(indexes, 20, 3)
        assert await asyncio.to_thread(merge, uri, None) > 0
        assert full in files(folder)
        # the control: LanceDB writes it again
        monkeypatch.setattr(merging, "SMALL_BYTES", 1 << 40)
        for _ in range(2):
            await optimize(table)
        assert full not in files(folder)
        assert await table.count_rows() == 23

    stores.run(scenario())


@pytest.mark.parametrize("every", [False, True])
def test_files_that_indexes_cover_are_merged_one_group_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: bool
) -> None:
    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)
        await indexes.create("x", {})
        table = await put(indexes, 0, 8)
        bytes_of_one = await merging.size(table) // 8
        monkeypatch.setattr(merger, "FULL_BYTES", int(1.5 * bytes_of_one))
        monkeypatch.setattr(merger, "GROUP_BYTES", int(2.5 * bytes_of_one))
        uri = await table.uri()
        assert await asyncio.to_thread(update, uri, None) == []
        await put(indexes, 8, 2)
        # two that no index covers, and two or all of eight that some cover
        assert await asyncio.to_thread(merge, uri, None, every=every) == (10 if every else 4)
        assert await table.count_rows() == 10

    stores.run(scenario())


def test_the_command_asks_for_every_group_and_other_maintenance_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "SMALL_BYTES", 0)
    monkeypatch.setattr(merging, "started", piped.merging_process)
    asked: list[object] = []
    ask = merging._There._ask

    async def noted(self: merging._There, work: str, **given: object) -> object:
        asked.extend([given["every"]] if work == "merge" else [])
        return await ask(self, work, **given)

    monkeypatch.setattr(merging._There, "_ask", noted)

    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)
        await indexes.create("x", {})
        await put(indexes, 0, 2)
        index = await indexes.open("x")
        await optimizing.optimize(indexes, "x", index, lambda _: None)
        await optimizing.optimize(indexes, "x", index, lambda _: None, every=True)

    stores.run(scenario())
    assert asked == [False, True]


def test_a_process_that_ends_early_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "SMALL_BYTES", 0)

    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)
        await indexes.create("x", {})
        table = await put(indexes, 0, 2)
        async with merging.working(table) as work:
            os.kill(child(), signal.SIGKILL)
            with pytest.raises(RuntimeError, match="too little memory"):
                await work.merge(every=False)
        async with merging.working(table) as work:
            await work.merge(every=False)
            pid = child()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert await table.count_rows() == 2

    stores.run(scenario())


def child() -> int:
    """The process that merges files."""
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        line = status.read_bytes()
        parent = (status.parent / "stat").read_text().rpartition(")")[2].split()[1]
        if b"service.index.merger" in line and int(parent) == os.getpid():
            return int(status.parent.name)
    raise AssertionError("no process merges files")


def test_an_index_that_grows_fast_is_maintained_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "QUIET_SECONDS", 3600)
    monkeypatch.setattr(maintenance, "_SIZE_SECONDS", 0)

    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)
        await indexes.create("x", {"year": "integer"})
        done: list[str] = []

        async def note_done(name: str) -> None:
            done.append(name)

        maintainer = Maintainer(indexes, note_done)
        await put(indexes, 0, 1)
        maintainer.note("x")
        await put(indexes, 1, 1)
        maintainer.note("x")
        await asyncio.sleep(0.3)
        assert not done
        monkeypatch.setattr(maintenance, "GROWTH_BYTES", 1)
        await put(indexes, 2, 1)
        maintainer.note("x")
        await until(lambda: done == ["x"])
        await maintainer.close()

    stores.run(scenario())


@pytest.mark.folder
@pytest.mark.parametrize("here", [True, False])
def test_updates_without_a_pause_do_not_stop_maintenance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    # whether the writer belongs to the process that maintains the index
    monkeypatch.setattr(maintenance, "COMMITS", 8)
    monkeypatch.setattr(merging, "started", piped.merging_process)
    # a commit on a busy machine must end before its version is removed
    kept = timedelta(milliseconds=100 if here else 500)
    monkeypatch.setattr(maintenance, "KEEP_VERSIONS", kept)

    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)
        await indexes.create("x", {"year": "integer"})
        index = await indexes.open("x")
        names = [f"d{number}" for number in range(400)]
        await index.put([stores.record(name, stores.text_of(name) * 4) for name in names])
        folder = tmp_path / "indexes" / f"{index.table.name}.lance"
        found: list[int] = []

        async def note_done(name: str) -> None:
            found.append(len(recovery.versions(folder)))

        writer = Writer(indexes, "x", lambda _: maintainer.note("x"))
        between = writer.committing if here else nullcontext()
        maintainer = Maintainer(indexes, note_done, lambda _: between)
        commits = 0
        with capture_logs() as said:
            least = 3 if here else 2 if NIGHTLY else 1
            async with asyncio.timeout(240):
                # until a maintenance leaves fewer versions than there were commits
                while len(found) < least or found[-1] >= commits:
                    commits += 1
                    chosen = [names[(7 * commits + part) % 400] for part in (0, 133, 266)]
                    rows = await index.rows([stores.record(name, "later") for name in chosen])
                    await writer.write(index.identity.uid, Upsert(rows))
        events = [one["event"] for one in said]
        assert "index_maintenance_failed" not in events
        # the compaction needs the writer's consent
        assert not here or "index_files_left" not in events
        await maintainer.close()
        await writer.close()
        assert not here or len(files(folder)) < commits

    stores.run(scenario())


def test_maintenance_follows_that_of_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "QUIET_SECONDS", 0.05)
    monkeypatch.setattr(maintenance, "LEASE_POLL_SECONDS", 0.05)

    async def scenario() -> None:
        indexes, other = [await stores.open_indexes(tmp_path) for _ in range(2)]
        await indexes.create("x", {"year": "integer"})
        done: list[str] = []

        async def note_done(name: str) -> None:
            done.append(name)

        maintainer = Maintainer(indexes, note_done)
        table = await put(indexes, 0, 3)
        assert await other.leases.acquire(table.name, 600)
        maintainer.note("x")
        await asyncio.sleep(1)
        assert not done
        await other.leases.release(table.name)
        await until(lambda: done == ["x"])
        found = await table.index_stats("words_idx")
        assert found is not None
        assert found.num_unindexed_rows == 0
        await maintainer.close()

    stores.run(scenario())


@pytest.mark.folder
def test_a_long_load_is_maintained_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def encode(texts: Mapping[str, str]) -> Encoded:
        return Encoded({name: encoded(stores.embedded(text)) for name, text in texts.items()})

    def batches() -> Iterator[Batch]:
        for number in range(6):
            yield [Document(f"d{number}", stores.text_of(f"d{number}"))]

    async def load(name: str) -> int:
        indexes = await stores.open_indexes(tmp_path)
        await indexes.create(name, {})
        index = await indexes.open(name)
        sync = indexes.database.sync
        update = loader.maintained(here(Updater(index, encode, sync)), indexes, name, sync)
        outcomes: AsyncIterator[Outcome] = update(batches())
        assert sum([one.written async for one in outcomes]) == 6
        return len(files(tmp_path / "indexes" / f"{index.table.name}.lance"))

    async def scenario() -> None:
        assert await load("before") == 6
        monkeypatch.setattr(loader, "GROWTH_BYTES", 1)
        assert await load("x") < 3

    stores.run(scenario())
