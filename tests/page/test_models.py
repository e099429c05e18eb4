"""The page of a service that serves several bundles."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.conftest import Server
from tests.page.browser import Tab, command
from tests.page.conftest import HEADERS, OTHER_MODEL

pytestmark = pytest.mark.skipif(
    command(Path(), 0) is None,
    reason="needs Chromium, Google Chrome or PySide6 with QtWebEngine",
)


def test_an_index_gets_the_chosen_model(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/peps/add")
    names = tab.wait(
        "document.querySelector('#new-model') &&"
        " [...document.querySelectorAll('#new-model option')].map((e) => e.value)"
    )
    assert names[1:] == [OTHER_MODEL]
    tab.run(f"document.querySelector('#new-model').value = {OTHER_MODEL!r}")
    tab.run("document.querySelector('#new-index').focus()")
    tab.type("chosen")
    tab.press("Enter")
    tab.wait(
        "location.hash === '#/chosen/add' && /chosen/.test(document.querySelector('h1').innerText)"
    )
    place = f"{service.url}/indexes/chosen"
    assert httpx.get(place, headers=HEADERS).json()["served_by"] == OTHER_MODEL
    tab.open(f"{service.url}/#/peps/status")
    tab.wait("/Models 2/.test(document.querySelector('.panels')?.innerText)")
    rows = tab.run("[...document.querySelectorAll('.panel li')].map((e) => e.innerText)")
    [row] = [row for row in rows if row.startswith("chosen")]
    assert OTHER_MODEL in row
    assert any(one.startswith(OTHER_MODEL) and "unloaded" in one for one in rows)
    httpx.delete(place, headers=HEADERS)
