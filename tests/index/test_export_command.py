"""``docsplit-index export`` as a command: stores of services, refusals and messages."""

from __future__ import annotations

import errno
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.bulk.__main__ import main
from service.bulk.exporting.destination import MANIFEST, Destination
from service.index.storage import database
from tests.conftest import Server
from tests.index.conftest import call, upsert
from tests.index.exporting import read
from tests.storage import placed


def command(store: Path | str, *words: str) -> int:
    return main(["export", *words, "--index-path", placed(store), "--log-level", "error"])


def test_a_store_that_takes_no_pin_is_exported_with_a_warning(
    server: Server,
    index: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def read_only(*_: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(database, "pin", read_only)
    upsert(server, index, {"id": "a", "text": "A text."})
    root, folder = server.log.with_name("index"), tmp_path / "out"
    assert command(root, index, str(folder), "--no-windows") == 0
    assert "nothing keeps the version of this export" in capsys.readouterr().err
    assert read(folder)["id"].to_pylist() == ["a"]
    assert "windows" not in read(folder).schema.names


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
    # the same state again, also by an alias, changes nothing; another state needs another folder
    before = (folder / MANIFEST).stat().st_mtime_ns
    call(server, "PUT", f"/aliases/{index}-live", {"index": index}, status=201)
    assert command(root, f"{index}-live", str(folder)) == 0
    assert (folder / MANIFEST).stat().st_mtime_ns == before
    call(server, "DELETE", f"/aliases/{index}-live", status=204)
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
    assert "index_path holds no indexes" in capsys.readouterr().err
    with Destination(other).locked():
        assert command(root, index, str(other)) == 2
    assert "another export writes to it" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["export", "papers"], ["check"]])
def test_wrong_credentials_of_an_object_store_are_named(
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
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
        asked = [*words, *[str(tmp_path / "out")] * (words[0] == "export")]
        asked += ["--index-path", "s3://bucket/store"]
        assert main(asked) == 2
        monkeypatch.delenv("AWS_ALLOW_HTTP")
        assert main(asked) == 2
        store.shutdown()
    denied, plain = capsys.readouterr().err.splitlines()
    assert denied.startswith("docsplit-index: the object store of index_path refuses the credent")
    assert "AWS_ALLOW_HTTP=true with http://" in plain
    assert not (tmp_path / "out").exists()
