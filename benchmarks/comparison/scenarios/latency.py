"""Latency of short texts next to articles, and of all servers at the same offered load."""

from __future__ import annotations

import itertools
import random

from benchmarks.comparison.peers.servers import Side
from benchmarks.comparison.scenarios.scenario import Bench, Round, Scenario
from benchmarks.rig import documents

ONLY_SHORT, BESIDE, ARTICLES = "short by themselves", "short beside articles", "articles"
# share of the slowest server's rate
SHARE = 0.7
PATIENCE = 120.0


def scenarios(bench: Bench) -> list[Scenario]:
    """The two scenarios: short texts next to articles, and the same offered load."""
    same = SameLoad(bench)
    return [
        Scenario(
            "beside",
            "90 % texts of 30 words, 10 % articles, 16 clients",
            lambda side, number: _beside(bench, side),
        ),
        Scenario(
            "offered",
            f"one document a request at {SHARE:.0%} of the slowest server's rate",
            same.measure,
            prepare=same.prepare,
        ),
    ]


def _beside(bench: Bench, side: Side) -> Round:
    count = bench.size.articles * 9
    shorts = bench.closed(side, [[text] for text in bench.short(count)], 16, [ONLY_SHORT] * count)
    kinds = [BESIDE] * count + [ARTICLES] * bench.size.articles
    texts = [*bench.short(count), *bench.articles[: bench.size.articles]]
    mixed = list(zip(texts, kinds, strict=True))
    random.Random(0).shuffle(mixed)
    made = bench.closed(side, [[text] for text, _ in mixed], 16, [kind for _, kind in mixed])
    made.latencies = shorts.latencies | made.latencies
    return made


class SameLoad:
    """Requests come at one rate, which even the slowest server can answer."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._slowest = float("inf")

    def prepare(self, side: Side) -> None:
        """Measure the highest rate of the server."""
        texts = self._bench.part(0, self._bench.size.documents // 2)
        made = self._bench.closed(side, [[text] for text in texts], 16)
        self._slowest = min(self._slowest, made.documents / made.seconds)

    def measure(self, side: Side, number: int) -> Round:
        """Run a round at the common rate."""
        rate = SHARE * self._slowest
        count = max(1, round(rate * self._bench.size.seconds))
        fresh = documents.unseen(self._bench.texts, seed=number)
        groups = [[text] for text in itertools.islice(fresh, count)]
        answers = self._bench.offered(side, groups, rate, PATIENCE)
        made = self._bench.round(side, groups, answers)
        made.figures = {"offered documents/s": rate}
        return made
