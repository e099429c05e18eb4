"""A whole file as the text of a search, in a real browser on a real service."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from features.files.form import MOST_FILES
from tests.conftest import Server
from tests.index.test_files import word
from tests.page.browser import Tab, command
from tests.page.conftest import PAYLOADS
from tests.page.test_browser import titles

pytestmark = pytest.mark.skipif(
    command(Path(), 0) is None,
    reason="needs Chromium, Google Chrome or PySide6 with QtWebEngine",
)

BOX = "document.querySelector('#query').value"


def drop(tab: Tab, selector: str, *paths: Path) -> None:
    """Drop files or folders on an element, as from a file manager."""
    x, y = tab.run(
        f"(() => {{ const box = document.querySelector({selector!r}).getBoundingClientRect();"
        "return [box.x + box.width / 2, box.y + 20]; })()"
    )
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        tab("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)


def test_a_file_is_the_text_of_a_search(tab: Tab, service: Server, tmp_path: Path) -> None:
    text = "Two methods, removeprefix() and removesuffix(), of string objects."
    office = tmp_path / f"{PAYLOADS[1].replace('/', '')}.docx"
    office.write_bytes(word("Prefixes", text))
    tab.open(f"{service.url}/#/peps/search?unit=documents")
    tab.wait("document.querySelector('.seeds li')")
    tab.choose("#query-file", office)
    assert text in tab.wait(BOX)
    assert office.name in tab.text(".dropped")
    tab.click("#go")
    tab.wait("document.querySelector('.hits li')")
    assert titles(tab)[0] == "PEP 616"
    assert tab.run("window.attacked") is None


def test_the_browser_reads_a_dropped_text_itself(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/peps/search")
    tab.wait("document.querySelector('.seeds li')")
    drop = """(() => {{
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File([new Uint8Array({bytes})], "a.txt", {{type: "text/plain"}}));
      const event = new DragEvent("drop", {{dataTransfer, bubbles: true, cancelable: true}});
      document.querySelector("form.search").dispatchEvent(event);
    }})()"""
    tab.loaded.clear()
    tab.run(drop.format(bytes=[*"naïve 😀".encode()]))
    assert tab.wait(BOX) == "naïve 😀"
    assert not [url for url in tab.loaded if url.endswith("/read")]
    # not in UTF-8: the service finds out which encoding it is
    tab.run(drop.format(bytes=[*"Müller grüßt die Bärin an der Tür.".encode("latin-1")]))
    tab.wait(f"{BOX}.startsWith('M')")
    assert "Müller grüßt" in tab.run(BOX)
    assert [url for url in tab.loaded if url.endswith("/read")]


def test_a_folder_and_a_file_dropped_together_are_added(
    tab: Tab, service: Server, tmp_path: Path, key: str | None
) -> None:
    folder, single = tmp_path / "minutes", tmp_path / "single.txt"
    (folder / "2024" / "empty").mkdir(parents=True)
    # Chromium lists 100 files at a time
    names = ["may.txt", *(f"2024/{number}.txt" for number in range(101))]
    for path in (single, *(folder / name for name in names)):
        path.write_text(f"The minutes of {path.stem}.", encoding="utf-8")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(base_url=service.url, headers=headers, timeout=60) as client:
        assert client.put("/indexes/dropped", json={}).is_success
        tab.open(f"{service.url}/#/dropped/add")
        tab.wait("document.querySelector('.drop')")
        drop(tab, ".drop", folder, single)
        tab.wait("document.querySelector('.report').innerText.startsWith('Done: 103 of 103')", 60)
        page = client.get("/indexes/dropped/documents", params={"limit": 1000}).json()
        expected = {"single.txt", *(f"minutes/{name}" for name in names)}
        assert {one["id"] for one in page["documents"]} == expected
        assert client.delete("/indexes/dropped").is_success


def test_a_dropped_folder_without_files_says_so(tab: Tab, service: Server, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    tab.open(f"{service.url}/#/peps/add")
    tab.wait("document.querySelector('.drop')")
    drop(tab, ".drop", tmp_path / "empty")
    tab.wait("document.querySelector('.report').innerText.includes('no file')")


def test_a_folder_is_no_text_of_a_search(tab: Tab, service: Server, tmp_path: Path) -> None:
    folder = tmp_path / "minutes"
    folder.mkdir()
    (folder / "may.txt").write_text("The minutes of May.", encoding="utf-8")
    tab.open(f"{service.url}/#/peps/search")
    tab.wait("document.querySelector('.seeds li')")
    drop(tab, "form.search", folder)
    tab.wait("document.querySelector('.dropped [role=alert]')")
    assert "That is a folder" in tab.text(".dropped")


def test_a_file_that_cannot_be_read_says_why(tab: Tab, service: Server, tmp_path: Path) -> None:
    torn = tmp_path / "torn.pdf"
    torn.write_bytes(b"%PDF-1.7 torn")
    tab.open(f"{service.url}/#/peps/search")
    tab.wait("document.querySelector('.seeds li')")
    tab.choose("#query-file", torn)
    tab.wait("document.querySelector('.dropped [role=alert]')")
    assert "damaged" in tab.text(".dropped")
    tab.problems[:] = [one for one in tab.problems if "status of 422" not in one]


def test_more_files_than_one_request_may_hold_are_added(
    tab: Tab, service: Server, tmp_path: Path, key: str | None
) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    for number in range(MOST_FILES + 2):
        (folder / f"{number}.txt").write_text("A note.", encoding="utf-8")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(base_url=service.url, headers=headers, timeout=60) as client:
        assert client.put("/indexes/parts", json={}).is_success
        tab.open(f"{service.url}/#/parts/add")
        tab.wait("document.querySelector('.drop')")
        drop(tab, ".drop", folder)
        reports = "[...document.querySelectorAll('.report > div')].map((one) => one.innerText)"
        tab.wait(f"{reports}.length === 2 && {reports}[1].startsWith('Done: 2 of 2')", 120)
        assert tab.run(reports)[0].startswith("Done: 1000 of 1,000")
        assert client.get("/indexes/parts").json()["documents"] == MOST_FILES + 2
        assert client.delete("/indexes/parts").is_success
