"""An index of `docsplit-index`, opened in this process."""

from pathlib import Path

from lancedb import connect_async

from service.index.indexes import Indexes, Model, by_index, connect
from service.index.rows import schema
from service.index.storage.database import Caches, table_names


async def opened(index_path: Path, name: str, cache_bytes: int | None = None) -> Indexes:
    """The indexes of the bundle that made the first table of an index.

    Args:
        index_path: as `docsplit-index` takes it.
        name: of the index.
        cache_bytes: limit of LanceDB's caches; without it, LanceDB's own.

    Raises:
        SystemExit: there is no such index.
    """
    caches = None if cache_bytes is None else Caches(cache_bytes)
    parts = ("indexes", "leases")
    databases = [await connect(f"{index_path}/{part}", caches=caches) for part in parts]
    tables = by_index(await table_names(databases[0]))
    if name not in tables:
        raise SystemExit(f"no index {name} in {index_path}")
    table = await (await connect_async(f"{index_path}/indexes")).open_table(tables[name][0])
    identity = schema.identity(await table.schema())
    return Indexes(databases[0], databases[1], Model(identity.model, identity.revision, 0))
