"""The files of the pages for browsers, and how they are served."""

from __future__ import annotations

import asyncio
import hashlib
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse

from features.page.pages import Pages, load
from service.configuration import load as load_settings
from tests.conftest import ROOT

ROOM = ROOT / "features" / "page"
UI = sorted(path for path in (ROOM / "ui").iterdir())
# Swagger UI 5.32.6, as its authors publish it
SWAGGER = {
    "swagger-ui-bundle.js": "4b5a9b35a1adf37f00d39c0bae23cdb37007e2946240ef035137cc85b4d55349",
    "swagger-ui.css": "ca238f7d7c2cf4480c1e77a9c3b9da915ab216e96ffd354e69076560c650c6de",
}
MOST_BYTES = 700_000
BEHIND = "the application"


def ask(path: str, method: str = "GET", ui: bool = True, **headers: str) -> httpx.Response:
    """The answer of the pages, or of the application behind them."""

    async def call() -> httpx.Response:
        app = Pages(PlainTextResponse(BEHIND), ui=ui)
        transport = httpx.ASGITransport(app=app)
        given = {"accept-encoding": "identity"} | {
            k.replace("_", "-"): v for k, v in headers.items()
        }
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, headers=given)

    return asyncio.run(call())


def files_of(page: httpx.Response) -> list[str]:
    """Paths of the files that a page names."""
    return re.findall(r'(?:src|href)="([^"#]+\.\w+)"', page.text)


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_and_its_files_are_served(path: str) -> None:
    page = ask(path)
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    files = files_of(page)
    assert len(files) >= 4
    for name in files:
        answer = ask(f"/{name}")
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["content-type"].split(";")[0] in (
            "text/css",
            "text/javascript",
            "image/svg+xml",
        )


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_runs_only_its_own_scripts(path: str) -> None:
    page = ask(path)
    policy = dict(
        part.split(" ", 1) for part in page.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in str(policy)
    assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=", page.text)


def test_no_script_stands_before_the_first_paint() -> None:
    scripts = re.findall("<script[^>]*>", ask("/").text)
    assert scripts
    assert all('type="module"' in each for each in scripts)


def test_the_page_forbids_html_from_texts() -> None:
    policy = ask("/").headers["content-security-policy"]
    assert "require-trusted-types-for 'script'" in policy
    assert "trusted-types 'none'" in policy


@pytest.mark.parametrize("path", UI, ids=lambda path: path.name)
def test_a_file_of_the_page_loads_nothing_from_elsewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(
        r"https?:|[\"'(]//|@import|\beval\b|new Function|innerHTML|outerHTML", text
    )
    for name in re.findall(r'from "\./([^"]+)"', text):
        assert (ROOM / "ui" / name).is_file()


def test_every_module_of_the_page_is_loaded() -> None:
    texts = [path.read_text(encoding="utf-8") for path in UI if path.suffix in (".js", ".html")]
    named = {name for text in texts for name in re.findall(r"[\w-]+\.(?:js|css|svg)", text)}
    assert {path.name for path in UI} == named | {"index.html"}


def test_swagger_ui_is_the_published_one() -> None:
    for name, digest in SWAGGER.items():
        assert hashlib.sha256((ROOM / "swagger" / name).read_bytes()).hexdigest() == digest


def test_all_files_together_are_small() -> None:
    folders = [load("ui", "page"), load("swagger", "docs")]
    sizes = [len(file.packed) for each in folders for file in (each.page, *each.files.values())]
    # Swagger UI takes most of it
    assert 300_000 < sum(sizes) < MOST_BYTES
    assert sum(len(file.packed) for file in folders[0].files.values()) < 100_000


def test_the_wheel_ships_every_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["features.page"]
    files = [path for path in ROOM.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    for name in (path.relative_to(ROOM).as_posix() for path in files):
        assert name.endswith(".py") or any(fnmatch(name, pattern) for pattern in patterns), name


def test_a_browser_keeps_a_file_only_under_the_digest_of_its_version() -> None:
    digest = load("ui", "page").digest
    assert "immutable" in ask(f"/page/{digest}/app.js").headers["cache-control"]
    # a page of another replica may name it during an update
    other = ask("/page/0123456789abcdef/app.js")
    assert (other.status_code, other.headers["cache-control"]) == (200, "no-cache")


def test_an_unchanged_page_is_not_sent_again() -> None:
    etag = ask("/").headers["etag"]
    assert ask("/", if_none_match=etag).status_code == 304
    assert ask("/", if_none_match='"other"').status_code == 200


def test_files_are_compressed_for_clients_that_accept_it() -> None:
    path = f"/{files_of(ask('/'))[-1]}"
    plain, packed = ask(path), ask(path, accept_encoding="gzip, br")
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert plain.content == packed.content
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"])


def test_head_has_the_headers_without_the_body() -> None:
    got, head = ask("/"), ask("/", "HEAD")
    assert head.content == b""
    assert head.headers == got.headers


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/"),
        ("DELETE", "/docs"),
        ("GET", "/page/x/none.js"),
        ("GET", "/page/x/../index.html"),
        ("GET", "/page/x/index.html"),
        ("GET", "/page/app.js"),
        ("GET", "/docs/"),
        ("GET", "/info"),
    ],
)
def test_other_requests_reach_the_application(method: str, path: str) -> None:
    assert ask(path, method).text == BEHIND


def test_a_flag_turns_the_page_off() -> None:
    assert load_settings([]).ui
    assert not load_settings(["--no-ui"]).ui


def test_without_the_setting_only_the_interface_is_shown() -> None:
    path = f"/page/{load('ui', 'page').digest}/app.js"
    assert ask(path, ui=False).text == BEHIND
    assert ask("/docs", ui=False).status_code == 200
    root = ask("/", ui=False)
    assert (root.status_code, root.json()["service"]) == (200, "docsplit")
    assert ask(root.json()["docs"], ui=False).status_code == 200
    empty = ask("/", "HEAD", ui=False)
    assert (empty.content, empty.headers["content-length"]) == (b"", str(len(root.content)))
    assert ask("/", "POST", ui=False).text == BEHIND
