"""The map in a real browser."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.conftest import Server, wait_until
from tests.index.conftest import call
from tests.page.browser import Tab, command
from tests.page.conftest import PAYLOADS
from tests.page.test_browser import axe

pytest.importorskip("openTSNE", reason="the extra map is not installed")
pytestmark = pytest.mark.skipif(
    command(Path(), 0) is None,
    reason="needs Chromium, Google Chrome or PySide6 with QtWebEngine",
)

INDEX = "on-a-map"
FIELDS = {"kind": "string", "n": "integer"}
TEXTS = {
    "bread": "Knead the flour with yeast and bake the loaf in the oven, recipe {}",
    "chess": "The rook takes a pawn and the bishop gives check, game {}",
    "stars": "A telescope shows the galaxy and the orbit of its planets, night {}",
}


@pytest.fixture(scope="module")
def server(light_server: Server) -> Server:
    """A service whose vectors tell only which words texts share."""
    return light_server


@pytest.fixture(scope="module")
def tab(server: Server, browser: Tab) -> Iterator[Tab]:
    call(server, "PUT", f"/indexes/{INDEX}", {"fields": FIELDS}, status=201)
    documents = [
        {
            "id": f"{kind} {at:02} {PAYLOADS[at % 3]}",
            "title": PAYLOADS[1] if at == 3 else None,
            "text": text.format(at),
            # the last two integers are one number of a script
            "metadata": {"kind": kind if at else PAYLOADS[0], "n": -(2**53) - at % 3},
        }
        for kind, text in TEXTS.items()
        for at in range(30)
    ]
    call(server, "POST", f"/indexes/{INDEX}/documents", {"documents": documents})
    browser.look()
    browser.problems.clear()
    yield browser
    httpx.delete(f"{server.url}/indexes/{INDEX}")


# how many different colours the picture has
SHADES = """(() => {
  const map = document.querySelector("#map");
  const { data } = map.getContext("2d").getImageData(0, 0, map.width, map.height);
  return new Set(new Uint32Array(data.buffer)).size;
})()"""


def digest(tab: Tab) -> Any:
    """A text that differs between pictures; it waits until what was asked for is drawn."""
    tab.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return tab.run("document.querySelector('#map').toDataURL()")


def drag(tab: Tab, *places: tuple[float, float], shift: bool = False) -> None:
    """Move with the button held, in shares of the map's width and height."""
    box = tab.run(
        "(() => { const b = document.querySelector('#map').getBoundingClientRect();"
        " return [b.x, b.y, b.width, b.height]; })()"
    )
    for at, (x, y) in enumerate([*places, places[-1]]):
        kind = ["mousePressed", *["mouseMoved"] * (len(places) - 1), "mouseReleased"][at]
        where = {"x": box[0] + x * box[2], "y": box[1] + y * box[3]}
        tab(
            "Input.dispatchMouseEvent",
            type=kind,
            **where,
            button="left",
            buttons=int(kind != "mouseReleased"),
            clickCount=1,
            modifiers=8 if shift else 0,
        )


def test_a_map_is_computed_and_explored(tab: Tab, server: Server) -> None:
    tab.open(f"{server.url}/#/{INDEX}/map")
    tab.click("#compute")
    tab.wait("document.querySelector('#map')", 90)
    tab.problems[:] = [one for one in tab.problems if "status of 404" not in one]
    tab.run("scrollTo(0, 0)")
    rows = tab.run("[...document.querySelectorAll('.topics tbody tr')].map((e) => e.innerText)")
    assert len(rows) >= 2
    assert any("flour" in row for row in rows)
    # the first picture follows the layout of the page
    tab.wait(f"{SHADES} > 3")

    whole = digest(tab)
    tab.run("document.querySelector('#map').focus()")
    tab.press("+")
    zoomed = digest(tab)
    tab.press("0")
    assert digest(tab) == whole != zoomed
    drag(tab, (0.5, 0.5), (0.6, 0.6))
    moved = digest(tab)
    tab.press("0")
    assert digest(tab) == whole != moved

    # a line around everything, and one around nothing
    drag(tab, (0.01, 0.01), (0.99, 0.01), (0.99, 0.99), (0.01, 0.99), shift=True)
    tab.wait("document.querySelector('.chosen h2').innerText === '90 documents inside the line'")
    tab.wait("document.querySelectorAll('.chosen li').length === 50")
    drag(tab, (0.004, 0.01), (0.03, 0.01), (0.03, 0.04), (0.004, 0.04), shift=True)
    tab.wait("document.querySelector('.chosen h2').innerText === '0 documents inside the line'")

    tab.click("#find")
    tab.type("kneading dough")
    tab.press("Enter")
    tab.wait("document.querySelector('.chosen h2')?.innerText.endsWith('found')")
    tab.click("#whole")
    assert tab.text(".chosen") == ""
    assert digest(tab) == whole

    tab.click(".topics tbody button.plain")
    tab.wait("document.querySelectorAll('.chosen li').length > 4")
    tab.run("document.querySelector('#own-label').focus()")
    tab.type("Baking & more")
    tab.press("Enter")
    own = tab.wait("document.querySelector('.own-label b')?.innerText")
    assert own == f"{INDEX}-baking-more"
    assert set(call(server, "GET", f"/classifiers/{own}")["labels"]) == {"Baking & more", "other"}
    call(server, "DELETE", f"/classifiers/{own}", status=204)
    tab.click(".topics td button")
    name = tab.wait("document.querySelector('.topics td b')?.innerText")
    labels = call(server, "GET", f"/classifiers/{name}")["labels"]
    assert "other" in labels
    assert len(labels) == 2
    call(server, "DELETE", f"/classifiers/{name}", status=204)
    tab.click("#train-all")
    name = tab.wait("document.querySelector('#train-all ~ div b')?.innerText", 60)
    made = call(server, "GET", f"/classifiers/{name}")
    assert made["multi_label"]
    names = tab.run("[...document.querySelectorAll('.topics th button')].map((e) => e.innerText)")
    assert set(made["labels"]) == set(names)
    tab.click("#train-all ~ div a")
    tab.wait("document.querySelector('.legend-values')")
    call(server, "DELETE", f"/classifiers/{name}", status=204)
    assert tab.problems == []


def test_colours_show_a_field_and_no_document_runs_a_script(tab: Tab, server: Server) -> None:
    tab.look(360, 740)
    tab.open(f"{server.url}/#/{INDEX}/map?by=kind")
    tab.wait("document.querySelector('.legend-values')")
    assert PAYLOADS[0] in tab.text(".legend-values")
    assert tab.run("document.documentElement.scrollWidth") <= 360
    made = "document.querySelectorAll('main :is(script, img, iframe, math)').length"
    assert tab.run(made) == 0
    assert tab.run("window.attacked") is None
    assert tab.problems == []
    tab.look()


# controls that cover each other, in pairs
COVERED = """(() => {
  const all = [...document.querySelectorAll(".tools :is(input, button, label.field)")];
  const boxes = all.map((one) => [one.outerHTML, one.getBoundingClientRect()]);
  return boxes.flatMap(([name, one], at) => boxes.slice(at + 1).filter(([, other]) =>
    one.left < other.right && other.left < one.right &&
    one.top < other.bottom && other.top < one.bottom
  ).map(([other]) => [name, other]));
})()"""


@pytest.mark.parametrize("width", [320, 360, 390, 430, 600, 800, 1280])
def test_no_control_of_the_map_covers_another(tab: Tab, server: Server, width: int) -> None:
    tab.look(width, 740)
    tab.open(f"{server.url}/#/{INDEX}/map")
    tab.wait("document.querySelector('.tools')")
    assert tab.run(COVERED) == []
    tab.look()


def test_a_map_that_is_computed_elsewhere_appears(tab: Tab, server: Server) -> None:
    call(server, "PUT", "/indexes/elsewhere", {}, status=201)
    documents = [{"id": f"{at}", "text": f"A loaf of bread, recipe {at}"} for at in range(20)]
    call(server, "POST", "/indexes/elsewhere/documents", {"documents": documents})
    call(server, "POST", "/indexes/elsewhere/map", status=202)
    tab.open(f"{server.url}/#/elsewhere/map")
    tab.wait("document.querySelector('.job progress, #map')")
    # it appears without a click
    tab.wait("document.querySelector('#map')", 90)
    tab.problems[:] = [one for one in tab.problems if "status of 404" not in one]
    assert tab.problems == []
    call(server, "DELETE", "/indexes/elsewhere", status=204)


def test_large_integers_are_shown_and_sent_as_they_are(tab: Tab, server: Server) -> None:
    large = [str(-(2**53) - last) for last in (2, 1, 0)]
    tab.open(f"{server.url}/#/{INDEX}/map?by=n")
    tab.wait("document.querySelector('.legend-values')")
    rows = tab.run("[...document.querySelectorAll('.legend-values li')].map((e) => e.innerText)")
    assert rows == [f"{value} 30" for value in large]
    tab.open(f"{server.url}/#/{INDEX}/search?q=loaf&unit=documents")
    tab.wait("document.querySelector('.facets')")
    tab.click(".facets summary")
    tab.run(
        "[...document.querySelectorAll('.facets .chip')]"
        f".find((e) => e.innerText.startsWith('{large[1]}')).click()"
    )
    tab.wait("document.querySelector('.filters .chip') && document.querySelector('.hits li')")
    metas = tab.run("[...document.querySelectorAll('.hits p.meta')].map((e) => e.innerText)")
    assert metas
    assert all(f"n {large[1]}" in meta for meta in metas)
    assert tab.problems == []


def test_colours_show_the_labels_of_a_classifier(tab: Tab, server: Server) -> None:
    ids = [one["id"] for one in call(server, "GET", f"/indexes/{INDEX}/documents")["documents"]]
    # a label can attack, too
    labels = [PAYLOADS[1] if name.startswith("stars") else "food, games" for name in ids]
    call(server, "PUT", "/classifiers/skies", {"index": INDEX, "ids": ids, "labels": labels})
    tab.open(f"{server.url}/#/{INDEX}/map")
    tab.wait("document.querySelector('#colour optgroup option[value=\"classifier=skies\"]')")
    topical = digest(tab)
    tab.run(
        "(() => { const chosen = document.querySelector('#colour');"
        " chosen.value = 'classifier=skies'; chosen.dispatchEvent(new Event('change')); })()"
    )
    tab.wait("document.querySelector('.legend-values')")
    rows = tab.run("[...document.querySelectorAll('.legend-values li')].map((e) => e.innerText)")
    assert rows == ["food, games 60", f"{PAYLOADS[1]} 30"]
    assert digest(tab) != topical
    # a click on a label shows its documents
    tab.click(".legend-values li:nth-child(2) button")
    tab.wait("document.querySelectorAll('.chosen li').length === 30")
    assert tab.text(".chosen h2") == f"30 documents · {PAYLOADS[1]}"
    links = tab.run("[...document.querySelectorAll('.chosen li a')].map((e) => e.href)")
    assert all("=stars" in link for link in links)
    assert tab.run("document.querySelector('#colour').value") == "classifier=skies"
    assert tab.run("window.attacked") is None
    call(server, "DELETE", "/classifiers/skies", status=204)
    assert tab.problems == []
    # the colours are those of the topics, and the page says why
    tab.open(f"{server.url}/#/{INDEX}/map?labels=skies")
    tab.wait("document.querySelector('.refused')")
    assert "there is no classifier of that name" in tab.text(".refused")
    assert tab.run("document.querySelector('#colour').value") == "field="
    tab.problems[:] = [one for one in tab.problems if "status of 404" not in one]
    assert tab.problems == []


def test_a_search_is_restricted_to_an_area(tab: Tab, server: Server) -> None:
    whole = call(server, "GET", f"/indexes/{INDEX}/map")
    places = np.frombuffer(base64.b64decode(whole["positions"]), "<f4").reshape(-1, 2)
    bread = places[[name.startswith("bread") for name in whole["ids"]]]
    (left, low), (right, high) = bread.min(axis=0) - 0.1, bread.max(axis=0) + 0.1
    line = [left, low, right, low, right, high, left, high]
    area = f"{whole['version']}:{','.join(f'{one:.4f}' for one in line)}"
    tab.open(f"{server.url}/#/{INDEX}/map?area={area}")
    shown = tab.wait("document.querySelector('.chosen h2')?.innerText")
    inside = int(shown.split(" ")[0])
    assert shown == f"{inside} documents inside the line"
    assert 30 <= inside < 90
    tab.run("document.querySelector('#map').focus()")
    tab.press("+")
    tab.click("#visible")
    tab.wait("document.querySelector('.chosen h2')?.innerText.endsWith('in view')")
    tab.open(f"{server.url}/#/{INDEX}/map?area={area}")
    tab.click("#search-inside")
    tab.click("#unit-documents + span")
    tab.wait("document.querySelector('#query')")
    hits = "[...document.querySelectorAll('.hits h2 a')].map((e) => e.href)"
    tab.run("document.querySelector('#query').focus()")
    tab.type("a rook takes the queen")
    tab.press("Enter")
    tab.wait("document.querySelectorAll('.hits > li').length === 10")
    assert "Inside an area of the map" in tab.text(".filters")
    found = tab.run(hits)
    # without the restriction the same search finds other documents
    tab.click(".filters .chip button")
    tab.wait("!document.querySelector('.filters .chip') && document.querySelector('.hits')")
    outside = tab.run(hits)
    assert all("=chess" in one for one in outside)
    assert not any("=chess" in one for one in found)
    assert tab.problems == []
    tab.open(f"{server.url}/#/{INDEX}/search?q=rook&area=another{area[area.index(':') :]}")
    tab.wait("document.querySelector('.results .problem')")
    assert "another map now" in tab.text(".results")
    tab.problems[:] = [one for one in tab.problems if "status of 409" not in one]


def test_a_map_without_points_is_shown(tab: Tab, server: Server) -> None:
    call(server, "PUT", "/indexes/without", {}, status=201)
    job = call(server, "POST", "/indexes/without/map", status=202)
    wait_until(lambda: call(server, "GET", f"/jobs/{job['id']}")["ended"], 60)
    document = {"id": "a", "text": "A document that is newer than the map."}
    call(server, "POST", "/indexes/without/documents", {"documents": [document]})
    tab.open(f"{server.url}/#/without/map")
    tab.wait("document.querySelector('#map')")
    assert "compute the map again" in tab.text("main")
    tab.run("document.querySelector('#map').focus()")
    tab.press("+")
    tab.press("ArrowLeft")
    tab.click("#visible")
    assert tab.wait("document.querySelector('.chosen h2')?.innerText") == "0 documents in view"
    digest(tab)
    assert tab.problems == []
    call(server, "DELETE", "/indexes/without", status=204)


# presses a key as soon as a map is in the page
QUICK = """new MutationObserver((_, observer) => {
  const map = document.querySelector('#map');
  if (!map) return;
  observer.disconnect();
  map.dispatchEvent(new KeyboardEvent('keydown', { key: '+' }));
  document.body.dataset.pressed = 'yes';
}).observe(document.body, { childList: true, subtree: true }); 0"""


def test_a_key_may_be_pressed_before_the_map_has_its_size(tab: Tab, server: Server) -> None:
    tab.open(f"{server.url}/#/{INDEX}/status")
    tab.wait("document.querySelector('.panel')")
    tab.run(QUICK)
    tab.run(f"location.hash = '#/{INDEX}/map'")
    tab.wait("document.body.dataset.pressed")
    assert tab.problems == []


def test_a_service_of_one_bundle_offers_no_choice(tab: Tab, server: Server) -> None:
    tab.open(f"{server.url}/#/{INDEX}/status")
    tab.wait("document.querySelector('.panel')")
    assert "Models" not in tab.text(".panels")
    tab.open(f"{server.url}/#/{INDEX}/add")
    asked = "performance.getEntriesByType('resource').some((e) => e.name.endsWith('/info'))"
    tab.wait(f"document.querySelector('#new-index') && {asked}")
    assert tab.run("document.querySelector('#new-model')") is None
    assert tab.problems == []


@pytest.mark.skipif(axe() is None, reason="needs axe-playwright-python or axe-core-python")
def test_accessibility_rules_find_nothing_serious(tab: Tab, server: Server) -> None:
    rules = axe()
    assert rules is not None
    tab.open(f"{server.url}/#/{INDEX}/map")
    tab.wait("document.querySelector('.topics')")
    tab.run(rules.read_text(encoding="utf-8") + "; 0")
    found: list[dict[str, Any]] = tab.run("axe.run().then((r) => r.violations)")
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert serious == [], json.dumps(serious)[:3000]
