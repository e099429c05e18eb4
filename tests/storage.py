"""Where the stores of tests are: in folders, or with ``--index-storage s3`` in a bucket."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.s3_server import S3Server

# files whose tests damage, fill or watch the files of a folder
_OF_FOLDERS = {
    "test_crashes.py",
    "test_kills.py",
    "test_recovery.py",
    "test_shared_tables.py",
    "test_store_lost.py",
}

_server: S3Server | None = None


def begin(folder: Path) -> None:
    """Keep the stores of this process, and of the services that it starts, in a bucket."""
    global _server
    import lancedb

    from service.index.storage.database import NEW, Database
    from tests.s3_server import S3Server

    _server = S3Server(folder / "log")
    os.environ.update(_server.variables)
    made, connected = Database.__init__, lancedb.connect_async

    def make(self: Database, uri: str, *given: Any) -> None:
        made(self, placed(uri), *given)

    async def connect(uri: str, **options: Any) -> lancedb.AsyncConnection:
        # a new table is made in a folder, and copied into the store
        new = Path(uri).name.startswith(NEW)
        return await connected(uri if new else placed(uri), **options)

    Database.__init__ = make  # type: ignore[method-assign, assignment]
    lancedb.connect_async = connect  # type: ignore[assignment]


def end() -> None:
    """End the server of the bucket."""
    if _server is not None:
        _server.close()


def placed(path: str | Path) -> str:
    """The ``index_path`` of a test's folder: the folder, or a prefix of the same name."""
    if _server is None or "://" in str(path):
        return str(path)
    return f"s3://docsplit{Path(path).resolve()}"


def in_bucket() -> bool:
    """Whether stores are in a bucket, whose server takes longer."""
    return _server is not None


def skip_folders(items: list[pytest.Item]) -> None:
    """Skip the tests that touch the files of a folder."""
    for item in items:
        if item.path.name in _OF_FOLDERS or item.get_closest_marker("folder"):
            item.add_marker(pytest.mark.skip(reason="touches the files of a folder"))
