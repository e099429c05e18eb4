"""Several fronts around one engine, as real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

from service.embedding.engines.processor import detect
from tests.conftest import Server, serving, wait_ready, wait_until

# two fronts, and an engine that is busy for seconds on any machine
SLOW = (
    "--workers",
    "2",
    "--threads",
    "1",
    "--streams",
    "0",
    "--precision",
    "f32",
    "--engine",
    "openvino",
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two fronts."""
    with serving(
        tmp_path_factory.mktemp("workers") / "log", "--workers", "2", "--streams", "0"
    ) as server:
        wait_until(lambda: len(up(server)) == 2, 60)
        yield server


def events(server: Server) -> list[dict[str, object]]:
    """What was logged; the last line may be half written."""
    lines = server.log.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]


def fronts(server: Server) -> dict[int, int]:
    """Process ids by number, of those that were started last."""
    started = [event for event in events(server) if event["event"] == "front_started"]
    return {int(str(event["front"])): int(str(event["pid"])) for event in started}


def up(server: Server) -> list[int]:
    """Process ids of fronts that serve."""
    said = [str(e["event"]) for e in events(server) if e["event"] != "request"]
    pids = [re.search(r"Started server process \[(\d+)\]", line) for line in said]
    return [int(found[1]) for found in pids if found and alive(int(found[1]))]


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def front_of(server: Server, client: httpx.Client) -> int:
    """Which front has a client's connection."""
    name = uuid.uuid4().hex
    assert client.get("/info", headers={"x-request-id": name}).status_code == 200
    found: list[int] = []

    def logged() -> bool:
        found.extend(int(str(e["worker"])) for e in events(server) if e.get("request_id") == name)
        return bool(found)

    wait_until(logged, 60)
    return found[0]


@contextmanager
def through(server: Server, front: int) -> Iterator[httpx.Client]:
    """A client whose one connection is with that front."""
    with ExitStack() as tried:
        for _ in range(10):
            client = tried.enter_context(httpx.Client(base_url=server.url, timeout=60))
            if front_of(server, client) == front:
                yield client
                return
        raise AssertionError(f"no connection came to front {front}")


def embed(client: httpx.Client, text: str) -> list[float]:
    answer = client.post("/embed", json={"inputs": text})
    assert answer.status_code == 200, answer.text
    vector: list[float] = answer.json()[0]
    return vector


def test_every_front_gives_the_vectors_of_a_single_process(
    pair: Server, server: Server, peps: dict[str, str]
) -> None:
    one, other = list(peps.values())[:2]
    with httpx.Client(base_url=server.url, timeout=60) as single:
        expected = embed(single, one)
        assert np.dot(expected, embed(single, other)) < 0.999
    for front in (0, 1):
        with through(pair, front) as client:
            assert embed(client, one) == pytest.approx(expected, abs=1e-5)
            assert embed(client, other) != pytest.approx(expected, abs=1e-2)


def test_what_one_front_embedded_the_others_have_in_the_cache(pair: Server) -> None:
    with through(pair, 0) as first, through(pair, 1) as second:
        body = {"inputs": "a sentence for one cache"}
        assert first.post("/embed", json=body).headers["x-cache"] == "miss"
        assert second.post("/embed", json=body).headers["x-cache"] == "hit"
        unseen = {"inputs": "another sentence for one cache"}
        assert second.post("/embed", json=unseen).headers["x-cache"] == "miss"


def test_connections_are_shared_out_evenly(pair: Server) -> None:
    with ExitStack() as open_clients:
        clients = [open_clients.enter_context(httpx.Client(base_url=pair.url)) for _ in range(8)]
        numbers = [front_of(pair, client) for client in clients]
    assert sorted(numbers) == [0] * 4 + [1] * 4


def test_metrics_are_those_of_all_processes(pair: Server) -> None:
    def documents(client: httpx.Client) -> float:
        lines = client.get("/metrics").text.splitlines()
        [value] = [
            line.split()[1] for line in lines if line.startswith("docsplit_documents_total ")
        ]
        return float(value)

    with through(pair, 0) as first, through(pair, 1) as second:
        before = documents(first)
        for number in range(3):
            embed(first, f"counted at the first front {number}")
        for number in range(2):
            embed(second, f"counted at the second front {number}")
        assert documents(first) == documents(second) == before + 5
        text = first.get("/metrics").text
    for once in ("docsplit_engine_info{", "docsplit_ready ", "process_start_time_seconds "):
        assert len([line for line in text.splitlines() if line.startswith(once)]) == 1
    assert pair.metric("docsplit_ready") == 1
    # far more than one process has
    memory = sum(
        int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        for pid in (pair.process.pid, *fronts(pair).values())
    )
    assert pair.metric("process_resident_memory_bytes") == pytest.approx(memory, rel=0.1)


def test_cores_are_split(pair: Server, server: Server) -> None:
    def streams(of: Server) -> int:
        count: int = httpx.get(f"{of.url}/info").json()["engine"]["streams"]
        return count

    cores = detect().cores
    assert streams(server) == cores
    assert streams(pair) == max(1, cores - 2)
    assert "front_started" not in server.log.read_text()
    for pid in fronts(pair).values():
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert b"OMP_NUM_THREADS=1" in variables
        tasks = [task.joinpath("comm").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
        assert sum(name.startswith("tokenise") for name in tasks) <= 2


def test_a_client_that_leaves_takes_its_work_along(pair: Server, long_document: str) -> None:
    texts = [f"client {number} leaves a front. {long_document}" for number in range(8)]
    body = json.dumps({"inputs": texts}).encode()
    done = pair.metric("docsplit_tokens_total")
    with socket.create_connection((httpx.URL(pair.url).host, httpx.URL(pair.url).port)) as leaving:
        head = f"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n"
        leaving.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + body)
        wait_until(lambda: pair.metric("docsplit_queue_tokens") > 0, 60)
    wait_until(lambda: pair.metric("docsplit_queue_tokens") == 0, 20)
    words = sum(len(text.split()) for text in texts)
    assert pair.metric("docsplit_tokens_total") - done < 0.8 * words


def test_a_deadline_is_told(pair: Server, long_document: str) -> None:
    texts = [f"deadline {number} at a front. {long_document}" for number in range(8)]
    limit = {"x-request-timeout": "0.5"}
    late = httpx.post(f"{pair.url}/embed", json={"inputs": texts}, headers=limit, timeout=30)
    assert (late.status_code, late.json()["error_type"]) == (503, "Timeout")


def test_documents_written_at_one_front_are_found_at_the_other(pair: Server) -> None:
    with through(pair, 0) as first, through(pair, 1) as second:
        assert first.put("/indexes/shared", json={}).status_code == 201
        body = {"documents": [{"id": "a", "text": "kept by the first front"}]}
        assert second.post("/indexes/shared/documents", json=body).status_code == 200
        assert first.get("/indexes/shared/documents/a").status_code == 200
        assert first.get("/indexes/shared/documents/b").status_code == 404

    def has_lancedb(pid: int) -> bool:
        return "_lancedb" in Path(f"/proc/{pid}/maps").read_text()

    assert has_lancedb(fronts(pair)[0])
    assert not has_lancedb(pair.process.pid)


def test_a_killed_front_is_replaced_and_the_others_answer(
    tmp_path: Path, long_document: str
) -> None:
    flags = (*SLOW, "--queue-tokens", "20000")
    with serving(tmp_path / "log", *flags) as server:
        wait_until(lambda: len(up(server)) == 2, 60)
        before = fronts(server)
        with through(server, 0) as doomed, through(server, 1) as spared:
            embed(doomed, "one for the count")
            assert server.metric("docsplit_documents_total") == 1
            answers: list[httpx.Response] = []

            def ask() -> None:
                text = " ".join(long_document.split()[:6000])
                answers.append(spared.post("/embed", json={"inputs": text}))

            asking = threading.Thread(target=ask)
            asking.start()
            wait_until(lambda: server.metric("docsplit_queue_tokens") > 0, 60)
            # nothing that waits is refused for its own size alone, but this is too much beside it
            full = doomed.post("/embed", json={"inputs": long_document})
            assert full.status_code == 429
            assert int(full.headers["retry-after"]) >= 1
            os.kill(before[0], signal.SIGKILL)
            with pytest.raises(httpx.TransportError):
                doomed.get("/info")
            while len(up(server)) < 2:
                embed(spared, "meanwhile")
                assert httpx.get(f"{server.url}/readyz").status_code == 200
            asking.join()
            assert answers[0].status_code == 200
        after = fronts(server)
        assert (after[0] != before[0], after[1] == before[1]) == (True, True)
        with through(server, 0) as client:
            embed(client, "by the new front")
        # what the killed front had counted when metrics were last read is still there
        assert server.metric("docsplit_documents_total") >= 3
        [ended] = [event for event in events(server) if event["event"] == "front_ended"]
        assert (ended["front"], ended["status"]) == (0, -signal.SIGKILL)


def test_nothing_outlives_the_engines_process(tmp_path: Path) -> None:
    with serving(tmp_path / "log", "--workers", "2") as server:
        wait_until(lambda: len(up(server)) == 2, 60)
        pids = list(fronts(server).values())
        server.process.kill()
        assert server.process.wait(10) == -signal.SIGKILL
        wait_until(lambda: not any(alive(pid) for pid in pids), 20)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/livez")


def test_a_wedged_engine_ends_all_processes(tmp_path: Path, long_document: str) -> None:
    # no batch is done in a hundredth of that, so to this service every engine is wedged
    with serving(tmp_path / "log", "--workers", "2", "--engine-timeout", "0.01") as server:
        wait_until(lambda: len(up(server)) == 2, 60)
        pids = list(fronts(server).values())
        with suppress(httpx.TransportError):
            answer = httpx.post(f"{server.url}/embed", json={"inputs": long_document}, timeout=60)
            assert answer.status_code >= 500
        assert server.process.wait(60) == 1
        assert not any(alive(pid) for pid in pids)
        assert "engine_wedged" in server.log.read_text()


def test_sigterm_answers_what_is_in_flight_at_every_front(
    tmp_path: Path, long_document: str
) -> None:
    flags = (*SLOW, "--drain-seconds", "6")
    with serving(tmp_path / "log", *flags) as server:
        wait_until(lambda: len(up(server)) == 2, 60)
        pids = list(fronts(server).values())
        with through(server, 0) as first, through(server, 1) as second:
            answers: list[int] = []

            def ask(client: httpx.Client, name: str) -> None:
                text = " ".join([name, *long_document.split()[:6000]])
                answers.append(client.post("/embed", json={"inputs": text}).status_code)

            asking = [
                threading.Thread(target=ask, args=named)
                for named in ((first, "first"), (second, "second"))
            ]
            for thread in asking:
                thread.start()
            wait_until(lambda: server.metric("docsplit_queue_tokens") > 6000, 60)
            # as a service manager does that signals every process
            for pid in (server.process.pid, *pids):
                os.kill(pid, signal.SIGTERM)
            wait_until(lambda: httpx.get(f"{server.url}/readyz").status_code == 503, 5)
            refused = httpx.get(f"{server.url}/readyz")
            assert refused.json()["status"] == "draining"
            late = httpx.post(f"{server.url}/embed", json={"inputs": "while draining"}, timeout=60)
            assert late.status_code == 200
            for thread in asking:
                thread.join()
        assert answers == [200, 200]
        assert server.process.wait(30) == -signal.SIGTERM
        assert not any(alive(pid) for pid in pids)
        assert "front_ended" not in server.log.read_text()


def test_an_engine_that_cannot_start_ends_all_processes(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match="docsplit\\[gpu\\]"),
        serving(tmp_path / "log", "--workers", "2", "--engine", "onnx-cuda") as server,
    ):
        wait_ready(server)
