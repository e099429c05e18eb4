"""PATCH of one document: a merge patch of metadata, title and links, without embedding."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from service.index.documents import whole
from service.index.rows.records import Encoding
from service.memory import needed
from tests.conftest import Server, connect, serving, wait_until
from tests.index.conftest import FIELDS, call, upsert
from tests.index.processes import Replicas, record, run

ONE = {
    "id": "a/b c",
    "text": "The first text. It is short.",
    "title": "First",
    "metadata": {"year": 2020, "status": "draft", "note": None, "free": 1},
    "links": ["two"],
}


@pytest.fixture(scope="module")
def unchanged(server: Server) -> Iterator[str]:
    """The name of an index that keeps one document."""
    call(server, "PUT", "/indexes/unchanged", {"fields": FIELDS}, status=201)
    upsert(server, "unchanged", ONE)
    yield "unchanged"
    call(server, "DELETE", "/indexes/unchanged", status=204)


def patch(server: Server, index: str, body: Any, status: int = 200, match: str = "") -> Any:
    path = f"/indexes/{index}/documents/a%2Fb%20c"
    headers = {"content-type": "application/merge-patch+json"}
    if match:
        headers["if-match"] = match
    return call(server, "PATCH", path, body, status=status, headers=headers)


def held(server: Server, index: str) -> Any:
    return call(server, "GET", f"/indexes/{index}/documents/a%2Fb%20c")


def test_a_merge_patch_changes_only_what_it_names(server: Server, index: str) -> None:
    upsert(server, index, ONE)
    before = server.metric("docsplit_documents_total")
    first = held(server, index)["version"]
    body = {"metadata": {"year": 2021, "status": None, "weight": 0.5}}
    version = patch(server, index, body)["version"]
    metadata = {"year": 2021, "note": None, "free": 1, "weight": 0.5}
    assert held(server, index) == ONE | {"metadata": metadata, "version": version}
    assert version != first
    search = {"index": index, "id": "other", "filter": {"field": "year", "eq": 2021}}
    upsert(server, index, {"id": "other", "text": "The first text. It is short."})
    [hit] = call(server, "POST", "/similar", search)
    assert (hit["id"], hit["metadata"]) == (ONE["id"], metadata)
    assert hit["cosine"] == pytest.approx(1, abs=1e-5)
    # only the upsert of the other document embedded a text
    assert server.metric("docsplit_documents_total") == before + 1
    patch(server, index, {"title": None, "links": ["x", "y"]})
    assert held(server, index)["title"] is None
    assert held(server, index)["links"] == ["x", "y"]
    assert held(server, index)["metadata"] == metadata
    patch(server, index, {"metadata": None})
    assert held(server, index)["metadata"] == {}


@run
async def test_vectors_stay_the_same_bytes(replicas: Replicas) -> None:
    index, _ = await replicas.pair()
    random = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    windows = random[:3].astype(np.float16).astype(np.float32)
    await index.put(
        [replace(record("a", "x" * 9), encoding=Encoding(random[3], windows, [2, 5, 9]))]
    )
    stored = await index.table.query().to_arrow()
    found, updated = await whole(index, "a")
    again = await index.rows([found])
    same = {name for name in stored.schema.names if stored[name].equals(again[name])}
    # only the time of writing differs, which the checksums in the digest cover
    assert set(stored.schema.names) - same == {"updated", "digest"}
    assert updated == stored["updated"][0].as_py()
    other = await index.rows([replace(found, metadata={"n": 2})])
    assert other["metadata"] != stored["metadata"]


def test_if_match_is_honoured(server: Server, index: str) -> None:
    upsert(server, index, ONE)
    version = held(server, index)["version"]
    answer = patch(server, index, {"title": "x"}, 412, match='"1"')
    assert answer["conflicts"] == [{"position": 0, "version": version}]
    assert held(server, index)["title"] == "First"
    new = patch(server, index, {"title": "x"}, match=f'"{version}"')["version"]
    patch(server, index, {"title": "y"}, 412, match=f'"{version}"')
    newest = patch(server, index, {"title": "z"}, match="*")["version"]
    assert len({version, new, newest}) == 3
    assert held(server, index)["title"] == "z"


def test_patches_of_several_clients_all_take_effect(server: Server, index: str) -> None:
    upsert(server, index, ONE)
    names = [f"k{number}" for number in range(12)]

    def one(name: str) -> int:
        url = f"{server.url}/indexes/{index}/documents/a%2Fb%20c"
        return httpx.patch(url, json={"metadata": {name: name}}, timeout=60).status_code

    with ThreadPoolExecutor(6) as threads:
        assert set(threads.map(one, names)) == {200}
    assert held(server, index)["metadata"] == ONE["metadata"] | {name: name for name in names}  # type: ignore[operator]


@pytest.mark.parametrize(
    ("body", "status", "hint"),
    [
        ({"metadata": {"year": "2021"}}, 422, "metadata.year is declared as integer"),
        (
            {"metadata": {"a": {"b": 1}}},
            422,
            "key 0 is not a string, number",
        ),
        ({"metadata": {f"n{n}": 1 for n in range(63)}}, 422, "after the change: 67 keys"),
        ({"metadata": [1]}, 422, "metadata"),
        ({"text": "new"}, 422, "upsert the document"),
        ({"title": "x" * 4097}, 422, "title"),
        ([], 422, "object"),
    ],
)
def test_bad_patches(server: Server, unchanged: str, body: Any, status: int, hint: str) -> None:
    before = held(server, unchanged)
    assert hint in patch(server, unchanged, body, status)["error"]
    assert held(server, unchanged) == before
    call(server, "PATCH", f"/indexes/{unchanged}/documents/none", {"title": "x"}, status=404)


def test_a_patch_of_a_large_document_waits_for_memory(
    tmp_path: Path, light: tuple[str, ...]
) -> None:
    size = 1 << 20
    mine, yours = "my-key-for-these-tests", "your-key-for-these-tests"
    # one client may hold two bodies, and little more
    flags = ["--max-inflight-bytes", str(4 * needed(size, 1024)), "--max-body-bytes", str(size)]
    flags += ["--max-body-values", "1024", "--api-keys", f"{mine},{yours}"]
    begun = (
        "POST /embed HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {mine}\r\nContent-Length: {size - 1000}\r\n\r\n"
        '{"inputs": "a'
    )

    def ask(server: Server, method: str, path: str, body: Any, key: str = mine) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"}
        url = f"{server.url}/indexes/x{path}"
        return httpx.request(method, url, json=body, headers=headers, timeout=60)

    with serving(tmp_path / "log", *flags, *light) as server, ExitStack() as stack:
        assert ask(server, "PUT", "", {}).is_success
        large, small = {"id": "large", "text": "word" + " " * 500_000}, {"id": "small", "text": "a"}
        assert ask(server, "POST", "/documents", {"documents": [large, small]}).is_success
        wait_until(lambda: server.metric("docsplit_inflight_bytes") == 0, 10)
        for _ in range(2):
            stack.enter_context(closing(connect(server))).sendall(begun.encode())
        held = 2 * needed(size - 1000)
        wait_until(lambda: server.metric("docsplit_inflight_bytes") == held, 10)
        title = {"title": "x"}
        assert ask(server, "PATCH", "/documents/small", title).status_code == 200
        refused = ask(server, "PATCH", "/documents/large", title)
        assert refused.status_code == 429
        assert "memory" in refused.json()["error"]
        assert ask(server, "PATCH", "/documents/large", title, yours).status_code == 200
        stack.close()
        wait_until(lambda: server.metric("docsplit_inflight_bytes") == 0, 10)
        assert ask(server, "PATCH", "/documents/large", title).status_code == 200
