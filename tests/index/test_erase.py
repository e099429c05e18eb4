"""Deleted and replaced texts leave the disk."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from obstore.store import from_url

from docsplit.bundles.format import load
from service.bulk.optimizing import condition
from service.errors import ConflictError
from service.index import erasures, maintenance, merging
from service.index.commits import delete_everywhere
from service.index.maintenance import Maintainer
from service.index.rows import keyed
from service.index.rows.keyed import KeyedTable
from service.index.storage.database import Database, connect, pin, unpin
from service.index.store import Store
from service.metrics import Metrics
from tests import storage
from tests.conftest import Server, serving, until
from tests.index import piped
from tests.index.conftest import call, upsert
from tests.integrity import stores

WORDS = [b"zanzibarite", b"quokkaburra"]


def files(root: Path) -> Iterator[bytes]:
    """The contents of all files of a store, in its folder or in the bucket."""
    found: Iterator[Callable[[], bytes]]
    if storage.in_bucket():
        bucket = from_url(storage.placed(root))

        def content(name: str) -> bytes:
            return bytes(bucket.get(name).bytes())

        found = (partial(content, one["path"]) for page in bucket.list() for one in page)
    else:
        found = (path.read_bytes for path in root.rglob("*") if path.is_file())
    for read in found:
        # maintenance may remove it meanwhile
        with suppress(FileNotFoundError):
            yield read()


def held(root: Path) -> set[bytes]:
    """The words that any file of a store holds."""
    return {word for content in files(root) for word in WORDS if word in content.lower()}


def test_no_file_holds_a_word_of_an_erased_text(tmp_path: Path) -> None:
    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)
        await indexes.create("x", {"year": "integer"})
        index = await indexes.open("x")
        texts = {name: stores.text_of(name) for name in map("d{}".format, range(40))}
        texts["d3"] = "Deleted: a zanzibarite. " + texts["d3"]
        texts["d4"] = "Replaced: a quokkaburra. " + texts["d4"]
        records = [stores.record(*one) for one in texts.items()]
        await index.put([replace(one, metadata={**one.metadata, "year": 1}) for one in records])
        await maintenance.optimize(index.table)
        await delete_everywhere(indexes, "x", index.identity.uid, ["d3"])
        await index.put([stores.record("d4", "another text")])
        # the control
        assert held(tmp_path) == set(WORDS)

        await pin(index.table, "abc")
        with pytest.raises(ConflictError, match="export"):
            await maintenance.erase(indexes, "x", index)
        await unpin(index.table, "abc")
        assert await maintenance.erase(indexes, "x", index) > 0
        assert held(tmp_path) == set()
        assert await index.count() == 39
        assert (await index.get("d4")).text == "another text"
        assert (await condition(index)).unindexed["words"] == 0
        assert await maintenance.erase(indexes, "x", index) == 0

    stores.run(scenario())


def test_the_command_erases_beside_a_service(
    tmp_path: Path, light: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    from service.bulk.__main__ import main

    def there(server: Server) -> list[str]:
        listed = call(server, "GET", "/indexes/x/documents")["documents"]
        return [document["id"] for document in listed]

    with serving(tmp_path / "log", *light) as server:
        call(server, "PUT", "/indexes/x", {}, status=201)
        upsert(server, "x", {"id": "a", "text": "A zanzibarite of glass."})
        upsert(server, "x", {"id": "b", "text": "Another text."})
        call(server, "DELETE", "/indexes/x/documents/a", status=204)
        root = tmp_path / "index"
        assert held(root) == {WORDS[0]}
        given = [
            "erase",
            "x",
            "--json",
            "--index-path",
            storage.placed(root),
            "--log-level",
            "error",
        ]
        assert main([*given, *light]) == 0
        [name] = json.loads(capsys.readouterr().out)
        assert name.startswith("x.")
        assert held(root) == set()
        assert there(server) == ["b"]


@pytest.mark.parametrize("small", [True, False])
def test_no_file_holds_a_word_of_a_deleted_text_after_the_time_that_the_setting_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    monkeypatch.setattr(maintenance, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(maintenance, "AGAIN_SECONDS", 1e9)
    monkeypatch.setattr(maintenance, "KEEP_VERSIONS", timedelta(milliseconds=5))
    monkeypatch.setattr(erasures, "KEEP_VERSIONS", timedelta(milliseconds=5))
    if not small:
        # every file is as one of 256 MiB
        monkeypatch.setattr(merging, "SMALL_BYTES", 0)
        monkeypatch.setattr(merging, "started", partial(piped.merging_process, full_bytes=1))

    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)

        async def noted() -> dict[str, bool]:
            return await indexes.erasures.due(-1e9)

        await indexes.create("x", {"year": "integer"})
        index = await indexes.open("x")
        # one file, of which few rows are deleted
        texts = {3: "Deleted: a zanzibarite.", 4: "Replaced: a quokkaburra."}
        records = [stores.record(f"d{n}", texts.get(n, "a text")) for n in range(40)]
        await index.put(records)
        await maintenance.maintain(indexes, "x", index)
        await indexes.erasures.forget([index.table.name])
        await delete_everywhere(indexes, "x", index.identity.uid, ["d3"])
        await index.put([stores.record("d4", "another text")])

        # without the setting words may stay, and those of a large table do
        first = Maintainer(indexes)
        for _ in range(2):
            first.note("x")
            await first._tasks["x"]
            assert small or held(tmp_path) == set(WORDS)
        await first.close()
        assert index.table.name in await noted()

        # another process, without a further write
        second = Maintainer(indexes, erase_within=1.0)
        second.start()
        for _ in range(1200):
            await asyncio.sleep(0.1)
            if not await noted():
                break
        await second.close()
        assert held(tmp_path) == set()
        index = await indexes.open("x")
        assert (await index.get("d4")).text == "another text"
        assert await index.count() == 39

    stores.run(scenario())


def test_no_file_of_a_small_table_holds_a_deleted_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "KEEP_VERSIONS", timedelta(milliseconds=5))
    monkeypatch.setattr(keyed, "KEEP_VERSIONS", timedelta(milliseconds=5))

    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)
        heads = await connect(f"{tmp_path}/heads")
        examples = KeyedTable(heads, "examples", name=pa.string(), text=pa.string())
        texts = ["a zanzibarite", *map(str, range(39))]
        await examples.put(*({"name": text, "text": text} for text in texts))
        await examples.delete(examples.of(texts[0]))
        for _ in range(2):
            await examples.tidy()
        # LanceDB leaves a few deleted rows
        assert held(tmp_path) == {WORDS[0]}

        async def others() -> list[Database]:
            return [heads]

        maintainer = Maintainer(indexes, erase_within=1.0, others=others)
        maintainer.start()
        for _ in range(1200):
            await asyncio.sleep(0.1)
            if not held(tmp_path):
                break
        await maintainer.close()
        assert held(tmp_path) == set()
        assert len(await examples.keys()) == 39

    stores.run(scenario())


@pytest.mark.folder
def test_maintenance_follows_a_deletion_without_another_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(maintenance, "AGAIN_SECONDS", 0.3)
    monkeypatch.setattr(maintenance, "KEEP_TOMBSTONES", 1000)

    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)
        await indexes.create("x", {"year": "integer"})
        index = await indexes.open("x")
        await index.put([stores.record("a"), stores.record("b")])
        runs: list[str] = []

        async def ran(name: str) -> None:
            runs.append(name)

        maintainer = Maintainer(indexes, ran)
        await delete_everywhere(indexes, "x", index.identity.uid, ["a"])
        maintainer.note("x")
        await until(lambda: len(runs) > 1)
        assert await index.updated(["a", "b"]) == {"b": (await index.get("b")).updated}
        await maintainer.close()

    stores.run(scenario())


def test_no_file_holds_a_word_of_a_deleted_document_that_others_learnt_from(
    tmp_path: Path, light: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [
        {"id": f"{kind}-{number}", "title": f"{kind} {number}", "text": f"{kind} {number}. " * 9}
        for kind in ("money", "sport")
        for number in range(12)
    ]
    gone = "zanzibarite-1"
    # each word is a topic's, and the first one is an id as well
    documents.append({"id": gone, "text": "Sport-7 and quokkaburra by zanzibarite. " * 9})
    left = [document["id"] for document in documents[:-1]]
    root = tmp_path / "index"

    with serving(tmp_path / "log", *light) as server:

        def learn(ids: list[str]) -> None:
            labels = [name.partition("-")[0] if name != gone else "sport" for name in ids]
            call(server, "PUT", "/classifiers/c", {"index": "x", "ids": ids, "labels": labels})
            assert call(server, "POST", "/indexes/x/links/find", {})["links"] == (gone in ids)
            made = call(server, "POST", "/indexes/x/map", status=202)["id"]
            until_ended(server, made)

        def label(labels: list[str] | None) -> None:
            given = {"index": "x", "documents": [{"id": gone, "labels": labels}]}
            call(server, "POST", "/classifiers/c/labels", given)

        call(server, "PUT", "/indexes/x", {}, status=201)
        upsert(server, "x", *documents)
        label(["sport"])
        learn([*left, gone])
        assert held(root) == set(WORDS)
        call(server, "DELETE", f"/indexes/x/documents/{gone}", status=204)
        label(None)
        learn(left)

    # the control
    assert held(root) == set(WORDS)
    for module in (maintenance, erasures, keyed):
        monkeypatch.setattr(module, "KEEP_VERSIONS", timedelta(milliseconds=5))
    monkeypatch.setattr(maintenance, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(maintenance, "KEEP_TOMBSTONES", 1000)

    async def erase() -> None:
        manifests = {"light": load(Path(light[1]), verify=False).manifest}
        store = Store(str(root), manifests, Metrics(), "commit", 10**7, 5.0, 1.0)
        await store.indexes()
        maintainer = store._maintainer
        assert maintainer is not None
        maintainer.start()
        for _ in range(300):
            await asyncio.sleep(0.2)
            if not held(root):
                break
        await store.close()
        assert held(root) == set()

    asyncio.run(erase())


def until_ended(server: Server, job: str) -> None:
    """Wait until a job has succeeded."""
    for _ in range(300):
        state = call(server, "GET", f"/jobs/{job}")["state"]
        if state not in ("queued", "running"):
            break
        time.sleep(0.1)
    assert state == "succeeded"
