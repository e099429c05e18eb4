"""The shipped HAProxy and nginx with replicas that fail on a request: how far it gets."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.deploy.balancers import find, haproxy, nginx
from tests.deploy.fake_replica import ORDER, FakeReplica, Orders, fakes

missing = [program for program in ("haproxy", "nginx") if find(program) is None]
pytestmark = pytest.mark.skipif(
    bool(missing), reason=f"not installed: {', '.join(missing)} (apt-get install)"
)

BALANCERS = {"haproxy": haproxy, "nginx": nginx}
SMALL, LARGE = 200_000, 1_000_000
LINES = "application/x-ndjson"
both = pytest.mark.parametrize("name", BALANCERS)


@dataclass
class Cluster:
    """A balancer, the replicas behind it, and a client that keeps its connection."""

    client: httpx.Client
    replicas: list[FakeReplica]
    orders: Orders = field(default_factory=Orders)

    def ask(
        self,
        order: str = "",
        size: int = 10,
        *,
        method: str = "POST",
        chunked: bool = False,
        kind: str = "application/json",
    ) -> httpx.Response:
        def parts() -> Iterator[bytes]:
            for _ in range(10):
                yield b" " * (size // 10)

        content = parts() if chunked else b" " * size
        headers = {"content-type": kind} | ({ORDER: order} if order else {})
        return self.client.request(method, "/embed", content=content, headers=headers)

    @property
    def living(self) -> int:
        return sum(replica.alive for replica in self.replicas)

    def check_serves(self, times: int = 12, size: int = 10) -> None:
        """Check that a replica answers every request at once, small or large."""
        for method in ("POST", "PUT", "DELETE") * (times // 3):
            answer = self.ask(size=size, method=method)
            assert (answer.status_code, answer.text[:3]) == (200, "200")


@contextmanager
def balanced(name: str, folder: Path, count: int = 3, most: dict[str, int] | None = None):  # type: ignore[no-untyped-def]
    orders = Orders(most=most or {})
    with (
        fakes(orders, count) as replicas,
        BALANCERS[name](folder, [replica.port for replica in replicas]) as url,
        httpx.Client(base_url=url, timeout=30) as client,
    ):
        cluster = Cluster(client, replicas, orders)
        # balancers treat requests on kept connections differently, and on their own kept ones too
        cluster.check_serves(6)
        yield cluster


@both
@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize(
    ("size", "chunked", "reached"),
    [(10, False, 2), (SMALL, False, 2), (SMALL, True, 2), (LARGE, False, 1), (LARGE, True, 1)],
)
def test_a_request_that_kills_replicas_reaches_few(
    name: str, method: str, size: int, chunked: bool, reached: int, tmp_path: Path
) -> None:
    with balanced(name, tmp_path) as cluster:
        answer = cluster.ask("die", size, method=method, chunked=chunked)
        assert answer.status_code == 502
        assert cluster.orders.seen["die"] == reached
        assert cluster.living == 3 - reached
        cluster.check_serves()
        cluster.check_serves(3, LARGE)


@both
@pytest.mark.parametrize(
    ("size", "chunked", "reached"), [(SMALL, False, 2), (LARGE, False, 1), (LARGE, True, 1)]
)
def test_lines_that_kill_replicas_reach_few(
    name: str, size: int, chunked: bool, reached: int, tmp_path: Path
) -> None:
    with balanced(name, tmp_path) as cluster:
        assert cluster.ask("die", size, chunked=chunked, kind=LINES).status_code == 502
        assert cluster.orders.seen["die"] == reached
        cluster.check_serves()


@both
@pytest.mark.parametrize("kind", ["application/json", LINES])
def test_a_small_request_survives_the_death_of_its_replica(
    name: str, kind: str, tmp_path: Path
) -> None:
    with balanced(name, tmp_path, most={"die": 1}) as cluster:
        answer = cluster.ask("die", SMALL, kind=kind)
        assert answer.status_code == 200
        assert cluster.orders.seen["die"] == 2
        assert cluster.living == 2


@both
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("order", ["drop", "503", "413", "504"])
def test_no_answer_and_no_lost_connection_removes_a_replica(
    name: str, order: str, count: int, tmp_path: Path
) -> None:
    with balanced(name, tmp_path, count) as cluster:
        for _ in range(3):
            for _ in range(5):
                answer = cluster.ask(order, LARGE)
                assert answer.status_code == (502 if order == "drop" else int(order))
            cluster.check_serves(3)
        # the replica's own answer, not the balancer's
        assert answer.text[:3] == order or order == "drop"


@both
def test_only_503_is_sent_to_other_replicas(name: str, tmp_path: Path) -> None:
    with balanced(name, tmp_path) as cluster:
        for order in ("413", "429", "504", "503"):
            cluster.ask(order)
        seen = cluster.orders.seen
        assert (seen["413"], seen["429"], seen["504"]) == (1, 1, 1)
        assert seen["503"] >= 3


def test_nginx_leaves_a_replica_that_accepts_no_connection(tmp_path: Path) -> None:
    with socket.socket() as full, socket.socket() as first, fakes(Orders(), 1) as [replica]:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        # its queue has room for one connection, which nobody accepts
        first.connect(full.getsockname())
        with nginx(tmp_path, [full.getsockname()[1], replica.port]) as url:
            # one of two requests goes to the full replica first
            for _ in range(2):
                time.sleep(2)
                answer = httpx.post(url, content=b" " * LARGE, timeout=30)
                assert answer.text == "200 by 1"
        lines = (tmp_path / "nginx.log").read_text().splitlines()[-2:]
        assert any("504, 200" in line for line in lines)


def test_a_replica_that_answers_checks_slowly_stays(tmp_path: Path) -> None:
    with balanced("haproxy", tmp_path, 1) as cluster, ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(cluster.ask, "stall")]
        for _ in range(15):
            time.sleep(0.3)
            asked.append(pool.submit(cluster.ask))
        assert [one.result().status_code for one in asked] == [200] * 16


@both
def test_requests_pass_over_a_replica_that_answers_503(name: str, tmp_path: Path) -> None:
    with balanced(name, tmp_path) as cluster:
        for size in (10, SMALL) * 10:
            assert cluster.ask("503 of 2", size).status_code == 200
        cluster.check_serves()


def test_nginx_offers_a_large_request_to_another_replica_after_503(tmp_path: Path) -> None:
    with balanced("nginx", tmp_path) as cluster:
        for chunked in (False, True) * 5:
            assert cluster.ask("503 of 2", LARGE, chunked=chunked).status_code == 200


@both
def test_a_refused_connection_costs_nothing(name: str, tmp_path: Path) -> None:
    with balanced(name, tmp_path) as cluster:
        for replica in cluster.replicas[:2]:
            replica._loop.call_soon_threadsafe(replica._die)
        while cluster.living > 1:
            time.sleep(0.01)
        cluster.check_serves(12)
        cluster.check_serves(6, LARGE)


# spellings of /metrics that a replica would accept, and similar paths
METRICS = [
    "/metrics",
    "/%6detrics",
    "/%6Detrics",
    "/metric%73",
    "/%6d%65%74%72%69%63%73",
    "//metrics",
    "/%2fmetrics",
    "/./metrics",
    "/%2e/metrics",
    "/x/../metrics",
    "/x/%2e%2e/metrics",
    "/metrics/",
    "/metrics?x",
    "/metrics#x",
    "/%6detrics#%zz",
    "/metrics%",
    "/metrics%00",
    "/metrics;x",
    "/%256detrics",
    "http://a/metrics",
    "http://a/%6detrics",
]


def raw(url: str, target: str) -> bytes:
    """First bytes of the answer to a target in exactly this form; empty if it is cut off."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as opened:
        opened.sendall(f"GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        received = b""
        with suppress(ConnectionError):
            while part := opened.recv(65_536):
                received += part
    return received


@pytest.fixture(scope="module", params=BALANCERS)
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """A service behind a balancer."""
    server = request.getfixturevalue("light_server")
    folder = tmp_path_factory.mktemp("real")
    with BALANCERS[request.param](folder, [urlsplit(server.url).port]) as url:
        yield url, server.url


@pytest.mark.parametrize("target", METRICS)
def test_balancers_refuse_every_spelling_of_metrics(real: tuple[str, str], target: str) -> None:
    outside, inside = real
    answer = raw(outside, target)
    assert b"docsplit_requests_total" not in answer
    assert answer[:12] in (b"HTTP/1.1 404", b"HTTP/1.1 400")
    # the control: the service behind these balancers does return metrics
    assert b"docsplit_requests_total" in raw(inside, "/%6detrics")


def test_an_upload_that_is_refused_early_gets_the_reason(real: tuple[str, str]) -> None:
    part = b'--x\r\ncontent-disposition: form-data; name="files"; filename="%d.txt"\r\n\r\n\r\n'
    body = b"".join(part % number for number in range(100_000))
    headers = {"content-type": "multipart/form-data; boundary=x"}
    for url in real:
        for _ in range(6):
            answer = httpx.post(f"{url}/read", content=body, headers=headers, timeout=30)
            assert answer.status_code == 413, answer.text


@pytest.mark.parametrize("size", [20_000, 40_000])
def test_balancers_take_lines_as_long_as_the_service_takes(
    real: tuple[str, str], size: int
) -> None:
    outside, inside = real
    target = f"/livez?{'a' * size}"
    # the control: the service has its own limit between the two sizes
    assert raw(inside, target)[9:12] == (b"431" if size > 32_768 else b"200")
    # nginx has a status of its own for a line that it does not take
    assert raw(outside, target)[9:12] in ((b"431", b"414") if size > 32_768 else (b"200",))
