"""Hits that resemble each other less, in /similar and by the formula."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from docsplit.ranking.fusion import diverse
from docsplit.windowing.pooling import Vectors
from tests.conftest import Server
from tests.index.conftest import FIELDS, call, upsert

# versions of one document fill the first page of every plain search
VERSIONS = 12


@pytest.fixture(scope="module")
def server(light_server: Server) -> Server:
    """Its vectors hold the words, which make the versions near to each other."""
    return light_server


@pytest.fixture(scope="module")
def filled(server: Server, peps: dict[str, str]) -> Iterator[str]:
    """Twelve versions of one document, and nineteen others."""
    call(server, "PUT", "/indexes/versions", {"fields": FIELDS}, status=201)
    names = list(peps)[100:120]
    text = peps[names[0]][:1200]
    documents = [
        {"id": f"version-{number}", "text": f"{text} Version {number}."}
        for number in range(VERSIONS)
    ]
    documents += [{"id": name, "text": peps[name][:1200]} for name in names[1:]]
    upsert(server, "versions", *documents)
    yield text
    httpx.delete(f"{server.url}/indexes/versions")


def names(server: Server, **body: Any) -> list[str]:
    hits = call(server, "POST", "/similar", {"index": "versions", **body})
    return [hit["id"] for hit in hits]


@pytest.mark.parametrize("mode", ["cosine", "words", "hybrid"])
def test_versions_of_one_document_make_room_for_others(
    server: Server, filled: str, mode: str
) -> None:
    plain = names(server, text=filled, mode=mode, top_k=VERSIONS)
    assert all(name.startswith("version-") for name in plain)
    chosen = names(server, text=filled, mode=mode, top_k=VERSIONS, diversity=0.6)
    assert chosen[0] == plain[0]
    assert sum(name.startswith("version-") for name in chosen) < VERSIONS / 2
    assert len(set(chosen)) == VERSIONS


def test_no_diversity_keeps_the_order(server: Server, filled: str) -> None:
    plain = names(server, text=filled, top_k=20)
    assert names(server, text=filled, top_k=20, diversity=0) == plain
    assert names(server, text=filled, top_k=20, diversity=0.5) != plain


def test_pages_continue_each_other(server: Server, filled: str) -> None:
    body = {"text": filled, "diversity": 0.5}
    whole = names(server, top_k=20, **body)
    pages = [names(server, top_k=5, offset=offset, **body) for offset in range(0, 20, 5)]
    assert [name for page in pages for name in page] == whole


def test_each_query_is_diverse_for_itself(server: Server, filled: str) -> None:
    body = {"index": "versions", "top_k": 6, "diversity": 0.5}
    queries = [{"text": filled}, {"id": "version-3"}]
    several = call(server, "POST", "/similar", body | {"queries": queries})
    by_itself = [call(server, "POST", "/similar", body | query) for query in queries]
    assert several == by_itself
    assert "version-3" not in [hit["id"] for hit in several[1]]


def test_an_empty_index_and_one_document_are_answered(server: Server, index: str) -> None:
    body = {"index": index, "text": "a", "diversity": 1}
    assert call(server, "POST", "/similar", body) == []
    upsert(server, index, {"id": "one", "text": "a text"})
    assert [hit["id"] for hit in call(server, "POST", "/similar", body)] == ["one"]
    assert call(server, "POST", "/similar", body | {"offset": 1}) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"diversity": 1.1}, "diversity: give 1.0 or less"),
        ({"diversity": -0.1}, "diversity: give 0.0 or more"),
        ({"diversity": 0.1, "offset": 995, "top_k": 10}, "offset and top_k is at most 1000"),
    ],
)
def test_wrong_diversity_is_refused(server: Server, change: dict[str, Any], said: str) -> None:
    body = {"index": "versions", "text": "a", **change}
    assert said in call(server, "POST", "/similar", body, status=422)["error"]


def chosen_by_definition(
    scores: list[float], vectors: Vectors, count: int, diversity: float
) -> list[int]:
    """The same as ``diverse``, hit by hit."""
    cosines = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    pairs = [cosines[i, j] for i in range(len(scores)) for j in range(len(scores)) if i != j]
    mean = sum(pairs) / len(pairs)
    low, high = min(scores), max(scores)
    chosen: list[int] = []
    while len(chosen) < min(count, len(scores)):
        values = {}
        for place in set(range(len(scores))) - set(chosen):
            near = max((cosines[place, other] for other in chosen), default=mean)
            redundancy = min(max((near - mean) / (1 - mean), 0), 1)
            relevance = (scores[place] - low) / (high - low)
            values[place] = (1 - diversity) * relevance - diversity * redundancy
        chosen.append(max(values, key=lambda place: values[place]))
    return chosen


@pytest.mark.parametrize("diversity", [0.0, 0.2, 0.5, 0.9])
def test_the_choice_follows_its_definition(diversity: float) -> None:
    draw = np.random.default_rng(5)
    vectors = draw.standard_normal((30, 8)).astype(np.float32)
    vectors[20:] = vectors[:10] + 0.05 * vectors[20:]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = -np.sort(-draw.random(30))
    found = diverse(scores, vectors, 25, diversity)
    assert found == chosen_by_definition(scores.tolist(), vectors, 25, diversity)
    assert (found == list(range(25))) == (diversity == 0)


def test_equal_hits_keep_their_order() -> None:
    same = np.ones((4, 1), np.float32)
    assert diverse(np.full(4, 0.5), same, 3, 0.7) == [0, 1, 2]
