"""Links that stand in the texts of an index."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.conftest import Server
from tests.index.conftest import call, count, upsert

TITLE = "A Standard Form for Library Loans"
DOCUMENTS: list[dict[str, Any]] = [
    {"id": "pep-1", "title": TITLE, "text": "Loans. PEP 1 is this document.", "links": ["pep-3"]},
    {"id": "pep-2", "text": f"😀 See PEP 1 and PEP 2.\n[1] {TITLE}.\nPEPs 3, again PEP-3."},
    {"id": "pep-3", "text": "See contract 2020/117.", "links": ["pep-1", "gone"]},
    {"id": "x", "text": "Nothing.", "metadata": {"number": "2020/117", "year": 2000}},
]


@pytest.fixture(scope="module")
def server(light_server: Server) -> Server:
    """The texts matter, and no vector."""
    return light_server


def find(server: Server, index: str, status: int = 200, **body: Any) -> Any:
    return call(server, "POST", f"/indexes/{index}/links/find", body, status=status)


def links(server: Server, index: str, document: str, query: str = "") -> Any:
    return call(server, "GET", f"/indexes/{index}/documents/{document}/links{query}")


def keys(page: Any) -> list[tuple[str, str, bool, bool]]:
    return [(one["direction"], one["id"], one["given"], one["found"]) for one in page["links"]]


@pytest.fixture
def filled(server: Server, index: str) -> str:
    upsert(server, index, *DOCUMENTS)
    return index


def test_found_links_stand_beside_given_ones(server: Server, filled: str) -> None:
    path = f"/indexes/{filled}/links"
    assert keys(links(server, filled, "pep-3")) == [
        ("cited_by", "pep-1", True, False),
        ("cites", "gone", True, False),
        ("cites", "pep-1", True, False),
    ]
    call(server, "GET", path, status=404)
    report = find(server, filled, fields=["number", "year"])
    assert (report["documents"], report["links"], report["places"]) == (4, 3, 5)
    assert call(server, "GET", path) == report
    assert keys(links(server, filled, "pep-2")) == [
        ("cites", "pep-1", False, True),
        ("cites", "pep-3", False, True),
    ]
    [first, _] = links(server, filled, "pep-2")["links"]
    text = DOCUMENTS[1]["text"]
    kinds = [(text[p["start"] : p["end"]], p["kind"]) for p in first["first_places"]]
    assert all((p["form"] is None) == (p["kind"] == "title") for p in first["first_places"])
    assert kinds == [("PEP 1", "identifier"), (TITLE, "title")]
    assert (first["title"], first["exists"], first["places"]) == (TITLE, True, 2)
    assert keys(links(server, filled, "pep-3")) == [
        ("cited_by", "pep-1", True, False),
        ("cited_by", "pep-2", False, True),
        ("cites", "gone", True, False),
        ("cites", "pep-1", True, False),
        ("cites", "x", False, True),
    ]
    assert call(server, "GET", f"/indexes/{filled}/documents/pep-2")["links"] == []
    call(server, "DELETE", path, status=204)
    assert keys(links(server, filled, "pep-2")) == []
    call(server, "GET", path, status=404)


def test_pages_of_links_follow_each_other(server: Server, filled: str) -> None:
    find(server, filled, fields=["number"])
    whole = keys(links(server, filled, "pep-3"))
    pages, after = [], ""
    while True:
        page = links(server, filled, "pep-3", f"?limit=2&after={after}")
        pages.append(keys(page))
        if page["next"] is None:
            break
        after = page["next"]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert [key for page in pages for key in page] == whole


def test_a_changed_text_has_no_found_links_until_the_next_search(
    server: Server, filled: str
) -> None:
    find(server, filled)
    upsert(server, filled, DOCUMENTS[1] | {"text": "Nothing now; PEP 1."})
    assert keys(links(server, filled, "pep-2")) == []
    assert ("cited_by", "pep-2", False, True) not in keys(links(server, filled, "pep-1"))
    find(server, filled)
    assert keys(links(server, filled, "pep-2")) == [("cites", "pep-1", False, True)]
    call(server, "DELETE", f"/indexes/{filled}/documents/pep-1", status=204)
    assert keys(links(server, filled, "pep-2")) == []
    assert ("cites", "pep-1", True, False) in keys(links(server, filled, "pep-3"))


def test_an_index_that_is_created_again_has_no_found_links(server: Server, filled: str) -> None:
    assert find(server, filled)["links"] == 2
    call(server, "DELETE", f"/indexes/{filled}", status=204)
    call(server, "PUT", f"/indexes/{filled}", {}, status=201)
    call(server, "GET", f"/indexes/{filled}/links", status=404)
    assert find(server, filled)["documents"] == count(server, filled) == 0


def test_a_document_whose_id_ends_like_the_route_is_still_read(server: Server, index: str) -> None:
    upsert(server, index, {"id": "a", "text": "a"}, {"id": "a/links", "text": "b"})
    path = f"/indexes/{index}/documents/a/links"
    assert call(server, "GET", path)["text"] == "b"
    assert call(server, "GET", f"{path}/links") == {"links": [], "next": None}
    call(server, "DELETE", path, status=204)
    assert call(server, "GET", path) == {"links": [], "next": None}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"rules": [{"ids": "a*b*", "name": "*"}]}, "one *"),
        ({"rules": [{"ids": "", "name": "*"}]}, "ids"),
        ({"rules": [{"ids": "a*", "name": "b*"}] * 33}, "rules"),
        ({"fields": ["x" * 65]}, "fields"),
        ({"titles": "yes"}, "titles"),
    ],
)
def test_bad_requests_say_what_is_wrong(
    server: Server, empty: str, body: dict[str, Any], said: str
) -> None:
    assert said in find(server, empty, status=422, **body)["error"]


def test_bad_pages_and_unknown_names(server: Server, empty: str) -> None:
    path = f"/indexes/{empty}/documents/none/links"
    call(server, "GET", path, status=404)
    assert "next" in call(server, "GET", f"{path}?after=x:y", status=422)["error"]
    assert httpx.get(f"{server.url}{path}?limit=0").status_code == 422
    call(server, "POST", "/indexes/none/links/find", {}, status=404)


def test_a_citation_head_learns_from_found_links(server: Server, index: str) -> None:
    topics = ["tea and cups", "ships at sea", "stars above", "old trains", "wild birds", "red wine"]
    upsert(
        server,
        index,
        *(
            {"id": f"pep-{i}", "text": f"Text {i} about {topic}. Like PEP {i + 20} it is short."}
            for i, topic in enumerate(topics * 2)
        ),
        *({"id": f"pep-{i + 20}", "text": f"More on {t}."} for i, t in enumerate(topics * 2)),
    )
    path = f"/indexes/{index}/citation"
    find(server, index)
    assert "0 links" in call(server, "POST", path, status=422)["error"]
    report = call(server, "POST", f"{path}?links=found")
    assert (report["links"], report["citing"], report["links_from"]) == (12, 12, "found")
    hits = call(server, "POST", "/similar", {"index": index, "id": "pep-0", "mode": "citation"})
    assert len(hits) == 10
    asked = {"index": index, "id": "pep-0", "mode": "citation", "direction": "cites"}
    assert "pep-20" in [hit["id"] for hit in call(server, "POST", "/similar", asked)]
    missing = call(server, "POST", "/similar", asked | {"unlinked": True, "top_k": 30})
    assert len(missing) == 22
    assert "pep-20" not in [hit["id"] for hit in missing]
    refused = asked | {"unlinked": True, "direction": "cited_by"}
    assert "cites" in call(server, "POST", "/similar", refused, status=422)["error"]
    both = call(server, "POST", f"{path}?links=both")
    assert (both["links"], both["links_from"]) == (12, "both")
    call(server, "POST", f"{path}?links=all", status=422)
