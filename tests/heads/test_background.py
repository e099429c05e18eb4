"""Trainings in the background without a service: rows, heartbeats, and who takes a job over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from starlette.requests import Request

from docsplit.heads.examples import Examples
from service.errors import ConflictError, OverloadedError
from service.index import sql
from service.index.leases import SILENT_SECONDS, Silence
from service.index.sql import Sql
from service.learning import background as background_module
from service.learning.background import Background, Teacher
from service.learning.jobs import LEFT_SECONDS, LOST_SECONDS, MOST_ATTEMPTS, Job, Jobs
from service.learning.store import Head, Heads
from service.metrics import Metrics
from service.server.routes.classifiers import list_classifiers
from tests.conftest import until as until_async
from tests.heads.test_jobs import SMALL, age, jobs, stored

VECTORS = [np.eye(2, dtype=np.float32)[place % 2] for place in range(len(SMALL.inputs))]


def trainer(held: Jobs, heads: Heads, metrics: Metrics) -> Background:
    """A replica's real trainings, with vectors that are known and without an engine."""

    async def classifiers() -> Heads:
        return heads

    async def opened() -> Jobs:
        return held

    async def unlabelled(examples: Examples, revision: str) -> None:
        return None

    async def teacher(name: str | None) -> Teacher:
        return Teacher("revision", SimpleNamespace(each=no_documents))  # type: ignore[arg-type]

    async def no_documents(texts: list[str]) -> AsyncIterator[None]:
        for _ in texts:
            yield None

    store = SimpleNamespace(jobs=opened, classifiers=classifiers, unlabelled=unlabelled)
    return Background(store, SimpleNamespace(teacher=teacher), metrics)  # type: ignore[arg-type]


@pytest.mark.parametrize("ahead", [-3600, 0, 3600])
def test_a_training_is_lost_once_its_heartbeat_stands_still(tmp_path: Path, ahead: float) -> None:
    held, other, passed = jobs(tmp_path), jobs(tmp_path), 0.0
    held._silence = Silence(lambda: passed)

    async def scenario() -> None:
        nonlocal passed
        await other.claim("a", SMALL)

        async def shown() -> str:
            job = await held.get("a")
            assert job is not None
            if job.state == "running":
                with pytest.raises(ConflictError):
                    await held.claim("a", SMALL)
            return job.state

        # however wrong the clock of its replica is
        for beat in range(4):
            await other._jobs.change(Sql("true"), heartbeat=time.time() + ahead + beat)
            assert await shown() == "running"
            passed += SILENT_SECONDS - 1
            assert await shown() == "running"
        passed += LOST_SECONDS
        assert await shown() == "lost"
        await held.claim("a", SMALL)
        assert await shown() == "running"

    asyncio.run(scenario())


def test_one_of_two_claims_gets_the_job(tmp_path: Path) -> None:
    here, there = jobs(tmp_path), jobs(tmp_path)

    async def both() -> list[Job | BaseException]:
        claims = here.claim("a", SMALL), there.claim("a", SMALL)
        return list(await asyncio.gather(*claims, return_exceptions=True))

    won, lost = sorted(asyncio.run(both()), key=lambda got: isinstance(got, BaseException))
    assert isinstance(won, Job)
    assert isinstance(lost, ConflictError)
    assert stored(tmp_path) == 1
    assert asyncio.run(there.examples(won)) == SMALL

    with pytest.raises(ConflictError):
        asyncio.run(there.claim("a", SMALL))
    assert asyncio.run(here.update(won))
    age(tmp_path, LOST_SECONDS + 1)
    passed = 0.0
    there._silence = Silence(lambda: passed)
    with pytest.raises(ConflictError):
        asyncio.run(there.claim("a", SMALL))
    passed += SILENT_SECONDS
    taken = asyncio.run(there.claim("a", SMALL))
    assert taken.uid != won.uid
    # the former job's examples are gone, and the job can do nothing more
    assert stored(tmp_path) == 1
    assert not asyncio.run(here.update(won, done=5))
    assert asyncio.run(there.update(taken, done=5))
    asyncio.run(there.refuse(taken, "it's input 3"))
    failed = asyncio.run(here.get("a"))
    assert failed is not None
    assert (failed.state, failed.error, failed.done) == ("failed", "it's input 3", 5)
    assert stored(tmp_path) == 0
    asyncio.run(here.remove(taken))
    assert asyncio.run(there.get("a")) is None


def test_examples_are_deleted_with_their_job_even_if_the_caller_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = jobs(tmp_path)
    dropped = held._drop

    async def cancelled() -> None:
        between, go_on = asyncio.Event(), asyncio.Event()

        async def drop(key: str) -> None:
            between.set()
            await go_on.wait()
            await dropped(key)
            between.clear()

        monkeypatch.setattr(held, "_drop", drop)
        job = await held.claim("a", SMALL)
        removing = asyncio.create_task(held.remove(job))
        await between.wait()
        removing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await removing
        go_on.set()
        await until_async(lambda: not between.is_set())

    asyncio.run(cancelled())
    assert asyncio.run(held.get("a")) is None
    assert stored(tmp_path) == 0


def test_one_of_two_replicas_takes_over_a_lost_job(tmp_path: Path) -> None:
    here, there = jobs(tmp_path), jobs(tmp_path)

    async def taken(job: Job) -> list[Job]:
        found = await asyncio.gather(here.take_over(job), there.take_over(job))
        return [job for job in found if job is not None]

    job = asyncio.run(here.claim("a", SMALL))
    assert asyncio.run(here.lost()) == []
    for attempt in (2, 3):
        age(tmp_path, LOST_SECONDS + 1)
        [lost] = asyncio.run(there.lost())
        [next_one] = asyncio.run(taken(lost))
        assert asyncio.run(there.lost()) == []
        assert (next_one.state, next_one.attempt) == ("running", attempt)
        assert asyncio.run(here.examples(next_one)) == SMALL
        # if the former replica still runs, it writes no more
        assert not asyncio.run(here.update(job, done=5))
        job = next_one
    # a replica that shut down in good order does not count
    assert asyncio.run(here.update(job, state="lost"))
    assert asyncio.run(here.lost()) == []
    age(tmp_path, LEFT_SECONDS + 1)
    [left] = asyncio.run(here.lost())
    [again] = asyncio.run(taken(left))
    assert again.attempt == 3
    # a job that was deleted in between is not taken over
    asyncio.run(here.remove(again))
    assert asyncio.run(taken(again)) == []


def test_a_training_that_ended_three_replicas_fails(tmp_path: Path) -> None:
    """Runs a replica's real loop, with a store and without an engine."""
    held = jobs(tmp_path / "heads")
    metrics = Metrics()

    async def get() -> Jobs:
        return held

    store = SimpleNamespace(path=str(tmp_path), jobs=get)
    teachers = SimpleNamespace(serves=lambda _: True)
    background = Background(store, teachers, metrics)  # type: ignore[arg-type]
    begun: list[Job] = []
    background._begin = lambda jobs, job, *_: begun.append(job)  # type: ignore[method-assign]

    async def scenario() -> Job | None:
        await held.claim("a", SMALL)
        for _ in range(MOST_ATTEMPTS):
            await held._jobs.change(
                sql.compare("name", "=", "a"), heartbeat=time.time() - LOST_SECONDS - 1
            )
            await background._take_over(held)
        return await held.get("a")

    given_up = asyncio.run(scenario())
    assert [job.attempt for job in begun] == [2, 3]
    assert given_up is not None
    assert given_up.state == "failed"
    assert "3 replicas ended" in given_up.error
    # for an operator who has repaired the replicas
    assert asyncio.run(held.examples(given_up)) == SMALL
    assert metrics.registry.get_sample_value(
        "docsplit_training_jobs_total", {"outcome": "lost"}
    ) == float(MOST_ATTEMPTS)


def test_a_training_goes_on_when_its_object_store_answers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = jobs(tmp_path)
    heads = Heads(held._jobs._database, "classifiers", "classifier")
    background = trainer(held, heads, Metrics())
    put = heads.put

    async def failing(head: Head, examples: Examples | None = None) -> Head:
        monkeypatch.setattr(heads, "put", put)
        raise RuntimeError(
            "Generic S3 error: Error performing PUT http://s3/a: operation timed out"
        )

    async def scenario() -> None:
        monkeypatch.setattr(heads, "put", failing)
        await background.start("a", SMALL, VECTORS)
        await asyncio.gather(*background._tasks.values(), return_exceptions=True)
        interrupted = await held.get("a")
        assert interrupted is not None
        assert (interrupted.state, interrupted.error) == ("running", "")
        await held._jobs.change(
            sql.compare("name", "=", "a"), heartbeat=time.time() - LOST_SECONDS - 1
        )
        [lost] = await held.lost()
        again = await held.take_over(lost)
        assert again is not None
        background._begin(held, again, None, VECTORS)
        await asyncio.gather(*background._tasks.values(), return_exceptions=True)
        assert await held.get("a") is None
        assert await heads.names() == ["a"]

    asyncio.run(scenario())


def test_a_training_whose_replica_has_a_slow_clock_goes_on_there(tmp_path: Path) -> None:
    held, metrics = jobs(tmp_path / "heads"), Metrics()
    teachers = SimpleNamespace(serves=lambda _: True)
    background = Background(SimpleNamespace(), teachers, metrics)  # type: ignore[arg-type]
    begun: list[Job] = []
    background._begin = lambda jobs, job, *_: begun.append(job)  # type: ignore[method-assign]
    own = 0.0
    held._silence = Silence(lambda: own)

    async def scenario() -> None:
        nonlocal own
        await held.claim("a", SMALL)
        # it changes, but is always old
        for beat in range(4):
            before = time.time() - 2 * LOST_SECONDS + beat
            await held._jobs.change(Sql("true"), heartbeat=before)
            await background._take_over(held, SILENT_SECONDS)
            own += SILENT_SECONDS
        assert begun == []
        # from now on it stands still
        await background._take_over(held, SILENT_SECONDS)

    asyncio.run(scenario())
    assert [job.attempt for job in begun] == [2]


def test_damaged_examples_fail_their_job_and_stop_no_other(tmp_path: Path) -> None:
    held, metrics = jobs(tmp_path / "heads"), Metrics()
    teachers = SimpleNamespace(serves=lambda _: True)
    background = Background(SimpleNamespace(), teachers, metrics)  # type: ignore[arg-type]
    begun: list[str] = []
    background._begin = lambda jobs, job, *_: begun.append(job.name)  # type: ignore[method-assign]

    async def scenario() -> Job | None:
        # whichever the store returns first, a damaged one comes before or after a sound one
        for name in "abc":
            job = await held.claim(name, SMALL)
            if name != "b":
                blob = SMALL.to_bytes()
                flipped = blob[:40] + bytes([blob[40] ^ 1]) + blob[41:]
                await held._examples.change(sql.compare("key", "=", job.key), examples=flipped)
                assert await held.labelled(job) == set()
        await held._jobs.change(Sql("true"), heartbeat=time.time() - LOST_SECONDS - 1)
        for _ in "ab":
            await background._take_over(held)
        last = await held.get("c")
        assert last is not None
        # nothing is left that a retraining could read
        assert await held.examples(last) is None
        return last

    failed = asyncio.run(scenario())
    assert begun == ["b"]
    assert failed is not None
    assert (failed.state, failed.key) == ("failed", "")
    assert "PUT them again" in failed.error
    assert stored(tmp_path / "heads") == 1
    assert metrics.registry.get_sample_value(
        "docsplit_training_jobs_total", {"outcome": "failed"}
    ) == float(2)


@pytest.mark.parametrize("deleted", [False, True])
def test_heartbeats_do_not_end_a_training_whose_head_is_being_stored(
    deleted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_module, "HEARTBEAT_SECONDS", 0.01)
    held, metrics = jobs(tmp_path), Metrics()
    heads = Heads(held._jobs._database, "classifiers", "classifier")
    put, tidy = heads.put, held._jobs.tidy

    async def put_late(head: Head, examples: Examples | None = None) -> Head:
        stored = await put(head, examples)
        if deleted:
            # by another replica
            job = await held.get("a")
            assert job is not None
            await held.remove(job)
        return stored

    async def tidy_late() -> None:
        await tidy()
        # many heartbeats find no job
        await asyncio.sleep(0.5)

    monkeypatch.setattr(heads, "put", put_late)
    monkeypatch.setattr(held._jobs, "tidy", tidy_late)
    background = trainer(held, heads, metrics)

    async def scenario() -> list[str]:
        await background.start("a", SMALL, VECTORS)
        await asyncio.gather(*background._tasks.values(), return_exceptions=True)
        assert await held.get("a") is None
        return await heads.names()

    assert asyncio.run(scenario()) == ([] if deleted else ["a"])
    counted = [
        metrics.registry.get_sample_value("docsplit_training_jobs_total", {"outcome": outcome})
        for outcome in ("done", "cancelled")
    ]
    assert counted == [1, 0]


def test_waiting_trainings_hold_no_texts_and_few_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(row.nbytes for row in VECTORS)
    monkeypatch.setattr(background_module, "MOST_WAITING_BYTES", 2 * size)
    held, metrics = jobs(tmp_path), Metrics()
    heads = Heads(held._jobs._database, "classifiers", "classifier")
    background = trainer(held, heads, metrics)
    began: dict[str, Examples | None] = {}
    begin = background._begin

    def noted(jobs: Jobs, job: Job, examples: Examples | None, *rest: Any) -> None:
        began[job.name] = examples
        begin(jobs, job, examples, *rest)

    monkeypatch.setattr(background, "_begin", noted)

    async def scenario() -> list[str]:
        async with background._turn:
            for name in "ab":
                await background.start(name, SMALL, VECTORS)
            with pytest.raises(OverloadedError, match="many trainings wait"):
                await background.start("c", SMALL, VECTORS)
            # no part of it is stored
            assert await held.get("c") is None
        await asyncio.gather(*background._tasks.values())
        await background.start("c", SMALL, VECTORS)
        await asyncio.gather(*background._tasks.values())
        await background.start("d", SMALL, VECTORS)
        await background.cancel("d")
        assert background._waiting == {}
        return sorted(await heads.names())

    assert asyncio.run(scenario()) == ["a", "b", "c"]
    assert began == {"a": SMALL, "b": None, "c": SMALL, "d": SMALL}


class _Ending:
    """A training that ends as soon as a request has read jobs or classifiers."""

    def __init__(self) -> None:
        self.looked = False

    async def jobs(self) -> SimpleNamespace:
        return SimpleNamespace(names=lambda: self._names(["asked"], []))

    async def classifiers(self) -> SimpleNamespace:
        return SimpleNamespace(names=lambda: self._names([], ["asked"]))

    async def labels(self) -> SimpleNamespace:
        async def classifiers() -> set[str]:
            return {"asked", "fresh"}

        return SimpleNamespace(classifiers=classifiers)

    async def _names(self, before: list[str], after: list[str]) -> list[str]:
        found = after if self.looked else before
        self.looked = True
        return found


def test_a_training_that_ends_during_a_listing_is_listed() -> None:
    state = SimpleNamespace(service=SimpleNamespace(heads=_Ending()))
    app = SimpleNamespace(state=state)
    scope = {"type": "http", "app": app, "docsplit.deadline": time.monotonic() + 60}
    answer = asyncio.run(list_classifiers(Request(scope)))
    assert answer.classifiers == ["asked"]
    assert answer.untrained == ["fresh"]
