"""/similar over real documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from docsplit.ranking.fusion import fuse
from tests.conftest import Server
from tests.index.conftest import FIELDS, call, upsert


@pytest.fixture(scope="module")
def papers(peps: dict[str, str]) -> dict[str, str]:
    """The beginnings of twenty PEPs, one or two windows each."""
    return {name: text[:1200] for name, text in list(peps.items())[100:120]}


@pytest.fixture(scope="module")
def filled(server: Server, papers: dict[str, str]) -> Iterator[str]:
    """An index with these papers."""
    call(server, "PUT", "/indexes/papers", {"fields": FIELDS}, status=201)
    documents = [
        {"id": name, "text": text, "title": name.upper(), "metadata": {"year": 2000 + i % 4}}
        for i, (name, text) in enumerate(papers.items())
    ]
    upsert(server, "papers", *documents)
    yield "papers"
    httpx.delete(f"{server.url}/indexes/papers")


def similar(server: Server, status: int = 200, **body: Any) -> Any:
    return call(server, "POST", "/similar", {"index": "papers"} | body, status=status)


def test_cosine_is_exact(server: Server, filled: str, papers: dict[str, str]) -> None:
    names = list(papers)
    vectors = np.array(call(server, "POST", "/embed", {"inputs": list(papers.values())}))
    cosines = vectors @ vectors[3]
    expected = [names[i] for i in np.argsort(-cosines)[:11]]
    hits = similar(server, text=papers[names[3]])
    assert [hit["id"] for hit in hits] == expected[:10]
    assert [hit["score"] for hit in hits] == pytest.approx(np.sort(-cosines)[:10] * -1, abs=1e-5)
    assert hits[0]["title"] == names[3].upper()
    by_id = similar(server, id=names[3])
    assert [hit["id"] for hit in by_id] == expected[1:]


def test_words_raise_a_document_that_cosine_ranks_low(
    server: Server, filled: str, papers: dict[str, str]
) -> None:
    upsert(server, "papers", {"id": "odd", "text": "Zyzzyva beetles eat palms. " * 3})
    try:
        text = next(iter(papers.values()))[:300] + " zyzzyva beetles"
        ranks = {}
        for mode in ("cosine", "words", "hybrid"):
            hits = similar(server, text=text, mode=mode, top_k=50)
            assert mode == "words" or len(hits) == len(papers) + 1
            scores = [hit["score"] for hit in hits]
            assert scores == sorted(scores, reverse=True)
            ranks[mode] = [hit["id"] for hit in hits].index("odd")
        assert ranks["words"] <= ranks["hybrid"] < ranks["cosine"]
    finally:
        call(server, "DELETE", "/indexes/papers/documents/odd", status=204)


def test_hybrid_leaves_the_document_itself_out(
    server: Server, filled: str, papers: dict[str, str]
) -> None:
    name = next(iter(papers))
    hits = similar(server, id=name, mode="hybrid", top_k=50)
    found = [hit["id"] for hit in hits]
    assert sorted(found) == sorted(set(papers) - {name})
    assert similar(server, id=name, mode="hybrid", top_k=5) == hits[:5]


@pytest.mark.parametrize("mode", ["cosine", "hybrid"])
def test_filters(server: Server, filled: str, papers: dict[str, str], mode: str) -> None:
    body = {"and": [{"field": "year", "gte": 2001}, {"not": {"field": "year", "eq": 2003}}]}
    hits = similar(server, text=next(iter(papers.values())), mode=mode, filter=body, top_k=50)
    assert len(hits) == 10
    assert {hit["metadata"]["year"] for hit in hits} == {2001, 2002}
    none = {"field": "status", "eq": "' OR 1=1 --"}
    assert similar(server, text="python", mode=mode, filter=none) == []


def test_explain_pairs_windows(server: Server, filled: str, papers: dict[str, str]) -> None:
    first, second = list(papers.items())[:2]
    text = second[1]
    for query in ({"text": text}, {"id": second[0]}):
        body: dict[str, Any] = {"explain": True, "top_k": 20, **query}
        hits = similar(server, **body)
        [hit] = [hit for hit in hits if hit["id"] == first[0]]
        assert 1 <= len(hit["pairs"]) <= 3
        pair = hit["pairs"][0]
        here = text[pair["query"]["start"] : pair["query"]["end"]]
        there = first[1][pair["document"]["start"] : pair["document"]["end"]]
        one, two = call(server, "POST", "/embed", {"inputs": [here, there]})
        assert float(np.dot(one, two)) == pytest.approx(pair["cosine"], abs=0.02)
    assert "pairs" not in similar(server, text="python")[0]


@pytest.mark.parametrize("mode", ["cosine", "words", "hybrid"])
def test_pages_follow_each_other(
    server: Server, filled: str, papers: dict[str, str], mode: str
) -> None:
    query: dict[str, Any] = {"id": next(iter(papers)), "mode": mode}
    whole = similar(server, **query, top_k=50)
    assert len(whole) == len(papers) - 1
    pages = [similar(server, **query, top_k=7, offset=start) for start in (0, 7, 14, 21)]
    assert [len(page) for page in pages] == [7, 7, 5, 0]
    # the last digit of a cosine depends on the number of rows
    assert [hit["id"] for page in pages for hit in page] == [hit["id"] for hit in whole]


@pytest.mark.parametrize("mode", ["cosine", "words", "hybrid"])
def test_excluded_documents_are_left_out(
    server: Server, filled: str, papers: dict[str, str], mode: str
) -> None:
    query: dict[str, Any] = {"text": next(iter(papers.values())), "mode": mode}
    names = [hit["id"] for hit in similar(server, **query, top_k=50)]
    out = [names[0], names[2], "no such document"]
    left = similar(server, **query, top_k=5, exclude=out)
    rest = [name for name in names if name not in out]
    if mode == "hybrid":
        # without the excluded documents the others have other ranks
        assert not {hit["id"] for hit in left} & set(out)
        assert len(left) == 5
    else:
        assert [hit["id"] for hit in left] == rest[:5]


def test_queries_answer_in_order(server: Server, filled: str, papers: dict[str, str]) -> None:
    (first, text), (second, other), *_ = papers.items()
    queries: list[dict[str, Any]] = [{"text": text}, {"id": second}, {"text": other}]
    options: dict[str, Any] = {"top_k": 4, "offset": 1, "explain": True, "exclude": [first]}
    answers = similar(server, queries=queries, **options)
    for answer, query in zip(answers, queries, strict=True):
        single = similar(server, **query, **options)
        assert [hit["id"] for hit in answer] == [hit["id"] for hit in single]
        assert [hit["score"] for hit in answer] == pytest.approx(
            [hit["score"] for hit in single], abs=1e-5
        )
        assert [hit["pairs"] is None for hit in answer] == [False] * 4
    assert answers[0] != answers[2]
    assert similar(server, queries=[{"id": second}], top_k=3) == [
        similar(server, id=second, top_k=3)
    ]


def test_queries_pay_for_all_their_texts(server: Server, filled: str) -> None:
    def tokens(**body: Any) -> int:
        answer = httpx.post(f"{server.url}/similar", json={"index": filled} | body, timeout=60)
        return int(answer.headers["x-compute-tokens"])

    one, two = tokens(text="red apples"), tokens(text="a basket of green pears")
    both = [{"text": "red apples"}, {"text": "a basket of green pears"}]
    assert tokens(queries=both) == one + two > max(one, two)


@pytest.mark.parametrize(
    ("body", "status", "hint"),
    [
        ({}, 422, "either text or id"),
        ({"text": "a", "id": "b"}, 422, "either text or id"),
        ({"text": " "}, 400, "empty"),
        ({"id": "nowhere"}, 404, "no document"),
        ({"text": "a", "index": "nowhere"}, 404, "GET /indexes"),
        ({"text": "a", "index": "../papers"}, 422, "index"),
        ({"text": "a", "top_k": 0}, 422, "top_k"),
        ({"text": "a", "top_k": 1001}, 422, "top_k"),
        ({"text": "a", "mode": "magic"}, 422, "mode"),
        ({"text": "a", "queries": [{"text": "a"}]}, 422, "or else queries"),
        ({"queries": []}, 422, "queries"),
        ({"queries": [{"text": "a"}, {}]}, 422, "queries.1: give either text or id"),
        ({"queries": [{"id": "pep-0100"}] * 101, "top_k": 1}, 422, "queries"),
        ({"queries": [{"text": "a"}] * 2, "top_k": 501}, 422, "at most 1000"),
        ({"queries": [{"text": "a"}] * 2, "offset": 4_991}, 422, "at most 10000"),
        ({"queries": [{"text": "a"}, {"id": "nowhere"}]}, 404, "queries.1: no document"),
        ({"queries": [{"text": "a"}, {"text": " "}]}, 400, "queries.1 is empty"),
        ({"text": "a", "offset": 9_991}, 422, "at most 10000"),
        ({"text": "a", "exclude": ["a"] * 1001}, 422, "exclude"),
        ({"text": "a", "exclude": [""]}, 422, "exclude"),
        ({"text": "a", "filter": "year = 1"}, 422, "filter"),
        ({"text": "a", "filter": {"field": "secret", "eq": 1}}, 422, "not declared"),
        ({"text": "a", "filter": {"field": "year", "eq": "1"}}, 422, "declared as integer"),
    ],
)
def test_bad_requests(
    server: Server, filled: str, body: dict[str, Any], status: int, hint: str
) -> None:
    assert hint in similar(server, status=status, **body)["error"]


def test_words_find_the_documents_that_contain_them(server: Server, index: str) -> None:
    texts = {"a": "a walrus operator assigns", "b": "an operator of telephones", "c": "gardens"}
    upsert(server, index, *({"id": name, "text": text} for name, text in texts.items()))
    body = {"index": index, "text": "walrus operator", "mode": "words"}
    hits = call(server, "POST", "/similar", body)
    assert [hit["id"] for hit in hits] == ["a", "b"]
    assert hits[0]["score"] > hits[1]["score"] > 0


def test_a_text_of_symbols_has_no_words(server: Server, filled: str) -> None:
    assert len(similar(server, text="!?", mode="hybrid")) == 10
    assert similar(server, text="!?", mode="words") == []


def test_fusion_prefers_documents_of_both_rankings() -> None:
    scores = fuse(["a", "b", "c"], ["c", "d"])
    assert list(scores) == ["c", "a", "b", "d"]
    assert scores["c"] == pytest.approx(1 / 63 + 1 / 61)


@pytest.mark.parametrize("mode", ["cosine", "words"])
def test_pages_of_equal_documents_have_each_once(server: Server, index: str, mode: str) -> None:
    texts = ("Apples are red fruit.", "Apples are green fruit in gardens.")
    names = [f"d{number:02}" for number in range(60)]
    upsert(server, index, *({"id": n, "text": texts[i % 2]} for i, n in enumerate(names)))
    body = {"index": index, "id": "d05", "mode": mode, "adapt": False, "top_k": 7}
    pages = [
        call(server, "POST", "/similar", body | {"offset": offset}) for offset in range(0, 63, 7)
    ]
    assert sorted(hit["id"] for page in pages for hit in page) == [n for n in names if n != "d05"]
