"""What a process holds of its indexes; LanceDB is loaded when the first request needs it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from export.bundle import Manifest
from service.metrics import Metrics

if TYPE_CHECKING:
    from service.heads.jobs import Jobs
    from service.heads.store import Heads
    from service.index.indexes import Indexes
    from service.index.maintenance import Maintainer
    from service.index.record import Record
    from service.index.writer import Writer


class Store:
    """Indexes and heads below one path.

    Args:
        path: a folder, or a URI such as ``s3://bucket/prefix``.
        manifest: of the bundle that embeds.
        metrics: counts commits.
    """

    def __init__(self, path: str, manifest: Manifest, metrics: Metrics) -> None:
        # LanceDB takes what begins with "db" for its cloud service: a folder is given whole
        self.path = path.rstrip("/") if "://" in path else str(Path(path).resolve())
        self._manifest = manifest
        self._metrics = metrics
        self._opening = asyncio.Lock()
        self._indexes: Indexes | None = None
        self._maintainer: Maintainer | None = None
        self._writers: dict[str, Writer] = {}
        self._heads: dict[str, Heads] = {}
        self._jobs: Jobs | None = None

    async def indexes(self) -> Indexes:
        """The indexes; the first call imports lancedb in a thread, which takes seconds."""
        async with self._opening:
            if self._indexes is None:
                indexes, maintainer = await asyncio.to_thread(_import)
                manifest = self._manifest
                self._indexes = indexes.Indexes(
                    await indexes.connect(f"{self.path}/indexes"),
                    indexes.Model(manifest.name, manifest.revision, manifest.dimensions),
                )
                self._maintainer = maintainer.Maintainer(
                    self._indexes, await indexes.connect(f"{self.path}/leases")
                )
        return self._indexes

    async def classifiers(self) -> Heads:
        """The classifiers of all replicas."""
        return await self._of_kind("classifiers", "classifier")

    async def citation_heads(self) -> Heads:
        """The citation heads of all indexes, under the ``uid`` of each."""
        return await self._of_kind("citation", "citation head")

    async def jobs(self) -> Jobs:
        """Trainings of classifiers in the background, at all replicas."""
        await self.indexes()
        from service.heads.jobs import Jobs
        from service.index.indexes import connect

        if self._jobs is None:
            self._jobs = Jobs(await connect(f"{self.path}/heads"))
        return self._jobs

    async def _of_kind(self, table: str, kind: str) -> Heads:
        await self.indexes()
        from service.heads.store import Heads
        from service.index.indexes import connect

        if table not in self._heads:
            self._heads[table] = Heads(await connect(f"{self.path}/heads"), table, kind)
        return self._heads[table]

    async def upsert(self, name: str, uid: str, records: list[Record]) -> None:
        """Put documents into the next commit of an index; return when they are durable.

        Args:
            name: of the index.
            uid: of the index for which the documents were checked.
            records: no two of one id.

        Raises:
            NotFoundError, ConflictError: the index is gone, or is another one by now.
        """
        await (await self._writer(name)).write(uid, upserts=records)

    async def delete(self, name: str, uid: str, ids: list[str]) -> None:
        """Delete documents in the next commit, as ``upsert``."""
        await (await self._writer(name)).write(uid, deletes=ids)

    async def _writer(self, name: str) -> Writer:
        indexes = await self.indexes()
        if name not in self._writers:
            from service.index.writer import Writer

            def committed(documents: int) -> None:
                self._metrics.index_commits.inc()
                self._metrics.index_documents.inc(documents)
                if self._maintainer is not None:
                    self._maintainer.note(name)

            self._writers[name] = Writer(indexes, name, committed)
        return self._writers[name]

    async def close(self) -> None:
        """Let the commits end that have begun."""
        for writer in self._writers.values():
            await writer.close()
        if self._maintainer is not None:
            await self._maintainer.close()


def _import():  # type: ignore[no-untyped-def]  # modules have no useful type
    from service.index import indexes, maintenance

    return indexes, maintenance
