"""Traces: what a collector receives, what it never receives, and faults that it cannot cause."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests import forked
from tests.collector import Collector, collecting
from tests.conftest import ROOT, Server, free_port, serving
from tests.redis_server import RedisServer

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UNSAMPLED = "00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"


@dataclass(frozen=True)
class Traced:
    """A service and its collector."""

    server: Server
    collector: Collector


@pytest.fixture(scope="module")
def traced(light: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    """Every request is traced, and its spans are sent at once."""
    folder = tmp_path_factory.mktemp("traced")
    redis = RedisServer(folder)
    with pytest.MonkeyPatch.context() as environment, collecting() as collector:
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        environment.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=pod-1")
        flags = ("--otlp-endpoint", collector.url, "--redis-url", redis.url, *light)
        with serving(folder / "log", *flags) as server:
            yield Traced(server, collector)
    redis.close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep spans until the end of the process."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")


def embed(server: Server, text: str | list[str], **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(f"{server.url}/embed", json={"inputs": text}, headers=named, timeout=60)


def events(server: Server, name: str) -> list[dict[str, object]]:
    # the last line may be incomplete
    whole = server.log.read_text().rpartition("\n")[0]
    lines = [json.loads(line) for line in whole.splitlines()]
    return [line for line in lines if line["event"] == name]


def logged(server: Server, request_id: str) -> dict[str, object]:
    """The log line of a request; it appears after the answer."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        for line in events(server, "request"):
            if line["request_id"] == request_id:
                return line
        time.sleep(0.01)
    raise AssertionError(f"no line of {request_id}")


def test_the_spans_of_a_request(traced: Traced) -> None:
    collector = traced.collector
    for name, text in (("cold", "one text"), ("warm", ["one text"]), ("again", "one text")):
        assert embed(traced.server, text, x_request_id=name).status_code == 200
    first, second = collector.request("cold"), collector.request("warm")
    assert collector.paths == {"/v1/traces"}
    assert (first.name, first.kind, first.parent_id) == ("POST /embed", "SPAN_KIND_SERVER", "")
    assert first.trace_id != second.trace_id
    assert first.attributes == {
        "http.request.method": "POST",
        "http.route": "/embed",
        "http.response.status_code": 200,
        "url.scheme": "http",
        "docsplit.request_id": "cold",
        "docsplit.documents": 1,
        "docsplit.windows": 1,
        "docsplit.cached": 0,
        "docsplit.tokens": 4,
    }
    cold, warm = collector.below(first), collector.below(second)
    assert list(cold) == ["tokenise", "cache", "queue", "infer", "pool"]
    assert list(warm) == ["tokenise", "cache", "pool"]
    assert collector.below(collector.request("again")) == {}, "answered from memory"
    assert cold["cache"].attributes == sources(engine=1)
    assert warm["cache"].attributes == sources(process=1)
    assert cold["infer"].attributes == {"docsplit.windows": 1, "docsplit.tokens": 4}
    assert collector.below(warm["cache"]) == {}
    [redis] = collector.below(cold["cache"]).values()
    assert (redis.name, redis.kind) == ("redis", "SPAN_KIND_CLIENT")
    assert redis.attributes == {"db.system.name": "redis", "db.operation.name": "EVAL"}
    assert cold["cache"].encloses(redis)
    assert cold["cache"].ended <= cold["queue"].started
    assert cold["queue"].ended == cold["infer"].started
    for parent in (first, second):
        for child in collector.below(parent).values():
            assert child.trace_id == parent.trace_id
            assert parent.encloses(child)
            assert not child.failed
    # the control: another request's stages are outside
    assert not first.encloses(warm["tokenise"])


def sources(**counts: int) -> dict[str, int]:
    return {
        f"docsplit.cache.{source}": counts.get(source, 0)
        for source in ("process", "redis", "flight", "engine")
    }


def test_spans_describe_the_process_and_its_bundle(traced: Traced) -> None:
    embed(traced.server, "a", x_request_id="whose")
    traced.collector.request("whose")
    info = httpx.get(f"{traced.server.url}/info").json()
    resource = traced.collector.resources[0]
    assert resource["service.name"] == "docsplit"
    assert resource["service.version"] == info["version"]
    assert resource["docsplit.model"] == info["model_id"] == "light"
    assert resource["docsplit.revision"] == info["model_sha"]
    assert resource["docsplit.engine"] == info["engine"]["name"]
    assert resource["docsplit.precision"] == info["engine"]["precision"]
    assert resource["k8s.pod.name"] == "pod-1"


def test_the_caller_is_the_parent_and_decides_whether_to_trace(traced: Traced) -> None:
    unsampled = embed(traced.server, "a", x_request_id="unsampled", traceparent=UNSAMPLED)
    called = embed(traced.server, "a", x_request_id="called", traceparent=CALLER, tracestate="v=1")
    embed(traced.server, "a", x_request_id="misspelt", traceparent="00-nonsense")
    assert unsampled.headers["traceparent"] == UNSAMPLED
    assert called.headers["traceparent"] == CALLER
    child, root = traced.collector.request("called"), traced.collector.request("misspelt")
    assert (child.trace_id, child.parent_id) == tuple(CALLER.split("-")[1:3])
    assert root.parent_id == ""
    # spans of the earlier requests would have arrived before these
    assert UNSAMPLED.split("-")[1] not in {span.trace_id for span in traced.collector.spans}


def test_the_log_names_the_trace(traced: Traced) -> None:
    embed(traced.server, "a", x_request_id="logged")
    span = traced.collector.request("logged")
    line = logged(traced.server, "logged")
    assert line["trace_id"] == span.trace_id
    assert (line["route"], line["method"], line["status"]) == ("/embed", "POST", 200)
    assert isinstance(line["ms"], float)


def test_probes_are_not_traced(traced: Traced) -> None:
    before = len(traced.collector.servers())
    for path in ("/health", "/livez", "/readyz", "/metrics", "/info"):
        httpx.get(traced.server.url + path, headers={"x-request-id": path.strip("/")})
    traced.collector.request("info")
    assert [span.name for span in traced.collector.servers()[before:]] == ["GET /info"]


def test_without_a_collector_the_log_has_the_callers_trace(server: Server) -> None:
    embed(server, "a", x_request_id="traced", traceparent=CALLER)
    embed(server, "a", x_request_id="untraced")
    embed(server, "a", x_request_id="misspelt", traceparent="00-nonsense")
    assert logged(server, "traced")["trace_id"] == CALLER.split("-")[1]
    assert "trace_id" not in logged(server, "untraced")
    assert "trace_id" not in logged(server, "misspelt")


@pytest.mark.usefixtures("late")
def test_no_data_of_the_caller_leaves(
    collector: Collector, tmp_path: Path, light: tuple[str, ...]
) -> None:
    """No text, id, query or key is in any span or log line, whatever the answer."""
    key = "key-of-more-than-sixteen"
    flags = ("--otlp-endpoint", collector.url, "--api-keys", key, "--max-document-tokens", "50")
    with serving(tmp_path / "log", *flags, *light) as server:
        url = server.url
        headers = {"authorization": f"Bearer {key}"}
        index: dict[str, object] = {"fields": {}}

        def ask(method: str, path: str, body: object = None) -> int:
            answer = httpx.request(method, url + path, json=body, headers=headers, timeout=60)
            return answer.status_code

        text = "wellhidden words"
        document = {"id": "wellhidden-id", "text": text, "metadata": {}}
        assert ask("POST", "/embed?wellhidden=1", {"inputs": text}) == 200
        assert ask("POST", "/embed", {"inputs": "wellhidden " * 100}) == 413
        assert ask("POST", "/embed", {"inputs": text, "normalize": "wellhidden"}) == 422
        assert ask("GET", "/wellhidden") == 404
        assert ask("PUT", "/indexes/shown", index) == 201
        assert ask("POST", "/indexes/shown/documents", {"documents": [document]}) == 200
        assert ask("GET", "/indexes/shown/documents/wellhidden-id") == 200
        assert ask("POST", "/similar", {"index": "shown", "text": text}) == 200
        headers = {"authorization": "Bearer wellhidden"}
        assert ask("POST", "/embed", {"inputs": text}) == 401
    sent = b"".join(collector.bodies)
    logged = server.log.read_bytes()
    for place in (sent, logged):
        # the control: the search looks in the right places
        assert b"/indexes/{name}/documents/{document_id:path}" in place
        assert b"wellhidden" not in place
        assert key.encode() not in place
    requests = [
        (span.name, span.attributes.get("http.response.status_code"))
        for span in collector.servers()
    ]
    assert requests == [
        ("POST /embed", 200),
        ("POST /embed", 413),
        ("POST /embed", 422),
        ("GET", 404),
        ("PUT /indexes/{name}", 201),
        ("POST /indexes/{name}/documents", 200),
        ("GET /indexes/{name}/documents/{document_id:path}", 200),
        ("POST /similar", 200),
        ("POST /embed", 401),
    ]
    servers = collector.servers()
    refused = collector.below(servers[1])["tokenise"]
    assert refused.failed
    assert refused.attributes["error.type"] == "TooLongError"
    assert not servers[1].failed
    commit = collector.below(servers[5])["commit"]
    assert commit.attributes == {"docsplit.documents": 1}
    search = collector.below(servers[7])["search"]
    assert search.attributes == {"docsplit.mode": "cosine", "docsplit.hits": 1}
    assert servers[7].encloses(search)


@pytest.mark.usefixtures("late")
def test_sigterm_sends_waiting_spans_and_the_ratio_samples_undecided_requests(
    collector: Collector, tmp_path: Path, light: tuple[str, ...]
) -> None:
    flags = ("--otlp-endpoint", collector.url, "--trace-ratio", "0", *light)
    with serving(tmp_path / "log", *flags) as server:
        assert embed(server, "a").status_code == 200
        assert embed(server, "a", traceparent=CALLER).status_code == 200
        assert collector.bodies == []
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
    assert [span.trace_id for span in collector.servers()] == [CALLER.split("-")[1]]


def test_an_unreachable_collector_costs_one_log_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, light: tuple[str, ...]
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    nowhere = f"http://127.0.0.1:{free_port()}"
    with serving(tmp_path / "log", "--otlp-endpoint", nowhere, *light) as server:
        while not events(server, "tracing_failed"):
            assert embed(server, "a").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        [line] = events(server, "tracing_failed")
        assert line["logger"] == "docsplit.tracing"
        assert "Connection refused" in str(line["reason"])


@pytest.mark.usefixtures("late")
def test_a_hanging_collector_does_not_delay_the_end(tmp_path: Path, light: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        url = f"http://127.0.0.1:{hangs.getsockname()[1]}"
        with serving(tmp_path / "log", "--otlp-endpoint", url, *light) as server:
            assert embed(server, "a").status_code == 200
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(30) == 0
            # it did not wait until the export gave up
            assert len(events(server, "spans_lost")) == 1
            assert events(server, "tracing_failed") == []


def test_tracing_stays_off_whatever_the_environment_contains(
    collector: Collector,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    light: tuple[str, ...],
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    with serving(tmp_path / "log", *light) as server:
        assert embed(server, "a", traceparent=CALLER).status_code == 200
    assert collector.bodies == []


def test_tracing_is_loaded_only_if_it_is_configured() -> None:
    code = """
import sys
from service.server import serving as server
from service.server.lifecycle import Service
from service.settings import Settings
from service.server.encoders import open_bundles
for endpoint in (None, "http://127.0.0.1:1"):
    settings = Settings(otlp_endpoint=endpoint)
    Service(settings, open_bundles(settings))
    print("opentelemetry.exporter.otlp" in sys.modules, "opentelemetry.sdk.trace" in sys.modules)
"""
    done = forked.program(code, folder=ROOT)
    assert done.stdout.splitlines() == ["False False", "True True"], done.stderr


def test_missing_packages_end_the_start_with_the_name_of_the_extra() -> None:
    code = """
import sys
sys.modules["opentelemetry.sdk"] = None
from service.__main__ import main
sys.exit(main(["--port", "0", "--otlp-endpoint", "http://127.0.0.1:1"]))
"""
    done = forked.program(code, folder=ROOT)
    assert done.returncode == 2
    assert "otlp_endpoint (--otlp-endpoint, DOCSPLIT_OTLP_ENDPOINT)" in done.stderr
    assert "docsplit[tracing]" in done.stderr
