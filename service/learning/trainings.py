"""Trains classifiers in the background, and finds the heads and labels of all replicas."""

from __future__ import annotations

import asyncio
import math
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np
import structlog

from docsplit.bundles.format import Bundle
from docsplit.heads.examples import Examples, digests, unpacked
from docsplit.windowing.pooling import Vectors, normalise
from service import executors
from service.embedding.background import BackgroundEmbedder
from service.embedding.batching import clients
from service.embedding.embedder import UnusableInputError
from service.errors import ConflictError, InvalidError, NotFoundError, OverloadedError, StoreError
from service.index.store import Store
from service.jobs.runner import Attempt, Kind, Runner, State, Task
from service.logs import outline
from service.metrics import Metrics

if TYPE_CHECKING:
    from docsplit.heads.network import Learnt
    from service.index.rows.keyed import KeyedTable
    from service.jobs.table import Job
    from service.learning.heads import Heads
    from service.learning.labels import Labels

log = structlog.get_logger("docsplit")

Content = TypeVar("Content")
Stage = Literal["waiting", "embedding", "training"]

KIND = "training"
# of the vectors of trainings that wait for their turn
MOST_WAITING_BYTES = 64 * 2**20
# a replica that dies between two writes leaves examples without a job
STRAY_SECONDS = 86_400.0
_RETRY_SECONDS = 10.0
# what the reading of damaged examples raises
_DAMAGE = (zlib.error, IndexError, TypeError, ValueError)
_DAMAGED = (
    "the stored examples of this training were damaged, and are deleted now: PUT them again; a "
    "former training keeps its examples, and retrain uses those"
)
# a training that has ended well leaves only its head
_SHOWN: tuple[State, ...] = ("queued", "running", "left", "failed")
_OUTCOMES = {"succeeded": "done", "left": "cancelled"}


class HeadStore:
    """Classifiers, citation heads and labels below the path of a store.

    Args:
        store: of the indexes; a citation head is deleted with its index.
        bundles: may contain heads; of two classifiers of one name, that of the first bundle counts.
    """

    def __init__(self, store: Store, bundles: Sequence[Bundle]) -> None:
        self.indexes = store
        self._bundles = bundles
        self._heads: dict[str, Heads] = {}
        self._labels: Labels | None = None
        store.on_drop = self._forget

    async def classifiers(self) -> Heads:
        """The classifiers of all replicas."""
        return await self._of_kind("classifiers", "classifier")

    async def citation_heads(self) -> Heads:
        """The citation heads of all indexes, under the ``uid`` of each."""
        return await self._of_kind("citation", "citation head")

    async def labels(self) -> Labels:
        """The labels that people gave for the classifiers, at all replicas."""
        database = await self.indexes.database("heads")
        from service.learning.labels import Labels

        if self._labels is None:
            self._labels = Labels(database)
        return self._labels

    async def unlabelled(self, examples: Examples, revision: str) -> Vectors | None:
        """Vectors of the unlabelled documents for some examples; None if they name no index.

        Args:
            revision: of the bundle whose vectors the head reads.

        Raises:
            NotFoundError, InvalidError: the index is gone, is empty or has another bundle.
        """
        if examples.unlabelled is None:
            return None
        index = await (await self.indexes.indexes()).open(examples.unlabelled)
        if index.identity.revision != revision:
            raise InvalidError(
                "unlabelled: the index has the vectors of another bundle than the classifier: name "
                "the index's bundle as model, or use another index",
                "unlabelled",
            )
        from service.learning.examples import unlabelled

        return await unlabelled(index)

    async def _of_kind(self, table: str, kind: str) -> Heads:
        database = await self.indexes.database("heads")
        from service.learning.heads import HeadKind, Heads, bundled

        if table not in self._heads:
            wanted: HeadKind = "citation" if table == "citation" else "classifier"
            brought = [head for one in self._bundles for head in bundled(one, wanted)]
            self._heads[table] = Heads(database, table, kind, brought)
        return self._heads[table]

    async def _forget(self, uid: str) -> None:
        with suppress(NotFoundError):
            await (await self.citation_heads()).delete(uid)


@dataclass(frozen=True, slots=True)
class Teacher:
    """A loaded bundle, whose vectors train classifiers.

    Attributes:
        revision: of the bundle.
        embedder: embeds examples.
    """

    revision: str
    embedder: BackgroundEmbedder


class Teachers(Protocol):
    """The served bundles by name; None names the default one."""

    def serves(self, name: str | None, /) -> bool:
        """Whether there is a bundle of that name."""

    async def teacher(self, name: str | None, /) -> Teacher:
        """The bundle of that name; loads it.

        Raises:
            NotFoundError: there is none.
            UnavailableError: it cannot be loaded.
        """


@dataclass(frozen=True, slots=True)
class Training:
    """A training of a classifier in the background.

    Attributes:
        state: ``lost`` if its replica seems gone.
        job: in the table of jobs.
    """

    state: Literal["running", "failed", "lost"]
    job: Job

    @property
    def uid(self) -> str:
        """Of the head that it makes."""
        return self.job.token

    @property
    def stage(self) -> Stage:
        """What it does now."""
        stage: Stage = self.job.details["stage"]
        return stage

    @property
    def key(self) -> str:
        """Of its examples; empty if they were invalid and are not kept."""
        key: str = self.job.details["key"]
        return key


@dataclass(eq=False, slots=True)
class _Progress:
    """What a training has done: ``done`` of ``total`` documents are embedded."""

    key: str
    total: int
    vectors: Sequence[Vectors | None] | None = field(repr=False)
    stage: Stage = "waiting"
    done: int = 0

    def counts(self) -> dict[str, int]:
        return {"done": self.done, "total": self.total}

    def details(self) -> dict[str, Any]:
        return {"stage": self.stage, "key": self.key}


class Trainings:
    """The trainings in the background, one at a time in each process, at all replicas.

    Their examples are in a table of their own: every heartbeat rewrites the row of a job.

    Args:
        store: of the heads.
        runner: runs the jobs.
        teachers: the served bundles.
        metrics: counts the results of trainings.
    """

    def __init__(
        self, store: HeadStore, runner: Runner, teachers: Teachers, metrics: Metrics
    ) -> None:
        self._store = store
        self._runner = runner
        self._teachers = teachers
        self._metrics = metrics
        # those whose vectors wait for their turn
        self._waiting: set[_Progress] = set()
        self._reading = asyncio.Lock()
        runner.register(Kind(KIND, self._ended, resume=self._resume, single=True))

    async def names(self) -> list[str]:
        """Classifiers with a training that runs, was lost or has failed."""
        jobs = await self._runner.jobs()
        return [job.subject for job in await jobs.all([KIND], _SHOWN)]

    async def get(self, name: str) -> Training | None:
        """The running, failed or lost training of a classifier."""
        jobs = await self._runner.jobs()
        from service.jobs.table import only

        job = await jobs.get(only(KIND, name))
        if job is None or job.state not in _SHOWN:
            return None
        if job.state == "failed":
            return Training("failed", job)
        lost = job.state == "left" or jobs.lost(job)
        return Training("lost" if lost else "running", job)

    async def require_idle(self, name: str) -> None:
        """Raise ConflictError if a training of the classifier runs."""
        training = await self.get(name)
        if training is not None and training.state == "running":
            raise ConflictError(
                "a training of this classifier is running: GET /classifiers/{name} shows it, "
                "DELETE /classifiers/{name} ends it"
            )

    async def start(
        self, name: str, examples: Examples, vectors: Sequence[Vectors | None] | None
    ) -> Training:
        """Begin a training; on return its examples are durable and every replica sees it.

        Args:
            name: of the classifier; its former head serves until this training is done.
            vectors: of the examples, as far as they are known.

        Raises:
            ConflictError: a training is running, here or at another replica.
            OverloadedError: the vectors of waiting trainings take too much memory.
        """
        waiting = sum(_size(one.vectors) for one in self._waiting)
        if waiting and waiting + _size(vectors) > MOST_WAITING_BYTES:
            raise OverloadedError(
                _RETRY_SECONDS, "overloaded: many trainings wait for their turn; try again"
            )
        await self.require_idle(name)
        former = await self.get(name)
        key = await self._keep(examples)
        # a training that waits reads its texts at its turn
        held = examples if self._runner.idle(KIND) else None
        task = self._task(name, clients.current().name, key, examples, held, vectors)
        try:
            job = await self._runner.begin(task)
        except Exception:
            await self._drop(key)
            raise
        if former is not None:
            await self._drop(former.key)
        return Training("running", job)

    async def remove(self, name: str) -> bool:
        """End the training of a classifier and delete it with its examples; whether there was one.

        Both are deleted even if the caller is cancelled in between.
        """
        training = await self.get(name)
        if training is None:
            return False
        await self._runner.cancel(training.job.id)
        await asyncio.shield(self._remove(training.job))
        return True

    async def examples(
        self, training: Training, reserve: Callable[[int], None] | None = None
    ) -> Examples | None:
        """The examples of a training; None if they are gone.

        Args:
            reserve: called with their bytes, before they are unpacked.

        Raises:
            StoreError: they were damaged, and are deleted now; the training has failed.
        """
        try:
            return await self._examples(training.key, reserve)
        except InvalidError as error:
            await (await self._runner.jobs()).give_up(training.job, _DAMAGED, key="")
            raise StoreError(_DAMAGED, "damaged") from error

    async def labelled(self, training: Training) -> set[bytes]:
        """Digests of the texts of a training's examples; none if they are gone or damaged."""
        # one compressed list at a time
        async with self._reading:
            blob = await self._blob(training.key)
            try:
                return await executors.SCORING.run(digests, blob) if blob else set()
            except _DAMAGE as error:
                log.error("training_examples_damaged", outline=outline(error))
                return set()

    async def _examples(
        self, key: str, reserve: Callable[[int], None] | None = None
    ) -> Examples | None:
        # one compressed list at a time until there is memory for it
        async with self._reading:
            blob = await self._blob(key)
            if blob and reserve is not None:
                reserve(await self._read(key, unpacked, blob))
        return await self._read(key, Examples.from_bytes, blob) if blob else None

    async def _read(self, key: str, read: Callable[[bytes], Content], blob: bytes) -> Content:
        try:
            return await executors.STORE.run(read, blob)
        except _DAMAGE as error:
            log.error("training_examples_damaged", outline=outline(error))
            # otherwise they would stop every later attempt
            await asyncio.shield(self._drop(key))
            raise InvalidError(_DAMAGED) from error

    async def _needed(self, key: str) -> Examples:
        examples = await self._examples(key)
        if examples is None:
            raise InvalidError("its examples are gone")
        return examples

    async def _table(self) -> KeyedTable:
        database = await self._store.indexes.database("heads")
        import pyarrow as pa

        from service.index.rows.keyed import KeyedTable

        return KeyedTable(
            database, "job_examples", key=pa.string(), kept=pa.float64(), examples=pa.binary()
        )

    async def _blob(self, key: str) -> bytes | None:
        row = await (await self._table()).get(key)
        return None if row is None else row["examples"]

    async def _keep(self, examples: Examples) -> str:
        key, now = uuid.uuid4().hex, time.time()
        blob = await executors.STORE.run(examples.to_bytes)
        table, jobs = await self._table(), await self._runner.jobs()
        await table.put({"key": key, "kept": now, "examples": blob}, replace=False)
        await table.sync()
        named = {job.details["key"] for job in await jobs.all([KIND], _SHOWN, details=True)}
        kept = await table.rows(columns=["key", "kept"])
        old = {row["key"] for row in kept if row["kept"] < now - STRAY_SECONDS}
        if stray := old - named:
            await table.delete(table.of(*stray))
        return key

    async def _drop(self, key: str) -> None:
        table = await self._table()
        await table.delete(table.of(key))
        await table.tidy()

    async def _remove(self, job: Job) -> None:
        await (await self._runner.jobs()).remove(job)
        await self._drop(job.details["key"])

    def _ended(self, job: Job, outcome: str) -> None:
        outcome = _OUTCOMES.get(outcome, outcome)
        self._metrics.training_jobs.labels(outcome).inc()
        log.info("training_ended", classifier=job.subject, outcome=outcome)

    async def _resume(self, job: Job) -> Task | None:
        key: str = job.details["key"]
        examples = await self._needed(key)
        if not self._teachers.serves(examples.model):
            # a replica that serves its bundle takes it over
            return None
        return self._task(job.subject, job.owner, key, examples, examples, None)

    def _task(
        self,
        name: str,
        owner: str,
        key: str,
        given: Examples,
        held: Examples | None,
        vectors: Sequence[Vectors | None] | None,
    ) -> Task:
        progress = _Progress(key, len(given.inputs), vectors)
        self._waiting.add(progress)
        work = partial(self._train, name, held, progress)
        ended = partial(self._waiting.discard, progress)
        return Task(KIND, name, owner, progress, work, ended)

    async def _train(
        self, name: str, examples: Examples | None, progress: _Progress, attempt: Attempt
    ) -> None:
        self._waiting.discard(progress)
        try:
            examples = examples or await self._needed(progress.key)
            teacher = await self._teachers.teacher(examples.model)
            known = progress.vectors or [None] * len(examples.inputs)
            whole = await _embed(examples, known, teacher.embedder, progress)
            progress.stage, progress.done = "training", progress.total
            learnt = await self._learn(examples, whole, teacher.revision)
        except InvalidError:
            # later attempts would fail like this one
            key, progress.key = progress.key, ""
            await asyncio.shield(self._drop(key))
            raise
        from service.learning.heads import Head

        heads = await self._store.classifiers()
        job = attempt.job
        head = Head(name, job.token, teacher.revision, learnt.labels, learnt.report, learnt.network)
        held, put = partial(heads.uid, name), partial(heads.put_over, head, examples)
        await attempt.store(held, put, partial(heads.withdraw, name, head.uid))
        await asyncio.shield(self._remove(job))

    async def _learn(self, examples: Examples, vectors: Vectors, revision: str) -> Learnt:
        try:
            further = await self._store.unlabelled(examples, revision)
        except NotFoundError as error:
            raise InvalidError(f"unlabelled: {error}", "unlabelled") from error

        def learn(stop: threading.Event) -> Learnt:
            # this import takes seconds
            from docsplit.heads.learn import learn

            return learn(vectors, examples, math.inf, stop, further)

        return await executors.BACKGROUND.run_stoppable(learn)


async def _embed(
    examples: Examples,
    known: Sequence[Vectors | None],
    embedder: BackgroundEmbedder,
    progress: _Progress,
) -> Vectors:
    """The vectors of all examples, ``[examples, dimensions]``; embeds the unknown ones."""
    rows = list(known)
    unknown = [place for place, row in enumerate(rows) if row is None]
    if unknown:
        progress.stage, progress.done = "embedding", len(rows) - len(unknown)
    place = iter(unknown)
    async for outcome in embedder.each([examples.inputs[at] for at in unknown]):
        if isinstance(outcome, UnusableInputError):
            raise InvalidError(str(outcome), "inputs") from outcome
        rows[next(place)] = normalise(outcome.vector())
        progress.done += 1
    return np.stack([row for row in rows if row is not None])


def _size(vectors: Sequence[Vectors | None] | None) -> int:
    return sum(one.nbytes for one in vectors or () if one is not None)
