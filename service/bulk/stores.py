"""Opens the store for commands that need no engine."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from service.errors import CommandError, ServiceError, disk_fault, lance_fault
from service.index.storage import bucket
from service.index.store import Store
from service.metrics import Metrics
from service.server.bodies.fields import INDEX_NAME
from service.server.encoders import Bundles, open_one
from service.settings import Settings

if TYPE_CHECKING:
    from service.index.documents import Index
    from service.index.indexes import Indexes


_EMPTY = "index_path holds no indexes"


def index_name(given: str) -> str:
    """The name of an index.

    Raises:
        CommandError: it cannot be one.
    """
    if not re.fullmatch(INDEX_NAME, given):
        raise CommandError("NAME: lower-case letters, digits, - and _; up to 63")
    return given


def root_of(settings: Settings) -> Path | None:
    """The folder of the store; None if the store is in an object store.

    Raises:
        CommandError: there is no store.
    """
    if "://" in settings.index_path:
        return None
    root = Path(settings.index_path).resolve()
    if not (root / "indexes").is_dir():
        raise CommandError(_EMPTY)
    return root


async def open_indexes(settings: Settings, held: Bundles) -> Indexes:
    """The indexes of the store, for reading.

    Raises:
        ServiceError: there is no store, or its bucket cannot be read.
    """
    from service.index.indexes import Indexes, Model, connect
    from service.index.storage.database import Caches

    root = root_of(settings)
    path = str(root or settings.index_path.rstrip("/"))
    # LanceDB does not say what is wrong with a bucket
    if root is None and not bucket.Bucket(path, settings.bucket_timeout).holds_objects():
        raise CommandError(_EMPTY)
    caches = Caches(settings.index_cache_bytes)
    databases = [await connect(f"{path}/{p}", caches=caches) for p in ("indexes", "leases")]
    [(name, opened)] = held.encoders.items()
    manifest = opened.manifest
    model = Model(name, manifest.revision, manifest.dimensions)
    return Indexes(databases[0], databases[1], model)


async def opened(settings: Settings, name: str) -> tuple[Indexes, str, Index]:
    """An index for reading, and its own name, which ``name`` may be an alias of.

    Raises:
        ServiceError: there is no such index, or the store or a table cannot be read.
    """
    held = open_one(settings)
    with faults():
        from service.index.rows.keyed import resolve

        indexes = await open_indexes(settings, held)
        name = await resolve(indexes, name)
        return indexes, name, await indexes.open(name)


@asynccontextmanager
async def writable(settings: Settings) -> AsyncIterator[Store]:
    """The store with its volume, for reading and writing without an engine.

    Raises:
        ServiceError: there is no store, or it cannot be read or written.
    """
    encoders = open_one(settings).encoders
    root_of(settings)
    store = Store(
        settings.index_path,
        {name: bundle.manifest for name, bundle in encoders.items()},
        Metrics(),
        settings.durability,
        settings.index_cache_bytes,
        settings.bucket_timeout,
        settings.erase_within,
    )
    with faults():
        try:
            yield store
        finally:
            await store.close()


@contextmanager
def faults() -> Iterator[None]:
    """Turn errors of LanceDB into errors that a command reports.

    Raises:
        ServiceError: instead of them.
    """
    try:
        yield
    except ServiceError:
        raise
    except Exception as error:
        # LanceDB has no type for the refusals of an object store, and panics on some damage
        if not isinstance(error, OSError | RuntimeError | ValueError) and not lance_fault(error):
            raise
        raise (
            disk_fault(error)
            or bucket.fault(error)
            or CommandError(f"index_path cannot be used: {_reason(error)}")
        ) from error


def _reason(error: Exception) -> str:
    """The beginning of LanceDB's message, without positions in its source."""
    return str(error).partition("/root/.cargo")[0][:400].rstrip(" ,")
