"""Indexes in an object store: the probe of conditional writes, and faults of the network."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx
import obstore
import pytest

from service.bulk.__main__ import main
from service.errors import StoreError, VersionError
from service.index import commits
from service.index.commits import Upsert, Writer
from service.index.indexes import Indexes, Model, connect
from service.index.rows import versions
from service.index.storage.bucket import NAME, Bucket
from service.index.storage.volume import Volume
from service.index.store import Store
from service.metrics import Metrics
from tests.conftest import NIGHTLY, free_port, serving, wait_until
from tests.fault_proxy import FaultProxy
from tests.index.conftest import call, upsert
from tests.index.processes import record
from tests.s3_server import BUCKET, CARELESS, OLD, READER, STRANGER, WRITER, S3Server, variables

# a commit of an index in LanceDB
MANIFEST = re.compile(rb"PUT \S+/indexes/\S+/_versions/\S+manifest")


@dataclass
class Client:
    """A process's access to a store in a bucket."""

    volume: Volume
    indexes: Indexes

    async def write(self, name: str, text: str, version: str | None = None) -> str:
        """Write a document; returns its version."""
        index = await self.indexes.open("x")
        rows = await index.rows([record(name, text)])
        conditions = {} if version is None else {name: versions.condition(version)}
        [error] = await commits.write(index, [upsert := Upsert(rows, conditions)])
        if error is not None:
            raise error
        return versions.text(upsert.times[name])

    async def text(self, name: str) -> str | None:
        index = await self.indexes.open("x")
        return (await index.get(name)).text if await index.has(name) else None


async def opened(uri: str) -> Client:
    """A claimed store."""
    volume = Volume(uri, "fsync", lambda _: None, 1.0)
    await volume.claim()
    databases = [await connect(f"{uri}/{part}", volume) for part in ("indexes", "leases")]
    return Client(volume, Indexes(databases[0], databases[1], Model("model", "a" * 64, 4)))


def below(s3: S3Server, prefix: str, bucket: str = BUCKET) -> list[str]:
    return [key for key in s3.keys(bucket) if key.startswith(f"{prefix}/")]


def test_one_of_two_writers_creates_an_object(s3: S3Server, proxy: FaultProxy) -> None:
    bucket = Bucket(f"s3://{BUCKET}/probe", 5)
    for _ in range(10 if NIGHTLY else 4):
        assert bucket._created("the same object") == 1
    # the control: the server drops the header that has the condition
    assert Bucket(f"s3://{CARELESS}/probe", 5)._created("the same object") == 2
    bucket.claim()
    # a lost answer changes nothing
    proxy.lose = re.compile(rb"PUT \S+/docsplit-probe")
    bucket.claim()
    assert proxy.lost == 1
    assert below(s3, "probe", CARELESS) == []
    # the probe leaves nothing but the identity of the store
    assert below(s3, "probe") == ["probe/docsplit-store.json"]


@pytest.mark.parametrize(
    ("bucket", "key", "reason", "said"),
    [
        (CARELESS, WRITER, "unsafe", "lets two writers create the same object"),
        (OLD, WRITER, "unsupported", "does not know conditional writes"),
        ("missing", WRITER, "gone", "does not exist"),
        (BUCKET, STRANGER, "denied", "credentials"),
        (BUCKET, "", "unreachable", "does not answer"),
    ],
)
def test_a_bucket_that_cannot_keep_commits_apart_is_refused(
    s3: S3Server,
    proxy: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
    bucket: str,
    key: str,
    reason: str,
    said: str,
) -> None:
    port = proxy.port if key else free_port()
    for name, value in variables(port, key or WRITER).items():
        monkeypatch.setenv(name, value)
    store = Store(f"s3://{bucket}/refused", {}, Metrics(), "fsync", 0, 1.0, 86_400.0)

    async def scenario() -> None:
        requests = (store.indexes() for _ in range(3))
        for error in await asyncio.gather(*requests, return_exceptions=True):
            assert isinstance(error, StoreError)
            assert (error.status, error.reason) == (503, reason)
            assert said in error.message
            assert error.headers["retry-after"] == "5"

    asyncio.run(scenario())
    assert (store.volume.up, store.volume.trouble) == (False, reason)
    if bucket != "missing":
        assert below(s3, "refused", bucket) == []


def test_credentials_that_can_only_read_read(
    s3: S3Server, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        writer = await opened(f"s3://{BUCKET}/read-only")
        await writer.indexes.create("x", {})
        await writer.write("a", "text")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", READER)
        reader = await opened(f"s3://{BUCKET}/read-only")
        assert await reader.text("a") == "text"
        with pytest.raises(RuntimeError) as raised:
            await reader.write("a", "other")
        fault = await reader.volume.fault(raised.value)
        assert fault is not None
        assert fault.reason == "denied"
        assert await writer.text("a") == "text"

    asyncio.run(scenario())


def test_commands_say_what_is_wrong_with_a_bucket(
    s3: S3Server,
    proxy: FaultProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    light: tuple[str, ...],
) -> None:
    def said(uri: str, *words: str) -> str:
        assert main([*words, "--index-path", uri, "--log-level", "error"]) == 2
        return capsys.readouterr().err.splitlines()[-1]

    assert "does not exist" in said("s3://absent/store", "check")
    assert "holds no indexes" in said(f"s3://{BUCKET}/misspelt", "check")
    uri = f"s3://{BUCKET}/commands"
    source = tmp_path / "documents.jsonl"
    source.write_text('{"id": "a", "text": "a text"}\n')
    start = [str(source), "--index", "x", "--index-path", uri, "--calibrate", "0", *light]
    assert main(start) == 0
    assert main(["check", "x", "--index-path", uri]) == 0
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", READER)
    assert "refuses the credentials, or they lack a right" in said(uri, "optimize", "x", *light)


def test_a_commit_whose_answer_is_lost_counts_once(s3: S3Server, proxy: FaultProxy) -> None:
    async def scenario() -> None:
        client = await opened(f"s3://{BUCKET}/lost-answer")
        await client.indexes.create("x", {})
        proxy.lose = MANIFEST
        version = await client.write("a", "one", "")
        proxy.lose = MANIFEST
        later = await client.write("a", "two", version)
        proxy.lose = MANIFEST
        # the control: the condition no longer holds, and the attempt commits nothing
        with pytest.raises(VersionError):
            await client.write("a", "three", version)
        assert proxy.lost == 2
        await client.write("a", "four", later)
        index = await client.indexes.open("x")
        assert await index.table.count_rows("id = 'a'") == 1
        assert await client.text("a") == "four"
        assert proxy.lost == 3

    asyncio.run(scenario())


def test_a_request_looks_for_new_versions_once(
    s3: S3Server, proxy: FaultProxy, tmp_path: Path, light: tuple[str, ...]
) -> None:
    """Each look is a request to the store, and other requests wait for its answer."""
    flags = ("--index-path", f"s3://{BUCKET}/looks")
    body = {"documents": [{"id": "a", "text": "a text"}]}
    with serving(tmp_path / "log", *flags, *light) as server:
        call(server, "PUT", "/indexes/x", {}, status=201)
        for method, path, given, status, most in (
            # before the text is embedded, before the commit, and in the commit
            ("POST", "/indexes/x/documents", body, 200, 3),
            ("GET", "/indexes/x/documents/a", None, 200, 1),
            ("POST", "/similar", {"index": "x", "id": "a"}, 200, 1),
            ("PATCH", "/indexes/x/documents/a", {"title": "A"}, 200, 4),
        ):
            looks: list[int] = []
            # maintenance looks too, on a slow machine during most requests
            while min(looks, default=most + 1) > most and len(looks) < 50:
                before = proxy.looks
                call(server, method, path, given, status=status)
                looks.append(proxy.looks - before)
            assert 1 <= min(looks) <= most, (path, looks)


@pytest.mark.parametrize("mode", ["stall", "refuse"] if NIGHTLY else ["stall"])
def test_a_network_fault_is_a_503_and_ends_by_itself(
    s3: S3Server, proxy: FaultProxy, mode: Literal["refuse", "stall"]
) -> None:
    async def scenario() -> None:
        client = await opened(f"s3://{BUCKET}/{mode}")
        await client.indexes.create("x", {})
        writer = Writer(client.indexes, "x", lambda _: None)
        index = await client.indexes.open("x")
        await client.write("a", "before")
        proxy.mode = mode
        # the requests of one commit fail together
        rows = [await index.rows([record(name, "during")]) for name in "abc"]
        writes = (writer.write(index.identity.uid, Upsert(row)) for row in rows)
        async with asyncio.timeout(30):
            outcomes = await asyncio.gather(*writes, return_exceptions=True)
        for outcome in outcomes:
            assert isinstance(outcome, RuntimeError)
            fault = await client.volume.fault(outcome)
            assert fault is not None
            assert (fault.reason, fault.headers) == ("unreachable", {"retry-after": "5"})
        assert client.volume.trouble == "unreachable"
        with pytest.raises(StoreError, match="does not answer"):
            await client.volume.check()
        proxy.mode = "pass"
        await client.volume.check(now=True)
        assert client.volume.up
        assert await client.text("a") in ("before", "during")
        await client.write("a", "after")
        assert await client.text("a") == "after"

    asyncio.run(scenario())


def test_a_bucket_that_vanishes_is_reported(s3: S3Server, proxy: FaultProxy) -> None:
    async def scenario() -> None:
        s3.create("vanishing")
        client = await opened("s3://vanishing/a")
        await client.indexes.create("x", {})
        s3.remove("vanishing")
        with pytest.raises(RuntimeError) as raised:
            await client.text("a")
        fault = await client.volume.fault(raised.value)
        assert fault is not None
        assert fault.reason == client.volume.trouble == "gone"
        with pytest.raises(StoreError, match="bucket of index_path does not exist"):
            await client.volume.check()

    asyncio.run(scenario())


def test_an_emptied_bucket_is_not_an_empty_store(
    s3: S3Server, proxy: FaultProxy, tmp_path: Path, light: tuple[str, ...]
) -> None:
    """Not even if a process that starts begins another store there."""
    s3.create("emptied")
    flags = ("--index-path", "s3://emptied/a")
    with serving(tmp_path / "log", *flags, *light) as server:
        call(server, "PUT", "/indexes/x", {}, status=201)
        s3.remove("emptied")
        s3.create("emptied")
        for _ in range(2):
            for method, path in (("GET", "/indexes"), ("GET", "/indexes/x"), ("PUT", "/indexes/y")):
                answer = httpx.request(method, f"{server.url}{path}", timeout=60)
                assert answer.status_code == 503, (method, path, answer.text)
                assert "another one is in its place" in answer.json()["error"]
            assert httpx.get(f"{server.url}/readyz").json()["reasons"] == ["store_gone"]
            asyncio.run(opened("s3://emptied/a"))
        assert below(s3, "a", "emptied") == ["a/docsplit-store.json"]


def test_a_store_of_a_former_version_gets_an_identity(
    s3: S3Server, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And until then, credentials that can only read do without."""
    uri = f"s3://{BUCKET}/former"

    async def scenario() -> None:
        await (await opened(uri)).indexes.create("x", {})
        obstore.delete(Bucket(uri, 5).objects(uri), NAME)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", READER)
        reader = await opened(uri)
        assert await reader.indexes.names() == ["x"]
        await reader.volume.check(now=True)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", WRITER)
        writers = await asyncio.gather(*(opened(uri) for _ in range(3)))
        for client in (*writers, reader):
            await client.volume.check(now=True)
        obstore.delete(Bucket(uri, 5).objects(uri), NAME)
        for client in (*writers, reader):
            with pytest.raises(StoreError, match="another one is in its place"):
                await client.volume.check(now=True)

    asyncio.run(scenario())


def test_a_look_at_a_bucket_is_one_request(s3: S3Server, proxy: FaultProxy) -> None:
    async def scenario() -> None:
        client = await opened(f"s3://{BUCKET}/looked")
        before = proxy.requests
        for _ in range(3):
            await client.volume.check(now=True)
        assert proxy.requests == before + 3

    asyncio.run(scenario())


def test_a_service_waits_for_its_object_store(
    s3: S3Server, proxy: FaultProxy, tmp_path: Path, light: tuple[str, ...]
) -> None:
    proxy.mode = "refuse"
    flags = ("--index-path", f"s3://{BUCKET}/service", "--bucket-timeout", "2")
    with serving(tmp_path / "log", *flags, *light) as server:

        def reasons() -> list[str]:
            answer = httpx.get(f"{server.url}/readyz")
            assert answer.status_code == 200
            return answer.json()["reasons"]

        def refused() -> None:
            body = {"documents": [{"id": "b", "text": "a text"}]}
            for method, path, given in (
                ("GET", "/indexes", None),
                ("POST", "/indexes/x/documents", body),
                ("GET", "/classifiers", None),
            ):
                answer = httpx.request(method, f"{server.url}{path}", json=given, timeout=60)
                assert answer.status_code == 503, answer.text
                assert answer.headers["retry-after"] == "5"
                assert "object store of index_path does not answer" in answer.json()["error"]
            assert reasons() == ["store_unreachable"]
            assert server.metric("docsplit_store_up") == 0
            call(server, "POST", "/embed", {"inputs": "a text"})

        refused()
        proxy.mode = "pass"
        wait_until(lambda: reasons() == [], 20)
        call(server, "PUT", "/indexes/x", {}, status=201)
        upsert(server, "x", {"id": "a", "text": "a text"})
        proxy.mode = "refuse"
        refused()
        proxy.mode = "pass"
        wait_until(lambda: reasons() == [], 20)
        assert call(server, "GET", "/indexes/x/documents/a")["text"] == "a text"
        upsert(server, "x", {"id": "b", "text": "b text"})
