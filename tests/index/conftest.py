"""Indexes of real documents behind a running service."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.conftest import Server

FIELDS = {"year": "integer", "status": "string", "weight": "number", "draft": "boolean"}


def call(
    server: Server, method: str, path: str, json: Any = None, status: int = 200, **rest: Any
) -> Any:
    """The body of an answer, which must have ``status``."""
    answer = httpx.request(method, f"{server.url}{path}", json=json, timeout=90, **rest)
    assert answer.status_code == status, answer.text[:500]
    return answer.json() if answer.content else None


def upsert(server: Server, index: str, *documents: dict[str, Any]) -> None:
    """Write documents, and check the service's count."""
    answer = call(server, "POST", f"/indexes/{index}/documents", {"documents": documents})
    assert (answer["upserted"], len(answer["versions"])) == (len(documents), len(documents))


def place(server: Server, index: str, document: str = "", tail: str = "") -> httpx.URL:
    """The URL of documents; a document's id is quoted so that it is not a path.

    Args:
        tail: of the path, after the id.
    """
    name = f"/{quote(document, safe='')}" if document else ""
    raw = f"/indexes/{index}/documents{name}{tail}".encode()
    return httpx.URL(server.url).copy_with(raw_path=raw)


def count(server: Server, index: str) -> int:
    """Documents in an index."""
    return int(call(server, "GET", f"/indexes/{index}")["documents"])


@pytest.fixture(scope="module")
def empty(server: Server) -> Iterator[str]:
    """The name of an index for requests that are refused: it stays empty."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    call(server, "PUT", f"/indexes/{name}", {"fields": FIELDS}, status=201)
    yield name
    assert count(server, name) == 0
    call(server, "DELETE", f"/indexes/{name}", status=204)


@pytest.fixture
def index(server: Server) -> Iterator[str]:
    """The name of an empty index with fields."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    call(server, "PUT", f"/indexes/{name}", {"fields": FIELDS}, status=201)
    yield name
    httpx.delete(f"{server.url}/indexes/{name}", timeout=90)
