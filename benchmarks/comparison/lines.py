"""Throughput and memory of POST /embed by lines, compared with batches of JSON.

    python -m benchmarks.comparison.lines

Both send new short texts to one service, in turns, and take base64: one stream, and several clients
that send JSON. Turns alternate, so a slower machine slows both; the processor time of the service
shows its cost on a machine that other work shares. The service has no cache, whose memory would
grow with the texts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress

import aiohttp

from benchmarks.rig.processes import processor_seconds
from benchmarks.rig.server import Service, started

# texts of a JSON request, and clients that send them
BATCH = 64
CLIENTS = 4

Send = Callable[[aiohttp.ClientSession, Sequence[str]], Awaitable[None]]


async def by_lines(session: aiohttp.ClientSession, texts: Sequence[str]) -> None:
    """One stream: aiohttp reads while it sends."""

    async def body() -> AsyncIterator[bytes]:
        for part in parts(texts):
            yield "".join(json.dumps(text) + "\n" for text in part).encode()

    headers = {"content-type": "application/x-ndjson"}
    url = "/embed?encoding_format=base64"
    lines, last = 0, b""
    async with session.post(url, data=body(), headers=headers) as answer:
        async for line in answer.content:
            lines, last = lines + 1, line
    if lines != len(texts) + 1 or json.loads(last)["errors"]:
        raise RuntimeError(f"{lines} lines, the last: {last[:300]!r}")


async def by_batches(session: aiohttp.ClientSession, texts: Sequence[str]) -> None:
    """JSON by several clients."""
    waiting = parts(texts)

    async def client() -> None:
        for part in waiting:
            body = {"inputs": part, "encoding_format": "base64"}
            async with session.post("/embed", json=body) as answer:
                answer.raise_for_status()
                await answer.read()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))


async def measure(service: Service, number: int, turns: int) -> None:
    """Send ``number`` texts each way and print the figures."""
    made = (f"Note {n} is about {n * 7919 % 100_003} tons of wool." for n in range(1 << 62))
    rates: dict[str, list[float]] = {"lines": [], "batches": []}
    costs: dict[str, list[float]] = {"lines": [], "batches": []}
    ways: dict[str, Send] = {"lines": by_lines, "batches": by_batches}
    peaks: list[float] = []
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(service.url, timeout=timeout) as session:
        # both ways have run before anything is measured
        for send in ways.values():
            await send(session, [next(made) for _ in range(2000)])
        before = service.rss_mb()
        for turn in range(turns):
            for way in sorted(ways, reverse=turn % 2 == 0):
                texts = [next(made) for _ in range(number // turns)]
                watch = asyncio.create_task(peak(service, peaks)) if way == "lines" else None
                began, cpu = time.monotonic(), processor_seconds(service.pid)
                await ways[way](session, texts)
                rates[way].append(len(texts) / (time.monotonic() - began))
                costs[way].append((processor_seconds(service.pid) - cpu) / len(texts) * 1000)
                if watch is not None:
                    watch.cancel()
                    with suppress(asyncio.CancelledError):
                        await watch
    for way in ways:
        rate, cost = statistics.median(rates[way]), statistics.median(costs[way])
        print(f"{way}: {rate:,.0f} texts/s, {cost:.2f} ms of CPU a text, median of {turns} turn(s)")
    print("each turn:", *(f"{a:.0f}/{b:.0f}" for a, b in zip(*rates.values(), strict=True)))
    pairs = zip(rates["lines"], rates["batches"], strict=True)
    print(f"lines / batches: {statistics.median(a / b for a, b in pairs):.3f}, median of turns")
    cpu_pairs = zip(costs["batches"], costs["lines"], strict=True)
    print(f"the same by CPU time: {statistics.median(a / b for a, b in cpu_pairs):.3f}")
    print(f"memory: {before:.0f} MB before, at most {max(peaks) - before:+.0f} MB in streams")


async def peak(service: Service, found: list[float]) -> None:
    """Note the memory five times a second."""
    while True:
        found.append(service.rss_mb())
        await asyncio.sleep(0.2)


def parts(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Texts in lists of ``BATCH``."""
    return (texts[at : at + BATCH] for at in range(0, len(texts), BATCH))


def main() -> None:
    """Start a service, send, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=200_000, help="texts each way")
    parser.add_argument("--turns", type=int, default=10)
    given = parser.parse_args()
    with started("--cache-bytes=0") as service:
        asyncio.run(measure(service, given.texts, given.turns))


if __name__ == "__main__":
    main()
