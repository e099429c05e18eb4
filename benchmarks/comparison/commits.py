"""Compare the services of two commits: searches, upserts and embeddings a second, in turn.

    python -m benchmarks.comparison.commits fb8dbff

Both services run at the same time, each from its own checkout with its own index of short PEPs. The
loads alternate between them, so that noise of the machine meets both. The table has the medians of
requests a second, and the median, lowest and highest ratio of a round.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from benchmarks.rig import documents
from benchmarks.rig.report import table
from export.options import interruptible
from tests.conftest import ROOT, serving

CLIENTS = 16
DOCUMENTS = 600
CHARACTERS = 1_500

Request = tuple[str, dict[str, Any]]


def loads(texts: list[str]) -> dict[str, Callable[[int], Request]]:
    """The requests of each load, by number."""

    def search(mode: str) -> Callable[[int], Request]:
        return lambda n: (
            "/similar",
            {"index": "x", "id": str(n % len(texts)), "mode": mode, "top_k": 10},
        )

    def upsert(number: int) -> Request:
        place = number % len(texts)
        changed = {"id": str(place), "text": texts[place], "metadata": {"n": number}}
        return "/indexes/x/documents", {"documents": [changed]}

    return {
        "searches by cosine": search("cosine"),
        "hybrid searches": search("hybrid"),
        "searches by words": search("words"),
        "upserts of only metadata": upsert,
        "texts of 2 words": lambda n: ("/embed", {"inputs": f"word{n} {random.random()}"}),
    }


def fill(url: str, texts: list[str]) -> None:
    """Make the index ``x``."""
    with httpx.Client(base_url=url, timeout=120) as client:
        client.put("/indexes/x", json={}).raise_for_status()
        for first in range(0, len(texts), 60):
            numbers = range(first, min(first + 60, len(texts)))
            batch = [{"id": str(n), "text": texts[n]} for n in numbers]
            client.post("/indexes/x/documents", json={"documents": batch}).raise_for_status()


async def rate(url: str, load: Callable[[int], Request], seconds: float) -> float:
    """Requests a second of ``CLIENTS`` clients."""
    until, done = time.monotonic() + seconds, 0
    limits = httpx.Limits(max_connections=CLIENTS)

    async def work(client: httpx.AsyncClient) -> None:
        nonlocal done
        number = random.randrange(10**6)
        while time.monotonic() < until:
            path, body = load(number)
            (await client.post(path, json=body)).raise_for_status()
            number += CLIENTS
            done += 1

    began = time.monotonic()
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:
        await asyncio.gather(*(work(client) for _ in range(CLIENTS)))
    return done / (time.monotonic() - began)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("commit", help="the former one; the other is this checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each load and round")
    given = parser.parse_args()
    texts = [text[:CHARACTERS] for text in documents.read(documents.PEPS, DOCUMENTS)]
    rows = []
    # the end of the block removes the worktree and ends both services
    with interruptible(), ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        former = folder / "former"
        # twice, because git locks a worktree until it is complete
        remove = ["git", "worktree", "remove", "--force", "--force", str(former)]
        stack.callback(lambda: subprocess.run(remove, check=False, capture_output=True))
        subprocess.run(["git", "worktree", "add", "--quiet", former, given.commit], check=True)
        urls = []
        for number, tree in enumerate((former, ROOT)):
            (folder / str(number)).mkdir()
            log = folder / str(number) / "log"
            # a service of this checkout would be forked from a process that imported it, unlike
            # the former one
            server = stack.enter_context(serving(log, tree=tree, fresh=True))
            urls.append(server.url)
            fill(urls[-1], texts)
        for name, load in loads(texts).items():
            rates: tuple[list[float], list[float]] = ([], [])
            for turn in range(given.rounds + 1):
                for which in (0, 1) if turn % 2 else (1, 0):
                    found = asyncio.run(rate(urls[which], load, given.seconds))
                    # the first round warms up
                    if turn:
                        rates[which].append(found)
            ratios = [new / old for old, new in zip(*rates, strict=True)]
            before, now = (f"{statistics.median(r):.0f}" for r in rates)
            spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            rows.append([name, before, now, spread])
    print(table(["requests a second", given.commit, "now", "ratio"], rows))


if __name__ == "__main__":
    main()
