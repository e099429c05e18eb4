"""POST /read: the text of one file."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from features.files.spool import Spool, Upload
from features.files.texts import LIMITS, Texts
from service.embedding.batching.clients import Client
from service.errors import UnavailableError
from tests.conftest import Server, serving
from tests.extraction.test_scans import installed, scanned
from tests.index.test_files import packed, spooled, word


def read(server: Server, *files: tuple[str, bytes]) -> httpx.Response:
    form = [("file", one) for one in files]
    return httpx.post(f"{server.url}/read", files=form, timeout=60)


def test_a_file_becomes_text_with_headings(server: Server) -> None:
    answer = read(server, ("a.docx", word("Pens", "Ink flows onto paper.")))
    assert answer.status_code == 200
    found = answer.json()
    assert "Ink flows onto paper." in found["text"]
    [heading] = found["headings"]
    assert heading == {"start": found["text"].index("Pens"), "level": 1, "title": "Pens"}
    # the service keeps nothing
    assert spooled(server) == []
    plain = read(server, ("b.TXT", "naïve 😀".encode())).json()
    assert (plain["text"], plain["pages"], plain["headings"]) == ("naïve 😀", [], [])
    # the text is ready for a search
    query = {"source_sentence": found["text"], "sentences": ["pens"]}
    assert httpx.post(f"{server.url}/similarity", json={"inputs": query}).is_success


@installed
def test_a_scan_becomes_text(server: Server) -> None:
    assert "The seller delivers" in read(server, ("a.pdf", scanned(500))).json()["text"]


@pytest.mark.parametrize(
    ("files", "status", "hint"),
    [
        ([("a.pdf", b"%PDF-1.7 torn")], 422, "damaged"),
        ([("a.exe", b"MZ")], 422, ".pdf, .docx"),
        ([("a.doc", b"old")], 422, "save it as .docx"),
        ([("a.zip", packed({"a.txt": b"a"}))], 422, "POST /indexes/{name}/files"),
        ([("a.txt", b" ")], 422, "no text"),
        ([("a.txt", b"a" * (LIMITS.characters + 1))], 422, "4,000,000 characters"),
        ([("a.txt", b"a"), ("b.txt", b"b")], 413, "more than one file"),
        ([("", b"a")], 422, "file"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(
    server: Server, files: list[tuple[str, bytes]], status: int, hint: str
) -> None:
    answer = read(server, *files)
    assert (answer.status_code, hint in answer.json()["error"]) == (status, True), answer.text
    assert spooled(server) == []


@pytest.mark.folder
def test_a_file_is_read_where_no_index_can_be_stored(
    tmp_path: Path, light: tuple[str, ...]
) -> None:
    (tmp_path / "index").touch()
    with serving(tmp_path / "log", *light) as server:
        answer = read(server, ("a.docx", word("Pens", "Ink flows onto paper.")))
        assert answer.status_code == 200, answer.text
        assert "Ink flows onto paper." in answer.json()["text"]


async def test_only_a_file_to_read_lies_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "file" / "scratch"

    folder.parent.touch()
    # the second time the usual folder works again
    spool, texts = Spool(folder, 1000), Texts(folder)
    folders = []
    for _ in range(2):
        upload = await spool.open(Client("a"), anywhere=True)
        upload.begin("a.html")
        await upload.write(b"<p>short")
        await upload.flush()
        assert (await texts.read(upload)).text == "short"
        upload.close()
        folders.append(upload.folder)
        with suppress(UnavailableError):
            (await spool.open(Client("a"))).close()
            folders.append(folder)
        if folder.parent.is_file():
            folder.parent.unlink()
    await texts.close()
    assert folders == [Path(tempfile.gettempdir()), folder, folder]


def test_other_bodies_are_refused(server: Server) -> None:
    answer = httpx.post(f"{server.url}/read", json={"file": "a"})
    assert answer.status_code == 415
    assert "multipart/form-data" in answer.json()["error"]


# during the start of the process that reads, and while it reads
@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_a_request_that_ends_early_spoils_no_other(tmp_path: Path, seconds: float) -> None:
    async def uploaded(spool: Spool, name: str, content: bytes) -> Upload:
        upload = await spool.open(Client("a"))
        upload.begin(name)
        await upload.write(content)
        await upload.flush()
        return upload

    async def main() -> str:
        spool, texts = Spool(tmp_path, 10**8), Texts(tmp_path)
        long = await uploaded(spool, "a.html", b"<p>a<b>b" * 3_000_000)
        short = await uploaded(spool, "b.html", b"<p>short")
        reading = asyncio.create_task(texts.read(long))
        await asyncio.sleep(seconds)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        try:
            return (await texts.read(short)).text
        finally:
            await texts.close()
            long.close()
            short.close()

    assert asyncio.run(main()).strip() == "short"
