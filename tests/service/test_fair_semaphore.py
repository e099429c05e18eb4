"""A semaphore that serves clients in turn."""

from __future__ import annotations

import asyncio

from service.embedding.batching.clients import Client, working_for
from service.embedding.tokenising import FairSemaphore


def run(
    semaphore: FairSemaphore, order: list[str], names: str, leaving: set[int] | None = None
) -> None:
    async def one(name: str) -> None:
        with working_for(Client(name)):
            async with semaphore.turn():
                order.append(name)
                await asyncio.sleep(0)

    async def all_of_them() -> None:
        tasks = [asyncio.create_task(one(name)) for name in names]
        await asyncio.sleep(0)
        for position in leaving or ():
            tasks[position].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(all_of_them())


def test_clients_take_turns_whatever_their_number_of_waiting_tasks() -> None:
    order: list[str] = []
    run(FairSemaphore(1), order, "aaaaaaabc")
    assert "".join(order) == "aabcaaaaa"


def test_one_client_is_served_in_its_order_of_arrival() -> None:
    order: list[str] = []
    run(FairSemaphore(2), order, "aaaa")
    assert order == list("aaaa")


def test_a_task_that_leaves_while_waiting_keeps_no_place() -> None:
    order: list[str] = []
    semaphore = FairSemaphore(1)
    run(semaphore, order, "aaabb", leaving={1, 3})
    assert sorted(order) == list("aab")
    assert semaphore._free == 1


async def test_a_place_given_to_a_leaving_task_goes_to_the_next() -> None:
    semaphore = FairSemaphore(1)
    entered = []

    async def one(name: str) -> None:
        async with semaphore.turn():
            entered.append(name)

    async with semaphore.turn():
        tasks = [asyncio.create_task(one(name)) for name in "ab"]
        await asyncio.sleep(0)
    # "a" now has the place, but has not run since
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert entered == ["b"]
    assert semaphore._free == 1
