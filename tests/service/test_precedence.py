"""Work on large bodies waits for short requests, for a bounded time."""

from __future__ import annotations

import asyncio
import time

import pytest

from service import precedence


async def _looks(
    monkeypatch: pytest.MonkeyPatch, size: int, *, beside: int | None, leaves_after: int = 1000
) -> int:
    """How often a request of ``size`` bytes looks whether it may go on.

    Args:
        beside: bytes of another request in progress; None: there is none.
        leaves_after: the other request ends after so many looks.
    """
    looks = 0
    now = 0.0
    over = asyncio.Event()
    sleep = asyncio.sleep

    async def look(seconds: float) -> None:
        nonlocal looks, now
        looks += 1
        now += seconds
        if looks == leaves_after:
            over.set()
        await sleep(0)

    async def other(size: int) -> None:
        with precedence.request(size):
            await over.wait()

    monkeypatch.setattr(asyncio, "sleep", look)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    task = asyncio.create_task(other(beside)) if beside is not None else None
    await sleep(0)
    with precedence.request(size):
        await precedence.pause()
    over.set()
    if task is not None:
        await task
    return looks


SHORT, LARGE = precedence.LARGE, precedence.LARGE + 1


async def test_a_large_body_waits_until_the_short_request_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await _looks(monkeypatch, LARGE, beside=SHORT, leaves_after=3) in (3, 4)


def test_the_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 10 <= asyncio.run(_looks(monkeypatch, LARGE, beside=SHORT)) <= 13


@pytest.mark.parametrize(
    ("size", "beside"), [(LARGE, None), (LARGE, LARGE), (SHORT, SHORT), (SHORT, None)]
)
async def test_others_do_not_wait(
    monkeypatch: pytest.MonkeyPatch, size: int, beside: int | None
) -> None:
    assert await _looks(monkeypatch, size, beside=beside) == 0


def test_a_request_no_longer_counts_when_its_answer_is_ready() -> None:
    with precedence.request(SHORT):
        with precedence.request(SHORT) as answered:
            answered()
            answered()
        assert precedence._short == 1
    assert precedence._short == 0
