"""The citation head on links with a known rule, and over HTTP."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from service.heads import citation
from tests.conftest import Server
from tests.index.conftest import call, upsert
from tests.index.conftest import index as index


def chain(documents: int) -> tuple[citation.Vectors, list[tuple[int, int]]]:
    """Documents in groups of one topic, of which the later cite those one era before."""
    draw = np.random.default_rng(0)
    topics = draw.standard_normal((8, 64))
    era = draw.standard_normal((2, 64))
    topic = np.arange(documents) % 8
    late = np.arange(documents) >= documents // 2
    vectors = topics[topic] + era[late.astype(int)] + 0.5 * draw.standard_normal((documents, 64))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    links = [
        (i, j)
        for i in np.flatnonzero(late).tolist()
        for j in np.flatnonzero(~late).tolist()
        if topic[i] == topic[j]
    ]
    return vectors.astype(np.float32), links


def test_it_learns_what_cosine_cannot_tell() -> None:
    vectors, links = chain(160)
    trained = citation.train(vectors, links, time.monotonic() + 120)
    assert trained.links == len(links)
    assert trained.average_precision > trained.cosine_average_precision + 0.2
    citing = vectors[[i for i, _ in links]]
    cited = vectors[[j for _, j in links]]
    forward = citation.probabilities(trained.network, citing, cited)
    backward = citation.probabilities(trained.network, cited, citing)
    assert (forward > backward).mean() > 0.95


def test_negatives_are_no_links() -> None:
    vectors, links = chain(80)
    pairs, labels = citation.sample(vectors, links)
    said = {(int(i), int(j)) for (i, j), label in zip(pairs, labels, strict=True) if label == 0}
    assert said
    assert not said & set(links)
    assert all(i != j for i, j in said)
    assert labels.sum() == len(links)


def test_citation_mode(server: Server, index: str) -> None:
    subjects = ["the parser", "type hints", "packaging", "async loops", "exceptions", "imports"]
    documents: list[dict[str, Any]] = []
    for number, subject in enumerate(subjects):
        for part in range(4):
            document = {"id": f"{number}-{part}", "text": f"Proposal {part} on {subject}."}
            links = [f"{number}-{other}" for other in range(part)] + ["not-there"]
            documents.append(document | {"links": links})
    upsert(server, index, *documents[:8])
    missing = {"index": index, "text": "type hints", "mode": "citation"}
    said = call(server, "POST", "/similar", missing, status=404)
    assert f"POST /indexes/{index}/citation" in said["error"]
    call(server, "GET", f"/indexes/{index}/citation", status=404)
    # two subjects have 12 links, but from six documents: enough; one has not
    call(server, "DELETE", f"/indexes/{index}/documents/0-3", status=204)
    few = call(server, "POST", f"/indexes/{index}/citation", status=422)
    assert "holds 9 links" in few["error"]
    upsert(server, index, *documents)
    report = call(server, "POST", f"/indexes/{index}/citation")
    assert report["links"] == 36
    assert call(server, "GET", f"/indexes/{index}/citation") == report
    hits = call(
        server, "POST", "/similar", {"index": index, "id": "1-3", "mode": "citation", "top_k": 3}
    )
    assert {hit["id"] for hit in hits} == {"1-0", "1-1", "1-2"}
    for hit in hits:
        assert hit["score"] == hit["link_probability"] <= 1
        assert hit["direction"] == "cites"
    one_way = {"index": index, "id": "1-3", "mode": "citation", "top_k": 3}
    forward = call(server, "POST", "/similar", one_way | {"direction": "cites"})
    backward = call(server, "POST", "/similar", one_way | {"direction": "cited_by"})
    assert forward[0]["score"] == hits[0]["score"] > backward[0]["score"]
    assert {hit["direction"] for hit in backward} == {"cited_by"}
    call(server, "POST", "/similar", missing | {"mode": "cosine", "direction": "cites"}, status=422)
    call(server, "DELETE", f"/indexes/{index}", status=204)
    call(server, "GET", f"/indexes/{index}/citation", status=404)
