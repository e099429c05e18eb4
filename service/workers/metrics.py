"""The metrics of all processes as those of one service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

# of which the engine's process tells for all
_OWN = {"process_start_time_seconds", "process_max_fds"}
_KEPT = ("counter", "histogram")

Labels = tuple[tuple[str, str], ...]
Samples = dict[tuple[str, Labels], float]


def snapshot(registry: CollectorRegistry) -> list[Any]:
    """A process's metrics, fit for JSON: name, type, and samples as name, labels, value."""
    return [
        [metric.name, metric.type, [[s.name, s.labels, s.value] for s in metric.samples]]
        for metric in registry.collect()
    ]


class Totals:
    """Adds up what processes count.

    Counters, histograms and gauges are sums, and each gauge is set in one process alone, those of
    ``process_*`` apart. What a process that ended had counted stays, as of its last snapshot, so
    that no counter ever falls.

    Args:
        own: the metrics of the engine's process, which has all that there are.
    """

    def __init__(self, own: CollectorRegistry) -> None:
        self._own = own
        self._departed: dict[str, Samples] = {}

    def depart(self, taken: list[Any]) -> None:
        """Keep what a process that ended had counted."""
        for name, kind, samples in taken:
            if kind in _KEPT:
                _add(self._departed.setdefault(name, {}), samples)

    def sum(self, snapshots: Iterable[list[Any]]) -> Collector:
        """The sums over the engine's process, those that ended, and ``snapshots``."""
        totals = {name: dict(samples) for name, samples in self._departed.items()}
        for taken in snapshots:
            for name, kind, samples in taken:
                if kind in (*_KEPT, "gauge") and name not in _OWN:
                    _add(totals.setdefault(name, {}), samples)
        return _Summed(self._own, totals)


class _Summed(Collector):
    def __init__(self, own: CollectorRegistry, further: dict[str, Samples]) -> None:
        self._own = own
        self._further = further

    def collect(self) -> Iterator[Metric]:
        for metric in self._own.collect():
            samples: Samples = {}
            _add(samples, [[s.name, s.labels, s.value] for s in metric.samples])
            for key, value in self._further.get(metric.name, {}).items():
                samples[key] = samples.get(key, 0.0) + value
            summed = Metric(metric.name, metric.documentation, metric.type)
            for (name, labels), value in samples.items():
                summed.add_sample(name, dict(labels), value)
            yield summed


def _add(samples: Samples, further: list[Any]) -> None:
    for name, labels, value in further:
        key = (name, tuple(labels.items()))
        samples[key] = samples.get(key, 0.0) + value
