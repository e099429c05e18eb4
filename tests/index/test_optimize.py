"""``docsplit-index optimize``: what it does, and writers and other optimizers meanwhile."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import lance
import pytest

from service.bulk import optimizing
from service.bulk.__main__ import main
from service.errors import CommandError
from service.index import maintenance, merging
from service.index.query import search
from service.index.rows.schema import prepare
from service.index.storage import database
from tests import storage
from tests.conftest import NIGHTLY, Server, until
from tests.index import piped, writing
from tests.index.conftest import call, upsert
from tests.integrity import stores

DOCUMENTS = 120


@pytest.fixture(params=["by LanceDB", "in a process of its own"])
def maintained(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are maintained as small ones, then as large ones."""
    if request.param == "in a process of its own":
        monkeypatch.setattr(merging, "SMALL_BYTES", 0)
        # a start of the command itself is in test_merging.py
        monkeypatch.setattr(merging, "started", piped.merging_process)


@pytest.mark.folder
@pytest.mark.usefixtures("maintained")
@pytest.mark.parametrize("rebuild", [False, True])
def test_a_loaded_index_is_whole_and_answers_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rebuild: bool
) -> None:
    monkeypatch.setattr(maintenance, "VECTOR_INDEX_ROWS", DOCUMENTS)
    monkeypatch.setattr(maintenance, "WINDOW_INDEX_WINDOWS", DOCUMENTS)
    monkeypatch.setattr(maintenance, "KEEP_VERSIONS", timedelta(milliseconds=1))

    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)
        await indexes.create("x", {"year": "integer"})
        index = await indexes.open("x")
        for start in range(0, DOCUMENTS, 20):
            await index.put([stores.record(f"d{n}") for n in range(start, start + 20)])
        before = await optimizing.condition(index)
        assert before.files > 1
        assert before.unindexed["words"] == DOCUMENTS
        assert "vector" not in before.unindexed
        query = replace(await search.stored(index, "d7"), text="d7 document")
        hits = [hit.id for hit in await search.hybrid(index, query, 10, None)]
        steps: list[str] = []
        await optimizing.optimize(indexes, "x", index, steps.append, rebuild=rebuild)
        after = await optimizing.condition(index)
        assert (after.documents, after.files) == (DOCUMENTS, 1)
        assert after.versions < before.versions
        expected = {"id", "words", "links", "metadata_year", "vector", "windows"}
        assert after.unindexed == dict.fromkeys(expected, 0)
        assert ("build the indexes over words and metadata" in steps) == rebuild
        assert [hit.id for hit in await search.hybrid(index, query, 10, None)] == hits
        # a built index is built again only by rebuild
        folder = tmp_path / "indexes" / f"{index.table.name}.lance"
        built = index_files(folder)
        await optimizing.optimize(indexes, "x", index, steps.append, rebuild=rebuild)
        assert bool(index_files(folder) & built) != rebuild

    stores.run(scenario())


def index_files(folder: Path) -> set[str]:
    """The files of the indexes of a table's newest version."""
    held = lance.dataset(folder).describe_indices()
    folders = [folder / "_indices" / part.uuid for one in held for part in one.segments]
    return {str(file.relative_to(folder)) for one in folders for file in one.iterdir()}


@pytest.mark.folder
@pytest.mark.usefixtures("maintained")
def test_nothing_is_lost_while_another_process_writes(tmp_path: Path) -> None:
    rounds = 2 * writing.ROUNDS if NIGHTLY else 3
    writer = piped.main("tests.index.writing", tmp_path, rounds, 2)
    lines = map(bytes.decode, writer.stdout)
    assert next(lines) == "+\n"

    async def scenario() -> None:
        indexes = await writing.opened(tmp_path)
        index = await indexes.open("x")
        await optimizing.optimize(indexes, "x", index, lambda _: None)
        # the second batch of writes begins with the rebuild, however busy the machine is
        assert writer.poll() is None
        writer.stdin.write(b"\n")
        await optimizing.optimize(indexes, "x", index, lambda _: None, rebuild=True)
        for turn in count():
            if writer.poll() is not None:
                break
            # without a pause, writers and optimizations mostly repeat their commits
            if NIGHTLY or not turn:
                await optimizing.optimize(indexes, "x", index, lambda _: None)
            else:
                await asyncio.sleep(0.02)
        held = {}
        for line in lines:
            held[line.strip()[1:]] = line[0] == "+"
        assert len(held) == writing.WRITERS * rounds * 2
        for name, there in held.items():
            assert await index.has(name) == there, name
        await optimizing.optimize(indexes, "x", index, lambda _: None)
        assert not any((await optimizing.condition(index)).unindexed.values())

    with writer:
        stores.run(scenario())
    assert writer.poll() == 0


def test_one_process_at_a_time_optimizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizing, "_LEASE_POLL_SECONDS", 0.01)

    async def scenario() -> None:
        indexes, other = [await stores.open_indexes(tmp_path) for _ in range(2)]
        await indexes.create("x", {})
        index = await indexes.open("x")
        await index.put([stores.record("a")])
        assert await other.leases.acquire(index.table.name, 600)
        steps: list[str] = []
        task = asyncio.create_task(optimizing.optimize(indexes, "x", index, steps.append))
        await until(lambda: bool(steps))
        await asyncio.sleep(0.05)
        assert steps == ["wait for another process that optimizes it"]
        await other.leases.release(index.table.name)
        await task
        assert len(steps) > 1
        # the lease is free again
        assert await other.leases.acquire(index.table.name, 600)

    stores.run(scenario())


@pytest.mark.parametrize(
    ("said", "raised", "message"),
    [
        ("Retryable commit conflict for version 7", CommandError, "when they write less"),
        ("Too many concurrent writers. Attempted 10 times", CommandError, "when they write less"),
        ("Invalid user input: nothing to do", RuntimeError, "nothing to do"),
    ],
)
def test_only_writers_that_are_always_faster_are_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    raised: type[Exception],
    message: str,
) -> None:
    async def conflicting(*_: object, **__: object) -> None:
        raise RuntimeError(f"lance error: {said}")

    monkeypatch.setattr(maintenance, "maintain", conflicting)

    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)
        await indexes.create("x", {})
        index = await indexes.open("x")
        with pytest.raises(raised, match=message):
            await optimizing.optimize(indexes, "x", index, lambda _: None)

    stores.run(scenario())


@pytest.mark.usefixtures("maintained")
def test_a_pinned_version_outlives_an_optimization(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "KEEP_VERSIONS", timedelta(milliseconds=1))

    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)
        await indexes.create("x", {})
        index = await indexes.open("x")
        await index.put([stores.record("a")])
        version = await database.pin(index.table, "ab")
        assert await database.pin(index.table, "ab", version) == version
        await index.put([stores.record("b")])
        for owner, there in (("cd", True), ("ab", False)):
            await database.unpin(index.table, owner)
            await optimizing.optimize(indexes, "x", index, lambda _: None)
            versions = [held["version"] for held in await index.table.list_versions()]
            assert (version in versions) == there

    stores.run(scenario())


@pytest.mark.usefixtures("maintained")
def test_an_interrupted_creation_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed(*_: object) -> None:
        raise InterruptedError

    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr("service.index.indexes.prepare", killed)
            with pytest.raises(InterruptedError):
                await indexes.create("x", {"year": "integer"})
        index = await indexes.open("x")
        assert not await index.table.list_indices()
        await index.put([stores.record("a"), stores.record("b")])
        await maintenance.maintain(indexes, "x", index)
        held = {built.columns[0] for built in await index.table.list_indices()}
        assert held == {"id", "words", "links", "metadata_year"}

    stores.run(scenario())


KEEP = timedelta(seconds=2)


@pytest.mark.usefixtures("maintained")
def test_a_version_that_was_current_until_a_moment_ago_stays(tmp_path: Path) -> None:
    # the removal must begin within a fifteenth of it, see service.index.storage.database
    keep = KEEP * 8 if storage.in_bucket() else KEEP

    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)
        await indexes.create("x", {})
        index = await indexes.open("x")
        await index.put([stores.record("a")])
        before = await index.table.version()
        await asyncio.sleep(keep.total_seconds() / 2)
        await index.put([stores.record("b")])
        current = await index.table.version()
        async with merging.working(index.table) as work:
            # the process of its own starts
            await work.remove(database.NEVER)
            await asyncio.sleep(keep.total_seconds() * 1.2)
            reader = await indexes.open("x", still=True)
            await index.put([stores.record("c")])
            await work.remove(await database.older_than(index.table, keep))
            held = {one["version"] for one in await index.table.list_versions()}
            assert current in held
            # the control: it was replaced long ago
            assert before not in held
            assert (await reader.get("b")).text == stores.text_of("b")
            await asyncio.sleep(keep.total_seconds() * 1.2)
            await work.remove(await database.older_than(index.table, keep))
            assert current not in {one["version"] for one in await index.table.list_versions()}

    stores.run(scenario())


@pytest.mark.folder
@pytest.mark.parametrize("rebuild", [False, True])
def test_readers_of_an_idle_index_outlive_its_maintenance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rebuild: bool
) -> None:
    monkeypatch.setattr(maintenance, "KEEP_VERSIONS", KEEP)

    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)
        await indexes.create("x", {})
        index = await indexes.open("x")
        await index.put([stores.record("a")])
        await maintenance.optimize(index.table)
        await asyncio.sleep(KEEP.total_seconds() * 1.2)
        reader = await indexes.open("x", still=True)
        folder = tmp_path / "indexes" / f"{index.table.name}.lance"
        fragments = lance.dataset(folder).get_fragments()
        files = index_files(folder)
        files |= {f"data/{file.path}" for one in fragments for file in one.metadata.files}
        await index.put([stores.record("a", "a later text")])
        await maintenance.optimize(index.table, rebuild=rebuild)
        assert all((folder / file).exists() for file in files)
        assert (await reader.get("a")).text == stores.text_of("a")

    stores.run(scenario())


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("ended", [-5, 5, 25, 65])
def test_the_end_of_summer_removes_no_version_too_early(
    monkeypatch: pytest.MonkeyPatch, zone: str, ended: int
) -> None:
    # minutes after an hour of local time begins again
    now = datetime(2026, 10, 25, 1, ended % 60, tzinfo=UTC).timestamp() + ended // 60 * 3600
    ages = [240, 120, 90, 62, 58, 31, 29, 20, 10, 1]
    monkeypatch.setenv("TZ", zone)
    time.tzset()

    class Table:
        async def list_versions(self) -> list[dict[str, Any]]:
            # as the library does it
            zero = timedelta()
            return [{"timestamp": datetime.fromtimestamp(now - 60 * m) + zero} for m in ages]

    monkeypatch.setattr(database, "time", SimpleNamespace(time=lambda: now))
    try:
        age = asyncio.run(database.older_than(Table(), timedelta(minutes=15)))  # type: ignore[arg-type]
    finally:
        monkeypatch.undo()
        time.tzset()
    # of 20 minutes: it was current 10 minutes ago
    kept = [m for m in ages if timedelta(minutes=m) < age]
    assert {20, 10, 1} <= set(kept)
    if zone == "UTC":
        assert kept == [20, 10, 1]
    assert 240 not in kept


@pytest.mark.folder
def test_the_command_optimizes_an_index_that_a_service_serves(
    server: Server, index: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    root = server.log.with_name("index")
    upsert(server, index, {"id": "a", "text": "A text on rivers."})
    upsert(server, index, {"id": "b", "text": "Boats on the sea."})

    def command(*words: str) -> int:
        return main(["optimize", *words, "--index-path", str(root), "--log-level", "error"])

    assert command(index, "--json") == 0
    printed = capsys.readouterr()
    said = json.loads(printed.out)
    assert (said["after"]["documents"], said["after"]["unindexed"]["words"]) == (2, 0)
    assert f"{index}: merge small files and update the indexes, " in printed.err
    [hit] = call(server, "POST", "/similar", {"index": index, "id": "a", "mode": "cosine"})
    assert hit["id"] == "b"
    call(server, "PUT", f"/aliases/{index}-live", {"index": index}, status=201)
    for name in (index, f"{index}-live"):
        assert command(name) == 0
        assert f"{name}: 2 documents" in capsys.readouterr().out
    call(server, "DELETE", f"/aliases/{index}-live", status=204)
    assert command("nothing") == 2
    assert "no index of that name" in capsys.readouterr().err
    assert main(["optimize", index, "--index-path", str(tmp_path)]) == 2
    assert "index_path holds no indexes" in capsys.readouterr().err


def test_two_replicas_may_prepare_a_new_index_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        one, other = [await stores.open_indexes(tmp_path) for _ in range(2)]
        with patch("service.index.indexes.prepare"):
            await one.create("x", dict(stores.FIELDS))
        tables = [(await indexes.open("x")).table for indexes in (one, other)]
        await asyncio.gather(*map(prepare, tables))
        for table in tables:
            built = sorted(index.columns[0] for index in await table.list_indices())
            assert built == ["id", "links", "metadata_draft", "metadata_year", "words"]

    stores.run(scenario())
