"""Trainings in the background without a service: their examples, their heads and their ends."""

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
from service.index.indexes import connect
from service.index.leases import Silence
from service.jobs import runner as runner_module
from service.jobs.runner import Runner
from service.jobs.table import LOST_SECONDS, only
from service.learning import trainings as trainings_module
from service.learning.heads import Head, Heads
from service.learning.trainings import Teacher, Training, Trainings
from service.metrics import Metrics
from service.server.routes.classifiers import list_classifiers
from tests.conftest import until
from tests.heads.test_jobs import SMALL, stored

VECTORS = [np.eye(2, dtype=np.float32)[place % 2] for place in range(len(SMALL.inputs))]


class Replica:
    """A replica's real trainings, with vectors that are known and without an engine."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder)
        self.metrics = Metrics()
        self.runner = Runner(self)  # type: ignore[arg-type]
        self.indexes = self
        self.held: Heads | None = None
        teachers: Any = SimpleNamespace(serves=lambda _: True, teacher=self.teacher)
        self.trainings = Trainings(self, self.runner, teachers, self.metrics)  # type: ignore[arg-type]

    async def database(self, part: str) -> Any:
        return await connect(f"{self.path}/{part}")

    async def classifiers(self) -> Heads:
        if self.held is None:
            self.held = Heads(await self.database("heads"), "classifiers", "classifier")
        return self.held

    async def unlabelled(self, examples: Examples, revision: str) -> None:
        return None

    async def teacher(self, name: str | None) -> Teacher:
        return Teacher("revision", SimpleNamespace(each=no_documents))  # type: ignore[arg-type]

    async def fault(self, _: Exception) -> None:
        return None

    async def get(self, name: str = "a") -> Training:
        training = await self.trainings.get(name)
        assert training is not None
        return training

    async def job(self, name: str = "a") -> Any:
        """The row of a training, if there is one, whatever its state."""
        return await (await self.runner.jobs()).get(only("training", name))

    async def table(self) -> Any:
        return await self.trainings._table()

    async def claim(self, name: str = "a", examples: Examples = SMALL) -> None:
        """A training whose replica does nothing for it."""
        key = await self.trainings._keep(examples)
        counts, details = {"done": 0, "total": 10}, {"stage": "waiting", "key": key}
        jobs = await self.runner.jobs()
        assert await jobs.add("training", name, "", counts, details, single=True) is not None

    async def age(self) -> None:
        """Make all heartbeats so old that the trainings count as lost."""
        jobs = await self.runner.jobs()
        old = time.time() - LOST_SECONDS - 1
        await jobs._table.change(sql.compare("kind", "=", "training"), heartbeat=old)

    async def settle(self) -> None:
        await until(lambda: not self.runner._tasks)

    def counted(self, outcome: str) -> float | None:
        name = "docsplit_training_jobs_total"
        return self.metrics.registry.get_sample_value(name, {"outcome": outcome})


async def no_documents(texts: list[str]) -> AsyncIterator[None]:
    for _ in texts:
        yield None


async def test_a_training_is_shown_as_lost_and_may_begin_again(tmp_path: Path) -> None:
    passed = 0.0

    here, there = Replica(tmp_path), Replica(tmp_path)
    (await there.runner.jobs())._silence = Silence(lambda: passed)
    await here.claim()
    assert (await there.get()).state == "running"
    with pytest.raises(ConflictError, match="DELETE"):
        await there.trainings.start("a", SMALL, VECTORS)
    passed += LOST_SECONDS
    lost = await there.get()
    assert (lost.state, lost.stage, lost.job.progress["total"]) == ("lost", "waiting", 10)
    assert await there.trainings.examples(lost) == SMALL
    assert await there.trainings.names() == ["a"]
    await there.trainings.start("a", SMALL, VECTORS)
    await there.settle()
    assert await there.trainings.get("a") is None
    assert await there.trainings.names() == []
    assert await (await there.classifiers()).names() == ["a"]
    # those of the former training, too
    assert await stored(tmp_path) == 0


async def test_examples_are_deleted_with_their_job_even_if_the_caller_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = Replica(tmp_path)
    held = replica.trainings
    dropped, between, go_on = held._drop, asyncio.Event(), asyncio.Event()

    async def drop(key: str) -> None:
        between.set()
        await go_on.wait()
        await dropped(key)
        between.clear()

    monkeypatch.setattr(held, "_drop", drop)
    await replica.claim()
    removing = asyncio.create_task(held.remove("a"))
    await between.wait()
    removing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await removing
    go_on.set()
    await until(lambda: not between.is_set())
    assert await replica.job() is None
    assert await stored(tmp_path) == 0


async def test_a_training_goes_on_when_its_object_store_answers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def known(*_: Any) -> Any:
        return np.stack(VECTORS)

    replica = Replica(tmp_path)
    heads = await replica.classifiers()
    put = heads.put_over

    async def failing(*_: Any) -> bool:
        monkeypatch.setattr(heads, "put_over", put)
        raise RuntimeError(
            "Generic S3 error: Error performing PUT http://s3/a: operation timed out"
        )

    monkeypatch.setattr(heads, "put_over", failing)
    await replica.trainings.start("a", SMALL, VECTORS)
    await replica.settle()
    interrupted = await replica.get()
    assert (interrupted.state, interrupted.job.error) == ("lost", "")
    assert await replica.trainings.examples(interrupted) == SMALL
    monkeypatch.setattr(trainings_module, "_embed", known)
    await replica.age()
    await replica.runner.look(0.0)
    await replica.settle()
    assert await replica.job() is None
    assert await heads.names() == ["a"]
    # a shutdown is no attempt
    assert replica.counted("lost") == 0


async def test_damaged_examples_fail_their_job_and_stop_no_other(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    begun: list[str] = []

    async def train(name: str, *_: Any) -> None:
        begun.append(name)

    replica.trainings._train = train  # type: ignore[method-assign, assignment]
    # whichever the store returns first, a damaged one comes before or after a sound one
    for name in "abc":
        await replica.claim(name)
        if name != "b":
            blob = SMALL.to_bytes()
            flipped = blob[:40] + bytes([blob[40] ^ 1]) + blob[41:]
            key = (await replica.get(name)).key
            await (await replica.table()).change(sql.compare("key", "=", key), examples=flipped)
            assert await replica.trainings.labelled(await replica.get(name)) == set()
    await replica.age()
    for _ in "ab":
        await replica.runner.look(0.0)
        await replica.settle()
    assert begun == ["b"]
    last = await replica.get("c")
    assert (last.state, last.key) == ("failed", "")
    assert "PUT them again" in last.job.error
    # nothing is left that a retraining could read
    assert await replica.trainings.examples(last) is None
    assert replica.counted("failed") == 2
    assert await stored(tmp_path) == 1


@pytest.mark.parametrize("meanwhile", ["nothing", "deleted", "given up"])
async def test_heartbeats_do_not_end_a_training_whose_head_is_being_stored(
    meanwhile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted = meanwhile == "deleted"
    monkeypatch.setattr(runner_module, "HEARTBEAT_SECONDS", 0.01)

    here, there = Replica(tmp_path), Replica(tmp_path)
    heads = await here.classifiers()
    put = heads.put_over

    async def put_late(head: Head, examples: Examples, former: str | None) -> bool:
        stored = await put(head, examples, former)
        if deleted:
            await there.trainings.remove("a")
        while meanwhile == "given up" and (job := await there.job()).state != "failed":
            await (await there.runner.jobs()).give_up(job, "lost")
        # many heartbeats find no job
        await asyncio.sleep(0.5)
        return stored

    if meanwhile == "given up":
        # a former head would be gone
        await here.trainings.start("a", SMALL, VECTORS)
        await here.settle()
        here.metrics = Metrics()
        here.trainings._metrics = here.metrics
    monkeypatch.setattr(heads, "put_over", put_late)
    await here.trainings.start("a", SMALL, VECTORS)
    await here.settle()
    assert await here.job() is None
    outcomes = [here.counted(outcome) for outcome in ("done", "cancelled")]
    assert outcomes == ([0, 1] if deleted else [1, 0])
    assert await heads.names() == ([] if deleted else ["a"])
    assert await stored(tmp_path) == 0


async def test_waiting_trainings_hold_no_texts_and_few_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(row.nbytes for row in VECTORS)
    monkeypatch.setattr(trainings_module, "MOST_WAITING_BYTES", 2 * size)

    replica = Replica(tmp_path)
    trainings = replica.trainings
    began: dict[str, Examples | None] = {}
    train = trainings._train

    async def noted(name: str, examples: Examples | None, *rest: Any) -> None:
        began[name] = examples
        await train(name, examples, *rest)

    monkeypatch.setattr(trainings, "_train", noted)
    async with replica.runner._turns["training"].turn():
        for name in "ab":
            await trainings.start(name, SMALL, VECTORS)
        with pytest.raises(OverloadedError, match="many trainings wait"):
            await trainings.start("c", SMALL, VECTORS)
        # no part of it is stored
        assert await trainings.get("c") is None
    await replica.settle()
    await trainings.start("c", SMALL, VECTORS)
    await replica.settle()
    await trainings.start("d", SMALL, VECTORS)
    await trainings.remove("d")
    assert trainings._waiting == set()
    began.pop("d", None)
    assert began == {"a": SMALL, "b": None, "c": SMALL}
    assert sorted(await (await replica.classifiers()).names()) == ["a", "b", "c"]


class _Ending:
    """A training that ends as soon as a request has read jobs or classifiers."""

    def __init__(self) -> None:
        self.looked = False

    async def names(self) -> list[str]:
        return await self._names(["asked"], [])

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


async def test_a_training_that_ends_during_a_listing_is_listed() -> None:
    ending = _Ending()
    state = SimpleNamespace(service=SimpleNamespace(heads=ending, trainings=ending))
    app = SimpleNamespace(state=state)
    scope = {"type": "http", "app": app, "docsplit.deadline": time.monotonic() + 60}
    answer = await list_classifiers(Request(scope))
    assert answer.classifiers == ["asked"]
    assert answer.untrained == ["fresh"]
