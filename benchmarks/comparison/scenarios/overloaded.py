"""Ten times the requests that a server can answer. Clients wait five seconds."""

from __future__ import annotations

import itertools
import time

import httpx

from benchmarks.comparison.peers.servers import Side
from benchmarks.comparison.scenarios.scenario import Bench, Round, Scenario
from benchmarks.rig import documents

TIMES = 10
DEADLINE = 5.0
# seconds that a server has to answer a single request afterwards
PATIENCE = 300.0


def scenarios(bench: Bench) -> list[Scenario]:
    """Ten-fold overload."""
    return [
        Scenario(
            "overload",
            f"{TIMES}-fold overload, answers wanted within {DEADLINE:g} s",
            lambda side, number: _overload(bench, side),
            rounds=1,
        )
    ]


def _overload(bench: Bench, side: Side) -> Round:
    fresh = documents.unseen(bench.texts)
    groups = [[text] for text in itertools.islice(fresh, bench.size.documents // 2)]
    peak = bench.closed(side, groups, 16)
    most = peak.documents / peak.seconds
    rate, seconds = TIMES * most, bench.size.seconds
    groups = [[text] for text in itertools.islice(fresh, round(rate * seconds))]
    answers = bench.offered(side, groups, rate, DEADLINE)
    made = bench.round(side, groups, answers)
    made.seconds = max(seconds, made.seconds)
    made.figures = {
        "peak documents/s": most,
        "goodput / peak": made.documents / made.seconds / most,
        "5xx but 503 and 504": sum(
            n for s, n in made.statuses.items() if s >= 500 and s not in (503, 504)
        ),
        "probe answered after s": _probe(side),
    }
    return made


def _probe(side: Side) -> float:
    began = time.monotonic()
    body = side.body(["Is anybody there?"])
    while time.monotonic() - began < PATIENCE:
        try:
            if httpx.post(side.url, json=body, timeout=PATIENCE).status_code == 200:
                break
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    return time.monotonic() - began
