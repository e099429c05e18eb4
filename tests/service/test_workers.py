"""Several workers behind one socket, as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.rig.processes import children
from service import temporary
from service.configuration import load
from service.errors import CommandError
from service.keys import file
from service.server.workers import folder_of_sockets, share
from tests.conftest import ROOT, Server, serving, wait_ready, wait_until


@pytest.fixture(scope="module")
def pair(light: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two serving workers."""
    flags = ("--workers", "2", "--engine-timeout", "10", *light)
    with serving(tmp_path_factory.mktemp("workers") / "log", *flags) as server:
        wait_until(lambda: serving_workers(server) == {"0", "1"}, 60)
        yield server


def events(server: Server, name: str) -> list[dict[str, Any]]:
    """The log events of a name; the last line may be incomplete."""
    lines = server.log.read_text().splitlines(keepends=True)
    logged = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]
    return [event for event in logged if event["event"] == name]


def pids(server: Server) -> dict[int, int]:
    """Process id of the latest worker with each number."""
    return {event["worker"]: event["pid"] for event in events(server, "worker_started")}


def alive(pid: int) -> bool:
    """Whether a process runs; an ended process that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def family(pid: int) -> list[int]:
    """A process and all that it, or one of these, has started."""
    return [pid, *(one for child in children(pid) for one in family(child))]


def samples(server: Server, name: str) -> dict[str, float]:
    """The values of a metric by worker."""
    families = text_string_to_metric_families(httpx.get(f"{server.url}/metrics", timeout=30).text)
    found = [sample for family in families for sample in family.samples if sample.name == name]
    return {sample.labels["worker"]: sample.value for sample in found}


def serving_workers(server: Server) -> set[str]:
    return {worker for worker, value in samples(server, "docsplit_ready").items() if value == 1}


def embed(client: httpx.Client, text: str) -> list[float]:
    answer = client.post("/embed", json={"inputs": text})
    assert answer.status_code == 200, answer.text
    vector: list[float] = answer.json()[0]
    return vector


def worker_of(server: Server, client: httpx.Client) -> int:
    """The worker that has a client's connection."""
    name = uuid.uuid4().hex
    assert client.get("/info", headers={"x-request-id": name}).status_code == 200
    found: list[int] = []

    def logged() -> bool:
        requests = events(server, "request")
        found.extend(event["worker"] for event in requests if event["request_id"] == name)
        return bool(found)

    wait_until(logged, 60)
    return found[0]


def clients(server: Server, stack: ExitStack) -> dict[int, httpx.Client]:
    """One client per worker, each with one connection."""
    found: dict[int, httpx.Client] = {}
    for _ in range(100):
        client = stack.enter_context(httpx.Client(base_url=server.url, timeout=60))
        found.setdefault(worker_of(server, client), client)
        if len(found) == 2:
            return found
    raise AssertionError(f"all connections came to worker {set(found)}")


def test_each_worker_returns_the_vectors_of_a_single_process(
    pair: Server, light: tuple[str, ...], tmp_path: Path
) -> None:
    one, other = "a text for every worker", "and another"
    with (
        serving(tmp_path / "log", *light) as server,
        httpx.Client(base_url=server.url, timeout=60) as single,
    ):
        expected = embed(single, one)
        assert np.dot(expected, embed(single, other)) < 0.999
    with ExitStack() as stack:
        for client in clients(pair, stack).values():
            assert embed(client, one) == pytest.approx(expected, abs=1e-5)
            assert embed(client, other) != pytest.approx(expected, abs=1e-2)


def test_metrics_cover_all_workers(pair: Server) -> None:
    before = samples(pair, "docsplit_documents_total")
    with ExitStack() as stack:
        for worker, client in clients(pair, stack).items():
            for number in range(worker + 1):
                embed(client, f"counted at worker {worker}, {number}")
    after = samples(pair, "docsplit_documents_total")
    assert {worker: after[worker] - before[worker] for worker in after} == {"0": 1, "1": 2}
    families = text_string_to_metric_families(httpx.get(f"{pair.url}/metrics").text)
    names = [family.name for family in families]
    assert len(names) == len(set(names))


def test_a_killed_worker_is_replaced_and_the_other_answers(pair: Server) -> None:
    before = pids(pair)
    os.kill(before[0], signal.SIGKILL)
    wait_until(lambda: not alive(before[0]), 10)
    while serving_workers(pair) != {"0", "1"} or pids(pair)[0] == before[0]:
        with httpx.Client(base_url=pair.url, timeout=60) as client:
            embed(client, "meanwhile")
            assert client.get("/readyz").status_code == 200
    assert pids(pair)[1] == before[1]
    [ended] = events(pair, "worker_ended")
    assert (ended["worker"], ended["status"]) == (0, -signal.SIGKILL)


def test_a_silent_worker_is_replaced(pair: Server) -> None:
    before = pids(pair)
    os.kill(before[1], signal.SIGSTOP)
    wait_until(lambda: pids(pair)[1] != before[1], 60)
    assert [event["worker"] for event in events(pair, "worker_silent")] == [1]


def test_sigterm_answers_requests_in_progress_at_every_worker(
    tmp_path: Path, long_document: str
) -> None:
    # an engine that is busy for seconds on any machine
    slow = ("--threads", "2", "--precision", "f32", "--engine", "openvino")
    flags = ("--workers", "2", "--drain-seconds", "3", *slow)
    with serving(tmp_path / "log", *flags) as server:
        wait_until(lambda: serving_workers(server) == {"0", "1"}, 60)
        answers: list[int] = []

        def ask(client: httpx.Client, name: str) -> None:
            text = " ".join([name, *long_document.split()[:3000]])
            answers.append(client.post("/embed", json={"inputs": text}).status_code)

        with ExitStack() as stack:
            asking = [
                threading.Thread(target=ask, args=(client, f"worker {worker}"))
                for worker, client in clients(server, stack).items()
            ]
            for thread in asking:
                thread.start()
            wait_until(lambda: all(samples(server, "docsplit_queue_tokens").values()), 60)
            # as a service manager that signals every process
            for pid in family(server.process.pid):
                os.kill(pid, signal.SIGTERM)
            wait_until(lambda: httpx.get(f"{server.url}/readyz").status_code == 503, 5)
            late = httpx.post(f"{server.url}/embed", json={"inputs": "while draining"}, timeout=60)
            assert late.status_code == 200
            for thread in asking:
                thread.join()
        assert answers == [200, 200]
        assert server.process.wait(30) == 0
        assert not any(alive(pid) for pid in pids(server).values())
        assert events(server, "worker_ended") == []


def test_no_worker_outlives_the_supervisor(pair: Server) -> None:
    pair.process.kill()
    assert pair.process.wait(10) == -signal.SIGKILL
    wait_until(lambda: not any(alive(pid) for pid in pids(pair).values()), 20)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{pair.url}/livez")


def test_an_engine_that_cannot_start_ends_the_service(tmp_path: Path) -> None:
    flags = ("--workers", "2", "--engine", "onnx-cuda")
    with (
        pytest.raises(AssertionError, match="docsplit\\[gpu\\]"),
        serving(tmp_path / "log", *flags) as server,
    ):
        wait_ready(server)


# Python looks for a folder in /tmp and in others, all read-only in such a container
NO_FOLDER = "import tempfile\ntempfile._candidate_tempdir_list = lambda: ['/proc/none']\n"


def test_sockets_of_workers_lie_next_to_the_indexes_or_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/none"])
    monkeypatch.setattr(temporary, "MEMORY", "/proc/none")
    with folder_of_sockets(load([f"--index-path={tmp_path}/index"])) as folder:
        assert Path(folder).parent == tmp_path / "index" / "scratch"
        assert Path(folder).stat().st_mode & 0o077 == 0
    (tmp_path / "file").touch()
    for path in (f"{tmp_path}/file", "s3://bucket/index"):
        with pytest.raises(CommandError, match="--tmpfs /tmp"):
            folder_of_sockets(load([f"--index-path={path}"]))


def test_an_unusable_file_of_keys_ends_the_start(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text("[keys.a]\n")
    command = [sys.executable, "-m", "service", "--port", "0", "--workers", "2"]
    command += ["--index-path", str(tmp_path / "index"), "--keys-file", str(path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith(f"docsplit-serve: {path}: keys.a.sha256")


TOKEN = file.new_token()
USABLE = f'[keys.a]\nsha256 = "{file.digest(TOKEN.encode()).hex()}"\n'


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys.toml"
    path.write_text(USABLE)
    return path


@pytest.fixture(scope="module")
def locked(keys_file: Path, light: tuple[str, ...]) -> Iterator[Server]:
    """Two workers with a file of keys and, on Linux, without a folder for temporary files."""
    folder = keys_file.parent
    if sys.platform == "linux":
        (folder / "sitecustomize.py").write_text(NO_FOLDER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        flags = ("--workers", "2", "--keys-file", str(keys_file), *light)
        with serving(folder / "log", *flags) as server:
            yield server


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /dev/shm")
def test_workers_start_without_a_folder_for_temporary_files(locked: Server) -> None:
    wait_until(lambda: serving_workers(locked) == {"0", "1"}, 60)


def test_a_new_worker_waits_for_a_usable_file_of_keys(locked: Server, keys_file: Path) -> None:
    wait_until(lambda: serving_workers(locked) == {"0", "1"}, 60)
    keys_file.write_text("[keys.a]\n")
    os.kill(pids(locked)[0], signal.SIGKILL)
    wait_until(lambda: len(events(locked, "worker_ended")) > 1, 60)
    assert "Traceback" not in locked.log.read_text()
    assert "keys.a.sha256" in events(locked, "cannot_start")[0]["reason"]
    headers = {"authorization": f"Bearer {TOKEN}"}
    assert httpx.get(f"{locked.url}/info", headers=headers, timeout=60).status_code == 200
    keys_file.write_text(USABLE)
    wait_until(lambda: serving_workers(locked) == {"0", "1"}, 60)


def test_workers_share_cores_cache_and_connections() -> None:
    flags = ["--workers=4", "--cache-bytes=1000", "--max-connections=10", "--streams=2"]
    given = load(flags)
    mine = share(given, 16)
    assert (mine.threads, mine.streams) == (4, 1)
    assert (mine.cache_bytes, mine.max_connections) == (250, 2)
    assert share(given, 2).threads == 1
    assert share(load(["--workers=2", "--threads=6"]), 16).threads == 3
    assert share(load(["--workers=2"]), 16).streams == 0
