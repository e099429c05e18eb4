"""A new bundle on existing indexes: servers of two revisions on one path."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from lancedb.table import AsyncTable

from docsplit.bundles import format as bundle
from docsplit.bundles.manifest import Manifest
from docsplit.heads.citation import vector_features
from docsplit.heads.network import Network
from service.index.indexes import connect, is_of
from service.index.leases import Leases
from service.index.rows.schema import identity
from service.index.rows.vectors import vector_matrix
from service.index.storage.database import Database, table_names
from service.learning.heads import Head, Heads
from tests import forked
from tests.conftest import ROOT, Server, serving
from tests.index.conftest import call, count, upsert
from tests.other_bundle import seal_other
from tests.storage import placed

SHORT, LONG = 256, 32


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for background work of a process."""
    for _ in range(1200):
        if condition():
            return
        # a look takes up to 50 ms of a core
        time.sleep(0.1)
    raise AssertionError(f"never: {what}")


async def table_of(tables: Database, index: str, revision: str) -> AsyncTable:
    """The table of an index's generation."""
    [name] = [table for table in await table_names(tables) if is_of(table, index, revision)]
    return await tables.open_table(name)


@contextmanager
def held(folder: Path, revision: str) -> Iterator[None]:
    """Keep every process from re-embedding the index "kept" for a bundle."""
    lease = f"kept.{revision[:12]}.reembed"

    async def acquire() -> Leases:
        leases = Leases(await connect(str(folder / "index" / "leases")))
        while True:
            if await leases.acquire(lease, 3600):
                return leases
            await asyncio.sleep(0.1)

    leases = asyncio.run(acquire())
    yield
    asyncio.run(leases.release(lease))


@dataclass
class Upgrade:
    """The state that the tests of this file share; they run in order."""

    folder: Path
    former: Manifest
    new: str
    stack: ExitStack
    servers: dict[str, Server] = field(default_factory=dict)

    def start(self, name: str, *flags: str) -> Server:
        flags = (*flags, "--index-path", str(self.folder / "index"))
        server = self.stack.enter_context(serving(self.folder / f"{name}.log", *flags))
        self.servers[name] = server
        return server

    def start_new(self, name: str) -> Server:
        return self.start(name, "--bundle", f"{self.former.name}={self.folder / 'bundle'}")

    def put_citation_head(self, index: str) -> None:
        """Store a citation head trained on the former bundle's vectors."""

        async def put() -> None:
            tables = await connect(str(self.folder / "index" / "indexes"))
            former = self.former.revision
            table = await table_of(tables, index, former)
            uid = identity(await table.schema()).uid
            unit = np.zeros((1, self.former.dimensions), dtype=np.float32)
            inputs = vector_features(unit, unit, np.zeros((1, 4), dtype=np.float32)).shape[1]
            network = Network((np.zeros((inputs, 2), np.float32),), (np.zeros(2, np.float32),))
            head = Head(uid, "1", former, ["unlinked", "cites"], {}, network)
            heads = await connect(str(self.folder / "index" / "heads"))
            await Heads(heads, "citation", "citation head").put(head)

        asyncio.run(put())

    def vectors(self, index: str, revision: str) -> dict[str, Any]:
        """Vectors by id from a generation's table."""

        async def read() -> dict[str, Any]:
            database = await connect(str(self.folder / "index" / "indexes"))
            table = await table_of(database, index, revision)
            query = table.query().where("deleted = false")
            rows = await query.select(["id", "vector"]).to_arrow()
            return dict(zip(rows["id"].to_pylist(), vector_matrix(rows), strict=True))

        return asyncio.run(read())


@pytest.fixture(scope="module")
def upgrade(tmp_path_factory: pytest.TempPathFactory, light: tuple[str, ...]) -> Iterator[Upgrade]:
    """From the light bundle to one that needs time for each text."""
    folder = tmp_path_factory.mktemp("generations")
    former = bundle.load(Path(light[1])).manifest
    with ExitStack() as stack:
        yield Upgrade(folder, former, seal_other(folder / "bundle"), stack)


@pytest.fixture(scope="module")
def documents(peps: dict[str, str]) -> list[dict[str, Any]]:
    """Short documents, which are committed first, and longer ones."""
    texts = list(peps.values())
    short = [{"id": f"a{i:03}", "text": f"Short text {i}."} for i in range(SHORT)]
    return short + [{"id": f"b{i:03}", "text": texts[i][:400]} for i in range(LONG)]


def get(server: Server, document: str) -> str | None:
    answer = httpx.get(f"{server.url}/indexes/kept/documents/{document}", timeout=60)
    assert answer.status_code in (200, 404), answer.text
    return answer.json()["text"] if answer.status_code == 200 else None


def test_the_new_bundle_does_not_read_an_incomplete_generation(
    upgrade: Upgrade, documents: list[dict[str, Any]], light: tuple[str, ...]
) -> None:
    old = upgrade.start("old", *light)
    call(old, "PUT", "/indexes/kept", {}, status=201)
    upsert(old, "kept", *documents)
    call(old, "PUT", "/indexes/citing", {}, status=201)
    upsert(old, "citing", {"id": "a", "text": "Text."})
    upgrade.put_citation_head("citing")
    with held(upgrade.folder, upgrade.new):
        new = upgrade.start_new("new")
        until(lambda: new.metric("docsplit_index_reembed_documents") == len(documents), "a count")
        path = "/indexes/kept/documents"
        for method, route, body in (
            ("GET", path, None),
            ("GET", f"{path}/a000", None),
            ("POST", "/similar", {"index": "kept", "text": "a"}),
            ("GET", "/indexes/kept/citation", None),
        ):
            answer = httpx.request(method, new.url + route, json=body, timeout=60)
            assert answer.status_code == 503
            assert f"0 of {len(documents)} documents" in answer.json()["error"]
            assert int(answer.headers["retry-after"]) > 0
        said = call(new, "GET", "/indexes/kept")
        assert (said["current"], said["documents"]) == (False, len(documents))
        nothing = {"done": 0, "total": len(documents), "rate": 0.0, "seconds_left": None}
        assert said["progress"] == nothing
        assert {(g["revision"], g["state"], g["current"]) for g in said["generations"]} == {
            (upgrade.former.revision, "complete", False),
            (upgrade.new, "building", True),
        }
        call(new, "PUT", "/indexes/kept", {})
        # writes are accepted
        upsert(new, "kept", {"id": "fresh", "text": "fresh"}, {"id": "a001", "text": "replaced"})
        call(new, "DELETE", f"{path}/a002", status=204)
        call(new, "DELETE", f"{path}/a002", status=404)
        assert get(old, "a002") is None
        call(new, "DELETE", f"/indexes/kept/generations/{upgrade.former.revision}", status=409)
        # writes to the new replica reach the old one
        until(lambda: get(old, "fresh") == "fresh", "a document of the new replica in the old")
        until(lambda: get(old, "a001") == "replaced", "a replaced document in the old replica")


def test_another_replica_replaces_one_killed_during_re_embedding(
    upgrade: Upgrade, documents: list[dict[str, Any]]
) -> None:
    killed = upgrade.servers["new"]
    until(lambda: len(upgrade.vectors("kept", upgrade.new)) > 2, "the first commit")
    killed.process.send_signal(signal.SIGKILL)
    killed.process.wait()
    done = len(upgrade.vectors("kept", upgrade.new))
    assert 2 < done < len(documents), "it was killed too late to test anything"
    again = upgrade.start_new("again")
    assert call(again, "GET", "/indexes/kept")["progress"]["done"] >= done
    until(lambda: call(again, "GET", "/indexes/kept")["current"], "the switch")
    said = call(again, "GET", "/indexes/kept")
    assert (said["documents"], said["progress"], said["revision"]) == (
        len(documents),
        None,
        upgrade.new,
    )
    assert {g["state"] for g in said["generations"]} == {"complete"}
    assert again.metric("docsplit_index_reembed_documents") == 0
    assert get(again, "a001") == "replaced"
    assert get(again, "fresh") == "fresh"
    assert get(again, "a002") is None


def test_the_vectors_equal_those_of_a_new_index(
    upgrade: Upgrade, documents: list[dict[str, Any]]
) -> None:
    again = upgrade.servers["again"]
    sample = documents[10:20] + documents[-10:]
    call(again, "PUT", "/indexes/again", {}, status=201)
    upsert(again, "again", *sample)
    kept, fresh = (upgrade.vectors(index, upgrade.new) for index in ("kept", "again"))
    former = upgrade.vectors("kept", upgrade.former.revision)
    for name, vector in fresh.items():
        np.testing.assert_allclose(kept[name], vector, atol=1e-5)
        assert former[name].shape == (upgrade.former.dimensions,) != vector.shape
    hits = call(again, "POST", "/similar", {"index": "kept", "text": sample[-1]["text"]})
    assert hits[0]["id"] == sample[-1]["id"]


def test_each_replica_sees_the_writes_of_the_other(upgrade: Upgrade) -> None:
    old, new = upgrade.servers["old"], upgrade.servers["again"]
    upsert(old, "kept", {"id": "from-old", "text": "one"}, {"id": "a003", "text": "changed"})
    upsert(new, "kept", {"id": "from-new", "text": "two"})
    until(lambda: get(new, "from-old") == "one", "a document of the old replica in the new")
    until(lambda: get(new, "a003") == "changed", "a change of the old replica in the new")
    until(lambda: get(old, "from-new") == "two", "a document of the new replica in the old")
    for here, there, name in ((old, new, "from-new"), (new, old, "from-old")):
        call(here, "DELETE", f"/indexes/kept/documents/{name}", status=204)
        assert get(there, name) is None
    # each has copied the later writes, and no deleted document
    upsert(old, "kept", {"id": "later-old", "text": "three"})
    upsert(new, "kept", {"id": "later-new", "text": "four"})
    until(lambda: get(new, "later-old") == "three", "a later document in the new replica")
    until(lambda: get(old, "later-new") == "four", "a later document in the old replica")
    assert [get(s, n) for s in (old, new) for n in ("from-old", "from-new")] == [None] * 4
    assert count(old, "kept") == count(new, "kept")


def test_a_citation_head_of_the_former_vectors_is_refused(upgrade: Upgrade) -> None:
    old, new = upgrade.servers["old"], upgrade.servers["again"]
    body = {"index": "citing", "text": "Text", "mode": "citation"}
    assert call(old, "POST", "/similar", body)
    refused = call(new, "POST", "/similar", body, status=409)
    assert "POST /indexes/citing/citation" in refused["error"]
    call(new, "GET", "/indexes/citing/citation", status=409)


# the last test on these servers: it stops the old one
def test_an_operator_can_delete_a_former_generation(upgrade: Upgrade) -> None:
    old, new = upgrade.servers["old"], upgrade.servers["again"]
    path = "/indexes/kept/generations"
    call(new, "DELETE", f"{path}/{upgrade.new}", status=409)
    call(new, "DELETE", f"{path}/{'0' * 12}", status=404)
    call(new, "DELETE", f"{path}/x", status=422)
    with held(upgrade.folder, upgrade.new):
        upsert(old, "kept", {"id": "last", "text": "written just before"})
        old.process.terminate()
        old.process.wait(30)
        assert get(new, "last") is None
        call(new, "DELETE", f"{path}/{upgrade.former.revision[:12]}", status=204)
    assert get(new, "last") == "written just before"
    said = call(new, "GET", "/indexes/kept")
    assert [g["revision"] for g in said["generations"]] == [upgrade.new]
    call(new, "DELETE", f"{path}/{upgrade.former.revision}", status=404)
    call(new, "DELETE", "/indexes/kept", status=204)
    assert call(new, "GET", "/indexes")["indexes"] == ["again", "citing"]


def test_the_bulk_command_re_embeds_first(tmp_path: Path, light: tuple[str, ...]) -> None:
    seal_other(tmp_path / "bundle", Path(light[1]))
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(3):
        (texts / f"{number}.txt").write_text(f"Text number {number}.")
    start = [str(texts), "--index", "bulk", "--index-path", placed(tmp_path / "index")]
    start += ["--log-level", "error", "--calibrate", "0", "--streams", "2"]
    for flags, said in (
        (light, "3 written, 0 unchanged"),
        (("--bundle", f"light={tmp_path / 'bundle'}"), "0 written, 3 unchanged"),
    ):
        done = forked.run("service.bulk.__main__", *start, *flags, folder=ROOT)
        assert done.returncode == 0, done.stderr
        assert said in done.stderr
        assert ("re-embedding, 3 of 3 documents" in done.stderr) == (flags != light)
