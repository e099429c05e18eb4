"""``docsplit-index export``: what it writes, interruptions, damage and refusals."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from corpora.documents import read_documents
from service.bulk.__main__ import main
from service.bulk.exporting import files, reading
from service.bulk.exporting.command import report
from service.bulk.exporting.destination import MANIFEST, Destination, Manifest
from service.errors import CommandError
from service.index import maintenance, reuse
from service.index.indexes import Indexes, Model, connect
from service.index.rows.outline import Outline
from service.index.rows.vectors import matrix
from service.index.storage import pins
from tests.conftest import ROOT, Server
from tests.index.conftest import call, upsert
from tests.index.exporting import MIDDLE, export, export_of
from tests.integrity import stores
from tests.integrity.stored import make
from tests.storage import placed

OUTLINE = Outline((0, 4), ((0, "A heading"), (3, "Another")))


def read(folder: Path) -> pa.Table:
    """All rows of a complete export, after a check of its digests."""
    held = json.loads((folder / MANIFEST).read_text())
    assert held["complete"]
    for file in held["files"]:
        content = (folder / file["name"]).read_bytes()
        assert file["sha256"] == hashlib.sha256(content).hexdigest()
    assert {f["name"] for f in held["files"]} | {MANIFEST} == {p.name for p in folder.iterdir()}
    tables = [
        pq.read_table(folder / file["name"])
        if held["plan"]["form"] == "parquet"
        else pa.ipc.open_file(folder / file["name"]).read_all()
        for file in held["files"]
    ]
    assert [table.num_rows for table in tables] == [file["rows"] for file in held["files"]]
    return pa.concat_tables(tables)


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
        windows = dict([pair async for pair in reuse.windows(index, stores.names("x"))])
        for vector, row in zip(matrix(found), found.to_pylist(), strict=True):
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
    command = [sys.executable, "-m", "tests.index.exporting", str(root), str(folder)]
    process = subprocess.Popen(command, cwd=ROOT)
    while not (folder / f".part-{MIDDLE - 1:05}.parquet.partial").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
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
    monkeypatch.setattr(pins, "SECONDS", -1)
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
    monkeypatch.setattr(files, "FILE_BYTES", 800)
    monkeypatch.setattr(files, "GROUP_BYTES", 400)
    monkeypatch.setattr(reading, "_PART_BYTES", 300)
    monkeypatch.setattr(reading, "_AHEAD", 15)
    read_at_once = []
    part_of = reading.Snapshot._part

    def counted(self: reading.Snapshot, found: pa.Table, *rest: Any) -> reading.Part:
        read_at_once.append(found.num_rows)
        return part_of(self, found, *rest)

    monkeypatch.setattr(reading.Snapshot, "_part", counted)
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
        assert report(Console(file=said), held) == 1
        assert f"damaged: indexes/{held.table}: document 'x-3': " in said.getvalue()
        assert "1 damaged documents left out" in said.getvalue()

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
        windows = dict([pair async for pair in reuse.windows(index, found["id"].to_pylist())])
        for row in found.to_pylist():
            assert np.array_equal(np.array(row["windows"], "f4"), windows[row["id"]].vectors)

    stores.run(scenario())


def test_a_store_that_takes_no_pin_is_exported_with_a_warning(
    server: Server,
    index: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def read_only(*_: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(pins, "hold", read_only)
    upsert(server, index, {"id": "a", "text": "A text."})
    root, folder = server.log.with_name("index"), tmp_path / "out"
    assert command(root, index, str(folder), "--no-windows") == 0
    assert "nothing keeps the version of this export" in capsys.readouterr().err
    assert read(folder)["id"].to_pylist() == ["a"]
    assert "windows" not in read(folder).schema.names


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
        assert await reuse.changed(index, documents) == []
        # the controls
        documents[0].metadata["further"] = 1
        assert await reuse.changed(index, documents) == documents[:1]
        [outlined] = [one for one in documents if one.id == "x-outlined"]
        outlined.pages.append(5)
        assert outlined in await reuse.changed(index, documents)

    stores.run(scenario())


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


def command(store: Path | str, *words: str) -> int:
    return main(["export", *words, "--index-path", placed(store), "--log-level", "error"])


def test_the_command_exports_an_index_that_a_service_serves(
    server: Server, index: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, folder = server.log.with_name("index"), tmp_path / "new" / "out"
    texts = {"a": "A text on rivers.", "b": "Boats on the sea.", "c": "Bread and salt."}
    upsert(server, index, *({"id": i, "text": t, "title": i.upper()} for i, t in texts.items()))
    call(server, "DELETE", f"/indexes/{index}/documents/c", status=204)
    assert command(root, index, str(folder)) == 0
    said = capsys.readouterr().err
    assert f"{index}: export" in said
    assert "2 documents in 1 files" in said
    rows = {row["id"]: row for row in read(folder).to_pylist()}
    assert {name: row["text"] for name, row in rows.items()} == {i: texts[i] for i in "ab"}
    [hit] = call(server, "POST", "/similar", {"index": index, "id": "a", "mode": "cosine"})
    cosine = float(np.dot(rows["a"]["vector"], rows["b"]["vector"]))
    assert (hit["id"], hit["cosine"]) == ("b", pytest.approx(cosine, abs=1e-6))
    # the same state again changes nothing; another state needs another folder
    before = (folder / MANIFEST).stat().st_mtime_ns
    assert command(root, index, str(folder)) == 0
    assert (folder / MANIFEST).stat().st_mtime_ns == before
    upsert(server, index, {"id": "a", "text": "Another text."})
    assert command(root, index, str(folder)) == 2
    assert "an earlier state of the index" in capsys.readouterr().err


def test_refusals_say_what_to_do(
    server: Server, index: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = server.log.with_name("index")
    upsert(server, index, {"id": "a", "text": "A text."})
    file = tmp_path / "file"
    file.touch()
    other = tmp_path / "other"
    other.mkdir()
    (other / "photo.jpg").touch()
    former = tmp_path / "former"
    assert command(root, index, str(former), "--format", "arrow") == 0
    manifest = (former / MANIFEST).read_text()
    (former / "part-00000.arrow").unlink()
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / MANIFEST).write_text(manifest.replace(f'"{index}"', '"another"'))
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    (wrong / MANIFEST).write_text("{}")
    new = str(tmp_path / "new")
    for words, hint in (
        ((index, str(file)), "file: cannot be written"),
        ((index, str(file / "below")), "below: cannot be written"),
        ((index, "/proc/nowhere"), "cannot be written"),
        ((index, str(other)), "not empty"),
        ((index, str(foreign)), "an export of another index"),
        ((index, str(wrong)), "not the manifest of an export"),
        ((index, str(former)), "began with other flags: --format arrow"),
        ((index, str(former), "--format", "arrow"), "part-00000.arrow is missing"),
        ((index, new, "--file-rows", "0"), "a positive number"),
        (("A/B", new), "lower-case"),
        (("nothing", new), "no index of that name"),
    ):
        assert command(root, *words) == 2, words
        assert hint in capsys.readouterr().err.replace("\n", " ")
    assert not Path(new).exists()
    assert command(tmp_path, index, new) == 2
    # a bucket has no folder of indexes that could be missing
    bucket = "://" in placed(tmp_path)
    hint = "no index of that name" if bucket else "index_path holds no indexes"
    assert hint in capsys.readouterr().err
    with Destination(other).locked():
        assert command(root, index, str(other)) == 2
    assert "another export writes to it" in capsys.readouterr().err


def test_wrong_credentials_of_an_object_store_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forbidding(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(403, "InvalidAccessKeyId")

        do_PUT = do_HEAD = do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Write nothing."""

    with HTTPServer(("127.0.0.1", 0), Forbidding) as store:
        threading.Thread(target=store.serve_forever, daemon=True).start()
        for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{store.server_port}")
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
        assert command("s3://bucket/store", "papers", str(tmp_path / "out")) == 2
        store.shutdown()
    said = capsys.readouterr().err
    assert "index_path cannot be used" in said
    assert "403" in said
    assert not (tmp_path / "out").exists()
