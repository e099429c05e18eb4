"""A running service on a damaged store, and the commands that check and repair it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.bulk.__main__ import main
from service.index.indexes import connect
from service.index.storage import layout
from tests.conftest import Server, serving
from tests.index.conftest import call

TEXTS = {f"d{n}": f"The {n}th text speaks of rivers, boats and the sea." for n in range(6)}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("integrity") / "log") as server:
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


def test_force_embeds_anew_and_takes_nothing_from_the_index_or_a_cache(running: Server) -> None:
    kept = upsert(running, "good")
    forced = upsert(running, "good", force=True)
    assert "x-compute-tokens" in forced.headers
    assert int(kept.headers["x-compute-tokens"]) == 0
    assert int(forced.headers["x-compute-tokens"]) > 0
    assert forced.headers["x-cache"] == "miss"


def test_a_damaged_document_is_refused_and_the_same_text_sent_again_mends_it(
    running: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    root = store_of(running)
    search = {"index": "bad", "text": "rivers and boats", "top_k": 6}
    whole = {hit["id"]: hit["cosine"] for hit in call(running, "POST", "/similar", search)}
    assert whole.keys() == TEXTS.keys()
    dimensions = len(call(running, "POST", "/embed", {"inputs": "a"})[0])
    change(root, "bad", "d1", vector=[0.0] * (dimensions - 1) + [1.0])
    before = running.metric("docsplit_index_damaged_total")

    told = call(running, "GET", "/indexes/bad/documents/d1", status=503)
    assert "docsplit-index repair" in told["error"]
    assert told["error_type"] == "Store"
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
    status, report = command(capsys, root, "check", "--record")
    assert (status, report["findings"]) == (0, [])


def test_repair_embeds_a_damaged_vector_anew(
    running: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    root = store_of(running)
    search = {"index": "bad", "text": "rivers and boats", "top_k": 6}
    whole = {hit["id"]: hit["cosine"] for hit in call(running, "POST", "/similar", search)}
    change(root, "bad", "d2", windows=b"\\0" * 8)
    status, told = command(capsys, root, "repair", "bad", "--streams", "2")
    assert (status, told["lost"], told["left"]) == (0, [], []), told["after"]["findings"]
    assert any("d2" in line and "embedded anew" in line for line in told["mended"])
    again = {hit["id"]: hit["cosine"] for hit in call(running, "POST", "/similar", search)}
    assert again == pytest.approx(whole, abs=1e-5)
    explained = call(running, "POST", "/similar", search | {"explain": True})
    assert all(hit["pairs"] for hit in explained)


def test_a_file_that_cannot_be_read_refuses_its_index_alone(
    running: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    root = store_of(running)
    command(capsys, root, "check", "--record")
    for file in root.glob("indexes/bad.*/data/*"):
        file.write_bytes(b"")
    told = call(running, "GET", "/indexes/bad/documents/d1", status=503)
    assert told["error_type"] == "Store"
    call(running, "GET", "/indexes/good/documents/d1")
    assert upsert(running, "good").status_code == 200
    status, report = command(capsys, root, "check", "bad")
    assert status == 1
    assert any("emptied" in finding["what"] for finding in report["findings"])
    status, told = command(capsys, root, "repair", "bad")
    assert status == 1
    assert any("rows whose ids cannot be read" in line for line in told["lost"])
    assert call(running, "GET", "/indexes/bad")["documents"] == 0
    upsert(running, "bad")
    call(running, "GET", "/indexes/bad/documents/d1")
    assert command(capsys, root, "check")[0] == 0


def test_a_command_that_cannot_be_carried_out_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--index-path", str(tmp_path)]) == 2
    assert "index_path holds no indexes" in capsys.readouterr().err
    (tmp_path / "indexes").mkdir()
    assert main(["repair", "nothing", "--index-path", str(tmp_path)]) == 2
    assert "no index of that name" in capsys.readouterr().err
    assert main(["check", "A/B", "--index-path", str(tmp_path)]) == 2


def test_a_file_over_which_the_process_would_end_is_known_before_its_table_is_opened(
    running: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "index"
    upsert(running, "bad")
    command(capsys, store_of(running), "check", "--record")
    shutil.copytree(store_of(running), copy)
    [folder] = copy.glob("indexes/bad.*")
    newest = folder / next(iter(layout.manifests(folder).values()))
    content = bytearray(newest.read_bytes())
    # still a manifest that can be read
    place = content.rindex(b"docsplit.model")
    content[place] ^= 1
    newest.write_bytes(bytes(content))
    with serving(tmp_path / "log") as server:
        told = call(server, "GET", "/indexes/bad/documents/d1", status=503)
        assert "docsplit-index repair" in told["error"]
        call(server, "GET", "/indexes/good/documents/d1")
        assert '"file_damaged"' in server.log.read_text()
        assert command(capsys, copy, "check", "bad")[0] == 1
        assert command(capsys, copy, "repair", "bad")[0] == 0
        call(server, "GET", "/indexes/bad/documents/d1")
