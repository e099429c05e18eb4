"""A running service on a damaged store, and the command that checks it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.bulk.__main__ import main
from service.index.indexes import connect
from tests.conftest import Server, serving
from tests.index.conftest import call
from tests.index.test_recovery import age

TEXTS = {f"d{n}": f"The {n}th text speaks of rivers, boats and the sea." for n in range(6)}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, light: tuple[str, ...]) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("integrity") / "log", *light) as server:
        for name in ("good", "bad"):
            call(server, "PUT", f"/indexes/{name}", {"fields": {}}, status=201)
            upsert(server, name)
        yield server


def upsert(server: Server, name: str, **rest: Any) -> httpx.Response:
    documents = [{"id": i, "text": t, "title": f"On {i}"} for i, t in TEXTS.items()]
    body = {"documents": documents, **rest}
    answer = httpx.post(f"{server.url}/indexes/{name}/documents", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer


def store_of(server: Server) -> Path:
    return server.log.with_name("index")


def command(capsys: pytest.CaptureFixture[str], root: Path, *words: str) -> tuple[int, Any]:
    status = main([*words, "--json", "--index-path", str(root), "--log-level", "error"])
    return status, json.loads(capsys.readouterr().out)


def change(root: Path, name: str, document: str, **values: Any) -> None:
    async def update() -> None:
        database = await connect(f"{root}/indexes")
        [folder] = (root / "indexes").glob(f"{name}.*")
        table = await database.open_table(folder.name.removesuffix(".lance"))
        await table.update(values, where=f"id = '{document}'")

    asyncio.run(update())


def test_force_embeds_again_without_the_index_and_the_cache(running: Server) -> None:
    kept = upsert(running, "good")
    forced = upsert(running, "good", force=True)
    assert "x-compute-tokens" in forced.headers
    assert int(kept.headers["x-compute-tokens"]) == 0
    assert int(forced.headers["x-compute-tokens"]) > 0
    assert forced.headers["x-cache"] == "miss"


def test_a_damaged_document_is_refused_until_its_text_is_sent_again(
    running: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    root = store_of(running)
    search = {"index": "bad", "text": "rivers and boats", "top_k": 6}
    whole = {hit["id"]: hit["cosine"] for hit in call(running, "POST", "/similar", search)}
    assert whole.keys() == TEXTS.keys()
    dimensions = len(call(running, "POST", "/embed", {"inputs": "a"})[0])
    change(root, "bad", "d1", vector=[0.0] * (dimensions - 1) + [1.0])
    before = running.metric("docsplit_index_damaged_total")

    said = call(running, "GET", "/indexes/bad/documents/d1", status=503)
    assert "write the document again" in said["error"]
    assert said["error_type"] == "Store"
    found = {hit["id"]: hit["cosine"] for hit in call(running, "POST", "/similar", search)}
    others = {name: value for name, value in whole.items() if name != "d1"}
    assert found == pytest.approx(others, abs=1e-5)
    assert running.metric("docsplit_index_damaged_total") > before
    assert '"row_damaged"' in running.log.read_text()
    assert TEXTS["d1"] not in running.log.read_text()
    call(running, "GET", "/indexes/good/documents/d1")

    status, report = command(capsys, root, "check", "bad")
    assert status == 1
    assert [(f["document"], f["part"]) for f in report["findings"]] == [("d1", "vector")]

    upsert(running, "bad")
    call(running, "GET", "/indexes/bad/documents/d1")
    again = {hit["id"]: hit["cosine"] for hit in call(running, "POST", "/similar", search)}
    assert again == pytest.approx(whole, abs=1e-5)
    status, report = command(capsys, root, "check")
    assert (status, report["findings"]) == (0, [])


def test_an_unreadable_file_stops_only_its_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], light: tuple[str, ...]
) -> None:
    with serving(tmp_path / "log", *light) as server:
        for name in ("good", "bad"):
            call(server, "PUT", f"/indexes/{name}", {"fields": {}}, status=201)
            upsert(server, name)
            upsert(server, name, force=True)
    root = store_of(server)
    [table] = root.glob("indexes/bad.*")
    age(table)
    for file in table.glob("data/*"):
        file.write_bytes(b"")
    with serving(tmp_path / "log", *light) as server:
        said = call(server, "GET", "/indexes/bad/documents/d1", status=503)
        assert "restore a backup" in said["error"]
        assert said["error_type"] == "Store"
        call(server, "GET", "/indexes/good/documents/d1")
        assert upsert(server, "good").status_code == 200
        status, report = command(capsys, root, "check", "bad")
        assert status == 1
        assert any("cannot be read" in finding["what"] for finding in report["findings"])
        call(server, "DELETE", "/indexes/bad", status=204)
        call(server, "PUT", "/indexes/bad", {"fields": {}}, status=201)
        upsert(server, "bad")
        call(server, "GET", "/indexes/bad/documents/d1")
    assert command(capsys, root, "check")[0] == 0


def test_a_failed_command_gives_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--index-path", str(tmp_path)]) == 2
    assert "index_path holds no indexes" in capsys.readouterr().err
    (tmp_path / "indexes").mkdir()
    assert main(["check", "nothing", "--index-path", str(tmp_path)]) == 2
    assert "no index of that name" in capsys.readouterr().err
    assert main(["check", "A/B", "--index-path", str(tmp_path)]) == 2
