"""Dates and lists of strings as metadata, and counts of values beside hits."""

import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from service.index.query import filters
from service.index.query.filters import Facet
from tests.conftest import Server
from tests.index.conftest import call, upsert

FIELDS = {
    "day": "date",
    "tags": "strings",
    "status": "string",
    "draft": "boolean",
    "year": "integer",
    "weight": "number",
}
DOCUMENTS: list[dict[str, Any]] = [
    {"day": "2020-01-31", "tags": ["red", "round"], "status": "new", "year": 1, "draft": True},
    {"day": "2020-02-01T12:00:00+02:00", "tags": ["red", "red"], "status": "new", "year": 2},
    {"day": "2021-07-01T00:00:00Z", "tags": [], "status": "old", "year": 1, "weight": 0.5},
    {"free": ["any", "list"], "tags": None},
]


@pytest.fixture(scope="module")
def server(light_server: Server) -> Server:
    """No vector matters."""
    return light_server


@pytest.fixture(scope="module")
def shelf(server: Server) -> Iterator[str]:
    name = f"t-{uuid.uuid4().hex[:12]}"
    call(server, "PUT", f"/indexes/{name}", {"fields": FIELDS}, status=201)
    documents = (
        {"id": f"d{number}", "text": f"Text {number} on fruit.", "metadata": metadata}
        for number, metadata in enumerate(DOCUMENTS)
    )
    upsert(server, name, *documents)
    yield name
    httpx.delete(f"{server.url}/indexes/{name}")


def search(server: Server, index: str, status: int = 200, **body: Any) -> Any:
    return call(server, "POST", "/similar", {"index": index, "text": "fruit"} | body, status=status)


def test_metadata_are_returned_as_sent(server: Server, shelf: str) -> None:
    for number, metadata in enumerate(DOCUMENTS):
        held = call(server, "GET", f"/indexes/{shelf}/documents/d{number}")
        assert held["metadata"] == metadata


@pytest.mark.parametrize("mode", ["cosine", "words", "hybrid"])
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"field": "day", "gte": "2020-02-01", "lt": "2021-01-01"}, {"d1"}),
        ({"field": "day", "eq": "2020-02-01T10:00:00Z"}, {"d1"}),
        ({"not": {"field": "day", "lt": "2021-01-01"}}, {"d2"}),
        ({"field": "tags", "contains": "red"}, {"d0", "d1"}),
        ({"field": "tags", "in": ["round", "none"]}, {"d0"}),
        ({"not": {"field": "tags", "contains": "round"}}, {"d1", "d2"}),
        ({"and": [{"field": "tags", "contains": "red"}, {"field": "year", "gt": 1}]}, {"d1"}),
    ],
)
def test_filters(server: Server, shelf: str, mode: str, condition: Any, expected: set[str]) -> None:
    hits = search(server, shelf, mode=mode, filter=condition)
    assert {hit["id"] for hit in hits} == expected
    if mode == "cosine":
        body = {"filter": condition, "dry_run": True}
        deleted = call(server, "POST", f"/indexes/{shelf}/documents/delete", body)
        assert deleted == {"deleted": len(expected)}


def counts(answer: Any, field: str) -> dict[Any, int]:
    return {one["value"]: one["count"] for one in answer["facets"][field]["values"]}


def test_facets_count_all_documents_that_pass(server: Server, shelf: str) -> None:
    names = ["tags", "status", "draft", "year"]
    answer = search(server, shelf, top_k=1, facets=names)
    assert len(answer["hits"]) == 1
    # a value that a document has twice counts once
    assert counts(answer, "tags") == {"red": 2, "round": 1}
    assert counts(answer, "status") == {"new": 2, "old": 1}
    assert counts(answer, "draft") == {True: 1}
    assert list(counts(answer, "year").items()) == [(1, 2), (2, 1)]
    assert {answer["facets"][name]["others"] for name in names} == {0}
    some = {"field": "tags", "contains": "red"}
    answer = search(server, shelf, facets=["year"], filter=some)
    assert counts(answer, "year") == {1: 1, 2: 1}
    queries: dict[str, Any] = {
        "text": None,
        "queries": [{"id": "d0"}, {"id": "d1"}],
        "facets": ["status"],
    }
    answer = search(server, shelf, **queries)
    assert [len(hits) for hits in answer["hits"]] == [3, 3]
    assert counts(answer, "status") == {"new": 2, "old": 1}


def test_fields_may_have_any_names(server: Server) -> None:
    """Those of Zotero and Semantic Scholar, and some that differ in case or break SQL."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    fields = {
        "publicationDate": "date",
        "publicationdate": "string",
        "pub-date": "date",
        "dc.subject": "strings",
        "Größe 'x' -- `\"": "integer",
    }
    call(server, "PUT", f"/indexes/{name}", {"fields": fields}, status=201)
    first = dict(zip(fields, ["2019-05", "May", "2019", ["law"], 1], strict=True))
    second = dict(zip(fields, ["2019-04-30", "April", "2020-01", ["art"], 2], strict=True))
    documents = [{"id": "a", "metadata": first}, {"id": "b", "metadata": second}]
    upsert(server, name, *({**one, "text": f"Fruit {one['id']}."} for one in documents))
    for condition in (
        {"field": "publicationDate", "gte": "2019-05"},
        {"field": "publicationdate", "eq": "May"},
        {"field": "pub-date", "lt": "2020"},
        {"field": "dc.subject", "contains": "law"},
        {"field": [*fields][-1], "in": [1, 3]},
    ):
        for mode in ("cosine", "words"):
            assert [hit["id"] for hit in search(server, name, mode=mode, filter=condition)] == ["a"]
    number = [*fields][-1]
    answer = search(server, name, facets=["publicationdate", number])
    assert counts(answer, number) == {1: 1, 2: 1}
    assert counts(answer, "publicationdate") == {"May": 1, "April": 1}
    assert call(server, "GET", f"/indexes/{name}/documents/a")["metadata"] == first
    wrong = {"id": "c", "text": "c", "metadata": {"pub-date": "2019-13"}}
    body = {"documents": [wrong]}
    answer = call(server, "POST", f"/indexes/{name}/documents", body, status=422)
    assert "metadata.pub-date is declared as date" in answer["error"]
    call(server, "DELETE", f"/indexes/{name}", status=204)


def test_a_facet_has_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    facet, whole = Facet(), Facet()
    whole.add(pa.array(["a", "b", None, "a", "c" * 90]))
    monkeypatch.setattr(filters, "_VALUES", 2)
    for values in (["a", "b", None, "a"], ["c", "a", "d"]):
        facet.add(pa.array(values))
    assert (facet.most(9), facet.others) == ([("a", 3), ("b", 1)], 2)
    monkeypatch.setattr(filters, "_CHARACTERS", 80)
    small = Facet()
    small.add(pa.array(["a", "b", None, "a", "c" * 90]))
    assert (small.most(1), small.others) == ([("a", 2)], 1)
    assert (len(whole.counts), whole.others) == (3, 0)


@pytest.mark.parametrize("name", ["weight", "day", "free", "secret"])
def test_fields_without_facets(server: Server, shelf: str, name: str) -> None:
    error = search(server, shelf, 422, facets=[name])["error"]
    assert "draft, status, tags, year" in error


@pytest.mark.parametrize(
    ("metadata", "hint"),
    [
        ({"day": "soon"}, "metadata.day is declared as date"),
        ({"day": 2020}, "metadata.day is declared as date"),
        ({"tags": "red"}, "metadata.tags is declared as strings"),
        ({"free": ["a", 1]}, "an item that is not a string"),
        ({"free": ["a"] * 257}, "257 items; the limit is 256"),
        ({"free": [["a"]]}, "an item that is not a string"),
    ],
)
def test_bad_values(server: Server, shelf: str, metadata: Any, hint: str) -> None:
    body = {"documents": [{"id": "bad", "text": "a", "metadata": metadata}]}
    error = call(server, "POST", f"/indexes/{shelf}/documents", body, status=422)["error"]
    assert hint in error
