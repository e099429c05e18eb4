"""Bundles that compute on the same cores get their shares."""

from __future__ import annotations

import threading

import pytest

from service.embedding.batching.shares import Share, Shares


class Clock:
    """A clock that only batches move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def compute(share: Share, clock: Clock, seconds: float, until: float) -> None:
    """Run batches of a cost, one after the other, until all bundles have used a time."""
    shares = share.shares
    while clock.now < until:
        with share.turn(lambda: clock.now >= until) as turn:
            turn.compute(1)
            with shares._changed:
                clock.now += seconds


def spent(weights: tuple[float, float], waiting: tuple[bool, bool] = (True, True)) -> list[float]:
    """Processor time of two bundles, whose batches take 0.01 and 0.5 seconds."""
    clock = Clock()
    shares = Shares(1, clock)
    members = [
        shares.join(weight, lambda waits=waits: waits)  # type: ignore[misc]
        for weight, waits in zip(weights, waiting, strict=True)
    ]
    threads = [
        threading.Thread(target=compute, args=(share, clock, seconds, 200.0))
        for share, seconds in zip(members, (0.01, 0.5), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [share.spent for share in members]


@pytest.mark.parametrize("weights", [(1.0, 1.0), (3.0, 1.0), (1.0, 4.0)])
def test_cores_are_divided_by_weight_whatever_a_batch_costs(weights: tuple[float, float]) -> None:
    first, second = spent(weights)
    assert first / (first + second) == pytest.approx(weights[0] / sum(weights), rel=0.05)


def test_a_bundle_after_a_pause_has_no_credit_and_waits_for_none() -> None:
    clock = Clock()
    shares = Shares(1, clock)
    waiting = {"busy": True, "rare": False}
    busy = shares.join(1, lambda: waiting["busy"])
    rare = shares.join(1, lambda: waiting["rare"])
    for _ in range(10):
        with busy.turn(lambda: False) as turn:
            turn.compute(1)
            clock.now += 1
    assert busy.time == pytest.approx(10, abs=1)
    waiting["rare"] = True
    # its turn comes at once, although the other has waiting work
    with rare.turn(lambda: False) as turn:
        turn.compute(1)
        clock.now += 1
    # without credit: as far as the other, not ten batches behind
    assert rare.time >= busy.time - 1


def test_threads_beyond_the_cores_share_them() -> None:
    clock = Clock()
    shares = Shares(2, clock)
    one, two = shares.join(1, lambda: False), shares.join(1, lambda: False)
    with one.turn(lambda: False) as first, two.turn(lambda: False) as second:
        first.compute(1)
        clock.now += 1
        second.compute(2)
        clock.now += 3
    # two threads for a second, then two of three threads on two cores for three seconds
    assert one.spent == pytest.approx(2 + 4)
    assert two.spent == pytest.approx(2)
