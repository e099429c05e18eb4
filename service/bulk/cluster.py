"""Embeds on a Ray cluster: actors hold a bundle each, this process reads and writes the index."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog

from service.bulk.encoding import Encoded, Encoder, Work, encode_texts
from service.embedding.background import BackgroundEmbedder
from service.embedding.prompts import resolve
from service.errors import CommandError
from service.server.lifecycle import Service
from service.server.opening import open_one
from service.settings import Settings

log = structlog.get_logger("docsplit.bulk")

# works for each actor, so that it always has a next one
_AHEAD = 2
# Ray restarts an actor whose machine is lost on another one, and repeats its work
_RETRIES = 5
_REACH_SECONDS = 10.0


class _Worker:
    """The code of an actor; other machines call its methods."""

    def __init__(self, settings: Settings) -> None:
        self._service = Service(settings, open_one(settings))
        self._starting = asyncio.Lock()

    async def start(self) -> str:
        """The revision of the bundle, once its engine is warm."""
        async with self._starting:
            if self._service.running is None:
                await self._service.start()
        if self._service.running is None:
            raise CommandError("the engine did not start on a node; the node's log says why")
        return self._service.encoders.default.revision

    async def encode(self, texts: Mapping[str, str]) -> Encoded:
        """Like ``encode_texts``; an actor that Ray moved to another node starts its engine."""
        await self.start()
        prompt = resolve(self._service.encoders.default.manifest, None)
        embedder = self._service.running.embedder  # type: ignore[union-attr] # start sets it
        # one for each call: one tokenises while another computes
        return await encode_texts(BackgroundEmbedder(embedder, prompt, exclusive=True), texts)


@contextmanager
def on_cluster(address: str, actors: int, settings: Settings) -> Iterator[Encoder]:
    """An encoder by actors of a Ray cluster.

    Every node needs docsplit with its engine, and the bundle under the same path.

    Args:
        address: as for ``ray.init``: ``auto``, ``host:port``, ``ray://host:port``, or ``local``
            for a cluster on this machine that ends with the run.
        actors: their number; 0 takes as many as fit. Each takes ``threads`` CPUs (one if that is
            0), and one GPU if the cluster has any and the engine may use it.
        settings: of the engine in every actor.

    Raises:
        CommandError: Ray is not installed, or there is no such cluster, or it has no room.
    """
    # By default Ray reports its use to its makers; the setting counts only before the import. Ray
    # starts before lancedb is imported, because lancedb does not support forks.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
    except ImportError as error:
        raise CommandError("--ray needs Ray: pip install 'docsplit[ray]'") from error
    _reach(address)
    try:
        ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=40)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise CommandError(f"--ray {address}: no cluster answers: {error}") from error
    try:
        threads = settings.threads or 1
        resources: dict[str, float] = ray.cluster_resources()
        cuda = settings.engine == "onnx-cuda" or (settings.engine == "auto" and "GPU" in resources)
        gpus = int(cuda)
        wanted = actors or _room(resources, threads, gpus)
        if wanted == 0:
            raise CommandError(f"--ray {address}: the cluster has no room for an actor")
        # the index belongs to this process; each actor gets an explicit number of cores
        own = settings.model_copy(update={"threads": threads, "redis_url": None, "cache_bytes": 0})
        make = ray.remote(
            num_cpus=threads, num_gpus=gpus, max_restarts=_RETRIES, max_task_retries=_RETRIES
        )(_Worker)
        handles: list[Any] = [make.remote(own) for _ in range(wanted)]
        yield _encoder(handles)
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Raise if nothing listens at an address: Ray itself would take minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host, int(port)), _REACH_SECONDS).close()
    except (OSError, ValueError) as error:
        raise CommandError(f"--ray {address}: no cluster answers: {error}") from error


def _room(resources: Mapping[str, float], threads: int, gpus: int) -> int:
    rooms = [resources.get("CPU", 0) // threads]
    if gpus:
        rooms.append(resources.get("GPU", 0))
    return int(min(rooms))


def _encoder(actors: list[Any]) -> Encoder:
    async def encode(works: AsyncIterator[Work]) -> AsyncIterator[tuple[Work, Encoded]]:
        revisions: set[str] = set(await asyncio.gather(*(actor.start.remote() for actor in actors)))
        log.info("cluster_ready", actors=len(actors))
        if len(revisions) > 1:
            raise CommandError("the nodes have different bundles under the same path")
        free = [actor for actor in actors for _ in range(_AHEAD)]
        busy: dict[asyncio.Task[Encoded], tuple[Work, Any]] = {}

        async def finished() -> list[tuple[Work, Encoded]]:
            done, _ = await asyncio.wait(busy, return_when=asyncio.FIRST_COMPLETED)
            found = []
            for task in done:
                work, actor = busy.pop(task)
                free.append(actor)
                found.append((work, task.result()))
            return found

        async for work in works:
            if not work.new:
                yield work, Encoded()
                continue
            while not free:
                for pair in await finished():
                    yield pair
            actor = free.pop(0)
            busy[asyncio.create_task(_call(actor, work.new))] = (work, actor)
        while busy:
            for pair in await finished():
                yield pair

    return encode


async def _call(actor: Any, texts: Mapping[str, str]) -> Encoded:
    result: Encoded = await actor.encode.remote(texts)
    return result
