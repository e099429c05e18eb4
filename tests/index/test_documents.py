"""Indexes and their documents over HTTP."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Server, serving
from tests.index.conftest import FIELDS, call, count, upsert

ONE = {
    "id": "a/b c?#é",
    "text": "The first text. It is short.",
    "title": "First",
    "metadata": {"year": 2020, "status": "it's", "other": "kept", "weight": 1},
    "links": ["two"],
}
TWO = {"id": "two", "text": "Something else entirely."}


def test_an_index_can_be_created_and_deleted(server: Server, index: str) -> None:
    assert index in call(server, "GET", "/indexes")["indexes"]
    again = call(server, "PUT", f"/indexes/{index}", {"fields": FIELDS})
    assert (again["documents"], again["fields"], again["current"]) == (0, FIELDS, True)
    call(server, "PUT", f"/indexes/{index}", {"fields": {"year": "string"}}, status=409)
    assert call(server, "GET", f"/indexes/{index}")["fields"] == FIELDS
    call(server, "DELETE", f"/indexes/{index}", status=204)
    call(server, "GET", f"/indexes/{index}", status=404)
    assert index not in call(server, "GET", "/indexes")["indexes"]


def test_documents_are_returned_unchanged(server: Server, index: str) -> None:
    upsert(server, index, ONE, TWO)
    path = f"/indexes/{index}/documents/"
    whole: dict[str, object] = TWO | {"title": None, "metadata": {}, "links": []}
    for document, place in ((ONE, "a%2Fb%20c%3F%23%C3%A9"), (whole, "two")):
        held = call(server, "GET", path + place)
        assert held.pop("version")
        assert held == document
    call(server, "GET", path + "three", status=404)


def test_an_upsert_replaces_and_repeats_without_effect(server: Server, index: str) -> None:
    for _ in range(3):
        upsert(server, index, ONE, TWO)
    assert count(server, index) == 2
    upsert(server, index, TWO | {"title": "new"})
    assert count(server, index) == 2
    assert call(server, "GET", f"/indexes/{index}/documents/two")["title"] == "new"


def test_an_unchanged_text_is_not_embedded_again(tmp_path: Path, light: tuple[str, ...]) -> None:
    first = {"id": "a", "text": "Paper about parsers. " * 200, "links": ["b"]}
    other = {"id": "b", "text": "Another."}
    # without a cache, so that the computation shows
    with serving(tmp_path / "log", "--cache-bytes", "0", *light) as server:
        call(server, "PUT", "/indexes/papers", {}, status=201)
        upsert(server, "papers", first, other)
        vector = call(server, "POST", "/similar", {"index": "papers", "id": "a"})
        changed = first | {"links": ["c"], "title": "Parsers"}
        for document, computed in ((changed, False), (changed | {"text": "Parsers."}, True)):
            answer = httpx.post(
                f"{server.url}/indexes/papers/documents", json={"documents": [document]}
            )
            assert (int(answer.headers["x-compute-tokens"]) > 0) == computed
            held = call(server, "GET", "/indexes/papers/documents/a")
            assert {key: held[key] for key in document} == document
            again = call(server, "POST", "/similar", {"index": "papers", "id": "a"})
            assert (again == vector) != computed


@pytest.mark.folder
def test_an_unusable_path_is_reported(tmp_path: Path, light: tuple[str, ...]) -> None:
    (tmp_path / "file").write_text("no folder")
    path = str(tmp_path / "file" / "index")
    with serving(tmp_path / "log", "--index-path", path, *light) as server:
        for method, route, body in (
            ("PUT", "/indexes/papers", {}),
            ("GET", "/classifiers", None),
            ("POST", "/similar", {"index": "papers", "text": "a"}),
        ):
            said = call(server, method, route, body, status=503)["error"]
            assert "index_path" in said
            assert str(tmp_path) not in said
        assert call(server, "POST", "/embed", {"inputs": "a"})
        assert path in server.log.read_text()


def test_a_deleted_document_is_gone(server: Server, index: str) -> None:
    upsert(server, index, ONE, TWO)
    call(server, "DELETE", f"/indexes/{index}/documents/two", status=204)
    call(server, "DELETE", f"/indexes/{index}/documents/two", status=404)
    assert count(server, index) == 1


def test_a_line_break_behind_an_id_names_no_document(server: Server, index: str) -> None:
    upsert(server, index, TWO)
    for method, body in (("GET", None), ("PATCH", {"title": "Second"}), ("DELETE", None)):
        call(server, method, f"/indexes/{index}/documents/two%0A", body, status=404)
    call(server, "GET", f"/indexes/{index}/documents/two%0A/windows", status=404)
    assert call(server, "GET", f"/indexes/{index}/documents/two")["title"] is None


def test_a_path_that_is_not_utf_8_names_no_document(server: Server, index: str) -> None:
    # a decoder that goes on puts this character in the place of the bytes
    upsert(server, index, {"id": "caf\ufffd", "text": "coffee"})
    for method, body in (("GET", None), ("PATCH", {"title": "Second"}), ("DELETE", None)):
        call(server, method, f"/indexes/{index}/documents/caf%E9", body, status=404)
    assert call(server, "GET", f"/indexes/{index}/documents/caf%EF%BF%BD")["title"] is None


def test_pages_hold_every_document_once(server: Server, index: str) -> None:
    ids = [f"d{i:02}" for i in range(25)]
    upsert(server, index, *({"id": i, "text": f"text {i}"} for i in reversed(ids)))
    seen: list[str] = []
    after = ""
    while True:
        path = f"/indexes/{index}/documents"
        page = call(server, "GET", path, params={"after": after, "limit": 10})
        seen += [d["id"] for d in page["documents"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert seen == ids


@pytest.mark.parametrize(
    ("documents", "status", "hint"),
    [
        ([], 422, "documents"),
        ([ONE, TWO, ONE], 422, "the same id"),
        ([ONE, {"id": "", "text": "a"}], 422, "1 to 512 characters"),
        ([ONE, {"id": "a\nb", "text": "a"}], 422, "control character"),
        ([ONE, {"id": "x" * 513, "text": "a"}], 422, "1 to 512 characters"),
        ([ONE, {"id": ".", "text": "a"}], 422, "use another id"),
        ([ONE, {"id": "..", "text": "a"}], 422, "use another id"),
        ([ONE, {"id": 5, "text": "a"}], 422, "give a string, not a number"),
        ([ONE, {"id": "a"}], 422, "text"),
        ([ONE, {"id": "a", "text": " "}], 400, "documents.1.text is empty"),
        (
            [ONE, {"id": "a", "text": "a", "metadata": {"year": "x"}}],
            422,
            "documents.1.metadata.year is declared as integer: give an integer",
        ),
        ([ONE, {"id": "a", "text": "a", "metadata": {"year": True}}], 422, "declared as integer"),
        ([ONE, {"id": "a", "text": "a", "metadata": {"year": 2**63}}], 422, "integer"),
        ([ONE, {"id": "a", "text": "a", "metadata": {"draft": 1}}], 422, "declared as boolean"),
        ([ONE, {"id": "a", "text": "a", "metadata": {"weight": "1"}}], 422, "declared as number"),
        ([ONE, {"id": "a", "text": "a", "metadata": {"x": [1]}}], 422, "metadata"),
        ([ONE, {"id": "a", "text": "a", "links": "b"}], 422, "links"),
    ],
)
def test_a_refused_upsert_changes_nothing(
    server: Server, empty: str, documents: list[Any], status: int, hint: str
) -> None:
    answer = httpx.post(
        f"{server.url}/indexes/{empty}/documents", json={"documents": documents}, timeout=60
    )
    assert answer.status_code == status, answer.text
    assert hint in answer.json()["error"]
    assert count(server, empty) == 0


@pytest.mark.parametrize("name", ["UPPER", "_lance", "-a", "a.b", "a b", "x" * 64, "%2e%2e", "é"])
def test_names_that_are_refused(server: Server, name: str) -> None:
    answer = httpx.put(f"{server.url}/indexes/{name}", json={})
    assert answer.status_code == 422
    assert "name" in answer.json()["error"]


@pytest.mark.parametrize("name", ["../x", "..%2fx", "a%2f..%2f..%2fx", "..%2f..%2fetc"])
def test_names_never_leave_the_folder(server: Server, name: str) -> None:
    before = sorted(p.name for p in server.log.parent.iterdir())
    request = httpx.Request("PUT", f"{server.url}/indexes/{name}", json={})
    with httpx.Client() as client:
        assert client.send(request).status_code in (404, 405)
    assert sorted(p.name for p in server.log.parent.iterdir()) == before


@pytest.mark.parametrize(
    "fields", [{"": "string"}, {"a\n": "string"}, {"x" * 65: "string"}, {"year": "time"}, []]
)
def test_fields_that_are_refused(server: Server, fields: Any) -> None:
    call(server, "PUT", "/indexes/refused", {"fields": fields}, status=422)
    call(server, "GET", "/indexes/refused", status=404)


def test_an_unknown_index(server: Server) -> None:
    for method, path, body in (
        ("GET", "/indexes/nowhere", None),
        ("DELETE", "/indexes/nowhere", None),
        ("POST", "/indexes/nowhere/documents", {"documents": [TWO]}),
        ("GET", "/indexes/nowhere/documents", None),
        ("GET", "/indexes/nowhere/documents/x", None),
        ("DELETE", "/indexes/nowhere/documents/x", None),
    ):
        assert "GET /indexes" in call(server, method, path, body, status=404)["error"]


def test_a_deadline_on_a_write(server: Server, index: str, long_document: str) -> None:
    body = {"documents": [{"id": "late", "text": "Of its own. " + long_document}]}
    path = f"/indexes/{index}/documents"
    call(server, "POST", path, body, status=504, headers={"x-request-timeout": "0.2"})


def test_small_writes_share_commits(server: Server, index: str) -> None:
    before = server.metric("docsplit_index_commits_total")

    def write(worker: int) -> None:
        for number in range(3):
            upsert(server, index, {"id": f"{worker}-{number}", "text": f"{worker} {number}"})

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count(server, index) == 24
    assert server.metric("docsplit_index_commits_total") - before < 24
