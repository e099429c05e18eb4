"""The client's types and routes, compared with the service's OpenAPI document."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx
import pytest

import generate
from docsplit_client import Client, clients
from docsplit_client.call import Call, Work
from docsplit_client.calls import CALLS
from docsplit_client.types import NewDocument
from service.settings import Settings
from tests.conftest import Server

# other names of native routes, other interfaces, and what balancers and scrapers ask
ELSEWHERE = {"/", "/predict", "/health", "/livez", "/readyz", "/metrics"}
# every request, with the path parameters of the document and every query parameter
REQUESTS: list[Work[Any]] = [
    CALLS.embed(["a"]),
    clients.lines(
        ["a"],
        normalize=False,
        truncate=True,
        truncation_direction="left",
        dimensions=8,
        prompt_name="a",
        model="a",
    ),
    CALLS.similarity("a", ["b"]),
    CALLS.rerank("a", ["b"]),
    CALLS.info(),
    CALLS.keys(),
    CALLS.similar("a", text="b"),
    CALLS.passages("a", text="b"),
    CALLS.compare("{name}", "a", text="b"),
    CALLS.duplicates("{name}", text="b"),
    CALLS.duplicate_groups("{name}", 0.5, 10),
    CALLS.create_index("{name}"),
    CALLS.indexes(),
    CALLS.index("{name}"),
    CALLS.delete_index("{name}"),
    CALLS.delete_generation("{name}", "{revision}"),
    CALLS.set_alias("{alias}", "a"),
    CALLS.aliases(),
    CALLS.alias("{alias}"),
    CALLS.delete_alias("{alias}"),
    CALLS.train_citation_head("{name}", "features", "both"),
    CALLS.citation_head("{name}"),
    CALLS.citation_network("{name}"),
    CALLS.upsert("{name}", []),
    CALLS.list_documents("{name}", "a", 10),
    CALLS.document("{name}", "{document_id}"),
    CALLS.document_windows("{name}", "{document_id}"),
    CALLS.get_documents("{name}", ["a"]),
    CALLS.patch_document("{name}", "{document_id}", {}),
    CALLS.delete_document("{name}", "{document_id}"),
    CALLS.delete_documents("{name}", ["a"]),
    CALLS.upload("{name}", {"a.txt": b"text"}, "refuse", True, ["doi"], ["a-*=A *"]),
    CALLS.read_file({"a.txt": b"text"}),
    CALLS.jobs(10),
    CALLS.job("{job_id}"),
    CALLS.cancel_job("{job_id}"),
    CALLS.compute_map("{name}"),
    CALLS.document_map("{name}", "a", 10, True, "a", "a"),
    CALLS.topics("{name}"),
    CALLS.find_links("{name}"),
    CALLS.found_links("{name}"),
    CALLS.forget_found_links("{name}"),
    CALLS.document_links("{name}", "{document_id}", "a", 10),
    CALLS.missing_citations("{name}", "a", 10, 0.5, "given"),
    CALLS.classify(["a"]),
    CALLS.train_classifier("{name}", ["a"]),
    CALLS.retrain_classifier("{name}", True),
    CALLS.classifiers(),
    CALLS.classifier("{name}"),
    CALLS.classifier_network("{name}"),
    CALLS.suggest("{name}", "a"),
    CALLS.give_labels("{name}", "a", []),
    CALLS.labels("{name}", "a", "b", 10),
    CALLS.delete_classifier("{name}"),
]


@pytest.fixture(scope="module")
def document(server: Server) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{server.url}/openapi.json").json()
    return found


def test_the_types_are_those_of_the_document(document: dict[str, Any]) -> None:
    module = generate.Types(document).module()
    if "WRITE_CLIENT_TYPES" in os.environ:
        generate.FILE.write_text(module, "utf-8")
    assert module == generate.FILE.read_text("utf-8"), "write them again: make client-types"


@pytest.fixture(scope="module")
def sent() -> dict[tuple[str, str], set[str]]:
    """The names in the query of each request, by path and method."""
    found: dict[tuple[str, str], set[str]] = {}
    for one in REQUESTS:
        assert isinstance(one, Call)
        parts = urlsplit(one.path)
        found.setdefault((unquote(parts.path), one.method.lower()), set()).update(
            parse_qs(parts.query)
        )
    return found


def test_every_native_route_has_a_method(
    document: dict[str, Any], sent: dict[tuple[str, str], set[str]]
) -> None:
    offered = {
        (path, method)
        for path, methods in document["paths"].items()
        if path not in ELSEWHERE and not path.startswith(("/v1/", "/v2/"))
        for method in methods
    }
    assert sent.keys() == offered


def test_queries_have_the_parameters_of_the_document(
    document: dict[str, Any], sent: dict[tuple[str, str], set[str]]
) -> None:
    for (place, method), given in sent.items():
        parameters = document["paths"][place][method].get("parameters", ())
        asked = {parameter["name"] for parameter in parameters if parameter["in"] == "query"}
        assert given == asked, place


@pytest.mark.parametrize("field", ["inputs", "documents"])
def test_older_processors_have_time_for_each_batch(field: str) -> None:
    characters_a_second = 16_000  # two cores with AVX2 only
    texts = ["x" * 90_000] * 7
    documents: list[NewDocument] = [{"id": str(n), "text": t} for n, t in enumerate(texts)]
    works: dict[str, Any] = {
        "inputs": CALLS.embed_all(texts),
        "documents": CALLS.upsert_all("papers", documents),
    }
    batch = next(works[field]).body[field]
    assert 1 < len(batch) < len(texts)
    assert len(batch) * 90_000 / characters_a_second < Settings().request_timeout / 3


@pytest.mark.parametrize(
    "send",
    [
        lambda client: client.similarity("a text", "one"),
        lambda client: client.rerank("a query", "one"),
        lambda client: client.classify("one"),
        lambda client: client.explain_labels("one"),
        lambda client: client.train_classifier("topics", "one"),
        lambda client: client.similar_faceted("papers", "year"),
        lambda client: client.get_documents("papers", "ab"),
        lambda client: client.delete_documents("papers", "ab"),
        lambda client: client.upload("papers", "guide.pdf"),
        lambda client: client.embed_all("one"),
        lambda client: client.get_all("papers", "ab"),
        lambda client: next(client.embed_stream("one")),
    ],
)
def test_one_text_in_place_of_a_list_is_refused(send: Callable[[Client], object]) -> None:
    client = Client("http://127.0.0.1:9", tries=1)
    with client, pytest.raises(TypeError, match="give a list of strings"):
        send(client)
