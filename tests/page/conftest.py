"""A service with documents for the page, and the browser that looks at it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from docsplit.bundles.format import DEFAULT_BUNDLE
from tests.conftest import NIGHTLY, Server, free_port, serving
from tests.page.browser import Tab, browsing

KEY = "a-key-for-the-page-in-a-tab"
HEADERS = {"authorization": f"Bearer {KEY}"}
# attempts to run a script, in titles, ids, texts and metadata
PAYLOADS = [
    "<script>window.attacked = 1</script>",
    "<img src=x onerror='window.attacked = 1'>",
    "\"><svg onload='window.attacked = 1'>",
    "javascript:window.attacked=1//",
    "</textarea></title></style><iframe srcdoc='<script>parent.attacked=1</script>'>",
    "{{constructor.constructor('window.attacked=1')()}} ${window.attacked=1}",
    "<a href='javascript:window.attacked=1' autofocus onfocus='window.attacked=1'>here</a>",
    "<math><mi xlink:href='data:x,<script>window.attacked=1</script>'>\u202e\u2028",
]
OTHER_MODEL = "start"
PEPS = {"pep-20": 2004, "pep-257": 2001, "pep-404": 2011, "pep-566": 2017, "pep-616": 2020}


@pytest.fixture(scope="package", params=[KEY, None] if NIGHTLY else [KEY])
def key(request: pytest.FixtureRequest) -> str | None:
    """The key that the service needs; at night also none."""
    found: str | None = request.param
    return found


@pytest.fixture(scope="package")
def service(
    tmp_path_factory: pytest.TempPathFactory,
    peps: dict[str, str],
    key: str | None,
    light: tuple[str, ...],
) -> Iterator[Server]:
    """A service of two bundles; it has some PEPs, and documents that attack the page.

    No test needs the second bundle, so the service never loads it. The first one tells only which
    words texts share.
    """
    attacks = [
        {
            "id": f"{payload} {place}",
            "title": payload,
            "text": f"attack {payload}",
            "metadata": {"kind": payload, payload[:64]: payload, "n": place},
        }
        for place, payload in enumerate(PAYLOADS)
    ]
    own = [
        {
            "id": name,
            "title": f"PEP {name[4:]}",
            # a few windows each
            "text": peps[name][:4000],
            "metadata": {"year": year},
            "links": ["pep-20"] if name == "pep-257" else [],
        }
        for name, year in PEPS.items()
    ]
    log = tmp_path_factory.mktemp("page") / "log"
    bundles = [*light, "--bundle", f"{OTHER_MODEL}={DEFAULT_BUNDLE}"]
    with (
        serving(log, *bundles, *(["--api-keys", key] if key else [])) as running,
        httpx.Client(base_url=running.url, headers=HEADERS, timeout=60) as client,
    ):
        for name, fields, documents in (
            ("attacks", {"kind": "string", "n": "integer"}, attacks),
            ("peps", {"year": "integer"}, own),
            ("many", {}, [{"id": f"{n}", "text": f"Number {n}."} for n in range(12)]),
        ):
            assert client.put(f"/indexes/{name}", json={"fields": fields}).is_success
            answer = client.post(f"/indexes/{name}/documents", json={"documents": documents})
            assert answer.is_success, answer.text
        # a label can attack, too
        kinds = {"ids": [*PEPS][:4], "labels": ["plain", PAYLOADS[1]] * 2, "index": "peps"}
        assert client.put("/classifiers/kinds", json=kinds).is_success
        assert client.post("/indexes/peps/links/find", json={}).is_success
        yield running


@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browsing(tmp_path_factory.mktemp("browser"), free_port()) as tab:
        yield tab


@pytest.fixture
def tab(browser: Tab, service: Server, key: str | None) -> Iterator[Tab]:
    """The tab, with any key in it; whatever a test does, the page must have no error."""
    # first a small page: another size makes a browser lay out a large one again
    browser.open(f"{service.url}/livez")
    browser.look()
    if key is not None:
        browser.run(f"sessionStorage.setItem('docsplit.key', {key!r})")
    browser.problems.clear()
    browser.loaded.clear()
    yield browser
    assert browser.problems == []
    outside = [
        url for url in browser.loaded if not url.startswith((service.url, "data:", "about:"))
    ]
    assert outside == []
