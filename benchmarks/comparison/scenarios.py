"""The scenarios of `make bench`: throughput, repeated documents, latency and overload."""

from __future__ import annotations

import itertools
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx
from tokenizers import Tokenizer

from benchmarks.comparison.peers.servers import Side
from benchmarks.rig import documents
from benchmarks.rig.client import Answer, Client, Load

Texts = Sequence[str]


class ScenarioError(Exception):
    """A server gave a wrong answer."""


@dataclass
class Round:
    """The results of one round of one server.

    Attributes:
        documents: number of answered documents.
        tokens: number of their tokens that the server embeds.
        seconds: time from the first request to the last answer.
        latencies: seconds of each request by kind.
        figures: the scenario's other figures by name.
        statuses: number of answers by HTTP status.
    """

    documents: int = 0
    tokens: int = 0
    seconds: float = 0.0
    latencies: dict[str, list[float]] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    statuses: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Scenario:
    """One kind of load.

    Attributes:
        name: name on the command line.
        title: title in the report.
        measure: runs one round of one server, with the number of the round.
        prepare: called for every server before the first round.
        keeps: whether this service runs with its cache.
        rounds: number of rounds, if lower than requested because a round is long.
    """

    name: str
    title: str
    measure: Callable[[Side, int], Round]
    prepare: Callable[[Side], None] | None = None
    keeps: bool = False
    rounds: int | None = None


@dataclass(frozen=True)
class Size:
    """How much to measure.

    Attributes:
        documents: number of documents of real lengths in a round.
        articles: number of long documents in a round.
        seconds: duration of a load at a given rate.
        rounds: number of rounds of each scenario.
    """

    documents: int
    articles: int
    seconds: float
    rounds: int


FULL = Size(documents=96, articles=16, seconds=20, rounds=3)
QUICK = Size(documents=16, articles=3, seconds=4, rounds=1)


@dataclass(frozen=True)
class Bench:
    """Texts, and the client that sends them.

    Attributes:
        texts: texts of real lengths, enough for all rounds of a scenario.
        articles: long texts.
        size: how many of them to take.
    """

    client: Client
    tokenizer: Tokenizer
    texts: Texts
    articles: Texts
    size: Size
    _counts: dict[str, int] = field(default_factory=dict)

    def short(self, count: int) -> list[str]:
        """Texts of up to 30 words: the beginnings of documents of real lengths."""
        return [" ".join(self.texts[i % len(self.texts)].split()[:30]) for i in range(count)]

    def part(self, number: int, count: int) -> list[str]:
        """Part ``number`` of ``count`` documents of real lengths, starting again at the end."""
        return [
            self.texts[i % len(self.texts)] for i in range(number * count, (number + 1) * count)
        ]

    def tokens(self, side: Side, text: str) -> int:
        """Tokens of a document that a server embeds, including two special tokens."""
        count = self._counts.get(text)
        if count is None:
            count = self._counts[text] = len(self.tokenizer.encode(text).ids)
        return count if side.window is None else min(count, side.window)

    def closed(
        self, side: Side, groups: Sequence[Texts], clients: int, kinds: Sequence[str] | None = None
    ) -> Round:
        """Send each group of texts as one request. Each client sends one request after the other.

        Raises:
            ScenarioError: the server gives an answer other than 200.
        """
        answers = self.client.send(Load(side.url, _bodies(side, groups), clients))
        refused = Counter(a.status for a in answers if a.status != 200)
        if refused:
            raise ScenarioError(f"{side.name} answered {dict(refused)}")
        return self.round(side, groups, answers, kinds)

    def offered(
        self, side: Side, groups: Sequence[Texts], rate: float, deadline: float
    ) -> list[Answer]:
        """Send ``rate`` groups a second at Poisson times; clients hang up after ``deadline`` s."""
        draw = random.Random(0)
        moment, times = 0.0, []
        for _ in groups:
            moment += draw.expovariate(rate)
            times.append(moment)
        header = side.deadline_header
        headers = {} if header is None else {header: f"{deadline:g}"}
        bodies = _bodies(side, groups)
        load = Load(side.url, bodies, times=times, patience=deadline, headers=headers)
        return self.client.send(load)

    def round(
        self,
        side: Side,
        groups: Sequence[Texts],
        answers: Sequence[Answer],
        kinds: Sequence[str] | None = None,
    ) -> Round:
        """Sum up the answers with status 200."""
        made = Round(statuses=dict(Counter(answer.status for answer in answers)))
        good = [answer for answer in answers if answer.status == 200]
        for answer in good:
            kind = kinds[answer.number] if kinds else ""
            made.latencies.setdefault(kind, []).append(answer.seconds)
            made.documents += len(groups[answer.number])
            made.tokens += sum(self.tokens(side, text) for text in groups[answer.number])
        made.seconds = max((a.began + a.seconds for a in good), default=0.0)
        return made


def _bodies(side: Side, groups: Sequence[Texts]) -> list[bytes]:
    return [json.dumps(side.body(group)).encode() for group in groups]


def throughput(bench: Bench) -> list[Scenario]:
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


HOT = 16
REPEATS = 40
WORDS = 10_000
EDITS = 5
EDIT = " This sentence was put in afterwards, and nothing else was changed. "


def repeats(bench: Bench) -> list[Scenario]:
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


ONLY_SHORT, BESIDE, ARTICLES = "short by themselves", "short beside articles", "articles"
# share of the slowest server's rate
SHARE = 0.7
PATIENCE = 120.0


def latency(bench: Bench) -> list[Scenario]:
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


TIMES = 10
DEADLINE = 5.0
# seconds that a server has to answer a single request afterwards
AFTERWARDS = 300.0


def overloaded(bench: Bench) -> list[Scenario]:
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
    while time.monotonic() - began < AFTERWARDS:
        try:
            if httpx.post(side.url, json=body, timeout=AFTERWARDS).status_code == 200:
                break
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    return time.monotonic() - began
