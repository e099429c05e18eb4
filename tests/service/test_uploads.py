"""The disk space, the forms and the jobs of uploads, without a service."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.types import Message, Scope

from features.files import form
from features.files.background import LOST, MOST_JOBS, STOPPED, UploadOptions, Uploads
from features.files.progress import Progress
from features.files.spool import Spool, Upload
from service.embedding.batching.clients import Client
from service.errors import InvalidError, OverloadedError, TooLargeError, UnavailableError
from service.index import sql
from service.index.indexes import connect
from service.index.leases import SILENT_SECONDS, Silence
from service.index.sql import Sql
from service.jobs import runner
from service.jobs.runner import Runner, State
from service.jobs.table import KEEP_JOBS, KEEP_SECONDS, LOST_SECONDS, Job, Jobs
from service.metrics import Metrics
from service.server.edge.layer import Edge
from service.server.lifecycle import Service
from service.settings import Settings
from tests.conftest import until

ONE, TWO = Client("one"), Client("two")
COUNTS = {"files": 1, "done": 0, "failed": 0, "written": 0, "unchanged": 0, "refused": 0}
TYPE = "multipart/form-data; boundary=x"


def part(name: str, content: bytes) -> bytes:
    head = f'--x\r\ncontent-disposition: form-data; name="f"; filename="{name}"\r\n\r\n'
    return head.encode() + content + b"\r\n"


async def pieces(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_files_come_out_of_a_form_as_they_went_in(tmp_path: Path, size: int) -> None:
    files = {"a.txt": b"\r\n--y\r\n--" * 50, "b/ü.txt": b"", "c.bin": bytes(range(256)) * 9}
    body = b"".join(part(*one) for one in files.items()) + b"--x--\r\n"

    spool = Spool(tmp_path, 1 << 20)
    upload = await spool.open(ONE)
    await form.receive(pieces(body, size), TYPE, upload, 10_000)
    found = {}
    for number, name in enumerate(upload.names):
        with upload.read(number) as file:
            found[name] = file.read()
    assert spool.total == upload.size == sum(map(len, files.values()))
    upload.close()
    assert spool.total == 0
    assert found == files
    # the files have no names on disk
    assert os.listdir(tmp_path) == []


def test_a_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    async def read(length: int) -> None:
        upload = await Spool(tmp_path, 1 << 20).open(ONE)
        body = part("a.txt", b"a" * 500) + part("b.txt", b"b" * length) + b"--x--\r\n"
        try:
            await form.receive(pieces(body, 64), TYPE, upload, 1000)
        finally:
            upload.close()

    asyncio.run(read(1000))
    with pytest.raises(TooLargeError, match=r"file 2 has more than 1000.*max_file_bytes"):
        asyncio.run(read(1001))


@pytest.mark.parametrize("name", ["", ".", "..", "a\tb", "x" * 513])
def test_a_file_name_that_is_no_id_is_refused(tmp_path: Path, name: str) -> None:
    async def read() -> None:
        upload = await Spool(tmp_path, 1 << 20).open(ONE)
        try:
            await form.receive(pieces(part(name, b"a") + b"--x--\r\n", 64), TYPE, upload, 1000)
        finally:
            upload.close()

    with pytest.raises(InvalidError, match="no usable file name"):
        asyncio.run(read())


async def test_clients_share_the_disk_space(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1000)
    first, second = await spool.open(ONE), await spool.open(TWO)
    first.begin("a")
    await first.write(b"a" * 500)
    with pytest.raises(OverloadedError, match="max_upload_disk_bytes"):
        await first.write(b"a")
    second.begin("b")
    await second.write(b"b" * 250)
    first.close()
    await second.write(b"b" * 250)
    second.close()
    assert spool.total == 0


async def test_a_full_disk_gets_its_own_error(tmp_path: Path) -> None:
    class Full:
        """A file on a full disk."""

        def write(self, _: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None: ...

    spool = Spool(tmp_path, 1 << 23)
    file: Any = Full()
    upload = Upload(spool, ONE, file)
    upload.begin("a")
    with pytest.raises(UnavailableError, match="is full"):
        await upload.write(b"a" * (1 << 20))
    upload.close()
    assert spool.total == 0


class Place:
    """A store without indexes, and an engine that never answers."""

    queued_tokens = 0

    def __init__(self, folder: Path) -> None:
        self.path = str(folder)
        self.metrics = Metrics()
        self.jobs = Runner(self)  # type: ignore[arg-type]

    async def database(self, part: str) -> Any:
        return await connect(f"{self.path}/{part}")

    async def indexes(self) -> Any:
        await asyncio.Event().wait()

    def uploads(self) -> Uploads:
        return Uploads(self, self.jobs, 1 << 20, self.metrics)  # type: ignore[arg-type]

    async def begun(self, uploads: Uploads) -> Job:
        """A job whose only file has been read, and that waits for its index."""
        upload = await uploads.open()
        body = part("a.txt", b"text") + b"--x--\r\n"
        await form.receive(pieces(body, 100), TYPE, upload, 1000)
        options = UploadOptions("index", "uid", "generation", None)
        return await uploads.begin(upload, options, self, "", lambda _: None)  # type: ignore[arg-type]

    def ended(self, state: str) -> float | None:
        labels = {"kind": "files", "state": state}
        return self.metrics.registry.get_sample_value("docsplit_jobs_total", labels)


async def test_a_service_that_stops_says_so(tmp_path: Path) -> None:
    place = Place(tmp_path)

    uploads = place.uploads()
    running, waiting = await place.begun(uploads), await place.begun(uploads)
    await place.jobs.close()
    assert uploads.spool.total == 0
    jobs = await place.jobs.jobs()
    assert await jobs.get(waiting.id) is not None
    job = await jobs.get(running.id)
    assert job is not None
    assert (job.state, job.error, job.progress["files"]) == ("failed", STOPPED, 1)
    assert (place.ended("failed"), place.ended("cancelled")) == (2.0, 0.0)


def test_a_job_is_cancelled_at_another_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "HEARTBEAT_SECONDS", 0.01)
    here, there = Place(tmp_path), Place(tmp_path)

    async def cancel() -> Job | None:
        uploads = here.uploads()
        job = await here.begun(uploads)
        await there.jobs.cancel(job.id)
        await until(lambda: not here.jobs._tasks)
        assert uploads.spool.total == 0
        return await (await there.jobs.jobs()).get(job.id)

    job = asyncio.run(cancel())
    assert job is not None
    assert (job.state, job.error) == ("cancelled", "")
    assert (here.ended("cancelled"), here.ended("failed")) == (1.0, 0.0)


@pytest.mark.parametrize("fault", [None, TooLargeError("leave out titles")])
def test_a_search_for_links_ends_with_its_job(tmp_path: Path, fault: Exception | None) -> None:
    place = Place(tmp_path)
    searching = asyncio.Event()

    async def find() -> Any:
        searching.set()
        if fault is not None:
            raise fault
        await asyncio.Event().wait()

    async def search() -> Job | None:
        uploads = place.uploads()
        upload = await uploads.open()
        # no document, so no index is needed
        body = part("a.exe", b"MZ") + b"--x--\r\n"
        await form.receive(pieces(body, 100), TYPE, upload, 1000)
        options = UploadOptions("index", "uid", "generation", None, find=find)
        job = await uploads.begin(upload, options, place, "", lambda _: None)  # type: ignore[arg-type]
        await searching.wait()
        if fault is None:
            await place.jobs.cancel(job.id)
        await until(lambda: not place.jobs._tasks)
        assert uploads.spool.total == 0
        return await (await place.jobs.jobs()).get(job.id)

    job = asyncio.run(search())
    assert job is not None
    expected = ("cancelled", "") if fault is None else ("failed", str(fault))
    assert (job.state, job.error) == expected
    assert (job.progress["failed"], job.details["links"]) == (1, None)


async def test_a_running_job_is_known_without_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "HEARTBEAT_SECONDS", 1000.0)
    place = Place(tmp_path)
    progress = Progress(3)

    end = asyncio.Event()

    async def work(_: runner.Attempt) -> None:
        await end.wait()

    place.uploads()
    first, second = [
        await place.jobs.begin(runner.Task("files", "index", "", progress, work)) for _ in range(2)
    ]
    await until(lambda: place.jobs._attempts[first.id].running.is_set())
    # it waits for the first
    waiting = await place.jobs.get(second.id)
    assert waiting is not None
    assert waiting.state == "queued"
    progress.done = 2
    with monkeypatch.context() as patch:
        patch.setattr(place.jobs, "jobs", None)
        known = await place.jobs.get(first.id)
    assert known is not None
    assert (known.state, known.progress["done"]) == ("running", 2)
    end.set()
    await until(lambda: not place.jobs._tasks)
    job = await place.jobs.get(first.id)
    assert job is not None
    assert (job.state, job.progress["done"]) == ("succeeded", 2)


async def test_only_a_few_uploads_wait(tmp_path: Path) -> None:
    uploads = Place(tmp_path).uploads()
    held = [await uploads.open() for _ in range(MOST_JOBS // 2)]
    with pytest.raises(OverloadedError) as refused:
        await uploads.open()
    assert refused.value.retry_after >= 1
    uploads.close_upload(held.pop())
    held.append(await uploads.open())
    for upload in held:
        uploads.close_upload(upload)


@pytest.mark.parametrize("ahead", [-3600, 0, 3600])
@pytest.mark.parametrize("state", ["queued", "running"])
async def test_a_job_whose_replica_is_gone_has_failed(
    tmp_path: Path, state: State, ahead: float
) -> None:
    passed = 0.0

    place = Place(tmp_path)
    place.uploads()
    jobs = await place.jobs.jobs()
    jobs._silence = Silence(lambda: passed)
    made = await jobs.add("files", "index", "key one", COUNTS)
    assert made is not None
    every = runner.HEARTBEAT_SECONDS if state == "running" else runner.WAITING_SECONDS

    async def shown() -> Job:
        held = await place.jobs.get(made.id)
        assert held is not None
        return held

    # however wrong the clock of its replica is
    for beat in range(5):
        at = time.time() + ahead + beat * every
        assert await jobs._table.change(Sql("true"), state=state, heartbeat=at)
        assert (await shown()).state == state
        passed += every
        assert (await shown()).state == state
    passed += LOST_SECONDS
    lost = await shown()
    assert (lost.state, lost.error) == ("failed", LOST)
    assert (await place.jobs.listed())[0].state == "failed"
    # from now on the table says so
    assert await place.jobs.unended("files", "index") is None
    assert (await jobs.all(["files"]))[0].error == LOST


async def test_a_job_that_another_process_left_long_ago_has_soon_failed(tmp_path: Path) -> None:
    passed = 0.0

    jobs = Jobs(await connect(str(tmp_path)))
    jobs._silence = Silence(lambda: passed)
    times = 1000.0, time.time() - 3600
    job = Job("a", "map", "x", "", "a", 1, "running", COUNTS, "", *times, {})
    assert not jobs.lost(job)
    passed += SILENT_SECONDS
    assert jobs.lost(job)


def test_old_jobs_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def made() -> list[str]:
        jobs = Jobs(await connect(str(tmp_path)))

        async def add() -> str:
            job = await jobs.add("files", "index", "", COUNTS)
            assert job is not None
            return job.id

        await jobs.add("training", "of-the-name", "", COUNTS, single=True)
        await jobs._table.change(Sql("true"), heartbeat=0.0)
        ids = [await add() for _ in range(3)]
        old = time.time() - KEEP_SECONDS - 1
        await jobs._table.change(sql.compare("id", "=", ids[1]), heartbeat=old)
        ids.append(await add())
        assert [job.id for job in await jobs.all(["files"])] == [ids[3], ids[2], ids[0]]
        monkeypatch.setattr("service.jobs.table.KEEP_JOBS", 2)
        ids.append(await add())
        assert [job.id for job in await jobs.all(["files"])] == [ids[4], ids[3], ids[2]]
        # the last training of a classifier stays
        assert len(await jobs.all(["training"])) == 1
        return ids

    assert len(asyncio.run(made())) < KEEP_JOBS


def guarded(most: int, seconds: float, sent: list[Message]) -> tuple[int, int]:
    """The status of an upload to a route that reads its body, and the bytes that it read."""
    size = status = 0

    async def app(_: Any, receive: Any, send: Any) -> None:
        nonlocal size
        while (message := await receive()).get("more_body"):
            size += len(message["body"])
        size += len(message.get("body", b""))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Message:
        if not sent:
            await asyncio.Event().wait()
        return sent[0] if sent[0]["type"] == "http.disconnect" else sent.pop(0)

    async def send(message: Message) -> None:
        nonlocal status
        status = message.get("status", status)

    limits = {"max_upload_bytes": most, "body_timeout": seconds}
    settings = Settings().model_copy(update=limits)
    ring = SimpleNamespace(required=False)
    service = SimpleNamespace(settings=settings, keys=ring, metrics=Metrics(), tracing=None)
    edge = Edge(app, cast(Service, service), set())
    scope: Scope = {"type": "http", "method": "POST", "path": "/indexes/a/files", "headers": []}
    scope.update(raw_path=b"/indexes/a/files", query_string=b"")
    asyncio.run(edge(scope, receive, send))
    return status, size


def test_the_body_of_an_upload_is_bounded_in_size_and_time() -> None:
    def messages(*last: Message) -> list[Message]:
        chunks: list[Message] = [{"type": "http.request", "body": b"a" * 100, "more_body": True}]
        return [*chunks * 9, *last]

    end: Message = {"type": "http.request", "body": b"a" * 100, "more_body": False}
    assert guarded(1000, 60, messages(end)) == (200, 1000)
    assert guarded(999, 60, messages(end)) == (413, 900)
    assert guarded(1000, 0.01, messages()) == (408, 900)
    # nobody reads the answer to a client that has left
    assert guarded(1000, 60, messages({"type": "http.disconnect"})) == (0, 900)
