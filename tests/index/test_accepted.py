"""Accepted and refused values of an upsert: no value harms other requests or later reads."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from benchmarks.rig.processes import forget_peak, status
from service.errors import StoreError
from service.index import commits
from service.index.commits import Upsert, Writer
from service.index.indexes import Indexes, Model, connect
from service.index.query import listing, search
from service.index.query.listing import PAGE_BYTES
from service.index.query.reading import Query
from service.index.rows import fields, schema
from service.index.rows.records import Encoding, Record
from tests.conftest import Server
from tests.index.conftest import call, upsert
from tests.index.processes import Replicas, record, run

LONE = "\ud800"
JSON = {"content-type": "application/json"}


def send(server: Server, index: str, *documents: dict[str, Any]) -> httpx.Response:
    """Send an upsert with an encoder that writes any value."""
    content = json.dumps({"documents": documents})
    url = f"{server.url}/indexes/{index}/documents"
    return httpx.post(url, content=content, headers=JSON, timeout=60)


def document(name: str = "a", **rest: Any) -> dict[str, Any]:
    return {"id": name, "text": "a text"} | rest


@pytest.mark.parametrize(
    ("rest", "hint"),
    [
        ({"metadata": {"a": 1, "x": 2**64}}, "metadata: the value of key 1 is an integer beyond"),
        ({"metadata": {"x": 2**63}}, "send it as a string"),
        ({"metadata": {"x": -(2**63) - 1}}, "send it as a string"),
        ({"metadata": {"weight": 10**400}}, "send it as a string"),
        ({"metadata": {"x": LONE}}, "the value of key 0 has half a surrogate pair"),
        ({"metadata": {"status": LONE}}, "surrogate pair"),
        ({"metadata": {LONE: 1}}, "key 0 has half a surrogate pair"),
        ({"metadata": {"x": float("nan")}}, "not a finite number"),
        ({"metadata": {"x": {}}}, "not a string, number, boolean, null or list of strings"),
        ({"metadata": {"": 1}}, "key 0: give 1 to 64 characters"),
        ({"metadata": [1]}, "metadata: give an object"),
        ({"metadata": {str(i): i for i in range(65)}}, "65 keys; the limit is 64"),
        ({"metadata": {"x": "y" * 65_536}}, "the limit is 65536"),
        ({"title": "x" * 4097}, "title: 4097 characters; the limit is 4096"),
        ({"title": LONE}, "title: the text has half a surrogate pair"),
    ],
)
def test_invalid_documents_are_refused_with_their_position(
    server: Server, empty: str, rest: dict[str, Any], hint: str
) -> None:
    answer = send(server, empty, document("b"), document(**rest))
    assert answer.status_code == 422, answer.text
    said = answer.json()["error"]
    assert said.startswith("documents.1.")
    assert hint in said
    assert len(said) < 200
    assert call(server, "GET", f"/indexes/{empty}/documents")["documents"] == []


def test_the_largest_valid_document_is_accepted(server: Server, index: str) -> None:
    metadata = {"x" * 64: "y" * (65_536 - 64 - len('{"":""}'))}
    given = document(title="\U0001f600" * 4096, metadata=metadata)
    upsert(server, index, given)
    held = call(server, "GET", f"/indexes/{index}/documents/a")
    assert (held["title"], held["metadata"]) == (given["title"], metadata)


@pytest.mark.parametrize(
    ("method", "path", "body", "named"),
    [
        ("POST", "/indexes/x/documents", {"documents": [document(metadata={"K": 1})]}, "metadata"),
        ("PUT", "/indexes/x", {"fields": {"K": "string"}}, "fields"),
        ("POST", "/similar", {"index": "x", "text": "a", "filter": {"K": 1, "field": "a"}}, ""),
    ],
)
def test_an_error_repeats_at_most_the_beginning_of_a_name(
    server: Server, method: str, path: str, body: Any, named: str
) -> None:
    content = json.dumps(body).replace("K", "Key" * 100_000)
    answer = httpx.request(method, f"{server.url}{path}", content=content, headers=JSON)
    assert answer.status_code == 422, answer.text[:300]
    assert named in answer.json()["error"]
    # 64 characters of a name that is not known
    assert "Key" * 22 not in answer.text
    assert len(answer.text) < 500


def test_a_long_list_of_wrong_documents_makes_one_error(server: Server) -> None:
    answer = httpx.post(
        f"{server.url}/indexes/x/documents", json={"documents": [0] * 2000}, timeout=60
    )
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("documents.0: ")


def test_too_many_documents_are_refused_before_anything_is_looked_up(server: Server) -> None:
    # the index does not exist, and the ids are equal: neither is checked
    answer = send(server, "nowhere", *[document()] * 2049)
    assert answer.status_code == 413
    assert "2049" in answer.json()["error"]
    assert send(server, "nowhere", *[document()] * 2048).status_code == 422


def test_a_bad_value_harms_no_write_at_the_same_time(server: Server, index: str) -> None:
    statuses: dict[str, int] = {}

    def write(name: str, metadata: dict[str, Any]) -> None:
        statuses[name] = send(server, index, document(name, metadata=metadata)).status_code

    bad = [{"weight": 10**400}, {"status": LONE}, {"year": 2**63}]
    threads = [
        threading.Thread(target=write, args=(f"{kind}{number}", metadata))
        for number in range(6)
        for kind, metadata in (("good", {"weight": 1}), ("bad", bad[number % 3]))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: 200 if "good" in name else 422 for name in statuses} == statuses


def test_documents_from_before_the_limits_are_still_served(server: Server, index: str) -> None:
    upsert(server, index, document("plain"))
    said = call(server, "GET", f"/indexes/{index}")
    metadata = {"big": 2**64, "lone": f"a{LONE}b", LONE: 1, "whole": "\U0001f600"}

    async def write() -> None:
        path = server.log.with_name("index")
        databases = [await connect(f"{path}/{part}") for part in ("indexes", "leases")]
        model = Model(said["model"], said["revision"], 384)
        vector = np.full(384, 384**-0.5, dtype=np.float32)
        encoding = Encoding(vector, vector[None], [5])
        old = Record("old", "words", "x" * 5000, metadata, [], encoding)
        await (await Indexes(databases[0], databases[1], model).open(index)).put([old])

    asyncio.run(write())
    served = {"big": 2**64, "lone": "a\ufffdb", "\ufffd": 1, "whole": "\U0001f600"}
    place = f"/indexes/{index}/documents"
    assert call(server, "GET", f"{place}/old")["metadata"] == served
    assert call(server, "GET", place)["documents"][0]["metadata"] == served
    for mode in ("cosine", "words", "hybrid"):
        hits = call(server, "POST", "/similar", {"index": index, "text": "words", "mode": mode})
        assert served in [hit["metadata"] for hit in hits]


async def heavy(replicas: Replicas, documents: int, size: int) -> Any:
    """An index of documents with titles of a size that an earlier version accepted."""
    a = await replicas.open("a")
    await a.create("x", {})
    index = await a.open("x")
    for number in range(documents):
        await index.put([replace(record(f"{number:03}", "word"), title="x" * size)])
    return replace(index, identity=replace(index.identity, bounded=False))


@run
async def test_a_search_reads_only_the_titles_of_its_hits(replicas: Replicas) -> None:
    size = 2_000_000
    index = await heavy(replicas, 40, size)
    query = Query(np.array([1, 0, 0, 0], dtype=np.float32), "word")
    for run_search in (search.cosine, search.words, search.hybrid):
        await run_search(index, query, 1, None)
        forget_peak(os.getpid())
        before = status(os.getpid(), "VmRSS")
        [hit] = await run_search(index, query, 1, None)
        assert hit.title == "x" * size
        # a quarter of all titles; reading all of them would take at least their size
        assert 1024 * (status(os.getpid(), "VmHWM") - before) < 10 * size


@run
async def test_limited_titles_are_read_with_the_vectors(replicas: Replicas) -> None:
    index = await heavy(replicas, 3, 10)
    bounded = replace(index, identity=replace(index.identity, bounded=True))
    read: list[int] = []
    heads = listing.heads

    async def counted(*given: Any) -> Any:
        read.append(len(given[1]))
        return await heads(*given)

    query = Query(np.array([1, 0, 0, 0], dtype=np.float32), "word", "001")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "heads", counted)
        found = await search.cosine(bounded, query, 10, None)
        assert (sorted(hit.id for hit in found), read) == (["000", "002"], [])
        # the control
        other = await search.cosine(index, query, 10, None)
        assert [(hit.id, hit.title) for hit in other] == [(hit.id, hit.title) for hit in found]
        assert read == [2]


def test_no_stored_head_is_larger_than_its_bound() -> None:
    worst = {"k": "\u00e9" * ((fields.METADATA_BYTES - 8) // 2)}
    assert fields.problem(worst) is None
    assert fields.problem({"k": worst["k"] + "\u00e9"}) is not None
    title = "\U0001f600" * fields.TITLE_CHARACTERS
    size = len(title.encode()) + len(json.dumps(worst))
    assert 0.99 * fields.HEAD_BYTES < size <= fields.HEAD_BYTES


@run
async def test_a_new_index_limits_titles_and_a_copy_of_an_older_one_does_not(
    replicas: Replicas,
) -> None:
    a, _ = await replicas.pair()
    assert a.identity.bounded
    for bounded in (True, False):
        source = replace(a.identity, bounded=bounded)
        made = schema.identity(schema.create("model", "b" * 64, 4, {}, source))
        assert (made.bounded, made.uid) == (bounded, a.identity.uid)


@run
async def test_a_page_ends_before_it_grows_too_large(replicas: Replicas) -> None:
    size = PAGE_BYTES // 3
    index = await heavy(replicas, 8, size)
    pages: list[list[str]] = []
    after: str | None = ""
    while after is not None:
        page = await listing.page(index, after, 1000)
        pages.append([head.id for head in page.heads])
        after = page.next
    assert [len(page) for page in pages] == [2, 2, 2, 2]
    assert [name for page in pages for name in page] == [f"{number:03}" for number in range(8)]
    [only] = (await listing.page(index, "", 1000, most=1)).heads
    assert only.title == "x" * size


class Faulty:
    """Fails every commit with a document called ``bad``."""

    def __init__(self, error: Exception) -> None:
        self._write = commits.write
        self._error = error
        self.tried: list[list[str]] = []

    async def write(self, index: Any, upserts: list[Upsert]) -> Any:
        names = [name for change in upserts for name in change.ids]
        self.tried.append(names)
        if "bad" in names:
            raise self._error
        return await self._write(index, upserts)


@pytest.mark.parametrize(
    ("error", "harmed"),
    [(ValueError("one row"), {"bad"}), (StoreError("gone"), {"bad", "one", "two", "three"})],
)
def test_other_requests_of_a_failed_commit_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, harmed: set[str]
) -> None:
    faulty = Faulty(error)
    monkeypatch.setattr("service.index.commits.write", faulty.write)

    async def main() -> None:
        a = await Replicas(tmp_path).open("a")
        await a.create("x", {})
        index = await a.open("x")
        writer = Writer(a, "x", lambda _: None)
        names = ["one", "bad", "two", "three"]
        changes = [Upsert(await index.rows([record(name)])) for name in names]
        uid = index.identity.uid
        outcomes = await asyncio.gather(
            *(writer.write(uid, change) for change in changes), return_exceptions=True
        )
        failed = {n for n, outcome in zip(names, outcomes, strict=True) if outcome is error}
        assert failed == harmed
        assert faulty.tried[0] == names
        page = await listing.page(index, "", 10)
        assert {head.id for head in page.heads} == set(names) - harmed

    asyncio.run(main())
