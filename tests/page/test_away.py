"""The page while the service is away, and while somebody uses what the page renews by itself."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.conftest import Server
from tests.page.browser import Tab, command
from tests.page.conftest import HEADERS

pytestmark = pytest.mark.skipif(
    command(Path(), 0) is None,
    reason="needs Chromium, Google Chrome or PySide6 with QtWebEngine",
)


def connect(tab: Tab, connected: bool) -> None:
    """Cut the connection of the tab to the service, or restore it."""
    network = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    tab("Network.emulateNetworkConditions", offline=not connected, **network)


def test_a_job_is_followed_while_the_service_is_away(
    tab: Tab, service: Server, tmp_path: Path
) -> None:
    index = f"{service.url}/indexes/away"
    assert httpx.put(index, json={}, headers=HEADERS).is_success
    tab.open(f"{service.url}/#/away/add")
    tab.wait("document.querySelector('#files')")
    # the page asks for the job again when the test says so, so that it is away by then
    tab.run(
        "window.asks = []; const timer = setTimeout;"
        "window.setTimeout = (act, ms) => ms < 1000 ? timer(act, ms) : asks.push(act)"
    )
    file = tmp_path / "notes.txt"
    file.write_text("Notes of a day.", encoding="utf-8")
    tab.choose("#files", file)
    tab.wait("asks.length && document.querySelector('.report button')?.textContent === 'Cancel'")
    connect(tab, False)
    try:
        tab.run("asks.shift()()")
        tab.wait("document.querySelector('.report').innerText.includes('The page asks again.')")
        # another try would send the files again
        assert "Try again" not in tab.text(".report")
        tab.wait("asks.length")
    finally:
        connect(tab, True)
    tab.run("window.setTimeout = timer; asks.shift()()")
    tab.wait("document.querySelector('.report').innerText.startsWith('Done: 1 of 1')")
    assert "The page asks again." not in tab.text(".report")
    # what the browser itself says of the connection
    tab.problems = [one for one in tab.problems if "ERR_INTERNET_DISCONNECTED" not in one]
    assert httpx.delete(index, headers=HEADERS).is_success


def test_new_figures_do_not_take_the_focus(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/peps/status")
    tab.wait("document.querySelector('.rows a')")
    # pauses of 5 s pass at once
    tab.run("const later = setTimeout; window.setTimeout = (act) => later(act, 50)")
    renewed = "document.querySelector('.rows a') !== window.link"
    tab.run("window.link = document.querySelector('.rows a')")
    tab.wait(renewed)
    tab.run("window.link = document.querySelector('.rows a'); window.link.focus()")
    asked = len(tab.loaded)
    tab.wait("document.activeElement === window.link")
    while len(tab.loaded) < asked + 20:
        tab.run("new Promise((resolve) => later(resolve, 50))")
    assert tab.run("document.activeElement === window.link")
    tab.run("window.link.blur()")
    tab.wait(renewed)
