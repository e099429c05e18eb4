"""Turns of long work that requests wait for."""

from __future__ import annotations

import asyncio

import pytest

from service.errors import OverloadedError
from service.server.routes.turns import MOST_WAITING, Turn


async def test_a_job_waits_behind_requests_that_fill_the_queue() -> None:
    turn = Turn("searches")
    order: list[str] = []

    async def work(name: str, *, patient: bool) -> None:
        async with turn.taken(patient=patient):
            order.append(name)

    async with turn.taken():
        waiting = [
            asyncio.create_task(work(f"request {n}", patient=False)) for n in range(MOST_WAITING)
        ]
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError, match="searches are waiting"):
            await work("another request", patient=False)
        waiting.append(asyncio.create_task(work("job", patient=True)))
        await asyncio.sleep(0)
        assert order == []
    await asyncio.gather(*waiting)
    assert order == [*(f"request {n}" for n in range(MOST_WAITING)), "job"]
