"""A process's access to its indexes; the first request that needs LanceDB imports it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from docsplit.bundles.manifest import Manifest
from service import executors
from service.errors import ServiceError, StoreError, VersionError, disk_fault, lance_fault
from service.index.storage import bucket
from service.index.storage.volume import Durability, Volume
from service.metrics import Metrics

if TYPE_CHECKING:
    from docsplit.ranking.adaptation import Profile
    from service.index.commits import Upsert, Writer
    from service.index.documents import Index
    from service.index.indexes import Indexes
    from service.index.maintenance import Maintainer
    from service.index.reembed import Embed, Follower
    from service.index.rows.versions import Condition
    from service.index.storage.database import Caches, Database

log = structlog.get_logger("docsplit.index")

# how often the service checks whether a folder without indexes has any
PLACE_SECONDS = 3.0


class Store:
    """Indexes below one path.

    Args:
        path: a folder, or a URI such as ``s3://bucket/prefix``.
        bundles: the manifests of the served bundles by name, the default one first.
        durability: when a write below a folder counts as done.
        cache_bytes: the limit of LanceDB's caches.
        timeout: seconds that a request to an object store may take.
        erase_within: as for ``Maintainer``.
        former: the name of the bundle that the default one succeeds, if it is among ``bundles``.
    """

    def __init__(
        self,
        path: str,
        bundles: Mapping[str, Manifest],
        metrics: Metrics,
        durability: Durability,
        cache_bytes: int,
        timeout: float,
        erase_within: float,
        former: str | None = None,
    ) -> None:
        # LanceDB takes a path that begins with "db" for its cloud service: make it absolute
        self.path = path.rstrip("/") if "://" in path else str(Path(path).resolve())
        self._bundles = bundles
        self._former = former
        self._metrics = metrics
        self._cache_bytes = cache_bytes
        self._erase_within = erase_within
        self._caches: Caches | None = None
        removed = metrics.store_versions_removed.inc
        self.volume = Volume(self.path, durability, removed, timeout)
        self._opening = asyncio.Lock()
        self._indexes: Indexes | None = None
        self._maintainer: Maintainer | None = None
        self._embed_for: Callable[[str], Embed] | None = None
        self._follower: Follower | None = None
        self._beginning: asyncio.Task[None] | None = None
        self._writers: dict[str, Writer] = {}
        self._databases: dict[str, Database] = {}
        # called with the ``uid`` of a deleted index
        self.on_drop: Callable[[str], Awaitable[None]] | None = None

    async def indexes(self) -> Indexes:
        """The indexes; the first call imports lancedb in a thread, which takes seconds.

        Raises:
            StoreError: the service cannot use their folder, or the folder is gone.
        """
        async with self._opening:
            if self._indexes is None:
                indexes, maintenance = await executors.STORE.run(_import)
                from service.index.storage import database

                self._caches = database.Caches(self._cache_bytes, self._metrics.index_cache_bytes)
                try:
                    await self.volume.claim()
                    _provide_scratch(self.path)
                    databases = [await self._connect(part) for part in ("indexes", "leases")]
                except (OSError, RuntimeError, ValueError) as error:
                    log.error("index_path_unusable", reason=str(error)[:300])
                    fault = disk_fault(error) or bucket.fault(error)
                    if fault is not None:
                        raise fault from error
                    raise StoreError(
                        "the service cannot store indexes and heads in index_path: its log "
                        "states the reason; give it a writable folder or volume"
                    ) from error
                self._indexes = indexes.Indexes(
                    *databases,
                    [
                        indexes.Model(name, held.revision, held.dimensions, name == self._former)
                        for name, held in self._bundles.items()
                    ],
                    self._metrics.index_damaged.inc,
                    lambda outcome: self._metrics.index_profiles.labels(outcome).inc(),
                )
                self._maintainer = maintenance.Maintainer(
                    self._indexes,
                    between=self._between,
                    erase_within=self._erase_within,
                    others=self._shared,
                )
            if self._follower is None and self._embed_for is not None:
                from service.index.reembed import Follower

                left = self._metrics.index_reembed_documents.set
                self._follower = Follower(self._indexes, self._embed_for, self._committed, left)
                self._follower.start()
                if self._maintainer is not None:
                    self._maintainer.start()
        await self.volume.check()
        return self._indexes

    def follow(self, embed_for: Callable[[str], Embed]) -> None:
        """Keep the served generation of all indexes up to date from now on, in the background.

        If no index can exist yet, this starts with the first request to one, or when another
        process has created one.

        Args:
            embed_for: gives what embeds documents for a served revision.
        """

        self._metrics.store_up.set_function(lambda: self.volume.up)

        async def watch() -> None:
            await begin()
            while True:
                with suppress(StoreError):
                    if self._indexes is None and not self.volume.up:
                        await self.indexes()
                    await self.volume.check(now=True)
                await asyncio.sleep(self.volume.watch_seconds)

        async def begin() -> None:
            while not _may_hold_indexes(self.path):  # noqa: ASYNC110 there is no event to wait for
                await asyncio.sleep(PLACE_SECONDS)
            try:
                await self.indexes()
            except Exception as error:  # noqa: BLE001 the first request to an index tries again
                log.warning("index_path_unusable", reason=str(error)[:300])

        self._embed_for = embed_for
        self._beginning = asyncio.create_task(watch())

    def pace(self, name: str) -> tuple[float, float | None]:
        """How fast an index is filled, in documents a second, and the seconds until it is full."""
        pace = None if self._follower is None else self._follower.paces.get(name)
        return (0.0, None) if pace is None else (pace.rate, pace.seconds_left)

    @property
    def refuses(self) -> bool:
        """Whether there are indexes that no served bundle can read; the log names them."""
        return self._follower is not None and bool(self._follower.refused)

    async def needs_former(self) -> bool:
        """See ``Indexes.needs_former``; False without a former bundle."""
        return self._former is not None and await (await self.indexes()).needs_former()

    async def drop_generation(
        self, name: str, revision: str, embed_for: Callable[[str], Embed]
    ) -> None:
        """Delete a generation after copying its missing documents to the served one.

        Args:
            revision: or its first 12 digits.
            embed_for: gives what embeds documents for a served revision.

        Raises:
            NotFoundError: no such index or generation.
            ConflictError: the generation is served, or the served one is not complete.
        """
        indexes = await self.indexes()
        from service.index.reembed import Follower

        await indexes.drop_generation(name, revision, check=True)
        await Follower(indexes, embed_for, self._committed, lambda _: None).settle(name)
        await indexes.drop_generation(name, revision)

    async def database(self, part: str) -> Database:
        """A folder of tables next to the indexes; each is opened once.

        Raises:
            StoreError: the service cannot use their folder, or the folder is gone.
        """
        await self.indexes()
        if part not in self._databases:
            self._databases[part] = await self._connect(part)
        return self._databases[part]

    async def _shared(self) -> list[Database]:
        """The databases of what was learnt, and of leases, jobs and maps."""
        return [await self.database(part) for part in ("leases", "heads")]

    async def _connect(self, part: str) -> Database:
        from service.index.storage.database import connect

        return await connect(f"{self.path}/{part}", self.volume, self._caches)

    async def upsert(self, name: str, uid: str, upsert: Upsert) -> dict[str, int]:
        """Put documents into the next commit of an index; return when they are durable.

        Args:
            uid: of the index for which the documents were checked.

        Returns:
            Their versions by id.

        Raises:
            VersionError: a condition does not hold.
            NotFoundError, ConflictError: the index is gone, or another index has its name now.
        """
        writer = await self._writer(name)
        try:
            written = await writer.write(uid, upsert)
        except VersionError as error:
            if error.written:
                await self._carry(name, upsert.generation, error.written)
                await self.volume.sync()
            raise
        await self._carry(name, upsert.generation, written)
        # the next commit runs during the sync
        await self.volume.sync()
        return written

    async def _carry(self, name: str, generation: str, ids: Collection[str]) -> None:
        if self._former is not None and self._follower is not None:
            await self._follower.carry(name, generation, list(ids))

    async def delete(
        self, name: str, uid: str, ids: list[str], condition: Condition | None = None
    ) -> None:
        """Delete documents in the next commit, like ``upsert``; with a condition only one."""
        await (await self._writer(name)).delete(uid, ids, condition)
        await self.volume.sync()

    async def delete_seen(self, name: str, uid: str, seen: Mapping[str, int]) -> int:
        """Delete the documents that still have the versions that a reader saw, like ``upsert``.

        Args:
            uid: of the index that the reader saw.
            seen: versions by id.

        Returns:
            How many were deleted.
        """
        gone = await (await self._writer(name)).delete_seen(uid, seen)
        await self.volume.sync()
        return len(gone)

    async def drop(self, name: str) -> None:
        """Delete an index and everything that depends on it.

        Raises:
            NotFoundError: there is no index of that name.
        """
        indexes = await self.indexes()
        uid = await indexes.drop(name)
        if uid is not None:
            await indexes.found_links.forget(uid)
            if self.on_drop is not None:
                await self.on_drop(uid)
        self.volume.wrote()

    async def fault(self, error: Exception) -> ServiceError | None:
        """The reason of an error of LanceDB or the system: a fault of the store, or a deletion."""
        fault: ServiceError | None = await self.volume.fault(error)
        if fault is None and self._indexes is not None:
            fault = await self._indexes.registry.deletion(error)
        if fault is None and lance_fault(error) is not None:
            fault = StoreError(
                "the service cannot read files of this index or files that all indexes share: "
                "the operator finds them with docsplit-index check",
                "damaged",
            )
        if isinstance(fault, StoreError):
            self._metrics.store_errors.labels(fault.reason).inc()
            log.error("store_failed", reason=fault.reason, error=str(error)[:300])
        return fault

    async def profile(self, name: str, index: Index) -> Profile | None:
        """The profile that searches of an index use; an index without one gets it soon."""
        profiles = (await self.indexes()).profiles
        if self._maintainer is not None and await profiles.lacks(index):
            self._maintainer.note(name)
        held = await profiles.get(index)
        return held.profile if held is not None else None

    async def _writer(self, name: str) -> Writer:
        indexes = await self.indexes()
        if name not in self._writers:
            from service.index.commits import Writer

            self._writers[name] = Writer(indexes, name, partial(self._committed, name))
        return self._writers[name]

    def _between(self, name: str) -> AbstractAsyncContextManager[object]:
        writer = self._writers.get(name)
        return nullcontext() if writer is None else writer.committing

    def _committed(self, name: str, documents: int) -> None:
        self.volume.wrote()
        self._metrics.index_commits.inc()
        self._metrics.index_documents.inc(documents)
        if self._maintainer is not None:
            self._maintainer.note(name)

    async def close(self) -> None:
        """Wait for the running commits."""
        if self._beginning is not None:
            self._beginning.cancel()
            await asyncio.gather(self._beginning, return_exceptions=True)
        if self._follower is not None:
            await self._follower.close()
        for writer in self._writers.values():
            await writer.close()
        if self._maintainer is not None:
            await self._maintainer.close()
        self.volume.close()


def _may_hold_indexes(path: str) -> bool:
    return "://" in path or Path(path, "indexes").exists()


def _provide_scratch(path: str) -> None:
    """Let LanceDB put its scratch files next to the indexes if there is no other place.

    Every merge writes some to the folder in TMPDIR or to /tmp. A read-only container lacks both.
    """
    if "://" in path or os.access(os.environ.get("TMPDIR", "/tmp"), os.W_OK):  # noqa: S108
        return
    scratch = Path(path, "scratch")
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(scratch)


def _import():  # type: ignore[no-untyped-def]  # modules have no useful type
    from service.index import indexes, maintenance

    return indexes, maintenance
