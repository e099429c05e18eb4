"""Padding and batches per token, in a simulation of the queue with lengths of real windows."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from docsplit.bundles.format import DEFAULT_BUNDLE
from docsplit.windowing.tokens import DocumentTokenizer
from docsplit.windowing.windows import cut
from service.embedding.batching.clients import UNNAMED, Client
from service.embedding.batching.queue import Job, WindowQueue

BUDGET = 2048
# fixed cost of a batch, in tokens
OVERHEAD = 20
STREAMS = 2
BATCHES = 500

Documents = list[list[int]]


@pytest.fixture(scope="module")
def documents(peps: dict[str, str]) -> Documents:
    """Lengths of the windows of articles with 300 to 20,000 characters, like real requests."""
    tokenizer = DocumentTokenizer(DEFAULT_BUNDLE / "tokenizer.json", 512)
    sizes = random.Random(0)
    found = []
    for text in list(peps.values())[:150]:
        tokens = tokenizer.encode(text[: int(300 * np.exp(sizes.uniform(0, np.log(66))))])
        boundaries = tokenizer.boundaries(text, tokens)
        edges = [0, *cut(tokens.ids, *boundaries, tokenizer.capacity)]
        found.append((np.diff(edges) + len(tokenizer.model_input([]))).tolist())
    return found


@dataclass
class Load:
    """Callers that each send their next request after the last answer."""

    documents: Documents
    callers: int
    group: int
    named: bool = False
    queue: WindowQueue = field(default_factory=lambda: WindowQueue(BUDGET, age_limit=1e9))
    tokens: int = 0
    padded: int = 0
    cost: int = 0

    def run(self, batches: int) -> Load:
        """A batch takes its cost as time; an answer comes when its last window is done."""
        drawn = random.Random(0)
        left: dict[Job, int] = {}
        running: list[tuple[float, int, list[Job]]] = []
        now = 0.0

        def ask(client: Client) -> None:
            lengths = [n for _ in range(self.group) for n in drawn.choice(self.documents)]
            ids = [np.ones(n, dtype=np.int32) for n in lengths]
            job = Job(ids, 1e9, now, lambda _: None, client)
            left[job] = len(ids)
            self.queue.add(job)

        for caller in range(self.callers):
            ask(Client(str(caller)) if self.named else UNNAMED)
        taken = 0
        while taken < batches:
            while len(running) < STREAMS and (batch := self.queue.take(now)):
                taken += 1
                padded = len(batch) * max(w.padded for w in batch)
                self.tokens += sum(w.length for w in batch)
                self.padded += padded
                self.cost += padded + OVERHEAD
                jobs = [w.job for w in batch]
                heapq.heappush(running, (now + padded + OVERHEAD, taken, jobs))
            now, _, jobs = heapq.heappop(running)
            for job in jobs:
                left[job] -= 1
                if not left[job]:
                    ask(job.client)
        return self

    @property
    def waste(self) -> float:
        """Share of padding in all computed tokens."""
        return 1 - self.tokens / self.padded

    @property
    def efficiency(self) -> float:
        """Tokens over the cost of their batches."""
        return self.tokens / self.cost


@pytest.mark.parametrize("named", [False, True], ids=["one client", "each a client"])
@pytest.mark.parametrize(("callers", "group"), [(4, 16), (16, 1), (4, 1), (1, 16)])
def test_padding_is_below_five_percent_and_batches_stay_large(
    documents: Documents, callers: int, group: int, named: bool
) -> None:
    load = Load(documents, callers, group, named).run(BATCHES)
    assert load.waste < 0.05
    # one window per batch: padding only by rounding, and the largest number of batches
    singles = Load(documents, callers, group, named, WindowQueue(1, age_limit=1e9)).run(BATCHES)
    assert singles.waste < load.waste
    assert load.efficiency > singles.efficiency


def test_preferring_full_batches_would_waste_more(
    documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: if a batch is assumed to cost a quarter of its budget, padding grows."""
    monkeypatch.setattr("service.embedding.batching.queue.OVERHEAD", 0.25)
    load = Load(documents, 4, 1).run(BATCHES)
    assert load.waste > 0.05
