"""The shipped cache for files of a bucket, in a real nginx before a real S3 server."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import obstore
import pytest

from service.bulk import optimizing
from service.index import maintenance, merging
from service.index.indexes import Indexes, Model, connect
from service.index.storage.bucket import Bucket
from service.index.storage.volume import Volume
from tests.conftest import NIGHTLY, Server, serving
from tests.deploy.balancers import find
from tests.deploy.bucket_cache import caching
from tests.fault_proxy import FaultProxy
from tests.index.conftest import call, upsert
from tests.integrity import stores
from tests.s3_server import BUCKET, CARELESS, S3Server

# the end of a file's name that the cache keeps
KEPT = re.compile(r"[.]lance/(data|_deletions|_indices)/")
DOCUMENTS = 60

pytestmark = pytest.mark.skipif(find("nginx") is None, reason="nginx is not installed")


def logged(folder: Path) -> list[str]:
    """A line for each request: its method, path, and whether the cache answered it."""
    return (folder / "requests").read_text().splitlines()


def test_another_process_finds_files_in_the_cache(
    s3: S3Server,
    proxy: FaultProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    light: tuple[str, ...],
) -> None:
    flags = ("--index-path", f"s3://{BUCKET}/cached", *light)
    queries = [{"index": "x", "id": f"d{n}", "mode": "hybrid"} for n in (3, 7, 11)]

    @contextmanager
    def answering(log: str) -> Iterator[tuple[Server, list[object], int]]:
        with serving(tmp_path / log, *flags) as server:
            before = proxy.received
            found = [call(server, "POST", "/similar", query) for query in queries]
            yield server, found, proxy.received - before

    with serving(tmp_path / "writer", *flags) as server:
        call(server, "PUT", "/indexes/x", {}, status=201)
        some = ({"id": f"d{n}", "text": f"Text {n} of {DOCUMENTS}."} for n in range(DOCUMENTS))
        upsert(server, "x", *some)
        upsert(server, "x", {"id": "d7", "text": "Text 7, written again."})
        call(server, "DELETE", "/indexes/x/documents/d8", status=204)
    with caching(tmp_path, proxy.port) as url:
        monkeypatch.setenv("AWS_PROXY_URL", url)
        with answering("cold") as (_, cold, _):
            pass
        with answering("warm") as (server, found, warm):
            assert found == cold
            upsert(server, "x", {"id": "d3", "text": "Another text."})
            assert call(server, "GET", "/indexes/x/documents/d3")["text"] == "Another text."
    with caching(tmp_path, proxy.port) as url:
        monkeypatch.setenv("AWS_PROXY_URL", url)
        # the files outlive the cache's process
        with answering("later") as (server, found, later):
            # what changes is not in the cache
            assert call(server, "GET", "/indexes/x/documents/d3")["text"] == "Another text."
    monkeypatch.delenv("AWS_PROXY_URL")
    with answering("without") as (_, plain, read):
        assert found == plain
        assert max(warm, later) < read / 3


@pytest.mark.parametrize("name", ["x.lance/data/a", "x.lance/_versions/1.manifest"])
def test_the_cache_passes_conditions_on(
    s3: S3Server, proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with caching(tmp_path, proxy.port) as url:
        monkeypatch.setenv("AWS_PROXY_URL", url)
        Bucket(f"s3://{BUCKET}/conditions", 5).claim()
        assert Bucket(f"s3://{BUCKET}/conditions", 5)._created(name) == 1
        # the control: the store ignores the condition
        assert Bucket(f"s3://{CARELESS}/conditions", 5)._created(name) == 2


def test_a_missing_file_and_a_refusal_are_not_kept(
    s3: S3Server, proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caching(tmp_path, proxy.port) as url:
        monkeypatch.setenv("AWS_PROXY_URL", url)
        store = Bucket(f"s3://{BUCKET}/later", 5).objects(f"s3://{BUCKET}/later")
        name = "x.lance/data/a"
        for _ in range(2):
            with pytest.raises(FileNotFoundError):
                obstore.get(store, name)
        obstore.put(store, name, b"0123456789")
        for _ in range(2):
            assert bytes(obstore.get(store, name).bytes()) == b"0123456789"
            assert bytes(obstore.get_range(store, name, start=2, end=5)) == b"234"
            assert bytes(obstore.get_range(store, name, start=5, end=9)) == b"5678"
    requests = Counter(line.split()[-1] for line in logged(tmp_path))
    assert (requests["HIT"], requests["MISS"]) == (3, 5)


def test_no_file_that_the_cache_keeps_is_written_twice(
    s3: S3Server, proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "VECTOR_INDEX_ROWS", DOCUMENTS)
    monkeypatch.setattr(maintenance, "WINDOW_INDEX_WINDOWS", DOCUMENTS)
    monkeypatch.setattr(maintenance, "KEEP_VERSIONS", timedelta(milliseconds=1))
    uri = f"s3://{BUCKET}/once"

    async def scenario() -> None:
        volume = Volume(uri, "fsync", lambda _: None, 5.0)
        databases = [await connect(f"{uri}/{part}", volume) for part in ("indexes", "leases")]
        indexes = Indexes(
            databases[0], databases[1], Model("model", stores.REVISION, stores.DIMENSIONS)
        )
        # maintained as a small table, then as a large one
        for rebuilds in ((False, True), (False, True) if NIGHTLY else (True,)):
            await indexes.create("x", {})
            index = await indexes.open("x")
            for start in range(0, DOCUMENTS, 20):
                await index.put([stores.record(f"d{n}") for n in range(start, start + 20)])
            for rebuild in rebuilds:
                await index.put([stores.record("d3")])
                await index.tombstone({"d4": 2**60})
                await optimizing.optimize(indexes, "x", index, lambda _: None, rebuild=rebuild)
            await indexes.drop("x")
            monkeypatch.setattr(merging, "SMALL_BYTES", 0)

    with caching(tmp_path, proxy.port) as url:
        monkeypatch.setenv("AWS_PROXY_URL", url)
        asyncio.run(scenario())
        # the control
        store = Bucket(uri, 5).objects(uri)
        for _ in range(2):
            obstore.put(store, "x.lance/data/control", b"")
    lines = [line.split() for line in logged(tmp_path)]
    # the end of an upload in parts is a POST
    written = [
        path.partition("?")[0]
        for method, path, _ in lines
        if (method == "PUT" and "partNumber" not in path) or (method == "POST" and "Id=" in path)
    ]
    kept = Counter(path for path in written if KEPT.search(path))
    parts = {match[1] for path in kept if (match := KEPT.search(path))}
    assert parts == {"data", "_deletions", "_indices"}
    again = [path for path, times in kept.items() if times > 1]
    assert [path.rpartition("/")[2] for path in again] == ["control"]
