"""The metrics of a service that embeds, and of one that loses its Redis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.metrics import Metrics
from tests.conftest import Server, serving
from tests.redis_server import RedisServer

Samples = dict[tuple[str, str], float]


def samples(server: Server) -> Samples:
    """Values by name and label values."""
    families = text_string_to_metric_families(httpx.get(f"{server.url}/metrics").text)
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.close()


def embed(server: Server, text: str) -> None:
    assert httpx.post(f"{server.url}/embed", json={"inputs": text}, timeout=60).status_code == 200


def test_every_stage_is_timed(server: Server) -> None:
    embed(server, "measured once")
    seen = samples(server)
    counts = {
        stage: seen["docsplit_stage_seconds_count", stage]
        for stage in ("tokenise", "cache", "queue", "infer", "pool")
    }
    assert set(counts.values()) == {counts["tokenise"]}
    assert seen["docsplit_stage_seconds_sum", "infer"] > 0
    assert seen["docsplit_tokens_per_second", ""] > 0
    # there are no metrics of a cache that is not configured
    assert ("docsplit_cache_up", "redis") not in seen


@pytest.mark.parametrize("reason", ["ENOSPC", "damaged", "torn", "unreachable"])
def test_counters_of_store_errors_begin_at_zero(reason: str) -> None:
    name = "docsplit_store_errors_total"
    assert Metrics().registry.get_sample_value(name, {"reason": reason}) == 0


def test_metrics_count_cache_hits_by_layer_and_show_the_breaker(
    redis_server: RedisServer, tmp_path: Path, light: tuple[str, ...]
) -> None:
    flags = ("--redis-url", redis_server.url, "--cache-bytes", "0", *light)
    with serving(tmp_path / "log", *flags) as server:
        assert (before := samples(server))["docsplit_tokens_per_second", ""] == 0
        # an alert does not see a counter that begins at 1
        for kind in ("read", "write", "dropped", "damaged", "forged"):
            assert before["docsplit_cache_errors_total", kind] == 0
        embed(server, "written behind the answer, and then read")
        while (seen := samples(server))["docsplit_windows_total", "redis"] == 0:
            embed(server, "written behind the answer, and then read")
        assert seen["docsplit_windows_total", "engine"] > 0
        assert seen["docsplit_windows_total", "process"] == 0
        assert seen["docsplit_cache_up", "redis"] == 1
        redis_server.kill()
        while samples(server)["docsplit_cache_up", "redis"] == 1:
            embed(server, "still answered")
        assert samples(server)["docsplit_cache_errors_total", "read"] > 0
