"""Scenarios, their client and their results."""

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
