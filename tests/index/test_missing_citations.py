"""Citations that seem missing."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docsplit.heads.network import Network
from docsplit.heads.pairs import FEATURES
from docsplit_client import Client
from service.index.link_graph import Graph
from service.learning.citations import missing as page
from tests.conftest import Server
from tests.index.conftest import FIELDS, call, upsert
from tests.index.graphs import filled

TOPICS = (
    "tea and cups",
    "ships at sea",
    "distant stars",
    "old trains",
    "wild birds",
    "red wine",
    "chess openings",
    "cold winters",
    "steel bridges",
    "painted doors",
    "stolen letters",
    "broken clocks",
)
# both documents of a pair have a topic that no other document has
PAIRS = {f"pep-{i}": f"pep-{i + 20}" for i in range(len(TOPICS))}


@pytest.fixture(scope="module")
def linked(server: Server) -> Iterator[str]:
    """An index with a head; all texts name what they cite, and the link of pep-4 is missing."""
    index = "missing"
    call(server, "PUT", f"/indexes/{index}", {"fields": FIELDS}, status=201)
    upsert(
        server,
        index,
        *(
            {
                "id": citing,
                "text": f"On {TOPICS[i]}. It follows PEP {i + 20}; PEP {i + 20} is short.",
                "links": [] if citing == "pep-4" else [cited, "gone"],
                "metadata": {"year": 2001},
            }
            for i, (citing, cited) in enumerate(PAIRS.items())
        ),
        *(
            {"id": cited, "text": f"About {TOPICS[i]}.", "title": f"No. {i}"}
            | {"metadata": {"year": 2000}}
            for i, cited in enumerate(PAIRS.values())
        ),
    )
    assert call(server, "POST", f"/indexes/{index}/citation")["links"] == 11
    yield index
    call(server, "DELETE", f"/indexes/{index}", status=204)


def missing(server: Server, index: str, query: str = "", status: int = 200) -> Any:
    return call(server, "GET", f"/indexes/{index}/links/missing{query}", status=status)


def test_pages_of_documents_together_are_the_whole(server: Server, linked: str) -> None:
    pages, after = [], ""
    while True:
        page = missing(server, linked, f"?documents=7&threshold=0&after={after}")
        pages.append(page)
        if page["next"] is None:
            break
        after = page["next"]
    assert [page["documents"] for page in pages] == [7, 7, 7, 3]
    together = [one for page in pages for one in page["citations"]]
    # the client asks for one page
    with Client(server.url) as client:
        whole = client.all_missing_citations(linked, threshold=0)
    key = {(one["citing"], one["cited"]): one["link_probability"] for one in whole}
    assert {(one["citing"], one["cited"]): one["link_probability"] for one in together} == key
    assert len(together) == len(whole) > 100
    assert [one["link_probability"] for one in whole] == sorted(key.values(), reverse=True)


# this test changes the index
def test_a_missing_citation_is_listed_until_it_is_linked(server: Server, linked: str) -> None:
    page = missing(server, linked, "?documents=100&threshold=0.1")
    assert (page["documents"], page["next"]) == (24, None)
    probabilities = [one["link_probability"] for one in page["citations"]]
    assert probabilities == sorted(probabilities, reverse=True)
    assert min(probabilities) >= 0.1
    listed = {(one["citing"], one["cited"]): one for one in page["citations"]}
    lost = listed["pep-4", "pep-24"]
    assert lost["cited_title"] == "No. 4"
    # of the documents that cite, only this one lacks a link, so it comes first
    assert next(one for one in page["citations"] if one["citing"] in PAIRS) == lost
    own = call(server, "GET", f"/indexes/{linked}/documents/pep-4")["text"]
    assert own[lost["place"]["start"] : lost["place"]["end"]] == "PEP 24"
    assert own.index("PEP 24") == lost["place"]["start"]
    # a threshold above it leaves it out
    above = lost["link_probability"] + (1 - lost["link_probability"]) / 2
    own_page = "?documents=1&after=pep-31"
    left = missing(server, linked, f"{own_page}&threshold={above}")["citations"]
    assert all(one["link_probability"] >= above for one in left)
    assert lost not in left
    assert not listed.keys() & {pair for pair in PAIRS.items() if pair[0] != "pep-4"}

    # a search for links in texts finds it: then it is missing only among the given ones
    call(server, "POST", f"/indexes/{linked}/links/find", {})
    # the page of pep-4 only
    own_page += "&threshold=0.1"
    found = missing(server, linked, own_page)
    assert (found["documents"], found["next"]) == (1, "pep-4")
    assert "pep-24" not in {one["cited"] for one in found["citations"]}
    given = missing(server, linked, "?documents=100&threshold=0.1&links=given")
    assert given["citations"] == page["citations"]

    patch = {"links": ["pep-24"]}
    call(server, "PATCH", f"/indexes/{linked}/documents/pep-4", patch)
    left = missing(server, linked, f"{own_page}&links=given")
    assert left["next"] == "pep-4"
    assert "pep-24" not in {one["cited"] for one in left["citations"]}


def test_a_call_without_time_reads_one_document(tmp_path: Path) -> None:
    even = Network((np.zeros((FEATURES, 2), np.float32),), (np.zeros(2, np.float32),))

    async def run() -> None:
        indexes, index = await filled(tmp_path, {"a": {"b"}, "b": set(), "c": {"a", "b"}}, {})
        graph = Graph(index, indexes.found_links, "both")
        pages = [
            await page(graph, even, graph, after, 10, 0.5, until)
            for after, until in (("", 0.0), ("a", 0.0), ("b", 0.0), ("", math.inf))
        ]
        assert [(one.documents, one.next) for one in pages] == [
            (1, "a"),
            (1, "b"),
            (1, None),
            (3, None),
        ]
        pairs = [[(one.citing.id, one.cited.id) for one in own.citations] for own in pages]
        assert pairs[0] == [("a", "c")]
        assert pairs[3] == [*pairs[0], *pairs[1], *pairs[2]]
        assert len(pairs[3]) == 3

    asyncio.run(run())


def test_requests_that_cannot_be_answered_say_why(server: Server, linked: str) -> None:
    assert "documents" in missing(server, linked, "?documents=101", status=422)["error"]
    assert "threshold" in missing(server, linked, "?threshold=2", status=422)["error"]
    assert "links" in missing(server, linked, "?links=none", status=422)["error"]
