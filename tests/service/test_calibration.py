"""The choice of threads, streams and batch size. Engine and clock are fakes, only for timing."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from structlog.testing import capture_logs

from docsplit.engines.choice import Arithmetic, EngineName
from service.embedding.calibration import Calibration, calibrate, splits
from tests.conftest import serving

# seconds per token, by streams and tokens of a batch
Cost = Callable[[int, int], float]


class Clock:
    """Advances by the time that engines compute."""

    def __init__(self) -> None:
        self.now = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        with self._lock:
            self.now += seconds


class Engine:
    """Takes the time of a cost function."""

    name: EngineName = "openvino"
    arithmetic: Arithmetic = "f32"
    device = "CPU"

    def __init__(self, clock: Clock, cost: Cost, streams: int) -> None:
        self.streams = streams
        self.batch_tokens = 2048
        self.calls = 0
        self._clock = clock
        self._cost = cost

    def run(self, input_ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        self.calls += 1
        self._clock.pass_by(input_ids.size * self._cost(self.streams, input_ids.size))
        return np.ones((len(input_ids), 4), dtype=np.float32)


def run(
    cost: Cost,
    *,
    limit: float = 10,
    others: tuple[tuple[int, int], ...] = ((4, 1), (2, 2)),
    batch_tokens: int = 0,
    refuse: bool = False,
) -> Calibration:
    clock = Clock()

    def build(threads: int, streams: int) -> Engine:
        if refuse:
            raise RuntimeError("no such stream")
        return Engine(clock, cost, streams)

    return calibrate(
        Engine(clock, cost, 4),
        build,
        threads=4,
        others=others,
        batch_tokens=batch_tokens,
        build_seconds=0.1,
        vocabulary=100,
        limit=limit,
        clock=clock,
    )


def chosen(found: Calibration) -> tuple[int, int, int]:
    return found.threads, found.engine.streams, found.batch_tokens


def even(_streams: int, _tokens: int) -> float:
    return 1e-5


def test_the_faster_streams_and_the_faster_batch_are_found() -> None:
    found = run(lambda streams, tokens: 1e-5 * (1 if streams == 1 else 1.3) * (1 + 400 / tokens))
    assert chosen(found) == (4, 1, 4096)
    assert "faster" in found.reason
    ratios = {(m.threads, m.streams, m.batch_tokens): m.ratio for m in found.measured}
    assert ratios[4, 1, 256] == pytest.approx(1.3)
    assert ratios[4, 1, 4096] == pytest.approx((1 + 400 / 2048) / (1 + 400 / 4096), abs=0.001)


def test_smaller_batches_are_found() -> None:
    found = run(lambda _, tokens: 1e-5 * (1 + tokens / 8192))
    assert chosen(found) == (4, 4, 1024)


@pytest.mark.parametrize("gain", [1.0, 1.04])
def test_the_default_stays_if_nothing_is_clearly_faster(gain: float) -> None:
    found = run(lambda streams, tokens: 1e-5 / (gain if streams == 1 or tokens > 2048 else 1))
    assert chosen(found) == (4, 4, 2048)
    assert "nothing was faster" in found.reason
    assert len(found.measured) == 6


def test_a_machine_whose_speed_jumps_keeps_the_default() -> None:
    noise = random.Random(0)
    assert chosen(run(lambda *_: 1e-5 * noise.choice([1, 3]))) == (4, 4, 2048)


def test_calibration_keeps_explicit_settings() -> None:
    small = run(lambda _, tokens: 1e-5 * (1 + tokens / 8192), batch_tokens=4096)
    assert chosen(small) == (4, 4, 4096)
    default_only = run(lambda streams, _: 1e-5 * streams, others=())
    assert chosen(default_only) == (4, 4, 2048)


@pytest.mark.parametrize(
    ("threads", "streams", "cores", "tried"),
    [
        (0, 0, 8, [(8, 1), (4, 4)]),
        (0, 0, 2, [(2, 1)]),
        (0, 0, 1, []),
        (4, 0, 8, [(4, 1)]),
        (0, 2, 8, []),
    ],
)
def test_calibration_tries_only_open_settings(
    threads: int, streams: int, cores: int, tried: list[tuple[int, int]]
) -> None:
    assert splits(threads, streams, cores) == tried


def test_a_candidate_that_raises_is_only_left_out() -> None:
    def cost(_streams: int, tokens: int) -> float:
        if tokens > 2048:
            raise MemoryError("too large")
        return 1e-5 * (1 + tokens / 8192)

    with capture_logs() as lines:
        found = run(cost, refuse=True)
    assert chosen(found) == (4, 4, 1024)
    assert {line["reason"] for line in lines} == {"no such stream", "too large"}


def test_a_failing_measurement_keeps_the_default_and_reports_it() -> None:
    def cost(_streams: int, _tokens: int) -> float:
        raise RuntimeError("broken")

    with capture_logs() as lines:
        found = run(cost)
    assert chosen(found) == (4, 4, 2048)
    assert "failed" in found.reason
    assert [line["reason"] for line in lines] == ["RuntimeError: broken"]


@pytest.mark.parametrize("limit", [0.2, 1, 3])
def test_calibration_keeps_its_time_limit_on_a_slow_machine(limit: float) -> None:
    found = run(lambda *_: 1 / 4000, limit=limit)
    assert chosen(found) == (4, 4, 2048)
    # one small measurement runs before the speed is known
    assert found.seconds <= limit + 4 * 256 / 4000
    if limit < 1:
        assert "takes longer than 0.2 s" in found.reason


def test_a_real_engine_is_calibrated_and_reports_it(tmp_path: Path, light: tuple[str, ...]) -> None:
    # the measurements end by their number; on a busy machine ten seconds were too short for any
    flags = ("--calibrate", "60", "--threads", "4", "--streams", "0", *light)
    with serving(tmp_path / "log", *flags) as server:
        engine = httpx.get(f"{server.url}/info").json()["engine"]
        said = engine["calibration"]
        assert len(said["measured"]) >= 2
        assert (said["streams"], said["batch_tokens"]) == (
            engine["streams"],
            engine["batch_tokens"],
        )
        assert httpx.post(f"{server.url}/embed", json={"inputs": "a"}).status_code == 200
    assert '"event": "calibrated"' in server.log.read_text()


@pytest.mark.parametrize("off", [("--calibrate", "0"), ("--threads", "3")])
def test_calibration_can_be_turned_off(
    tmp_path: Path, light: tuple[str, ...], off: tuple[str, ...]
) -> None:
    flags = ("--calibrate", "60", "--streams", "0", *off, "--batch-tokens", "1000", *light)
    with serving(tmp_path / "log", *flags) as server:
        engine = httpx.get(f"{server.url}/info").json()["engine"]
    assert (engine["calibration"], engine["batch_tokens"]) == (None, 1000)
