"""Several processes on one store: visibility and kills."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import Server, serving
from tests.index.conftest import call, count, upsert


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the processes of this file share."""
    return tmp_path_factory.mktemp("replicas")


@pytest.fixture(scope="module")
def pair(folder: Path, light: tuple[str, ...]) -> Iterator[tuple[Server, Server]]:
    """Two replicas."""
    with (
        serving(folder / "log", *light, fresh=True) as one,
        serving(folder / "log2", "--index-path", str(folder / "index"), *light) as two,
    ):
        yield one, two


@pytest.mark.folder
def test_lancedb_is_loaded_by_the_first_request_to_an_index(pair: tuple[Server, Server]) -> None:
    def loaded(server: Server) -> bool:
        return "_lancedb" in Path(f"/proc/{server.process.pid}/maps").read_text()

    call(pair[0], "POST", "/embed", {"inputs": "a"})
    assert not loaded(pair[0])
    assert call(pair[0], "GET", "/indexes") == {"indexes": []}
    assert loaded(pair[0])


def test_a_replica_sees_acknowledged_writes_of_another(pair: tuple[Server, Server]) -> None:
    call(pair[0], "PUT", "/indexes/shared", {}, status=201)
    for turn in range(6):
        here, there = pair if turn % 2 else reversed(pair)
        upsert(here, "shared", {"id": f"d{turn}", "text": f"text {turn}"})
        assert call(there, "GET", f"/indexes/shared/documents/d{turn}")["id"] == f"d{turn}"
        call(there, "DELETE", f"/indexes/shared/documents/d{turn}", status=204)
        call(here, "GET", f"/indexes/shared/documents/d{turn}", status=404)


def test_concurrent_writers_of_new_ids_store_each_once(pair: tuple[Server, Server]) -> None:
    call(pair[0], "PUT", "/indexes/same", {}, status=201)
    documents = [{"id": f"same{i}", "text": f"same text {i}"} for i in range(10)]

    def write(server: Server) -> None:
        for _ in range(5):
            upsert(server, "same", *documents)

    threads = [threading.Thread(target=write, args=(s,)) for s in pair * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [count(server, "same") for server in pair] == [10, 10]


def test_an_index_created_again_is_another_one(pair: tuple[Server, Server]) -> None:
    one, two = pair
    call(one, "PUT", "/indexes/again", {}, status=201)
    upsert(two, "again", {"id": "a", "text": "a"})
    call(one, "DELETE", "/indexes/again", status=204)
    call(one, "PUT", "/indexes/again", {"fields": {"year": "integer"}}, status=201)
    assert call(two, "GET", "/indexes/again")["fields"] == {"year": "integer"}
    upsert(two, "again", {"id": "b", "text": "b", "metadata": {"year": 1}})
    assert count(one, "again") == 1


# the last test of this file: it kills one of the pair
def test_acknowledged_documents_survive_a_kill(pair: tuple[Server, Server]) -> None:
    killed, other = pair
    acknowledged: list[str] = []
    call(killed, "PUT", "/indexes/killed", {}, status=201)

    def write(worker: int) -> None:
        number = 0
        while True:
            name = f"{worker}-{number}"
            body = {"documents": [{"id": name, "text": f"text {name}"}]}
            try:
                answer = httpx.post(f"{killed.url}/indexes/killed/documents", json=body, timeout=30)
            except httpx.TransportError:
                return
            assert answer.status_code == 200
            acknowledged.append(name)
            number += 1

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    while len(acknowledged) < 20:
        assert any(thread.is_alive() for thread in threads)
        time.sleep(0.01)
    killed.process.send_signal(signal.SIGKILL)
    for thread in threads:
        thread.join()
    page = call(other, "GET", "/indexes/killed/documents", params={"limit": 1000})
    held = [document["id"] for document in page["documents"]]
    assert len(held) == len(set(held))
    assert set(held) >= set(acknowledged)
    # and at most one unanswered write for each thread
    assert len(held) - len(acknowledged) <= len(threads)
