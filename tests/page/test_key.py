"""The dialog that asks for an API key, in a real browser on a real service."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Server
from tests.page.browser import Tab, command
from tests.page.conftest import KEY

pytestmark = pytest.mark.skipif(
    command(Path(), 0) is None,
    reason="needs Chromium, Google Chrome or PySide6 with QtWebEngine",
)


def test_the_page_asks_for_a_key_and_keeps_it_in_the_tab(
    tab: Tab, service: Server, key: str | None
) -> None:
    if key is None:
        tab.open(f"{service.url}/")
        tab.wait("document.querySelector('.seeds li')")
        return
    tab.run("sessionStorage.clear()")
    tab.open(f"{service.url}/")
    tab.wait("document.querySelector('dialog[open]')")
    tab.type("a-key-that-is-not-valid")
    tab.press("Enter")
    tab.wait("document.querySelector('dialog[open] .problem')?.innerText.includes('not accept')")
    tab.type(KEY)
    tab.press("Enter")
    tab.wait("document.querySelector('.seeds li')")
    assert not tab.run("document.querySelector('dialog')")
    assert tab.run("JSON.stringify([{...localStorage}, document.cookie])") == '[{},""]'
    # Chromium itself reports each answer of status 401
    tab.problems[:] = [one for one in tab.problems if "status of 401" not in one]


@pytest.mark.parametrize("beyond", ["…", "\u200b", "é"])
def test_a_key_that_cannot_be_sent_is_refused(
    tab: Tab, service: Server, key: str | None, beyond: str
) -> None:
    if key is None:
        pytest.skip("the service needs no key")
    tab.run("sessionStorage.clear()")
    tab.open(f"{service.url}/")
    tab.wait("document.querySelector('dialog[open]')")
    tab.type(f"{KEY[:8]}{beyond}{KEY[8:]}")
    tab.press("Enter")
    tab.wait("document.querySelector('dialog[open] .problem').innerText.includes('Copy the key')")
    assert tab.run("sessionStorage.length") == 0
    tab.run("document.querySelector('#key').value = ''")
    tab.type(KEY)
    tab.press("Enter")
    tab.wait("document.querySelector('.seeds li')")
    tab.problems[:] = [one for one in tab.problems if "status of 401" not in one]


def test_a_stored_key_that_cannot_be_sent_is_asked_for_again(
    tab: Tab, service: Server, key: str | None
) -> None:
    if key is None:
        pytest.skip("the service needs no key")
    tab.run("sessionStorage.setItem('docsplit.key', 'a-key-for-the-page…')")
    tab.open(f"{service.url}/")
    tab.wait("document.querySelector('dialog[open]')")
    tab.problems[:] = [one for one in tab.problems if "status of 401" not in one]
