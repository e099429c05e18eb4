"""The process: start, readiness, drain, imports."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from tests import forked
from tests.conftest import ROOT, Server, serving, wait_until


def imported(more: str = "") -> set[str]:
    """Packages that a process has loaded which services are forked from, and that more loads."""
    code = f"import sys\n{more}\nprint(*sys.modules)"
    done = forked.program(code, folder=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    return {name.split(".")[0] for name in done.stdout.split()}


def test_the_service_loads_neither_torch_nor_transformers() -> None:
    names = imported("import service.server.serving")
    assert {"pydantic", "openvino"} <= names
    assert not names & {"torch", "transformers", "sentence_transformers", "onnx", "nncf"}


def test_the_import_check_can_fail() -> None:
    assert "onnx" in imported("import onnx")


def test_the_help_loads_no_engine_and_no_server() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "service", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "--index-path" in done.stdout
    names = set(re.findall(r"\| +(\w+)$", done.stderr, re.MULTILINE))
    assert "pydantic" in names
    assert not names & {"openvino", "fastapi"}


def waiting(
    server: Server, inputs: str | list[str]
) -> tuple[threading.Thread, list[httpx.Response]]:
    """A request that waits for the engine: the thread that sends it, and its answer to come."""
    answers: list[httpx.Response] = []

    def ask() -> None:
        answers.append(httpx.post(f"{server.url}/embed", json={"inputs": inputs}, timeout=60))

    asking = threading.Thread(target=ask)
    asking.start()
    while server.metric("docsplit_queue_tokens") == 0:
        time.sleep(0.01)
    return asking, answers


def test_sigterm_answers_requests_in_progress_and_drains(
    tmp_path: Path, long_document: str
) -> None:
    with serving(tmp_path / "log", "--drain-seconds", "1.5") as server:
        asking, answers = waiting(server, " ".join(long_document.split()[:2500]))
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        refused = httpx.get(f"{server.url}/readyz")
        assert (refused.status_code, refused.json()["status"]) == (503, "draining")
        assert httpx.get(f"{server.url}/livez").status_code == 200
        late = httpx.post(f"{server.url}/embed", json={"inputs": "sent while draining"}, timeout=60)
        assert late.status_code == 200
        asking.join()
        assert answers[0].status_code == 200
        assert server.process.wait(30) == 0


def test_sigterm_ends_a_service_whose_commit_never_ends(
    tmp_path: Path, light: tuple[str, ...]
) -> None:
    with serving(tmp_path / "log", *light, module="tests.index.endless") as server:
        httpx.put(f"{server.url}/indexes/x", json={}, timeout=30).raise_for_status()
        url, body = f"{server.url}/indexes/x/documents", {"documents": [{"id": "a", "text": "a"}]}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json=body, timeout=1)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 1
        assert "stopped_before_the_end" in server.log.read_text()


def test_a_pause_of_the_process_does_not_count_as_a_hanging_engine(
    tmp_path: Path, long_document: str
) -> None:
    with serving(tmp_path / "log", "--engine-timeout", "2", "--cache-bytes", "0") as server:
        words = long_document.split()
        texts = [" ".join(words[start : start + 2500]) for start in range(8)]
        asking, answers = waiting(server, texts)
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        server.process.send_signal(signal.SIGCONT)
        asking.join()
        assert [answer.status_code for answer in answers] == [200]
        assert "engine_wedged" not in server.log.read_text()


def test_an_engine_that_cannot_start_ends_the_process(tmp_path: Path) -> None:
    arguments = ("--port", "0", "--index-path", str(tmp_path), "--engine", "onnx-cuda")
    done = forked.run("service.__main__", *arguments, folder=ROOT)
    assert done.returncode == 1
    failed = [json.loads(line) for line in done.stderr.splitlines() if "engine_unusable" in line]
    assert "docsplit[gpu]" in failed[0]["reason"]


@pytest.mark.parametrize(("workers", "host"), [("1", "127.0.0.1"), ("2", "127.0.0.1"), ("1", "::")])
def test_a_port_in_use_ends_the_start_before_the_engine(
    workers: str, host: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        # it would be read before the engine starts
        bundle = str(tmp_path / "missing")
        arguments = ("--host", host, "--port", port, "--workers", workers, "--bundle", bundle)
        done = forked.run("service.__main__", *arguments, folder=ROOT)
    assert done.returncode == 3
    [line] = done.stderr.splitlines()
    assert line.startswith("docsplit-serve: port (--port, DOCSPLIT_PORT): another program")
    assert f"port {port} of {host}" in line


@pytest.mark.parametrize("host", ["192.0.2.7", "no-such-host.invalid", "a..b"])
def test_an_address_of_another_machine_ends_the_start(host: str, tmp_path: Path) -> None:
    arguments = ("--host", host, "--port", "0", "--index-path", str(tmp_path))
    done = forked.run("service.__main__", *arguments, folder=ROOT)
    assert done.returncode == 3
    [line] = done.stderr.splitlines()
    assert line.startswith(f"docsplit-serve: host (--host, DOCSPLIT_HOST): {host} is no address")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=["one", "two"])
def test_two_colons_mean_all_addresses_of_ipv6_and_ipv4(
    workers: tuple[str, ...], light: tuple[str, ...], tmp_path: Path
) -> None:
    flags = ("--host", "::", *workers, "--trusted-proxies", "127.0.0.1", *light)
    with serving(tmp_path / "log", *flags) as server:
        port = urlsplit(server.url).port
        for name, address in (("one", "127.0.0.1"), ("two", "[::1]")):
            headers = {"x-forwarded-for": "192.0.2.7", "x-request-id": name}
            sent = httpx.get(f"http://{address}:{port}/info", headers=headers, timeout=60)
            assert sent.status_code == 200
        log = server.log
        wait_until(lambda: all(f'"{name}"' in log.read_text() for name in ("one", "two")), 30)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    clients = {one.get("request_id"): one["client"] for one in lines if "client" in one}
    # only the proxy that the flag names may name another client
    assert (clients["one"], clients["two"]) == ("192.0.2.7", "::1")


def test_any_failure_of_the_engine_at_the_start_ends_the_process(
    light: tuple[str, ...], tmp_path: Path
) -> None:
    flags = ["--port", "0", "--calibrate", "0", "--index-path", str(tmp_path), *light]
    program = (
        "import sys;"
        "from service.__main__ import main;"
        "from service.server import encoder;"
        "encoder.warm_up = lambda *_: 1 / 0;"
        f"sys.exit(main({flags}))"
    )
    done = forked.program(program, folder=ROOT)
    assert done.returncode == 1
    failed = [json.loads(line) for line in done.stderr.splitlines() if "engine_unusable" in line]
    assert failed[0]["kind"] == "ZeroDivisionError"


def test_a_misspelt_variable_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCSPLIT_PROT", "1")
    done = forked.run("service.__main__", "--bundle", str(tmp_path), folder=ROOT)
    assert "DOCSPLIT_PROT" in done.stderr


@pytest.mark.parametrize("engine", ["openvino", "onnx-cpu"])
def test_no_runtime_leaves_anything_in_the_home_directory(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, light: tuple[str, ...]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    # services are forked from a process that has imported openvino
    fresh = engine == "openvino"
    with serving(tmp_path / "log", "--engine", engine, *light, fresh=fresh) as server:
        assert httpx.post(f"{server.url}/embed", json={"inputs": "a"}).status_code == 200
        # modules log in JSON, too, while they are imported
        assert all(map(json.loads, server.log.read_text().splitlines()))
    assert list(home.rglob("*")) == []


def test_onnx_runtime_returns_the_same_vectors(tmp_path: Path) -> None:
    with serving(tmp_path / "log", "--engine", "onnx-cpu") as server:
        info = httpx.get(f"{server.url}/info").json()
        assert info["engine"]["name"] == "onnx-cpu"
        assert "asked for" in info["engine"]["reason"]
        one = httpx.post(f"{server.url}/embed", json={"inputs": "the same text"}).json()[0]
    # onnx-cpu has only f32; OpenVINO by default uses bf16 if the processor has it
    with serving(tmp_path / "log2", "--precision", "f32") as server:
        texts = ["the same text", "the same texts"]
        two, other = httpx.post(f"{server.url}/embed", json={"inputs": texts}).json()
    assert one == pytest.approx(two, abs=1e-4)
    assert np.dot(one, two) > 1 - 1e-6
    assert np.dot(one, other) < 1 - 1e-3


def test_logs_are_json_and_contain_the_request_id(tmp_path: Path, light: tuple[str, ...]) -> None:
    with serving(tmp_path / "log", *light) as server:
        sent = {"x-request-id": "abc-123", "traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}
        answer = httpx.post(f"{server.url}/embed", json={"inputs": "a"}, headers=sent)
        assert answer.headers["x-request-id"] == "abc-123"
        assert answer.headers["traceparent"] == sent["traceparent"]
        forged = httpx.post(
            f"{server.url}/embed", json={"inputs": "a"}, headers={"x-request-id": "a b"}
        )
        assert forged.headers["x-request-id"] != "a b"
        lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    [event] = [line for line in lines if line.get("request_id") == "abc-123"]
    assert event["event"] == "request"
    assert (event["route"], event["status"], event["tokens"]) == ("/embed", 200, 3)
    [ready] = [line for line in lines if line["event"] == "ready"]
    assert ready["reason"]


def test_a_service_refuses_to_start_with_too_few_descriptors() -> None:
    code = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
from service.__main__ import main
sys.exit(main(["--port", "0"]))
"""
    done = forked.program(code, folder=ROOT)
    assert done.returncode == 2
    assert "may open 128 files, and needs 256" in done.stderr
