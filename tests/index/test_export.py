"""Exports of stores in this process: what they write, interruptions and damage."""

from __future__ import annotations

import asyncio
import io
import json
import os
import resource
import signal
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from docsplit.corpora.documents import read_documents
from service.bulk.exporting import destination, run
from service.bulk.exporting.destination import MANIFEST, Damage, Destination, Manifest
from service.bulk.exporting.run import report
from service.errors import CommandError
from service.index import maintenance
from service.index.documents import changed, windows_by_id
from service.index.indexes import Indexes, Model, connect
from service.index.rows.derived import Outline
from service.index.rows.vectors import vector_matrix
from service.index.storage import database
from tests.index import piped
from tests.index.exporting import MIDDLE, export, export_of, read
from tests.integrity import stores
from tests.integrity.stored import make

OUTLINE = Outline((0, 4), ((0, "A heading"), (3, "Another")))


def digests(held: Manifest) -> list[tuple[str, str]]:
    return [(file.name, file.sha256) for file in held.files]


async def commit(store: Path, *names: str) -> None:
    """Write documents, compact, and remove every former version that no one pins."""
    index = await (await stores.open_indexes(store)).open("x")
    await index.put([stores.record(name) for name in names])
    await maintenance.optimize(index.table)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    stores.run(stores.make(root))
    return root


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "KEEP_VERSIONS", timedelta(milliseconds=1))


@pytest.mark.folder
@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_the_files_hold_what_the_index_serves(store: Path, tmp_path: Path, form: str) -> None:
    async def scenario() -> None:
        root = stores.copy(store, tmp_path / "store")
        index = await (await stores.open_indexes(root)).open("x")
        held = await export(root, tmp_path / "out", form, rows=7)
        assert [file.rows for file in held.files] == [7, 7, 5]
        assert (held.rows, held.damaged, held.fields) == (19, [], stores.FIELDS)
        found = read(tmp_path / "out")
        # x-5 is deleted
        assert sorted(found["id"].to_pylist()) == sorted(stores.names("x"))
        assert found.schema.names == [column["name"] for column in held.columns]
        windows = dict([pair async for pair in windows_by_id(index, stores.names("x"))])
        for vector, row in zip(vector_matrix(found), found.to_pylist(), strict=True):
            served = await index.get(row["id"])
            assert vector.tobytes() == served.vector.tobytes()
            assert (row["text"], row["title"], row["links"]) == (
                served.text,
                served.title,
                served.links,
            )
            assert (row["metadata"], row["version"]) == (served.metadata, served.updated)
            assert row["metadata_year"] == json.loads(row["metadata"])["year"]
            own = windows[row["id"]]
            assert np.array_equal(np.array(row["windows"], np.float32), own.vectors)
            assert row["window_ends"] == own.ends

    stores.run(scenario())


@pytest.mark.folder
def test_a_killed_export_continues_with_the_same_rows(
    store: Path, tmp_path: Path, no_waiting: None
) -> None:
    root, folder = stores.copy(store, tmp_path / "store"), tmp_path / "out"
    with piped.main("tests.index.exporting", root, folder) as process:
        while not (folder / f".part-{MIDDLE - 1:05}.parquet.partial").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    early = json.loads((folder / MANIFEST).read_text())
    assert (early["complete"], early["rows"]) == (False, MIDDLE - 1)

    async def scenario() -> None:
        whole = await export(root, tmp_path / "whole")
        assert (len(whole.files), whole.version) == (19, early["version"])
        await commit(root, "x-1", "x-late")
        assert digests(await export(root, folder)) == digests(whole)
        assert not list(folder.glob(".*"))
        # the control: an export that begins now has another state
        await export(root, tmp_path / "later", rows=100)
        assert not read(tmp_path / "later").equals(read(folder))
        # nobody pins the former version any more
        index = await (await stores.open_indexes(root)).open("x")
        assert not await index.table.tags.list()
        await commit(root, "x-2")
        with pytest.raises(ValueError, match="no longer exists"):
            await index.table.checkout(whole.version)

    stores.run(scenario())


@pytest.mark.folder
def test_a_version_that_is_gone_ends_the_export(
    store: Path, tmp_path: Path, no_waiting: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, folder = stores.copy(store, tmp_path / "store"), tmp_path / "out"
    monkeypatch.setattr(database, "PIN_SECONDS", -1)
    write = Destination.write

    def stop(self: Destination, manifest: Manifest) -> None:
        write(self, manifest)
        if len(manifest.files) == 2:
            # everything that holds no pin is removed now; this one has expired
            with_loop(commit(root, "x-late"))

    monkeypatch.setattr(Destination, "write", stop)
    with pytest.raises(CommandError, match=r"version \d+ of the index is gone"):
        stores.run(export(root, folder))
    with pytest.raises(CommandError, match=r"version \d+ of the index is gone"):
        stores.run(export(root, folder))
    assert not json.loads((folder / MANIFEST).read_text())["complete"]


def with_loop(coroutine: Any) -> None:
    """Run a coroutine while another loop of this thread waits."""
    thread = threading.Thread(target=asyncio.run, args=(coroutine,))
    thread.start()
    thread.join()


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let the system refuse to write more bytes into one file, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.folder
def test_a_refused_write_leaves_whole_files_only(store: Path, tmp_path: Path) -> None:
    root, folder = stores.copy(store, tmp_path / "store"), tmp_path / "out"

    async def scenario() -> None:
        index = await (await stores.open_indexes(root)).open("x")
        # random characters cannot be compressed
        large = os.urandom(60_000).hex()
        await index.put([stores.record("x-large", large)])
        with (
            largest_file(32_000),
            pytest.raises(CommandError, match=r"out: cannot be written \(File too large\)"),
        ):
            await export(root, folder)
        held = json.loads((folder / MANIFEST).read_text())
        assert held["rows"] == len(held["files"]) == 19
        assert {path.name for path in folder.iterdir()} == {
            MANIFEST,
            *(file["name"] for file in held["files"]),
        }
        assert (await export(root, folder)).rows == 20
        assert large in read(folder)["text"].to_pylist()

    stores.run(scenario())


def test_files_and_groups_end_by_their_size(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = stores.run(export(store, tmp_path / "whole", rows=100))
    monkeypatch.setattr(destination, "FILE_BYTES", 800)
    monkeypatch.setattr(destination, "GROUP_BYTES", 400)
    monkeypatch.setattr(run, "_PART_BYTES", 300)
    monkeypatch.setattr(run, "_AHEAD", 15)
    read_at_once = []
    part_of = run.Snapshot._part

    def counted(self: run.Snapshot, found: pa.Table, *rest: Any) -> run.Part:
        read_at_once.append(found.num_rows)
        return part_of(self, found, *rest)

    monkeypatch.setattr(run.Snapshot, "_part", counted)
    cut = stores.run(export(store, tmp_path / "cut", rows=100))
    assert max(read_at_once) < 10 < cut.rows
    assert (len(whole.files), cut.rows) == (1, whole.rows)
    assert len(cut.files) > 4
    assert pq.ParquetFile(tmp_path / "cut" / cut.files[0].name).num_row_groups > 1
    assert read(tmp_path / "cut").equals(read(tmp_path / "whole"))


@pytest.mark.folder
@pytest.mark.parametrize("column", ["text", "vector", "metadata", "deleted"])
def test_damaged_rows_are_named_and_left_out(store: Path, tmp_path: Path, column: str) -> None:
    root = stores.copy(store, tmp_path / "store")
    values: dict[str, Any] = {
        "text": "another text",
        "vector": [0.35] * stores.DIMENSIONS,
        "metadata": "{}",
        "deleted": True,
    }

    async def scenario() -> None:
        index = await (await stores.open_indexes(root)).open("x")
        await index.table.update({column: values[column]}, where="id = 'x-3'")
        held = await export(root, tmp_path / "out", rows=5)
        assert {one.document for one in held.damaged} == {"x-3"}
        assert held.rows == 18
        assert "x-3" not in read(tmp_path / "out")["id"].to_pylist()
        said = io.StringIO()
        held.damaged.append(Damage("x:100:y", "text"))
        assert report(Console(file=said), held) == 1
        assert f"damaged: indexes/{held.table}: document 'x-3': " in said.getvalue()
        # rich would put a picture in the place of :100:
        assert f"damaged: indexes/{held.table}: document 'x:100:y': " in said.getvalue()
        assert "2 damaged documents left out" in said.getvalue()

    stores.run(scenario())


@pytest.mark.folder
@pytest.mark.parametrize("former", sorted(Path(make.__file__).parent.glob("*.tar.gz")))
def test_a_table_of_a_former_version_gives_the_same_columns(former: Path, tmp_path: Path) -> None:
    with tarfile.open(former) as archive:
        archive.extractall(tmp_path, filter="data")

    async def scenario() -> None:
        model = Model("model", make.REVISION, make.DIMENSIONS)
        databases = [await connect(f"{tmp_path}/{part}") for part in ("indexes", "leases")]
        indexes = Indexes(databases[0], databases[1], model)
        index = await indexes.open("papers")
        held = await export_of(indexes, "papers", tmp_path / "out", rows=4)
        assert (held.rows, held.damaged) == (7, [])
        found = read(tmp_path / "out")
        windows = dict([pair async for pair in windows_by_id(index, found["id"].to_pylist())])
        for row in found.to_pylist():
            assert np.array_equal(np.array(row["windows"], "f4"), windows[row["id"]].vectors)

    stores.run(scenario())


@pytest.mark.folder
def test_the_loader_reads_an_export_as_the_same_documents(store: Path, tmp_path: Path) -> None:
    root = stores.copy(store, tmp_path / "store")

    async def scenario() -> None:
        index = await (await stores.open_indexes(root)).open("x")
        given = stores.record("x-outlined")
        await index.put([given.__class__(**{**_fields(given), "outline": OUTLINE})])
        await export(root, tmp_path / "out", rows=6)
        documents = list(read_documents(tmp_path / "out"))
        assert sorted(one.id for one in documents) == sorted([*stores.names("x"), "x-outlined"])
        assert await changed(index, documents) == []
        # the controls
        documents[0].metadata["further"] = 1
        assert await changed(index, documents) == documents[:1]
        [outlined] = [one for one in documents if one.id == "x-outlined"]
        outlined.pages.append(5)
        assert outlined in await changed(index, documents)

    stores.run(scenario())


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}
