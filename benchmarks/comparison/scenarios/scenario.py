"""What a scenario is, what it measures with, and what it finds."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tokenizers import Tokenizer

from benchmarks.comparison.peers.servers import Side
from benchmarks.rig.client import Answer, Client, Load

Texts = Sequence[str]


class ScenarioError(Exception):
    """A server did not answer what it should have."""


@dataclass
class Round:
    """What one round of one server gave.

    Attributes:
        documents: answered.
        tokens: of them, those that the server embeds.
        seconds: from the first request to the last answer.
        latencies: seconds of each request by kind.
        figures: what else the scenario tells, by name.
        statuses: how many answers had which HTTP status.
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
        name: as on the command line.
        title: as in the report.
        measure: one round of one server, the number of the round given.
        prepare: called for every server in turn before the first round.
        keeps: whether this service runs with its cache.
        rounds: fewer than were asked for, where a round is long.
    """

    name: str
    title: str
    measure: Callable[[Side, int], Round]
    prepare: Callable[[Side], None] | None = None
    keeps: bool = False
    rounds: int | None = None


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        documents: of real lengths, in a round.
        articles: long ones, in a round.
        seconds: of a load at a given rate.
        rounds: of each scenario.
    """

    documents: int
    articles: int
    seconds: float
    rounds: int


FULL = Size(documents=96, articles=16, seconds=20, rounds=3)
QUICK = Size(documents=16, articles=3, seconds=4, rounds=1)


@dataclass(frozen=True)
class Bench:
    """Texts, and the client to send them with.

    Attributes:
        texts: of real lengths, as many as a scenario needs over all rounds.
        articles: long ones.
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
        """The ``number``-th ``count`` documents of real lengths, from the start where they end."""
        return [
            self.texts[i % len(self.texts)] for i in range(number * count, (number + 1) * count)
        ]

    def tokens(self, side: Side, text: str) -> int:
        """Tokens of a document that a server embeds, its two special ones included."""
        count = self._counts.get(text)
        if count is None:
            count = self._counts[text] = len(self.tokenizer.encode(text).ids)
        return count if side.window is None else min(count, side.window)

    def closed(
        self, side: Side, groups: Sequence[Texts], clients: int, kinds: Sequence[str] | None = None
    ) -> Round:
        """Every group of texts a request, from clients that send one after the other.

        Raises:
            ScenarioError: an answer other than 200.
        """
        answers = self.client.send(Load(side.url, _bodies(side, groups), clients))
        refused = Counter(a.status for a in answers if a.status != 200)
        if refused:
            raise ScenarioError(f"{side.name} answered {dict(refused)}")
        return self.round(side, groups, answers, kinds)

    def offered(
        self, side: Side, groups: Sequence[Texts], rate: float, deadline: float
    ) -> list[Answer]:
        """Groups at Poisson times of ``rate`` a second; clients hang up after ``deadline`` s."""
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
        """What the answers with status 200 add up to."""
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
