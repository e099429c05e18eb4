"""Fields and query parameters that a route does not have."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from service.unknown import unknown_name
from tests.conftest import Server
from tests.index.conftest import call

# routes whose clients may send fields of other servers
AS_OTHER_SERVERS = {
    "/",
    "/embed",
    "/similarity",
    "/v1/embeddings",
    "/v2/embed",
    "/rerank",
    "/v1/rerank",
    "/v2/rerank",
    "/classify",
    "/predict",
}
FILTER = {"not": {"field": "year", "ge": 3}}
DOCUMENTS = [{"id": "a", "text": "b"}, {"id": "c", "text": "d", "meta": {"year": 1}}]
MISSPELT: list[tuple[str, str, Any, str]] = [
    (
        "POST",
        "/similar",
        {"index": "unknown", "text": "a", "topk": 3},
        '"topk" is not known; did you mean top_k?',
    ),
    (
        "POST",
        "/similar",
        {"index": "unknown", "text": "a", "filter": FILTER},
        'filter: "ge" is not known; did you mean gte?',
    ),
    (
        "POST",
        "/indexes/unknown/documents",
        {"documents": DOCUMENTS},
        'documents.1: "meta" is not known; did you mean metadata?',
    ),
    (
        "POST",
        "/indexes/unknown/documents/delete",
        {"filter": {"field": "year", "gte": 3, "and": []}},
        'filter: and needs an object of its own; join several conditions by {"and": […]}',
    ),
    (
        "PUT",
        "/indexes/unknown-2",
        {"field": {"year": "integer"}},
        '"field" is not known; did you mean fields?',
    ),
    (
        "PATCH",
        "/indexes/unknown/documents/a",
        {"link": []},
        '"link" is not known; did you mean links?',
    ),
    (
        "PUT",
        "/classifiers/unknown",
        {"input": ["a", "b"], "labels": ["c", "d"]},
        '"input" is not known; did you mean inputs?',
    ),
    ("PUT", "/aliases/unknown-3", {"name": "unknown"}, '"name" is not known; give index'),
    (
        "GET",
        "/indexes/unknown/documents?limt=5",
        None,
        'the query parameter "limt" is not known; did you mean limit?',
    ),
    ("GET", "/indexes?all=true", None, "this route has no query parameters: leave them out"),
]


@pytest.fixture(scope="module", autouse=True)
def index(server: Server) -> None:
    call(server, "PUT", "/indexes/unknown", {"fields": {"year": "integer"}}, status=201)


@pytest.mark.parametrize(("method", "path", "body", "message"), MISSPELT)
def test_a_misspelt_name_is_refused_with_the_right_one(
    server: Server, method: str, path: str, body: Any, message: str
) -> None:
    answer = call(server, method, path, body, status=422)
    assert answer == {"error": message, "error_type": "Validation"}
    assert call(server, "GET", "/indexes/unknown/documents")["documents"] == []


def test_the_first_of_many_unknown_names_makes_a_short_message(server: Server) -> None:
    body = {"x" * 100_000: 1} | {f"unknown {number}": 1 for number in range(50_000)}
    answer = call(server, "POST", "/similar", body, status=422)
    assert answer["error"].startswith(f'"{"x" * 64}" is not known; give index, text, id')
    assert len(answer["error"]) < 500


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embed", {"inputs": "a"}),
        ("/v1/embeddings", {"input": "a"}),
        ("/rerank", {"query": "a", "texts": ["b"]}),
        ("/v2/rerank", {"query": "a", "documents": ["b"]}),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b"]}}),
    ],
)
def test_routes_of_other_servers_ignore_what_they_do_not_know(
    server: Server, path: str, body: dict[str, Any]
) -> None:
    if path == "/v1/embeddings":
        body = body | {"model": call(server, "GET", "/v1/models")["data"][0]["id"]}
    more = body | {"user": "a", "priority": 3}
    answers = [httpx.post(f"{server.url}{path}", json=b, timeout=60) for b in (body, more)]
    assert [answer.status_code for answer in answers] == [200, 200]
    again = httpx.post(f"{server.url}{path}?api-version=2", json=body, timeout=60)
    assert again.status_code == 200


def test_a_misspelt_required_field_is_named(server: Server) -> None:
    def said(path: str, body: dict[str, Any]) -> Any:
        answer = httpx.post(f"{server.url}{path}", json=body, timeout=60)
        assert answer.status_code == 422
        error = answer.json()["error"]
        return error["message"] if path.startswith("/v1/") else error

    assert said("/embed", {"input": "a"}) == 'inputs: Field required, and "input" is not known'
    named = said("/v1/embeddings", {"model": "a", "inputs": "a"})
    assert named == 'input: Field required, and "inputs" is not known'
    # a name that is nothing like the field may be the caller's data
    assert said("/embed", {"secret": "a"}) == "inputs: Field required"
    assert said("/embed", {f"{number}": 0 for number in range(200)} | {"input": "a"}) == (
        "inputs: Field required"
    )


ID = "documents.0.id: give a string, not a number"
NAME = "a name has 1 to 63 lower-case letters, digits, - and _, and begins with a letter or digit"
WRONG: list[tuple[str, str, Any, str]] = [
    ("POST", "/indexes/a/documents", {"documents": [{"id": 5, "text": "a"}]}, ID),
    ("POST", "/indexes/a/documents", {"documents": []}, "documents: give 1 or more of them"),
    ("POST", "/indexes/a/documents", {"documents": ["a"]}, "documents.0: give an object"),
    ("POST", "/indexes/a/documents/get", {"ids": "a"}, "ids: give a list"),
    ("PUT", "/indexes/A%20b", {}, f"name: {NAME}"),
    (
        "GET",
        "/jobs/last",
        None,
        "job_id: the id of a job has 32 digits from 0 to f; GET /jobs lists them",
    ),
    ("GET", "/jobs?limit=many", None, "query.limit: give an integer"),
    ("POST", "/similar", {"index": "a", "text": "a", "top_k": 0}, "top_k: give 1 or more"),
    (
        "POST",
        "/similar",
        {"index": "a", "text": "a", "mode": "x"},
        "mode: give 'cosine', 'words', 'hybrid', 'citation' or 'coupled'",
    ),
    (
        "POST",
        "/similar",
        {"index": "a", "text": "a", "filter": {"field": "y", "eq": [1]}},
        "filter.eq: give a string, a number or a boolean; in takes a list of them",
    ),
    (
        "POST",
        "/similar",
        {"index": "a", "text": "a", "filter": {"AND": []}},
        'filter: "AND" is not known; give field, eq, ne, gt, gte, lt, lte, in, contains, and, or, '
        'not; an example: {"field": "year", "gte": 2020}',
    ),
    (
        "PUT",
        "/classifiers/a",
        {"index": "a", "ids": [5], "labels": ["x"]},
        "ids: item 0: give a string, not a number",
    ),
    (
        "PUT",
        "/classifiers/a",
        {"inputs": ["a"], "labels": [1]},
        "labels: item 0: give a string, not a number",
    ),
    ("POST", "/rerank", {"texts": ["a"]}, "query: Field required"),
    ("POST", "/rerank", {"query": "a", "documents": ["a"], "top_n": 0}, "top_n: give 1 or more"),
    (
        "POST",
        "/rerank",
        {"query": "a", "documents": [{"body": "a"}]},
        "documents: item 0: give a string, or an object with text",
    ),
]


@pytest.mark.parametrize(("method", "path", "body", "message"), WRONG)
def test_a_wrong_value_is_named_with_its_place_and_the_remedy(
    server: Server, method: str, path: str, body: Any, message: str
) -> None:
    assert call(server, method, path, body, status=422)["error"] == message


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("/similar", {"text": " "}, "text"),
        ("/similar", {"queries": [{"id": "a"}, {"text": " "}]}, "queries.1"),
        ("/passages", {"text": " "}, "text"),
        ("/indexes/{}/duplicates", {"text": " "}, "text"),
        ("/indexes/{}/compare", {"text": " ", "other": "a"}, "text"),
        # the first text is stored, so only the second one is embedded
        (
            "/indexes/{}/documents",
            {"documents": [{"id": "a", "text": "A."}, {"id": "b", "text": " "}]},
            "documents.1.text",
        ),
    ],
)
def test_an_empty_text_is_named_by_its_place(
    server: Server, path: str, body: dict[str, Any], place: str
) -> None:
    call(server, "PUT", "/indexes/places", {}, status=201)
    try:
        stored = {"documents": [{"id": "a", "text": "A."}]}
        call(server, "POST", "/indexes/places/documents", stored)
        whole = body if "{}" in path else body | {"index": "places"}
        error = call(server, "POST", path.format("places"), whole, status=400)["error"]
    finally:
        call(server, "DELETE", "/indexes/places", status=204)
    assert error == f"{place} is empty: its text makes no token"


def test_an_empty_sentence_is_named_by_its_place(server: Server) -> None:
    for source, sentence, place in (("a", " ", "sentences.0"), (" ", "a", "source_sentence")):
        body = {"inputs": {"source_sentence": source, "sentences": [sentence]}}
        error = call(server, "POST", "/similarity", body, status=400)["error"]
        assert error == f"inputs.{place} is empty: its text makes no token"


def test_every_other_body_refuses_unknown_fields(server: Server) -> None:
    document = httpx.get(f"{server.url}/openapi.json").json()
    models = document["components"]["schemas"]
    lenient = {
        path
        for path, operations in document["paths"].items()
        for operation in operations.values()
        for model in re.findall(r"schemas/(\w+)", json.dumps(operation.get("requestBody", {})))
        if models[model].get("additionalProperties") is not False
    }
    assert lenient == AS_OTHER_SERVERS


def test_known_names_pass() -> None:
    assert unknown_name(["text", "id"], ("id", "text", "title")) is None
    assert unknown_name([], ()) is None
