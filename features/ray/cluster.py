"""Indexes on a Ray cluster: actors hold a bundle each; they embed, and write where they can."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from docsplit.bundles.manifest import BundleError
from features.ray.spreading import AHEAD, LostError, spread
from service.bulk.loader import Encode, Encoded, encode_texts
from service.bulk.stores import root_of
from service.embedding.background import BackgroundEmbedder
from service.embedding.prompts import resolve
from service.errors import CommandError, ServiceError
from service.server.encoders import open_one
from service.server.lifecycle import Service
from service.settings import Settings

if TYPE_CHECKING:
    # Ray starts before lancedb is imported
    from service.bulk.loader import Batch, Outcome, Update, Updater
    from service.index.documents import Index

log = structlog.get_logger("docsplit.bulk")

R = TypeVar("R")

# Ray restarts an actor whose machine is lost on another one
_RESTARTS = 5
_REACH_SECONDS = 10.0
_RESTART_SECONDS = 1.0


class _Worker:
    """The code of an actor; another machine calls its methods."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._starting = asyncio.Lock()
        self._service: Service | None = None
        self._updater: Updater | None = None

    async def start(self) -> str:
        """The revision of the bundle, once its engine is warm."""
        return (await self._started()).encoders.default.revision

    async def _started(self) -> Service:
        async with self._starting:
            if self._service is None:
                service = Service(self._settings, open_one(self._settings))
                await service.start()
                if service.running is None:
                    raise CommandError("the engine did not start; the node's log says why")
                self._service = service
        return self._service

    async def sees(self, name: str, uid: str) -> bool:
        """Whether this node has the store with an index, so that the actor can write to it."""
        try:
            root_of(self._settings)
            await self._update(name, uid)
        except Exception as error:  # noqa: BLE001 the first process writes instead
            log.info("index_out_of_reach", reason=str(error)[:300])
            return False
        return True

    async def update(self, name: str, uid: str, sources: Batch) -> Outcome:
        """Like ``Updater``; an actor that Ray moved to another node opens the index there."""
        return await (await self._update(name, uid))(sources)

    async def encode(self, texts: Mapping[str, str]) -> Encoded:
        """Like ``encode_texts``; an actor that Ray moved to another node starts its engine."""
        service = await self._started()
        prompt = resolve(service.encoders.default.manifest, None)
        embedder = service.running.embedder  # type: ignore[union-attr] # it has started
        # one for each call: one tokenises while another computes
        return await encode_texts(BackgroundEmbedder(embedder, prompt, exclusive=True), texts)

    async def _update(self, name: str, uid: str) -> Updater:
        if self._updater is None:
            indexes = await (await self._started()).store.indexes()
            index = await indexes.open(name)
            index.require(uid)
            from service.bulk.loader import Updater

            self._updater = Updater(index, self.encode, indexes.database.sync)
        return self._updater


class Cluster:
    """Actors of a Ray cluster."""

    def __init__(self, actors: list[Any]) -> None:
        self._actors = actors

    async def update(self, name: str, updater: Updater, index: Index) -> Update:
        """How the actors bring an index up to date.

        They write to it themselves if all of their nodes have its store. Otherwise they only embed,
        and this process writes.

        Raises:
            CommandError: an actor does not start, or has another bundle.
        """
        revisions = await asyncio.gather(*(_answer(one.start.remote()) for one in self._actors))
        if set(revisions) != {index.identity.revision}:
            raise CommandError("the nodes have different bundles under the same path")
        uid = index.identity.uid
        seen = await asyncio.gather(*(_answer(one.sees.remote(name, uid)) for one in self._actors))
        log.info("cluster_ready", actors=len(self._actors), writing=all(seen))

        async def write(worker: int, batch: Batch) -> Outcome:
            found: Outcome = await _answer(self._actors[worker].update.remote(name, uid, batch))
            return found

        async def embed(worker: int, batch: Batch) -> Outcome:
            return await updater(batch, self._encode(worker))

        def update(batches: Iterator[Batch]) -> AsyncIterator[Outcome]:
            from service.bulk.loader import tapered

            call, actors = write if all(seen) else embed, len(self._actors)
            return spread(tapered(batches, AHEAD * actors), actors, call, self._revive)

        return update

    async def _all(self, method: str, *given: Any) -> list[Any]:
        calls = [getattr(one, method).remote(*given) for one in self._actors]
        return await asyncio.gather(*map(_answer, calls))

    def _encode(self, worker: int) -> Encode:
        async def encode(texts: Mapping[str, str]) -> Encoded:
            found: Encoded = await _answer(self._actors[worker].encode.remote(texts))
            return found

        return encode

    async def _revive(self, worker: int) -> None:
        from ray.exceptions import ActorUnavailableError

        while True:
            try:
                await self._actors[worker].start.remote()
            except ActorUnavailableError:
                await asyncio.sleep(_RESTART_SECONDS)
            except Exception as error:
                log.warning("actor_lost", reason=str(error)[:300])
                raise LostError from error
            else:
                return


async def _answer(call: Awaitable[R]) -> R:
    """The result of an actor's method.

    Raises:
        LostError: the actor's process or machine ended.
        CommandError: the method says what is wrong on its node.
    """
    from ray.exceptions import RayActorError, RayTaskError

    try:
        return await call
    except RayActorError as error:
        raise LostError from error
    except RayTaskError as error:
        if isinstance(error.cause, ServiceError | BundleError):
            raise CommandError(f"on a node of the cluster: {error.cause}") from error
        raise


@contextmanager
def on_cluster(address: str, actors: int, settings: Settings) -> Iterator[Cluster]:
    """Actors of a Ray cluster.

    Every node needs docsplit with its engine, and the bundle under the same path.

    Args:
        address: as for ``ray.init``: ``auto``, ``host:port``, ``ray://host:port``, or ``local``
            for a cluster on this machine that ends with the run.
        actors: their largest number; 0 takes as many as fit. Each takes ``threads`` CPUs (one if
            that is 0), and one GPU if the cluster has any and the engine may use it.

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
        room = _room(resources, threads, gpus)
        # an actor without room would be waited for without end
        wanted = min(actors or room, room)
        if wanted == 0:
            raise CommandError(f"--ray {address}: the cluster has no room for an actor")
        # each actor gets an explicit number of cores
        changes: dict[str, Any] = {"threads": threads, "redis_url": None, "cache_bytes": 0}
        if "://" not in settings.index_path:
            changes["index_path"] = str(Path(settings.index_path).resolve())
        own = settings.model_copy(update=changes)
        make = ray.remote(num_cpus=threads, num_gpus=gpus, max_restarts=_RESTARTS)(_Worker)
        yield Cluster([make.remote(own) for _ in range(wanted)])
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
