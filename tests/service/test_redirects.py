"""No answer sends a client to a host that another party chose."""

from __future__ import annotations

import httpx
import pytest

from tests.conftest import Server

HOSTILE = {"host": "evil.example", "x-forwarded-host": "evil.example"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/docs/"),
        ("GET", "/livez/"),
        ("POST", "/embed/"),
        ("GET", "/indexes/"),
        ("GET", "//evil.example/docs/"),
        ("GET", "/docs/?next=//evil.example"),
    ],
)
def test_a_path_with_an_extra_slash_is_not_found(server: Server, method: str, path: str) -> None:
    url = f"{server.url}{path}"
    answer = httpx.request(method, url, headers=HOSTILE, follow_redirects=False)
    assert answer.status_code == 404
    assert answer.json()["error_type"] == "NotFound"
    assert "location" not in answer.headers
    assert "evil" not in f"{answer.headers}{answer.text}"


def test_no_page_names_the_host_of_its_request(server: Server) -> None:
    for path in ("/docs", "/openapi.json", "/info", "/livez"):
        answer = httpx.get(f"{server.url}{path}", headers=HOSTILE)
        assert answer.status_code == 200
        assert "evil" not in f"{answer.headers}{answer.text}"
