"""Repeated documents: a hot set, and edited documents of 10,000 words."""

from __future__ import annotations

import itertools
import random
import statistics

from benchmarks.comparison.peers.servers import Side
from benchmarks.comparison.scenarios.scenario import Bench, Round, Scenario, ScenarioError
from benchmarks.rig import documents

HOT = 16
REPEATS = 40
WORDS = 10_000
EDITS = 5
EDIT = " This sentence was put in afterwards, and nothing else was changed. "


def scenarios(bench: Bench) -> list[Scenario]:
    """The two scenarios: a hot set, and edited documents."""
    return [
        Scenario(
            "hot",
            f"a hot set of {HOT} documents, 16 clients",
            lambda side, number: _hot(bench, side, number),
            keeps=True,
        ),
        Scenario(
            "edited",
            f"a document of {WORDS:,} words edited in a place, one client",
            lambda side, number: _edited(bench, side, number),
            keeps=True,
        ),
    ]


def _hot(bench: Bench, side: Side, number: int) -> Round:
    fresh = documents.unseen(bench.texts, seed=number + 1)
    groups = [[text] for text in itertools.islice(fresh, HOT)]
    cold = bench.closed(side, groups, 16)
    hot = bench.closed(side, groups * (REPEATS if side.keeps else 1), 16)
    rates = [made.documents / made.seconds for made in (cold, hot)]
    hot.figures = {"cold documents/s": rates[0], "hot / cold": rates[1] / rates[0]}
    return hot


def _edited(bench: Bench, side: Side, number: int) -> Round:
    document = _long(bench, number)
    draw = random.Random(number)
    made = Round()
    for kind, count in (("new", 1), ("edited", EDITS)):
        for _ in range(count):
            text = document
            if kind == "edited":
                place = text.index(" ", draw.randrange(len(text) * 9 // 10))
                text = text[:place] + EDIT + text[place:]
            part = bench.closed(side, [[text]], 1, [kind])
            made.latencies.setdefault(kind, []).extend(part.latencies[kind])
            made.documents += part.documents
            made.tokens += part.tokens
            made.seconds += part.seconds
    times = {kind: statistics.median(values) for kind, values in made.latencies.items()}
    made.figures = {"new / edited": times["new"] / times["edited"]}
    return made


def _long(bench: Bench, number: int) -> str:
    # each article only once, because windows of a repeated one would come from the cache
    words = " ".join(bench.articles).split(" ")[number * WORDS : (number + 1) * WORDS]
    if len(words) < WORDS:
        raise ScenarioError(f"round {number + 1}: the articles have too few words")
    return " ".join(words)
