"""The aims for the figures, and whether a run reaches them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.comparison.results import Results
from benchmarks.rig.report import Verdict

OURS, CACHED = "docsplit", "docsplit with cache"
INFINITY = ("infinity-torch", "infinity-onnx")


def verdicts(results: Results, engine: dict[str, Any] | None) -> list[Verdict]:
    """Every aim whose figures were measured in this run."""
    found: list[Verdict] = []
    if engine is not None:
        found += [
            Verdict("tokens/s over HTTP / same engine", engine["http_over_in_process"], 0.95),
            Verdict("padding waste", engine["padding_waste"], 0.05, most=True),
        ]
    for check in (_against_infinity, _against_plain, _offered, _repeats, _beside, _overload):
        try:
            found += check(results)
        except KeyError:
            # the run left out that scenario or server
            continue
    if OURS in results.rss_mb:
        found.append(Verdict("peak RSS, MB", results.rss_mb[OURS], 1200, most=True))
    return found


def _best(results: Results, scenario: str, value: Callable[[str], float]) -> float:
    return max(value(name) for name in INFINITY if name in results.rounds[scenario])


def _against_infinity(results: Results) -> Iterator[Verdict]:
    name = "clients-16"
    if not any(side in results.rounds[name] for side in INFINITY):
        return
    tokens = _best(results, name, lambda side: results.tokens_rate(name, side))
    documents = _best(results, name, lambda side: results.documents_rate(name, side))
    yield Verdict(
        "tokens/s, 16 clients / infinity's best", results.tokens_rate(name, OURS) / tokens, 4
    )
    yield Verdict(
        "documents/s, 16 clients / infinity's best",
        results.documents_rate(name, OURS) / documents,
        2.5,
    )


def _against_plain(results: Results) -> Iterator[Verdict]:
    name = "clients-16"
    over = results.tokens_rate(name, OURS) / results.tokens_rate(name, "plain")
    yield Verdict("tokens/s, 16 clients / plain FastAPI", over, 2.6)


def _offered(results: Results) -> Iterator[Verdict]:
    others = [side for side in results.rounds["offered"] if side != OURS]
    if others:
        lowest = min(results.quantile("offered", side, "", 0.99) for side in others)
        over = results.quantile("offered", OURS, "", 0.99) / lowest
        yield Verdict("p99 at the same offered load / lowest of the peers", over, 1, most=True)


def _repeats(results: Results) -> Iterator[Verdict]:
    if "hot" in results.rounds:
        yield Verdict("hot / cold throughput", results.figure("hot", CACHED, "hot / cold"), 50)
    if "edited" in results.rounds:
        cheaper = results.figure("edited", CACHED, "new / edited")
        yield Verdict("embedding from scratch / an edit, 10,000 words", cheaper, 10)


def _beside(results: Results) -> Iterator[Verdict]:
    from benchmarks.comparison.scenarios import BESIDE, ONLY_SHORT

    beside = results.quantile("beside", OURS, BESIDE, 0.99)
    single = results.quantile("beside", OURS, ONLY_SHORT, 0.99)
    yield Verdict(
        "p99 of short texts beside articles / by themselves", beside / single, 3, most=True
    )
    yield Verdict("p99 of short texts beside articles, ms", beside * 1000, 200, most=True)


def _overload(results: Results) -> Iterator[Verdict]:
    from benchmarks.comparison.scenarios import DEADLINE

    name = "overload"
    yield Verdict("overload: goodput / peak", results.figure(name, OURS, "goodput / peak"), 0.9)
    late = results.quantile(name, OURS, "", 0.99)
    yield Verdict("overload: p99 of what was accepted, s", late, DEADLINE, most=True)
    wrong = results.figure(name, OURS, "5xx but 503 and 504")
    yield Verdict("overload: 5xx other than 503 and 504", wrong, 0, most=True)
