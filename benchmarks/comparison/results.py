"""The rounds of a run, and their summary."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from benchmarks.comparison.scenarios import Round


@dataclass
class Results:
    """Everything measured.

    Attributes:
        load: load average of the machine in the minute before the run.
        rounds: rounds of each scenario and server.
        titles: titles of the scenarios.
        rss_mb: peak resident set of each server during the run.
        ready_seconds: seconds from start to readiness.
        left_out: by name, why a server or one of its scenarios is missing.
    """

    load: float
    rounds: dict[str, dict[str, list[Round]]] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    rss_mb: dict[str, float] = field(default_factory=dict)
    ready_seconds: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def documents_rate(self, scenario: str, side: str) -> float:
        """Documents/s, the median over the rounds."""
        made = self.rounds[scenario][side]
        return statistics.median(r.documents / r.seconds if r.seconds else 0.0 for r in made)

    def tokens_rate(self, scenario: str, side: str) -> float:
        """Embedded tokens/s, the median over the rounds."""
        made = self.rounds[scenario][side]
        return statistics.median(r.tokens / r.seconds if r.seconds else 0.0 for r in made)

    def quantile(self, scenario: str, side: str, kind: str, share: float) -> float:
        """Quantile of the latencies of one kind of requests over all rounds, in seconds."""
        seconds = [s for r in self.rounds[scenario][side] for s in r.latencies.get(kind, ())]
        return float(np.quantile(seconds, share)) if seconds else float("nan")

    def kinds(self, scenario: str, side: str) -> list[str]:
        """Kinds of requests."""
        return list(dict.fromkeys(k for r in self.rounds[scenario][side] for k in r.latencies))

    def figures(self, scenario: str, side: str) -> dict[str, float]:
        """Medians over the rounds of the scenario's other figures."""
        names = dict.fromkeys(n for r in self.rounds[scenario][side] for n in r.figures)
        return {name: self.figure(scenario, side, name) for name in names}

    def figure(self, scenario: str, side: str, name: str) -> float:
        """One of ``figures``."""
        return statistics.median(r.figures[name] for r in self.rounds[scenario][side])

    def content(self) -> dict[str, Any]:
        """All results in a form for JSON."""
        return asdict(self)
