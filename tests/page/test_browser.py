"""The page in a real browser, on a real service with API keys."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from tests.conftest import NIGHTLY, Server
from tests.page.browser import Tab, command
from tests.page.conftest import HEADERS, PAYLOADS, PEPS

pytestmark = pytest.mark.skipif(
    command(Path(), 0) is None,
    reason="needs Chromium, Google Chrome or PySide6 with QtWebEngine",
)

# views that show a document to read
VIEWS = ["document", "compare", "neighbourhood"]


def search(tab: Tab, text: str) -> None:
    tab.click("#query")
    tab.run("document.querySelector('#query').value = ''")
    tab.type(text)
    tab.press("Enter")
    tab.wait("document.querySelector('.hits li, .results .empty')")


def titles(tab: Tab) -> list[str]:
    found: list[str] = tab.run(
        "[...document.querySelectorAll('.hits h2')].map((e) => e.textContent)"
    )
    return found


def test_a_search_shows_the_best_passage_with_its_words(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/peps/search")
    search(tab, "methods that remove a prefix or suffix from strings")
    assert titles(tab)[0] == "PEP 616"
    marks = tab.run("[...document.querySelectorAll('.best mark')].map((e) => e.innerText)")
    assert "prefix" in marks
    assert "from" not in marks


def test_the_address_of_a_search_shows_it_again(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/peps/search")
    search(tab, "docstring conventions")
    tab.click("#unit-documents + span")
    tab.wait("document.querySelector('.pairs')")
    address, found = tab.run("location.href"), titles(tab)
    assert found[0] == "PEP 257"
    tab.open(address)
    tab.wait("document.querySelector('.pairs')")
    assert titles(tab) == found
    assert tab.run("document.querySelector('#query').value") == "docstring conventions"


def test_documents_show_which_windows_resemble_each_other(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/peps/search?like=pep-257&unit=documents")
    tab.wait("document.querySelector('.pairs')")
    assert "PEP 257" not in titles(tab)
    tab.click(".why summary")
    pair = tab.wait("document.querySelector('.pairs').innerText")
    assert "That document" in pair
    assert re.search(r"(strong|fair|weak)\s+meaning \d\.\d\d", pair)


def test_a_filter_leaves_only_documents_that_pass(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/peps/search?q=python&unit=documents&mode=cosine")
    tab.wait("document.querySelectorAll('.hits > li').length === 5")
    tab.click("#add-filter")
    tab.wait("document.querySelector('.editor select')")
    tab.run("document.querySelector('.editor select:nth-of-type(2)').value = 'gte'")
    tab.run("document.querySelector('.editor input').focus()")
    tab.type("2015")
    tab.press("Enter")
    tab.wait("document.querySelectorAll('.hits > li').length === 2")
    assert sorted(titles(tab)) == ["PEP 566", "PEP 616"]
    tab.click(".chip button")
    tab.wait("document.querySelectorAll('.hits > li').length === 5")


def test_more_results_follow_those_that_are_shown(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/many/search?q=number")
    tab.wait("document.querySelectorAll('.hits > li').length === 10")
    first = titles(tab)
    tab.click("#more")
    tab.wait("document.querySelectorAll('.hits > li').length === 12")
    assert titles(tab)[:10] == first
    # the reader goes on at the first new one
    assert tab.run("document.activeElement.textContent") == titles(tab)[10]
    assert tab.run("scrollY") > 0


def test_an_error_shows_the_hint_of_the_service(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/peps/search?q=x&unit=documents&mode=cites")
    tab.wait("document.querySelector('[role=alert]')")
    assert "POST /indexes/peps/citation" in tab.text("[role=alert]")
    tab.problems[:] = [one for one in tab.problems if "status of 4" not in one]


def test_the_page_works_by_keyboard(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/peps/search")
    tab.wait("document.querySelector('.seeds li')")
    tab.press("/")
    assert tab.run("document.activeElement.id") == "query"
    tab.type("zen")
    tab.press("Enter")
    tab.wait("document.querySelector('.hits li')")
    reached = set()
    for _ in range(30):
        tab.press("Tab")
        reached.add(tab.run("document.activeElement.id || document.activeElement.innerText"))
    assert {"unit-passages", "mode", "go", "add-filter", "Documents like this"} <= reached


@pytest.mark.parametrize("unit", ["passages", "documents"])
def test_no_document_runs_a_script(tab: Tab, service: Server, unit: str) -> None:
    tab.open(f"{service.url}/#/attacks/search?q=attack%20window&unit={unit}")
    tab.wait(f"document.querySelectorAll('.hits > li').length === {len(PAYLOADS)}")
    tab.wait("document.querySelectorAll('.hits blockquote').length >= 8")
    # a title that shows its HTML was not read as HTML
    assert sorted(titles(tab)) == sorted(PAYLOADS)
    assert (
        tab.run("document.querySelectorAll('main :is(script, img, svg, iframe, math)').length") == 0
    )
    assert tab.run("document.querySelectorAll('main a:not([href^=\"#\"])').length") == 0
    assert tab.run("window.attacked") is None


@pytest.mark.parametrize("view", VIEWS)
def test_no_document_that_is_read_runs_a_script(tab: Tab, service: Server, view: str) -> None:
    for place, payload in enumerate(PAYLOADS):
        # at night every attempt in every view, else each in one
        if not NIGHTLY and place % len(VIEWS) != VIEWS.index(view):
            continue
        ids = {"id": f"{payload} {place}", "other": f"{PAYLOADS[0]} 0"}
        tab.open(f"{service.url}/#/attacks/{view}?{urlencode(ids)}")
        tab.wait("document.querySelector('.text, .pairs, .node')")
        shown = "main h1:not(.quiet-read), main .heads h2"
        assert payload in tab.run(f"document.querySelector('{shown}').textContent")
        made = "document.querySelectorAll('main :is(script, img, iframe, math)').length"
        assert tab.run(made) == 0
    assert tab.run("window.attacked") is None


def test_a_document_shows_its_windows_and_relations(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/peps/document?id=pep-257")
    tab.wait("document.querySelectorAll('aside .part').length === 5")
    assert len(tab.run("[...document.querySelectorAll('.window')].map((e) => e.id)")) > 3
    parts = tab.run("[...document.querySelectorAll('aside .part')].map((e) => e.innerText)")
    named = {part.split("\n")[0]: part for part in parts}
    assert [*named] == ["Cites", "Cited by", "Resembles", "Might also cite", "Labels"]
    assert "PEP 20" in named["Cites"]
    assert "given" in named["Cites"]
    assert "No document" in named["Cited by"]
    assert named["Resembles"].count("Compare") == 4
    # what the list is ordered by, and a word for each figure
    order = [float(one) for one in re.findall(r"order (-?\d+\.\d\d)", named["Resembles"])]
    assert order == sorted(order, reverse=True)
    words = re.findall(r"(strong|fair|weak)\s+order .*\s+meaning (\d\.\d\d)", named["Resembles"])
    assert len(words) == len(order) == 4
    grades = [
        ("weak", "fair", "strong")[(float(it) >= 0.5) + (float(it) >= 0.7)] for _, it in words
    ]
    assert [word for word, _ in words] == grades
    assert "From 0.70 on it is strong" in tab.run(
        "document.querySelector('aside .score-legend').textContent"
    )


def test_a_label_shows_the_windows_that_carried_it(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/peps/document?id=pep-404")
    tab.click(".choices button")
    labels = tab.wait("document.querySelector('.labels')?.innerText")
    assert PAYLOADS[1] in labels
    assert "plain" in labels
    tab.click("aside .part li button")
    assert tab.run("document.querySelectorAll('.window.shown.carried .share').length") == 1
    assert tab.run("window.attacked") is None


def test_a_text_has_the_direction_of_its_script(tab: Tab, service: Server) -> None:
    text = "\u0647\u0630\u0627 \u0646\u0635 (12)."
    document = {"id": "arabic", "title": text, "text": text}
    with httpx.Client(base_url=service.url, headers=HEADERS, timeout=60) as client:
        assert client.put("/indexes/directions", json={}).is_success
        answer = client.post("/indexes/directions/documents", json={"documents": [document]})
        assert answer.is_success
        tab.open(f"{service.url}/#/directions/document?id=arabic")
        gap = "(e) => { const r = document.createRange(); r.selectNodeContents(e);"
        gap += " return e.getBoundingClientRect().right - r.getBoundingClientRect().right; }"
        tab.wait("document.querySelector('.words')")
        assert tab.run(f"[...document.querySelectorAll('.words, h1')].map({gap})") == [0, 0]
        assert client.delete("/indexes/directions").is_success


def test_two_documents_stand_side_by_side(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/peps/document?id=pep-566")
    tab.wait("document.querySelectorAll('aside .part').length >= 3")
    tab.run(
        "[...document.querySelectorAll('aside a')].find((e) => e.innerText === 'Compare').click()"
    )
    tab.wait("document.querySelectorAll('.pairs.long > li').length > 2")
    assert tab.text(".heads h2") == "PEP 566"
    # a place leads to its window in the document
    tab.click(".pairs figcaption a")
    tab.wait("document.querySelector('.window.shown')")
    assert tab.text("h1") == "PEP 566"


def test_two_documents_are_compared_by_their_titles(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/peps/compare")
    tab.wait("document.querySelectorAll('#titles option').length === 5")
    known = tab.run("[...document.querySelector('#titles').options].map((e) => e.value)")
    assert sorted(known) == sorted(f"PEP {name[4:]}" for name in PEPS)
    for box, text in (("id", "PEP 20"), ("other", "PEP 9999")):
        tab.run(f"document.querySelector('#{box}').focus()")
        tab.type(text)
    tab.press("Enter")
    tab.wait("document.querySelector('main .problem')")
    assert "PEP 9999" in tab.text("main .problem")
    tab.run("document.querySelector('#other').value = ''")
    tab.type("PEP 257")
    tab.press("Enter")
    tab.wait("document.querySelector('.pairs.long')")
    assert tab.text(".heads") == "PEP 20\nPEP 257"


# what no visible text says: a lawyer knows none of these words
JARGON = re.compile(r"\b(windows?|index(es)?|ids?|cosines?)\b", re.IGNORECASE)
SHOWN = """[document.title, document.body.innerText,
  ...[...document.querySelectorAll("main *, header *")].flatMap((e) =>
    [e.placeholder, e.title, e.ariaLabel])].filter(Boolean).join("\\n")"""


@pytest.mark.parametrize(
    "view",
    [
        "search",
        "search?q=number",
        "search?q=number&unit=documents",
        "document?id=1",
        "compare",
        "compare?id=1&other=2",
        "map",
        "neighbourhood?id=1",
        "label",
        "label?classifier=parity&l=odd&l=even",
        "add",
        "status",
    ],
)
def test_the_page_says_no_jargon(tab: Tab, service: Server, view: str) -> None:
    tab.open(f"{service.url}/#/many/{view}")
    tab.wait("document.querySelector('nav a') && !document.querySelector('main .waiting')")
    tab.wait(
        "document.querySelector('.seeds, .hits, aside .part:nth-of-type(4), .pairs, form.simple,"
        " #compute, .node, .desk, .drop, .panel')"
    )
    tab.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert JARGON.findall(tab.run(SHOWN)) == []
    tab.problems[:] = [one for one in tab.problems if "status of 404" not in one]


def test_what_files_state_is_filtered(tab: Tab, service: Server, key: str | None) -> None:
    tab.open(f"{service.url}/#/peps/add")
    tab.wait("document.querySelector('#new-index')")
    tab.run("document.querySelector('#new-index').focus()")
    tab.type("stated")
    tab.press("Enter")
    tab.wait("document.querySelector('h1 em')?.innerText === 'stated'")
    with httpx.Client(base_url=service.url, headers=HEADERS, timeout=60) as client:
        fields = client.get("/indexes/stated").json()["fields"]
        expected = {"author": "string", "date": "date", "page": "integer", "language": "string"}
        assert fields == expected
        documents = [
            {"id": who, "text": "A note.", "metadata": {"author": who, "date": f"20{year}-01-02"}}
            for who, year in (("Ann Bell", 19), ("Cid Dorn", 21))
        ]
        assert client.post("/indexes/stated/documents", json={"documents": documents}).is_success
        tab.open(f"{service.url}/#/stated/search?q=note")
        tab.wait("document.querySelectorAll('.hits > li').length === 2")
        tab.click("#add-filter")
        tab.wait("document.querySelector('.editor select')")
        # no document has a page or a language
        offered = "[...document.querySelectorAll('.editor option')].map((e) => e.value)"
        shown = tab.run(offered)
        assert {"author", "date", "Ann Bell", "Cid Dorn"} <= set(shown)
        assert not {"page", "language"} & set(shown)
        tab.run("document.querySelector('.editor input').focus()")
        tab.type("Cid Dorn")
        tab.press("Enter")
        tab.wait("document.querySelectorAll('.hits > li').length === 1")
        assert titles(tab) == ["Cid Dorn"]
        tab.open(f"{service.url}/#/stated/search?q=note&f=date:lt:2020-01-01")
        tab.wait("document.querySelectorAll('.hits > li').length === 1")
        assert titles(tab) == ["Ann Bell"]
        assert client.delete("/indexes/stated").is_success


def test_something_is_visible_before_any_script_runs(tab: Tab, service: Server) -> None:
    tab("Network.setBlockedURLs", urls=["*.js"])
    try:
        tab.open(f"{service.url}/#/peps/search")
        assert tab.text("main") == "Opening…"
        assert tab.text(".brand") == "docsplit"
    finally:
        tab("Network.setBlockedURLs", urls=[])
    tab.problems.clear()


def test_the_citations_of_a_document_are_a_graph(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/peps/document?id=pep-20")
    tab.wait("document.querySelector('.lead')")
    tab.click(".lead a + a")
    tab.wait("document.querySelector('.lines > path.given')")
    assert tab.text(".centre strong") == "PEP 20"
    assert tab.text("[aria-label='Cited by'] .given strong") == "PEP 257"
    tab.wait("document.querySelector('.centre .counts').innerText === 'cited by 1'")
    # the arrow leads from the citing document, on the left, to the middle
    ends = tab.run("document.querySelector('.lines > path.given').getAttribute('d')")
    numbers = [float(each) for each in re.findall(r"[\d.]+", ends)]
    assert numbers[0] < numbers[-2]
    # without a head, the service says how to train one
    tab.click("#predict")
    tab.wait("document.querySelector('.predict [role=alert]')")
    assert "POST /indexes/peps/citation" in tab.text(".predict")
    tab.problems[:] = [one for one in tab.problems if "status of 4" not in one]


def test_the_status_shows_health_and_indexes(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/peps/status")
    keys = tab.wait("document.querySelectorAll('.panel').length > 3 && document.body.innerText")
    assert ("may do everything" in keys) == bool(tab.run("sessionStorage.getItem('docsplit.key')"))
    shown = tab.wait("document.querySelectorAll('.panel').length > 3 && main.innerText")
    assert "ready" in shown
    assert "5 documents" in shown
    assert "unknown" not in shown


def test_a_view_that_comes_late_does_not_replace_the_next_one(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/peps/search")
    tab.wait("document.querySelector('.seeds')")
    tab.run("location.hash = '#/peps/compare?id=pep-20&other=pep-257'")
    tab.run("new Promise((resolve) => setTimeout(resolve))")
    tab.run("location.hash = '#/peps/add'")
    tab.wait("document.querySelector('.drop')")
    tab.run("new Promise((resolve) => setTimeout(resolve, 500))")
    assert tab.run("document.querySelector('.drop') !== null")


def test_files_and_texts_are_added(tab: Tab, service: Server, tmp_path: Path) -> None:
    tab.open(f"{service.url}/#/peps/add")
    tab.wait("document.querySelector('#new-index')")
    tab.run("document.querySelector('#new-index').focus()")
    tab.type("made")
    tab.press("Enter")
    tab.wait("document.querySelector('h1 em')?.innerText === 'made'")
    good, bad = tmp_path / f"{PAYLOADS[1]}.txt", tmp_path / "broken.pdf"
    good.write_text("A text about gardens. " * 20, encoding="utf-8")
    bad.write_bytes(b"%PDF-1.4 nothing")
    tab.choose("#files", good, bad)
    tab.wait("document.querySelector('.report').innerText.startsWith('Done: 2 of 2')")
    assert "1 document written" in tab.text(".report")
    assert tab.run("document.querySelector('.refused dt').innerText") == "broken.pdf"
    assert len(tab.text(".refused dd")) > 10
    tab.run("document.querySelector('#new-id').focus()")
    tab.type("copy")
    tab.run("document.querySelector('#new-text').focus()")
    tab.type("A text about gardens. " * 20)
    tab.click("form button.main")
    tab.wait("document.querySelector('form.simple').innerText.includes('Nearly the same')")
    tab.open(f"{service.url}/#/made/search?q=gardens")
    tab.wait("document.querySelectorAll('.hits > li').length === 2")
    assert sorted(titles(tab)) == [f"{PAYLOADS[1]}.txt", "copy"]
    assert tab.run("window.attacked") is None


def test_a_window_finds_passages_like_it(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/#/peps/document?id=pep-616")
    tab.click(".edge a")
    tab.wait("document.querySelector('.hits li')")
    assert "Like a part of the document pep-616" in tab.text(".like")
    assert "PEP 616" not in titles(tab)


def test_the_browser_refuses_html_from_texts(tab: Tab, service: Server) -> None:
    """The control: the policy holds even where the page's own code would not."""
    tab.open(f"{service.url}/#/peps/search")
    with pytest.raises(AssertionError, match="TrustedHTML"):
        tab.run("document.body.innerHTML = '<b>text</b>'")
    tab.problems.clear()


def axe() -> Path | None:
    """The accessibility rules, where one of the packages that have them is installed."""
    for name in ("axe_playwright_python", "axe_core_python"):
        found = find_spec(name)
        if found is not None and found.origin is not None:
            return Path(found.origin).with_name("axe.min.js")
    return None


AUDITED = [
    ("search?q=python+packages&unit=documents&f=year:gte:2001", False),
    ("document?id=pep-257", True),
    ("search?q=python+packages&unit=documents&f=year:gte:2001", True),
    ("document?id=pep-257", False),
    ("compare?id=pep-257&other=pep-566", True),
    ("add", False),
    ("status", True),
    ("neighbourhood?id=pep-20", False),
]


# each takes a second or two
@pytest.mark.skipif(axe() is None, reason="needs axe-playwright-python or axe-core-python")
@pytest.mark.parametrize(("view", "dark"), AUDITED if NIGHTLY else AUDITED[:2])
def test_accessibility_rules_find_nothing_serious(
    tab: Tab, service: Server, view: str, dark: bool
) -> None:
    rules = axe()
    assert rules is not None
    tab.look(dark=dark)
    tab.open(f"{service.url}/#/peps/{view}")
    tab.wait("document.querySelector('.pairs, aside .part:nth-of-type(5), .drop, .panel, .node')")
    tab.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    tab.run(rules.read_text(encoding="utf-8") + "; 0")
    found: list[dict[str, Any]] = tab.run("axe.run().then((r) => r.violations)")
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert serious == [], json.dumps(serious)[:3000]


@pytest.mark.parametrize(
    "view",
    [
        "search",
        "search?q=python&unit=documents",
        "document?id=pep-257",
        "compare?id=pep-257&other=pep-566",
        "add",
        "status",
        "neighbourhood?id=pep-20",
    ],
)
def test_the_page_fits_a_phone(tab: Tab, service: Server, view: str) -> None:
    tab.look(360, 740)
    tab.open(f"{service.url}/#/peps/{view}")
    tab.wait("document.querySelector('.seeds li, .pairs, .window, .drop, .panel, .node')")
    assert tab.run("document.documentElement.scrollWidth") <= 360


def test_swagger_ui_shows_every_route(tab: Tab, service: Server) -> None:
    tab.open(f"{service.url}/docs")
    tab.wait("document.querySelectorAll('.opblock').length > 40")
