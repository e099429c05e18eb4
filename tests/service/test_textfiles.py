"""Files of texts and their jobs, without a service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from service.embedding.batching.clients import Client, working_for
from service.embedding.embedder import Document, Embedded
from service.errors import EngineFailedError, OverloadedError, StoreError, TooLargeError
from service.index import sql
from service.index.replicas.silence import SILENT_SECONDS, Silence
from service.index.storage import layout
from service.index.storage.database import connect
from service.jobs import runner
from service.jobs.runner import Runner
from service.jobs.table import KEEP_SECONDS, LOST_SECONDS, Job, Jobs
from service.metrics import Metrics
from service.textfiles import arrival, room
from service.textfiles.background import STRAY_SECONDS, TextFiles
from service.textfiles.blocks import Texts, rows
from service.textfiles.embedding import Model
from service.textfiles.progress import MOST_DEATHS, Options, Progress
from service.textfiles.tables import Block, Place, Tables
from tests.conftest import until

ONE = Client("one")
OPTIONS = Options("revision", "", 2, normalize=False)


class Replica:
    """The jobs of a process, with an engine that can stand still or fail; a text is its vector."""

    queued_tokens = 0
    revisions = ("revision",)

    def __init__(self, folder: Path) -> None:
        self.path = str(folder)
        self.runner = Runner(self, Metrics())  # type: ignore[arg-type]
        self.files = TextFiles(self, self.runner, self, 1 << 20, lambda _: None)  # type: ignore[arg-type]
        self.seen: list[str] = []
        self.stands_at, self.stands = "", False
        self.goes_on = asyncio.Event()

    async def database(self, part: str) -> Any:
        return await connect(f"{self.path}/{part}")

    async def fault(self, _: Exception) -> None:
        return None

    async def model(self, _: str) -> Model:
        return Model(self, lambda _: None)  # type: ignore[arg-type]

    async def embed(self, texts: Sequence[str], *_: Any, **__: Any) -> Embedded:
        if self.stands_at in texts:
            self.stands = True
            await self.goes_on.wait()
        if "bad" in texts:
            raise EngineFailedError("bad")
        self.seen += texts
        found = [Document(1, 1, []) for _ in texts]
        for one, text in zip(found, texts, strict=True):
            one._pooled = np.array([float(text), 1], np.float32)
        return Embedded(found)

    async def begun(self, *blocks: Sequence[str], owner: Client = ONE) -> Job:
        with working_for(owner):
            async with self.files.arriving(OPTIONS) as file:
                for texts in blocks:
                    await file.add(Texts([None] * len(texts), texts))
                return await self.files.begin(file)

    async def job(self, job: Job) -> Job:
        found = await (await self.runner.jobs()).get(job.id)
        assert found is not None
        return found

    async def idle(self) -> None:
        await until(lambda: not self.runner._tasks)

    async def values(self, job: Job) -> list[float | None]:
        blocks = await self.files.vectors(await self.job(job))
        found = [row for data in [one async for one in blocks] for row in rows(data).to_pylist()]
        return [None if one["vector"] is None else one["vector"][0] for one in found]

    async def places(self) -> set[Place]:
        return await Tables(await self.database(layout.TEXTS)).places()


async def silence(replica: Replica, job: Job, ago: float = LOST_SECONDS + 1) -> None:
    """Let a running job look as if its replica had ended so many seconds ago."""
    # after this heartbeat there is none
    while (await replica.job(job)).state != "running":  # noqa: ASYNC110 a table has no event
        await asyncio.sleep(0.005)
    table = (await replica.runner.jobs())._table
    assert await table.change(sql.compare("id", "=", job.id), heartbeat=time.time() - ago)


class Beats:
    """The heartbeats of all replicas, which a test awaits and stops."""

    def __init__(self, beat: Callable[..., Awaitable[bool]]) -> None:
        self._beat = beat
        self._count = 0
        self.silent = False

    def __get__(self, jobs: Jobs, _: type[Jobs]) -> Callable[[Job, float], Awaitable[bool]]:
        async def beat(job: Job, now: float) -> bool:
            if self.silent:
                return True
            known = await self._beat(jobs, job, now)
            self._count += 1
            return known

        return beat

    async def again(self) -> None:
        """Wait for two: the first may have begun before."""
        wanted = self._count + 2
        await until(lambda: self._count >= wanted)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that have begun write no heartbeats."""
    monkeypatch.setattr(runner, "HEARTBEAT_SECONDS", 1000.0)


def test_a_service_that_stops_leaves_its_jobs_to_others(tmp_path: Path) -> None:
    async def hand_over() -> None:
        here, there = Replica(tmp_path), Replica(tmp_path)
        here.stands_at = "3"
        job = await here.begun(["1", "2"], ["3"], ["4"])
        waiting = await here.begun(["5"])
        await until(lambda: here.seen == ["1", "2"])
        await there.files.take_over()
        assert there.runner._tasks == set()
        await here.files.close()
        await here.runner.close()
        assert (await there.job(job)).state == (await there.job(waiting)).state == "queued"
        for _ in range(2):
            await there.files.take_over()
            await there.idle()
        assert there.seen == ["3", "4", "5"]
        ended = await there.job(job)
        assert (ended.state, ended.progress["texts_embedded"]) == ("succeeded", 4)
        assert await there.values(job) == [1, 2, 3, 4]
        assert await there.values(waiting) == [5]

    asyncio.run(hand_over())


@pytest.mark.usefixtures("quiet")
def test_a_replica_that_comes_back_changes_nothing(tmp_path: Path) -> None:
    async def come_back() -> None:
        here, there = Replica(tmp_path), Replica(tmp_path)
        here.stands_at = "2"
        job = await here.begun(["1"], ["2"], ["3"])
        await until(lambda: here.seen == ["1"])
        await silence(here, job)
        await there.files.take_over()
        # a job that this process still has is not lost
        await here.files.take_over()
        await there.idle()
        before = await there.job(job)
        here.goes_on.set()
        await here.idle()
        assert there.seen == ["2", "3"]
        assert here.seen == ["1", "2"]
        after = await there.job(job)
        assert (after, after.state) == (before, "succeeded")
        tables = await connect(f"{tmp_path}/{layout.TEXTS}")
        written = await tables.open_table(f"{job.details['began']}_{job.id}_vectors")
        # the second block is there twice
        assert await written.count_rows() == 4
        assert await there.values(job) == [1, 2, 3]

    asyncio.run(come_back())


def test_a_job_whose_replica_has_a_slow_clock_goes_on_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SimpleNamespace(time=lambda: time.time() - 2 * LOST_SECONDS)
    monkeypatch.setattr(runner, "time", slow)
    monkeypatch.setattr(runner, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(Jobs, "beat", beaten := Beats(Jobs.beat))

    async def work() -> None:
        here, there = Replica(tmp_path), Replica(tmp_path)
        own = 0.0
        (await there.runner.jobs())._silence = Silence(lambda: own)
        here.stands_at = "1"
        job = await here.begun(["1"])
        await until(lambda: here.stands)
        for _ in range(3):
            await beaten.again()
            lost = await (await there.runner.jobs()).lost("embed")
            assert [one.id for one in lost] == [job.id]
            await there.files.take_over(SILENT_SECONDS)
            assert not there.runner.has(job.id)
            own += SILENT_SECONDS
        beaten.silent = True
        # a heartbeat that was in progress may follow the next look, too
        for _ in range(5):
            await there.files.take_over(SILENT_SECONDS)
            own += SILENT_SECONDS
        await there.idle()
        assert there.seen == ["1"]
        here.goes_on.set()
        await here.idle()

    asyncio.run(work())


@pytest.mark.usefixtures("quiet")
def test_a_job_of_a_replica_with_a_fast_clock_goes_on_when_that_replica_is_gone(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        here, there = Replica(tmp_path), Replica(tmp_path)
        own = 0.0
        jobs = await there.runner.jobs()
        jobs._silence = Silence(lambda: own)
        here.stands_at = "1"
        job = await here.begun(["1"])
        await silence(here, job, -3600)
        await there.files.take_over(SILENT_SECONDS)
        own += LOST_SECONDS - 1
        await there.files.take_over(SILENT_SECONDS)
        assert not there.runner.has(job.id)
        own += 1
        await there.files.take_over(SILENT_SECONDS)
        await there.idle()
        assert there.seen == ["1"]
        here.goes_on.set()
        await here.idle()

    asyncio.run(work())


@pytest.mark.parametrize("failed", [False, True])
def test_a_job_that_runs_when_the_engine_fails_counts_that(tmp_path: Path, failed: bool) -> None:
    async def fail() -> None:
        here, there = Replica(tmp_path), Replica(tmp_path)
        here.stands_at = "1"
        job, waiting = await here.begun(["1"]), await here.begun(["2"])
        await until(lambda: not here.runner.idle("embed"))
        await here.runner.close(failed=failed)
        for one, deaths in ((job, int(failed)), (waiting, 0)):
            await there.files.take_over()
            await there.idle()
            ended = await there.job(one)
            assert (ended.state, ended.details["deaths"]) == ("succeeded", deaths)

    asyncio.run(fail())


def test_clients_take_turns(tmp_path: Path) -> None:
    async def crowd() -> None:
        here = Replica(tmp_path)
        here.stands_at = "1"
        for text in ("1", "2", "3"):
            await here.begun([text])
        await here.begun(["4"], owner=Client("two"))
        here.goes_on.set()
        await here.idle()
        assert here.seen == ["1", "2", "4", "3"]

    asyncio.run(crowd())


@pytest.mark.usefixtures("quiet")
def test_a_job_whose_texts_are_gone_fails(tmp_path: Path) -> None:
    async def lose() -> None:
        here, there = Replica(tmp_path), Replica(tmp_path)
        here.stands_at = "1"
        job = await here.begun(["1"])
        await silence(here, job)
        [place] = await here.places()
        await Tables(await here.database(layout.TEXTS)).drop(place)
        await there.files.take_over()
        await there.idle()
        failed = await there.job(job)
        assert (failed.state, failed.error) == ("failed", "its texts are gone: send the file again")

    asyncio.run(lose())


@pytest.mark.usefixtures("quiet")
def test_a_job_that_ends_its_replicas_fails(tmp_path: Path) -> None:
    async def die() -> None:
        replicas = [Replica(tmp_path) for _ in range(MOST_DEATHS + 2)]
        for one in replicas:
            one.stands_at = "2"
        first, *others, last = replicas
        job = await first.begun(["1"], ["2"])
        await until(lambda: first.seen == ["1"])
        for one in (*others, last):
            await silence(first, job)
            await one.files.take_over()
            assert one.runner.has(job.id)
        await last.idle()
        failed = await last.job(job)
        assert failed.state == "failed"
        assert "replicas ended while they embedded texts 2 and following" in failed.error
        assert await last.places() == set()

    asyncio.run(die())


def test_an_engine_that_fails_on_one_text_embeds_the_others(tmp_path: Path) -> None:
    async def fail() -> None:
        here = Replica(tmp_path)
        job = await here.begun(["1", "bad", "3"], ["4"])
        await here.idle()
        assert await here.values(job) == [1, None, 3, 4]
        assert (await here.job(job)).progress["texts_refused"] == 1

    asyncio.run(fail())


Rows = list[dict[str, Any]]


async def change(folder: Path, job: Job, kind: str, changed: Callable[[Rows], object]) -> None:
    """Change the rows of a job's table, which LanceDB then writes as sound files."""
    database = await connect(f"{folder}/{layout.TEXTS}")
    name = f"{job.details['began']}_{job.id}_{kind}"
    held = await (await database.open_table(name)).to_arrow()
    rows = held.to_pylist()
    changed(rows)
    await database.drop_table(name)
    await database.create_table(name, pa.Table.from_pylist(rows, schema=held.schema))


def flip(rows: Rows) -> None:
    data = bytearray(rows[1]["data"])
    data[len(data) // 2] ^= 1
    rows[1]["data"] = bytes(data)


DAMAGES: dict[str, Callable[[Rows], object]] = {
    "a wrong bit": flip,
    "a wrong number of a block": lambda rows: rows[1].update(block=5),
    "a wrong number of rows": lambda rows: rows[1].update(rows=7),
    "a block is missing": lambda rows: rows.pop(1),
    "the last block is missing": lambda rows: rows.pop(),
    "all blocks are missing": lambda rows: rows.clear(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_vectors_are_not_served(tmp_path: Path, damage: str) -> None:
    async def read() -> None:
        here = Replica(tmp_path)
        job = await here.begun(["1"], ["2"], ["3"])
        await here.idle()
        # a control: the same changes of the files without damage, and a repeated block
        await change(tmp_path, job, "vectors", lambda rows: rows.insert(1, rows[0]))
        assert await here.values(job) == [1, 2, 3]
        await change(tmp_path, job, "vectors", lambda rows: rows.pop(1))
        await change(tmp_path, job, "vectors", DAMAGES[damage])
        with pytest.raises(StoreError, match="vectors of this job are damaged"):
            await here.values(job)

    asyncio.run(read())


def test_a_job_with_damaged_texts_fails(tmp_path: Path) -> None:
    async def embed() -> None:
        here = Replica(tmp_path)
        here.stands_at = "1"
        job = await here.begun(["1"], ["2"], ["3"])
        await until(lambda: here.stands)
        await change(tmp_path, job, "texts", flip)
        here.goes_on.set()
        await here.idle()
        failed = await here.job(job)
        assert (failed.state, here.seen) == ("failed", ["1"])
        assert "texts of this job are damaged" in failed.error

    asyncio.run(embed())


def test_blocks_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    """They end without a checksum."""

    def unseal(rows: Rows) -> None:
        for row in rows:
            row["data"] = row["data"][:-20]

    async def read() -> None:
        here = Replica(tmp_path)
        job = await here.begun(["1"], ["2"])
        await here.idle()
        await change(tmp_path, job, "vectors", unseal)
        assert await here.values(job) == [1, 2]

    asyncio.run(read())


def test_tables_that_no_job_needs_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sweep() -> None:
        here = Replica(tmp_path)
        jobs = [await here.begun([str(number)]) for number in range(3)]
        await here.idle()
        now = int(time.time())
        young, old = Place(now, "a" * 32), Place(now - int(STRAY_SECONDS) - 1, "b" * 32)
        tables = Tables(await here.database(layout.TEXTS))
        for place in (young, old):
            await tables.create(place)
        table = (await here.runner.jobs())._table
        await table.change(sql.compare("id", "=", jobs[0].id), state="failed")
        await table.change(
            sql.compare("id", "=", jobs[1].id), heartbeat=time.time() - KEEP_SECONDS - 1
        )
        await here.files.sweep()
        assert await here.places() == {young, Place(jobs[2].details["began"], jobs[2].id)}
        # what is still needed outlives all other jobs
        monkeypatch.setattr("service.jobs.table.KEEP_JOBS", 0)
        new = await here.begun(["4"])
        assert {job.id for job in await (await here.runner.jobs()).all()} == {jobs[2].id, new.id}

    asyncio.run(sweep())


def test_a_file_that_begins_no_job_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse() -> None:
        here = Replica(tmp_path)
        monkeypatch.setattr(arrival, "MOST_TEXTS", 2)
        with pytest.raises(TooLargeError, match="more than 2 texts"):
            await here.begun(["1"], ["2", "3"])
        # half of 1 MiB for one client
        monkeypatch.setattr(arrival, "MOST_TEXTS", 10_000)
        with pytest.raises(OverloadedError, match="max_job_bytes"):
            await here.begun(["1"] * 8000)
        assert await here.places() == set()
        monkeypatch.setattr(room, "MOST_JOBS", 4)
        for _ in range(2):
            await here.begun(["1"])
        with pytest.raises(OverloadedError, match="too many jobs"):
            await here.begun(["1"])
        assert len(await here.places()) == 2

    asyncio.run(refuse())


def test_the_progress_of_a_job_survives_its_table(tmp_path: Path) -> None:
    progress = Progress(OPTIONS, 5, 1, 2, 3, 4, 5, 6, 7)
    job = Job("a", "embed", "", "", "running", progress.counts(), "", 0, 0, progress.details())
    assert Progress.of(job) == progress
    passed = 0.0
    jobs = Jobs(asyncio.run(connect(str(tmp_path))))
    jobs._silence = Silence(lambda: passed)
    for _ in range(2):
        # another replica goes on with it
        assert jobs.present(job).state == "running"
        passed += LOST_SECONDS + 1


@pytest.mark.parametrize("every", [5, 1000])
def test_heartbeats_leave_few_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    monkeypatch.setattr("service.index.rows.keyed.KEEP_VERSIONS", timedelta(milliseconds=1))
    monkeypatch.setattr("service.jobs.table._BEATS", every)

    async def beat() -> None:
        jobs = Jobs(await connect(str(tmp_path)))
        job = await jobs.add("embed", "", "", {})
        for number in range(20):
            assert await jobs.beat(job, job.heartbeat + number)
            job = replace(job, heartbeat=job.heartbeat + number)

    asyncio.run(beat())
    versions = len(list(tmp_path.glob("jobs.lance/_versions/*.manifest")))
    assert versions < 10 if every == 5 else versions > 20


@pytest.mark.parametrize("failures", [1, MOST_DEATHS + 1])
def test_a_job_goes_on_when_its_object_store_answers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """But not without end: the store may never take one of its blocks."""
    lost = "Generic S3 error: Error performing PUT http://s3/a in 5s - error sending request"
    write = Tables.add_vectors
    left = failures

    async def failing(tables: Tables, place: Place, block: Block) -> None:
        nonlocal left
        if block.number == 1 and left:
            left -= 1
            raise RuntimeError(lost)
        await write(tables, place, block)

    async def scenario() -> None:
        replica = Replica(tmp_path)
        monkeypatch.setattr(Tables, "add_vectors", failing)
        job = await replica.begun(["1"], ["2"], ["3"])
        for _ in range(failures):
            await replica.idle()
            assert (await replica.job(job)).state == "running"
            await replica.files.take_over()
        await replica.idle()
        ended = await replica.job(job)
        assert ended.state == ("succeeded" if failures == 1 else "failed")
        if ended.state == "succeeded":
            # no block that was written is embedded once more
            assert replica.seen == ["1", "2", "2", "3"]
            assert await replica.values(job) == [1, 2, 3]
        else:
            assert "send the file again" in ended.error

    asyncio.run(scenario())
