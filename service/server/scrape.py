"""The metrics of all workers of a service; any worker can return them."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

# a scrape leaves out a worker that answers later
PATIENCE_SECONDS = 2.0


class Scrape:
    """Gives the other workers this worker's metrics, and asks for theirs.

    Args:
        folder: each worker has a Unix socket here; no other user may have access.
        worker: number of this worker.
        registry: metrics of this worker.
    """

    def __init__(self, folder: Path, worker: int, registry: CollectorRegistry) -> None:
        self._folder = folder
        self._worker = worker
        self._registry = registry
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Begin to answer the other workers."""
        path = self._folder / str(self._worker)
        self._server = await asyncio.start_unix_server(self._answer, path)

    async def close(self) -> None:
        """Stop answering."""
        if self._server is not None:
            self._server.close()

    async def all(self) -> bytes:
        """The metrics of all workers in Prometheus' text format, with the worker as a label."""
        paths = sorted(self._folder.iterdir())
        texts = await asyncio.gather(*map(_ask, paths))
        return generate_latest(_Labelled({p.name: t for p, t in zip(paths, texts, strict=True)}))

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(generate_latest(self._registry))
        await writer.drain()
        writer.close()


async def _ask(path: Path) -> str:
    """A worker's metrics; empty if it has ended or does not answer."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_unix_connection(path)
            text = await reader.read()
            writer.close()
    except (OSError, TimeoutError):
        return ""
    return text.decode()


class _Labelled(Collector):
    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def collect(self) -> Iterator[Metric]:
        metrics: dict[str, Metric] = {}
        for worker, text in self._texts.items():
            for found in text_string_to_metric_families(text):
                metric = metrics.setdefault(
                    found.name, Metric(found.name, found.documentation, found.type)
                )
                for sample in found.samples:
                    labels = {**sample.labels, "worker": worker}
                    metric.add_sample(sample.name, labels, sample.value)
        yield from metrics.values()
