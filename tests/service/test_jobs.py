"""The one engine of jobs: its table, its rule for lost owners, and two owners of one job."""

from __future__ import annotations

import asyncio
import itertools
import random
import sqlite3
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lancedb.expr import Expr

from service.errors import ConflictError, InvalidError
from service.index import sql
from service.index.indexes import connect
from service.index.leases import SILENT_SECONDS, Silence
from service.index.rows.keyed import KeyedTable
from service.index.sql import Sql
from service.jobs import table
from service.jobs.runner import MOST_ATTEMPTS, Attempt, Kind, Runner, Task
from service.jobs.table import LEFT_SECONDS, LOST_SECONDS, Job, Jobs, only
from tests.conftest import NIGHTLY, until

# orders of the steps of three or more owners, of which there are too many to try all
SCHEDULES = 25_000 if NIGHTLY else 750


class Store:
    """A store without indexes."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder)

    async def database(self, part: str) -> Any:
        return await connect(f"{self.path}/{part}")


class Done:
    """The progress of a job that has nothing to say."""

    def counts(self) -> dict[str, int]:
        return {"documents": 1}

    def details(self) -> dict[str, Any]:
        return {"key": "k"}


def replica(folder: Path, ended: list[str], *, resumes: bool = True) -> Runner:
    """A runner with two kinds: `walk` ends with its owner; another replica may take over a `climb`.

    Args:
        ended: gets how each job ended.
        resumes: whether it finds what a climb needs.
    """
    runner = Runner(Store(folder))  # type: ignore[arg-type]

    async def resume(job: Job) -> Task | None:
        if not resumes:
            raise InvalidError("the rope is gone")
        return Task("climb", job.subject, "", Done(), nothing)

    def note(_: Job, outcome: str) -> None:
        ended.append(outcome)

    runner.register(Kind("walk", note, "its replica ended", "the service stopped"))
    runner.register(Kind("climb", note, resume=resume, single=True))
    return runner


async def nothing(_: Attempt) -> None:
    """Work that is done at once."""


def climb(work: Callable[[Attempt], Awaitable[None]] = nothing) -> Task:
    return Task("climb", "peak", "", Done(), work)


async def opened(folder: Path) -> Jobs:
    return Jobs(await connect(str(folder)), None)


async def claim(jobs: Jobs) -> Job:
    job = await jobs.add("climb", "peak", "", {"done": 0}, {"key": "k"}, single=True)
    assert job is not None
    return job


async def age(jobs: Jobs, seconds: float) -> None:
    """Make all heartbeats older."""
    for row in await jobs._table.rows(columns=["id", "heartbeat"]):
        older = row["heartbeat"] - seconds
        await jobs._table.change(sql.compare("id", "=", row["id"]), heartbeat=older)


def test_a_job_that_ends_as_the_service_stops_has_succeeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = asyncio.Event()
    written = Jobs.end

    async def slow(jobs: Jobs, job: Any) -> bool:
        writing.set()
        await asyncio.sleep(0.2)
        return await written(jobs, job)

    monkeypatch.setattr(Jobs, "end", slow)

    async def stop() -> Any:
        runner = replica(tmp_path, [])
        job = await runner.begin(Task("walk", "index", "", Done(), nothing))
        await writing.wait()
        await runner.close()
        return await (await runner.jobs()).get(job.id)

    job = asyncio.run(stop())
    assert (job.state, job.error, job.progress) == ("succeeded", "", {"documents": 1})


@pytest.mark.parametrize("ahead", [-3600, 0, 3600])
async def test_a_job_is_lost_once_its_heartbeat_stands_still(tmp_path: Path, ahead: float) -> None:
    passed = 0.0

    held, other = await opened(tmp_path), await opened(tmp_path)
    held._silence = Silence(lambda: passed)
    await claim(other)

    async def lost() -> bool:
        job = await held.get(only("climb", "peak"))
        assert job is not None
        if not (gone := held.lost(job)):
            assert await held.add("climb", "peak", "", {}, single=True) is None
        return gone

    # however wrong the clock of its replica is
    for beat in range(4):
        at = time.time() + ahead + beat
        await other._table.change(Sql("true"), heartbeat=at, state="running")
        assert not await lost()
        passed += SILENT_SECONDS - 1
        assert not await lost()
    passed += LOST_SECONDS
    assert await lost()
    await claim(held)
    assert not await lost()


async def test_one_of_two_claims_gets_the_job(tmp_path: Path) -> None:
    here, there = await opened(tmp_path), await opened(tmp_path)
    both = (jobs.add("climb", "peak", "", {"done": 0}, single=True) for jobs in (here, there))
    won, lost = sorted(await asyncio.gather(*both), key=lambda job: job is None)
    assert won is not None
    assert lost is None
    assert await here.beat(won)
    await age(here, LOST_SECONDS + 1)
    passed = 0.0
    there._silence = Silence(lambda: passed)
    assert await there.add("climb", "peak", "", {}, single=True) is None
    passed += 3 * SILENT_SECONDS
    taken = await claim(there)
    # the former attempt can do nothing more
    assert not await here.holds(won)
    assert not await here.beat(won)
    assert not await here.end(won)
    assert await there.beat(taken)
    await here.remove(won)
    assert await there.get(taken.id) is not None


async def test_one_of_two_replicas_takes_over_a_lost_job(tmp_path: Path) -> None:
    here, there = await opened(tmp_path), await opened(tmp_path)
    job = await claim(here)
    assert await here.abandoned(["climb"], 0.0) == []
    for attempt in (2, 3):
        await age(here, LOST_SECONDS + 1)
        [lost] = await there.abandoned(["climb"], 0.0)
        found = await asyncio.gather(here.take(lost), there.take(lost))
        [after] = [job for job in found if job is not None]
        assert await there.abandoned(["climb"], 0.0) == []
        assert (after.state, after.attempt, after.details) == ("queued", attempt, {"key": "k"})
        # if the former replica still runs, it writes no more
        assert not await here.beat(job)
        job = after
    # a replica that shut down in good order does not count
    await here.end(_state(job, "left"))
    assert await here.abandoned(["climb"]) == []
    await age(here, LEFT_SECONDS + 1)
    [left] = await here.abandoned(["climb"])
    again = await here.take(left)
    assert again is not None
    assert again.attempt == 3
    # a job that was deleted in between is not taken over
    await here.remove(again)
    assert await here.take(again) is None


def _state(job: Job, state: Any) -> Job:
    return Job(**{name: getattr(job, name) for name in job.__slots__} | {"state": state})


async def test_a_lost_job_is_resumed_until_it_ended_three_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    async def never(_: Job) -> bool:
        return False

    runner = replica(tmp_path, ended)
    jobs = await runner.jobs()
    # as if this replica is killed each time
    monkeypatch.setattr(jobs, "end", never)
    await claim(jobs)
    await runner.look(0.0)
    assert ended == []
    for _ in range(MOST_ATTEMPTS - 1):
        await age(jobs, LOST_SECONDS + 1)
        await runner.look(0.0)
        await until(lambda: not runner._tasks)
    await age(jobs, LOST_SECONDS + 1)
    await runner.look(0.0)
    failed = await jobs.get(only("climb", "peak"))
    assert failed is not None
    assert (failed.state, failed.error) == ("failed", "3 replicas ended during the job")
    assert failed.details == {"key": "k"}
    assert ended == ["lost", "succeeded", "lost", "succeeded", "lost"]


async def test_a_lost_job_that_cannot_be_resumed_fails(tmp_path: Path) -> None:
    ended: list[str] = []

    runner = replica(tmp_path, ended, resumes=False)
    jobs = await runner.jobs()
    await claim(jobs)
    walk = await jobs.add("walk", "index", "", {})
    assert walk is not None
    await age(jobs, LOST_SECONDS + 1)
    await runner.look(0.0)
    failed = {job.kind: job for job in await jobs.all(["walk", "climb"], details=True)}
    assert {job.state for job in failed.values()} == {"failed"}
    assert failed["walk"].error == "its replica ended"
    assert failed["climb"].error == "the rope is gone"
    assert failed["climb"].details["key"] == ""
    # a paused owner wakes up
    assert not await jobs.beat(walk)
    assert not await jobs.end(_state(walk, "succeeded"))
    held = await runner.get(walk.id)
    assert held is not None
    assert (held.state, held.error) == ("failed", "its replica ended")
    assert ended == ["failed", "failed"]


async def test_a_service_that_stops_leaves_a_job_to_others(tmp_path: Path) -> None:
    runner, began = replica(tmp_path, []), asyncio.Event()

    async def work(_: Attempt) -> None:
        began.set()
        await asyncio.Event().wait()

    job = await runner.begin(climb(work))
    await began.wait()
    with pytest.raises(ConflictError, match="another climb"):
        await runner.begin(climb())
    await runner.close()
    left = await (await runner.jobs()).get(job.id)
    assert left is not None
    assert (left.state, left.error) == ("left", "")


async def test_jobs_of_versions_up_to_0_1_are_taken_in(tmp_path: Path) -> None:
    text, number = "string", "double"
    uploads = {"id": text, "kind": text, "index": text, "owner": text, "state": text}
    uploads |= {"progress": text, "details": text, "error": text}
    trainings = dict.fromkeys(("name", "uid", "key", "state", "stage", "error"), text)
    trainings |= {"done": "int64", "total": "int64"}
    times = {"started": number, "heartbeat": number}

    import pyarrow as pa

    store = Store(tmp_path)
    former = [
        KeyedTable(
            await store.database(part),
            "jobs",
            **{name: pa.type_for_alias(kind) for name, kind in (columns | times).items()},
        )
        for part, columns in (("leases", uploads), ("heads", trainings))
    ]
    now = time.time()
    upload = dict.fromkeys(uploads, "") | {"progress": '{"files": 1}', "details": "{}"}
    for name, state, beat in (("a", "succeeded", now), ("b", "running", now - 3600)):
        row = upload | {"id": name * 32, "kind": "walk", "index": "i", "state": state}
        await former[0].put(row | {"started": now, "heartbeat": beat})
    training: dict[str, Any] = {**dict.fromkeys(trainings, ""), "stage": "embedding"}
    training |= {"done": 2, "total": 9}
    for name, state in (("a", "running"), ("b", "failed"), ("c", "lost")):
        given = training | {"name": name, "uid": f"{name * 32}-2", "key": "k", "state": state}
        await former[1].put(given | {"started": now, "heartbeat": now})
    runner = replica(tmp_path, [])
    jobs = await runner.jobs()
    jobs._silence = Silence(lambda: 3600.0)
    for old in former:
        assert await old.keys() == []
    listed = {job.id[0]: job for job in await runner.listed()}
    assert listed["a"].state == "succeeded"
    assert listed["a"].progress == {"files": 1}
    await runner.look(0.0)
    ended = await runner.get("b" * 32)
    assert ended is not None
    assert (ended.state, ended.error, ended.subject) == ("failed", "its replica ended", "i")
    held = {job.subject: job for job in await jobs.all(["training"], details=True)}
    assert [held[name].state for name in "abc"] == ["running", "failed", "left"]
    assert held["a"].token == "a" * 32 + "-2"
    assert (held["a"].attempt, held["a"].id) == (2, "training a")
    assert held["a"].progress == {"done": 2, "total": 9}
    assert held["a"].details == {"stage": "embedding", "key": "k"}


class Rows:
    """A table as ``KeyedTable`` has it, in SQLite; whoever calls it pauses before each step."""

    def __init__(self, _: object, name: str, /, **columns: object) -> None:
        self.key = next(iter(columns))
        self.columns = list(columns)
        self.rows_of = sqlite3.connect(":memory:", isolation_level=None)
        self.rows_of.execute(f"CREATE TABLE t ({', '.join(columns)})")

    async def rows(
        self, where: Sql | None = None, columns: list[str] | None = None
    ) -> list[dict[str, Any]]:
        await pause()
        wanted = columns or self.columns
        found = self.rows_of.execute(f"SELECT {', '.join(wanted)} FROM t WHERE {where or 'true'}")
        rows = [dict(zip(wanted, row, strict=True)) for row in found]
        _READ.append(repr(rows))
        return rows

    async def get(self, key: str, columns: list[str] | None = None) -> dict[str, Any] | None:
        found = await self.rows(sql.compare(self.key, "=", key), columns)
        return found[0] if found else None

    async def put(
        self, row: dict[str, Any], replace: bool | Sql = True, insert: bool = True
    ) -> bool:
        await pause()
        same = sql.compare("target." + self.key, "=", row[self.key])
        [[known]] = self.rows_of.execute(f"SELECT count(*) FROM t AS target WHERE {same}")
        if known and replace is not False:
            where = same if replace is True else sql.every(same, replace)
            return self._set(row, f"AS target SET {{}} WHERE {where}")
        if inserted := insert and not known:
            marks = ", ".join("?" * len(self.columns))
            values = [row[column] for column in self.columns]
            self.rows_of.execute(f"INSERT INTO t VALUES ({marks})", values)
        _READ.append(str(inserted))
        return inserted

    async def change(self, where: Sql, **values: Any) -> bool:
        await pause()
        return self._set(values, f"SET {{}} WHERE {where}")

    async def delete(self, where: Sql | Expr) -> None:
        await pause()
        self.rows_of.execute(f"DELETE FROM t WHERE {where}")

    def _set(self, values: dict[str, Any], form: str) -> bool:
        named = ", ".join(f"{name} = ?" for name in values)
        found = self.rows_of.execute(f"UPDATE t {form.format(named)}", [*values.values()])
        _READ.append(str(found.rowcount))
        return found.rowcount > 0

    async def sync(self) -> None: ...

    async def tidy(self) -> None: ...


class Clock:
    """Times and tokens that are the same in each world."""

    def reset(self) -> None:
        self._numbers = itertools.count(1)

    def time(self) -> float:
        return float(next(self._numbers))

    def uuid4(self) -> SimpleNamespace:
        return SimpleNamespace(hex=f"{next(self._numbers):032x}")


_CLOCK = Clock()
# what the script that takes a step has read
_READ: list[str] = []


class _Pause:
    def __await__(self) -> Generator[None, None, None]:
        yield


async def pause() -> None:
    """Let the simulation choose who goes on."""
    await _Pause()


class World:
    """One classifier, whose training two replicas and a user reach; every step is a commit.

    Args:
        former: the uid of the head that it had before; None without one.

    Attributes:
        won: tokens of the attempts that ended the training, in order.
    """

    # whether a result that replaces another is written though that is gone by then
    inserts = False

    def __init__(self, former: str | None = None) -> None:
        self.jobs = Jobs(None, None)  # type: ignore[arg-type]
        self.jobs.lost = lambda job, silent=None: not job.ended  # type: ignore[method-assign]
        self.jobs._forget = pause  # type: ignore[method-assign]
        self.heads: Any = Rows(None, "heads", name=None, uid=None)
        if former is not None:
            drive(self.heads.put({"name": "peak", "uid": former}))
        self.job = drive(claim(self.jobs))
        self.won: list[str] = []

    def now(self) -> tuple[Any, Any]:
        """The training's row, and the head's uid."""
        return drive(self.jobs.get(self.job.id)), (drive(self.heads.get("peak")) or {}).get("uid")

    async def train(self, job: Job) -> None:
        """An owner: it beats, stores its head, and removes the job."""
        attempt = Attempt(self.jobs, job, Done())

        async def uid() -> str | None:
            row = await self.heads.get("peak")
            return None if row is None else row["uid"]

        async def put(former: str | None) -> bool:
            row = {"name": "peak", "uid": job.token}
            if former is None:
                return bool(await self.heads.put(row, replace=False))
            same = sql.compare("target.uid", "=", former)
            return bool(await self.heads.put(row, replace=same, insert=self.inserts))

        async def withdraw() -> None:
            await self.heads.delete(sql.compare("uid", "=", job.token))

        try:
            if not await self.jobs.beat(attempt.at("running")):
                return
            await attempt.store(uid, put, withdraw)
        except asyncio.CancelledError:
            return
        self.won.append(job.token)
        await self.jobs.remove(job)

    async def owner(self) -> None:
        await self.train(self.job)

    async def other(self) -> None:
        """A replica that takes the owner for lost."""
        for job in await self.jobs.abandoned(["climb"]):
            if (taken := await self.jobs.take(job)) is not None:
                await self.train(taken)

    async def replacement(self) -> None:
        """A user who trains again, with other examples."""
        job = await self.jobs.add("climb", "peak", "", {}, single=True)
        if job is not None:
            await self.train(job)

    async def deletion(self) -> None:
        """A user who deletes the classifier."""
        job = await self.jobs.get(self.job.id)
        if job is not None and not job.ended:
            await self.jobs.cancel(job.id)
            await self.jobs.remove(job)
        await self.heads.delete(Sql("true"))

    async def ending(self) -> None:
        """A replica that ends a lost job of a kind that cannot be taken over."""
        for job in await self.jobs.abandoned(["climb"]):
            await self.jobs.give_up(job, "lost")


def drive(script: Coroutine[Any, Any, Any]) -> Any:
    """What a script returns if nobody else does anything."""
    try:
        while True:
            script.send(None)
    except StopIteration as done:
        return done.value


class Play:
    """Scripts of a world, of which somebody chooses which one takes the next step."""

    def __init__(
        self, names: tuple[str, ...], former: str | None, order: Iterable[str] = ()
    ) -> None:
        _CLOCK.reset()
        self.world = World(former)
        self.running = {name: getattr(self.world, name)() for name in names}
        self.read: dict[str, list[str]] = {name: [] for name in names}
        for name in order:
            self.step(name)

    def step(self, name: str) -> None:
        """Let a script go on to its next pause."""
        _READ.clear()
        try:
            self.running[name].send(None)
        except StopIteration:
            del self.running[name]
        self.read[name] += ["step", *_READ]

    def close(self) -> None:
        """End all scripts where they are."""
        for script in self.running.values():
            script.close()
        tables: tuple[Any, ...] = self.world.jobs._table, self.world.heads
        for held in tables:
            held.rows_of.close()

    def state(self) -> str:
        """All that the rest depends on: the rows, and what each script has read."""
        tables: tuple[Any, ...] = self.world.jobs._table, self.world.heads
        held = [[*table.rows_of.execute("SELECT * FROM t")] for table in tables]
        return repr((held, self.read, [*self.running]))


def ends(names: tuple[str, ...], former: str | None = None) -> Iterator[tuple[World, list[str]]]:
    """All worlds that the scripts may make, however their steps alternate, and one way to each."""
    seen: set[str] = set()
    ways: list[list[str]] = [[]]
    while ways:
        way = ways.pop()
        play = Play(names, former, way)
        if (state := play.state()) not in seen:
            seen.add(state)
            ways += [[*way, name] for name in play.running]
            if not play.running:
                yield play.world, way
        play.close()


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "KeyedTable", Rows)
    monkeypatch.setattr(table, "uuid", SimpleNamespace(uuid4=_CLOCK.uuid4))
    monkeypatch.setattr(table, "time", SimpleNamespace(time=_CLOCK.time))


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("former", [None, "former"])
@pytest.mark.parametrize("against", ["other", "replacement", "deletion", "ending"])
def test_an_owner_that_is_paused_at_any_step_changes_nothing_after_it(
    against: str, former: str | None
) -> None:
    outcomes = set()
    for world, order in ends(("owner", against), former):
        row, head = world.now()
        assert len(world.won) <= 2, order
        if against == "other":
            # one of both stores the head and ends the training
            assert row is None, order
            assert [head] == world.won, order
        elif against == "replacement":
            # the second training, unless the first had ended before it began
            assert row is None, order
            assert head == world.won[-1], order
            assert (world.won[-1] == world.job.token) <= (len(world.won) == 1), order
        elif against == "deletion":
            assert head is None, order
            assert row is None or row.ended, order
        elif row is None:
            assert [head] == world.won, order
        else:
            # the former head serves on
            assert (row.state, row.error, world.won) == ("failed", "lost", []), order
            assert head == former, order
        outcomes.add((row is None, head is None, len(world.won)))
    assert len(outcomes) >= 1 + (against != "other")


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("former", [None, "former"])
@pytest.mark.parametrize(
    "others",
    [
        ("deletion",),
        ("replacement",),
        ("ending",),
        ("replacement", "deletion"),
        ("replacement", "ending"),
    ],
)
def test_more_paused_owners_change_nothing_in_orders_drawn_by_chance(
    others: tuple[str, ...], former: str | None
) -> None:
    draw = random.Random(0)
    for _ in range(SCHEDULES):
        play, order = Play(("owner", "other", *others), former), []
        while play.running:
            order.append(draw.choice([*play.running]))
            play.step(order[-1])
        row, head = play.world.now()
        play.close()
        assert row is None or row.ended, order
        if "deletion" in others:
            assert head in (None, *play.world.won[-1:]), order
        elif play.world.won:
            # whoever ends a training has stored its head
            assert head == play.world.won[-1], order
        else:
            # the former head, or that of an attempt which another followed
            assert head is not None or former is None, order


def unfenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an owner store its head without a look at its job."""

    async def require(_: Attempt) -> None:
        await pause()

    monkeypatch.setattr(Attempt, "require", require)


def inserting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a head that replaces another be written though that was deleted."""
    monkeypatch.setattr(World, "inserts", True)


def owned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a job that was given up stay so, though its head is stored."""
    end = Jobs.end

    async def strict(jobs: Jobs, job: Job, *, stored: bool = False) -> bool:
        return await end(jobs, job)

    monkeypatch.setattr(Jobs, "end", strict)


@pytest.mark.parametrize(
    ("fault", "against"), [(unfenced, "other"), (inserting, "deletion"), (owned, "ending")]
)
def test_the_simulation_finds_a_write_without_a_fence(
    simulated: None,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[pytest.MonkeyPatch], None],
    against: str,
) -> None:
    def right(world: World) -> bool:
        row, head = world.now()
        return head in ("former" if row else None, *world.won[-1:])

    fault(monkeypatch)
    assert not all(right(world) for world, _ in ends(("owner", against), "former"))
