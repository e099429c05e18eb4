"""Labelling on the page, in a real browser on a real service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import Server
from tests.page.browser import Tab, command
from tests.page.conftest import HEADERS, PAYLOADS, PEPS
from tests.page.test_browser import axe

pytestmark = pytest.mark.skipif(
    command(Path(), 0) is None,
    reason="needs Chromium, Google Chrome or PySide6 with QtWebEngine",
)

ATTACK = PAYLOADS[1]
SHOWN = "document.querySelector('.labelling h2')"


def counts(tab: Tab) -> dict[str, int]:
    """Labelled documents by label, as the page shows them."""
    rows = tab.run("[...document.querySelectorAll('.desk dl > *')].map((e) => e.textContent)")
    return dict(zip(rows[::2], map(int, rows[1::2]), strict=True))


def current(tab: Tab) -> str:
    """The id of the document that waits for its label."""
    return f"pep-{tab.text('.labelling h2').removeprefix('PEP ')}"


def press(tab: Tab, key: str) -> None:
    """Press a key and wait for what it shows."""
    tab.run("window.before = document.querySelector('.labelling').firstChild")
    tab.press(key)
    tab.wait("window.before !== document.querySelector('.labelling').firstChild")


def saved(tab: Tab, kind: str) -> str:
    """The content of the file that a button saves."""
    tab.run(
        "URL.createObjectURL = (blob) => { window.saved = blob.text(); return '#/peps/label'; }"
    )
    tab.run("HTMLAnchorElement.prototype.click = () => undefined")
    tab.run("window.saved = null")
    tab.click(f"#save-{kind}")
    tab.wait("window.saved")
    return str(tab.run("window.saved"))


@pytest.fixture
def name(service: Server) -> Iterator[str]:
    """The name of a classifier that does not exist before and after the test."""
    yield "eras"
    httpx.delete(f"{service.url}/classifiers/eras", headers=HEADERS)


def test_a_person_makes_a_classifier_by_keys(tab: Tab, service: Server, name: str) -> None:
    tab.open(f"{service.url}/#/peps/label")
    tab.wait("document.querySelector('#new-classifier')")
    tab.run("document.querySelector('#new-classifier').focus()")
    tab.type(name)
    tab.run("document.querySelector('#new-labels').focus()")
    tab.type(f"old, {ATTACK}")
    tab.press("Enter")
    tab.wait(SHOWN)
    assert tab.run("document.querySelectorAll('.labelling .window').length") > 0
    # skipped documents do not come back, and undo shows them again
    first = current(tab)
    press(tab, "s")
    assert current(tab) != first
    press(tab, "u")
    assert current(tab) == first
    # a button keeps the focus when a person uses no keys
    tab.run("document.querySelector('button.label').focus()")
    labels: dict[str, str] = {}
    for number in "1212":
        labels[current(tab)] = ["old", ATTACK][int(number) - 1]
        press(tab, number)
    assert counts(tab) == {"old": 2, ATTACK: 2}
    assert tab.run("document.activeElement.textContent") == "1 old"
    # the first training follows at once
    assert "with 4 documents" in tab.wait(
        "document.querySelector('.curve svg')?.getAttribute('aria-label')"
    )
    # which windows carry its label: a document of one window has the whole share
    tab.press("w")
    tab.wait("document.querySelector('.labelling .carried .share')")
    last = current(tab)
    assert {*labels, last} == {*PEPS}
    press(tab, "2")
    assert "No document is left" in tab.text(".labelling")
    press(tab, "u")
    assert current(tab) == last
    # nothing is lost with the tab
    tab.open(f"{service.url}/#/peps/label?classifier={name}")
    tab.wait(f"document.querySelector('.curve figcaption') && {SHOWN}")
    assert counts(tab) == {"old": 2, ATTACK: 2}
    rows = [json.loads(line) for line in saved(tab, "jsonl").splitlines()]
    assert {row["id"]: row["label"] for row in rows} == labels
    assert all(row["text"] for row in rows)
    table = saved(tab, "csv").splitlines()
    assert table[0] == '"index","id","title","label"'
    assert len(table) == 5
    # a spreadsheet would compute these
    formulas = ["=1+1", "@sum(1)", "\uff1d1+1", "+1+1", "-1+1"]
    given = [{"id": one, "labels": [text]} for one, text in zip(PEPS, formulas, strict=True)]
    place = f"{service.url}/classifiers/{name}/labels"
    body = {"index": "peps", "documents": given}
    httpx.post(place, json=body, headers=HEADERS).raise_for_status()
    computed = saved(tab, "csv")
    assert [text for text in formulas if f'"\'{text}"\n' not in computed] == []
    assert tab.run("window.attacked") is None


def test_a_document_gets_several_labels(tab: Tab, service: Server, name: str) -> None:
    place = f"{service.url}/classifiers/{name}"
    examples = {"inputs": [f"Number {n}." for n in range(6)], "multi_label": True}
    labels = [["a"], ["b"], ["a", "b"], [], ["a"], ["b"]]
    answer = httpx.put(place, json=examples | {"labels": labels}, headers=HEADERS, timeout=60)
    assert answer.is_success, answer.text
    tab.open(f"{service.url}/#/many/label?classifier={name}")
    tab.wait(SHOWN)
    first = tab.text(".labelling h2")
    tab.press("1")
    tab.press("2")
    pressed = "[...document.querySelectorAll('button.label')].map((e) => e.ariaPressed).join()"
    tab.wait(f"{pressed} === 'true,true'")
    tab.press("1")
    tab.wait(f"{pressed} === 'false,true'")
    press(tab, "Enter")
    found = httpx.get(f"{place}/labels", headers=HEADERS).json()["documents"]
    assert [(one["id"], one["labels"]) for one in found] == [(first, ["b"])]


def test_a_person_makes_a_classifier_of_several_labels(
    tab: Tab, service: Server, name: str
) -> None:
    tab.open(f"{service.url}/#/peps/label")
    tab.wait("document.querySelector('#new-classifier')")
    tab.run("document.querySelector('#new-classifier').focus()")
    tab.type(name)
    tab.run("document.querySelector('#new-labels').focus()")
    tab.type(f"old, {ATTACK}")
    tab.click("#several")
    tab.run("document.querySelector('#new-labels').focus()")
    tab.press("Enter")
    tab.wait(SHOWN)
    assert "two without it" in tab.text(".desk aside")
    # four documents with one label each: nothing but the choice tells that there may be several
    labels: dict[str, list[str]] = {}
    for number in "1212":
        labels[current(tab)] = [["old", ATTACK][int(number) - 1]]
        tab.press(number)
        press(tab, "Enter")
    shown = tab.wait("document.querySelector('.curve svg')?.getAttribute('aria-label')")
    assert "all labels right" in shown
    place = f"{service.url}/classifiers/{name}"
    assert httpx.get(place, headers=HEADERS).json()["multi_label"]
    labels[current(tab)] = []
    press(tab, "Enter")
    assert counts(tab) == {"old": 2, ATTACK: 2, "no label": 1}
    found = httpx.get(f"{place}/labels", headers=HEADERS).json()["documents"]
    assert {one["id"]: one["labels"] for one in found} == labels
    # which of the labels a document gets
    tab.open(f"{service.url}/#/peps/document?id=pep-20&labels")
    chosen = (
        f"[...document.querySelectorAll('.choices button')].find((e) => e.innerText === '{name}')"
    )
    tab.wait(chosen)
    tab.run(f"{chosen}.click()")
    tab.wait(
        "/It gets/.test(document.querySelector('.part dl.labels')?.previousSibling?.innerText)"
    )
    assert tab.run("window.attacked") is None


def test_no_document_to_label_runs_a_script(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/attacks/label?classifier=kinds")
    for _ in PAYLOADS:
        assert tab.wait(f"{SHOWN}?.textContent") in PAYLOADS
        press(tab, "s")
    assert tab.run("document.querySelectorAll('main :is(script, img, iframe, math)').length") == 0
    assert tab.run("window.attacked") is None


def test_the_page_says_when_accuracy_no_longer_grows(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/peps/label")
    tab.wait("document.querySelector('#new-classifier')")
    file = tab.run(
        "document.querySelector('script[type=module]').src.replace('app.js', 'curve.js')"
    )
    asked = f"import({file!r}).then((curve) => curve.stalled(curve.points(%s)))"
    growing = [{"examples": 10 * n, "accuracy": 0.4 + 0.05 * n} for n in range(1, 8)]
    flat = growing + [{"examples": 70 + 10 * n, "accuracy": 0.75} for n in range(1, 6)]
    assert tab.run(asked % json.dumps({"history": growing[:-1], **growing[-1]})) == 0
    assert tab.run(asked % json.dumps({"history": flat[:-1], **flat[-1]})) == 50
    # Wilson's interval of 8 successes in 10
    found = tab.run(f"import({file!r}).then((curve) => curve.interval(0.8, 10))")
    assert [found["low"], found["high"]] == pytest.approx([0.490, 0.943], abs=0.001)


@pytest.mark.skipif(axe() is None, reason="needs axe-playwright-python or axe-core-python")
@pytest.mark.parametrize("view", ["label", "label?classifier=kinds"])
def test_labelling_is_accessible_and_fits_a_phone(tab: Tab, service: Server, view: str) -> None:
    rules = axe()
    assert rules is not None
    tab.look(360, 740, dark=True)
    tab.open(f"{service.url}/#/peps/{view}")
    tab.wait("document.querySelector('.labelling h2, #new-classifier')")
    assert tab.run("document.documentElement.scrollWidth") <= 360
    tab.run(rules.read_text(encoding="utf-8") + "; 0")
    found = tab.run("axe.run().then((r) => r.violations)")
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert serious == [], json.dumps(serious)[:3000]
