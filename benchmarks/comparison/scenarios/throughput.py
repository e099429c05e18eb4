"""Highest throughput: real lengths with 1 and 16 documents per request, and long articles."""

from __future__ import annotations

from benchmarks.comparison.peers.servers import Side
from benchmarks.comparison.scenarios.scenario import Bench, Round, Scenario


def scenarios(bench: Bench) -> list[Scenario]:
    """One document per request with 1, 16 and 64 clients, 16 documents per request, articles."""
    return [
        _singles(bench, 1),
        _singles(bench, 16),
        _singles(bench, 64),
        Scenario(
            "groups", "16 documents a request, 4 clients", lambda side, number: _groups(bench, side)
        ),
        Scenario(
            "articles",
            "long articles, one a request, 4 clients",
            lambda side, number: bench.closed(
                side, [[text] for text in bench.articles[: bench.size.articles]], 4
            ),
        ),
    ]


def _singles(bench: Bench, clients: int) -> Scenario:
    # a single client waits for every answer, so fewer documents take the same time
    count = bench.size.documents // 2 if clients == 1 else bench.size.documents
    groups = [[text] for text in bench.part(0, count)]
    return Scenario(
        f"clients-{clients}",
        f"one document a request, {clients} client{'s' if clients > 1 else ''}",
        lambda side, number: bench.closed(side, groups, clients),
    )


def _groups(bench: Bench, side: Side) -> Round:
    texts = bench.part(0, bench.size.documents)
    return bench.closed(side, [texts[at : at + 16] for at in range(0, len(texts), 16)], 4)
