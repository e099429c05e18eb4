"""The mode coupled: documents that share citations with a document."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.index import link_graph
from service.index.documents import Index
from service.index.indexes import Indexes
from service.index.link_graph import Graph, Source
from service.index.query.filters import Condition, compile_filter
from service.index.query.reading import Hit
from service.index.query.search import stored
from tests.conftest import Server
from tests.index.conftest import call, upsert
from tests.index.graphs import Links, drawn, filled


def scores(links: Links, query: str) -> dict[str, tuple[float, int, int]]:
    """Score, shared references and co-citations of each document, by the definition."""
    references = {name: cited - {name} for name, cited in links.items()}
    citing = {
        name: {one for one, cited in references.items() if name in cited} for name in references
    }

    def cosine(sets: Links, name: str) -> tuple[float, int]:
        both = len(sets[query] & sets[name])
        return (both / math.sqrt(len(sets[query]) * len(sets[name])) if both else 0.0), both

    expected = {}
    for name in references.keys() - {query}:
        (one, both), (two, cited) = cosine(references, name), cosine(citing, name)
        if both or cited:
            expected[name] = ((one + two) / 2, both, cited)
    return expected


async def search(
    indexes: Indexes, index: Index, query: str, source: Source = "both", **options: Any
) -> list[Hit]:
    even = Condition.model_validate({"field": "even", "eq": True})
    where = compile_filter(even, index.identity.fields) if options.pop("even", False) else None
    limit = options.pop("limit", 100)
    one = replace(await stored(index, query), **options)
    links = Graph(index, indexes.found_links, source)
    return await link_graph.coupled(index, one, limit, where, links)


def shown(hits: list[Hit]) -> dict[str, tuple[Any, int, int]]:
    return {
        hit.id: (pytest.approx(hit.score), hit.shared.references, hit.shared.citing)
        for hit in hits
        if hit.shared is not None
    }


@pytest.mark.parametrize("source", ["given", "found", "both"])
def test_scores_are_those_of_the_definition(tmp_path: Path, source: Source) -> None:
    given, held = drawn(1, 0.06), drawn(2, 0.06)
    held = {name: cited - {name} for name, cited in held.items()}
    union = {name: given[name] | held[name] for name in given}
    chosen = {"given": given, "found": held, "both": union}

    async def run() -> None:
        indexes, index = await filled(tmp_path, given, held)
        for query in ("d0", "d7", "d20"):
            hits = await search(indexes, index, query, source)
            assert shown(hits) == scores(chosen[source], query)
            assert [hit.score for hit in hits] == sorted((h.score for h in hits), reverse=True)
            others = [scores(links, query) for name, links in chosen.items() if name != source]
            assert all(shown(hits) != other for other in others)

    asyncio.run(run())


def test_a_page_with_a_filter_is_a_part_of_all_hits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = drawn(3, 0.15)
    places = {name: place for place, name in enumerate(links)}

    async def run() -> None:
        indexes, index = await filled(tmp_path, links, {})
        whole = [hit.id for hit in await search(indexes, index, "d0")]
        out = frozenset(whole[:3])
        expected = [one for one in whole if places[one] % 2 == 0 and one not in out]
        assert 8 < len(expected) < len(whole) - 8
        # candidates beyond the first chunk pass the filter too
        monkeypatch.setattr(link_graph, "_COUPLED", 5)
        pages = [
            await search(
                indexes, index, "d0", even=True, exclude=out, limit=start + 4, offset=start
            )
            for start in range(0, len(expected) + 4, 4)
        ]
        assert [hit.id for page in pages for hit in page] == expected

    asyncio.run(run())


def test_a_document_that_many_cite_costs_no_more_than_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links: dict[str, set[str]] = {f"c{i:02}": {"hub", f"o{i % 2}"} for i in range(60)}
    links |= {"hub": set(), "o0": set(), "o1": set(), "query": {"hub", "rare"}}
    links |= {"near": {"hub", "rare"}, "far": {"rare", "x", "y"}}
    for limit in ("MOST_COUPLED", "MOST_CITING"):
        monkeypatch.setattr(link_graph, limit, 30)
    monkeypatch.setattr(link_graph, "MOST_READ", 30)

    async def run() -> None:
        indexes, index = await filled(tmp_path, links, {})
        # the rare reference finds both; of what only the hub connects, nothing is read
        expected = scores(links, "query")
        assert len(expected) == 62
        hits = await search(indexes, index, "query", "given")
        assert shown(hits) == {name: expected[name] for name in ("near", "far")}
        # 62 documents cite the hub: half of them show what is cited with it, and how often
        near = scores(links, "hub")
        for hit in await search(indexes, index, "hub", "given"):
            assert hit.shared is not None
            assert hit.score == pytest.approx(near[hit.id][0], rel=0.3)
            assert hit.shared.citing == pytest.approx(near[hit.id][2], rel=0.3)

    asyncio.run(run())


def test_the_route_finds_explains_and_refuses(server: Server, index: str) -> None:
    cited = [{"id": "a", "text": "About a."}, {"id": "b", "text": "About b."}]
    upsert(
        server,
        index,
        *cited,
        {"id": "one", "text": "Tea and cups.", "title": "One", "links": ["a", "b"]},
        {"id": "two", "text": "Ships at sea.", "title": "Two", "links": ["b"]},
    )
    asked = {"index": index, "id": "one", "mode": "coupled"}
    [hit] = call(server, "POST", "/similar", asked | {"explain": True})
    assert (hit["id"], hit["title"], hit["shared_references"]) == ("two", "Two", 1)
    assert hit["score"] == pytest.approx(0.5 / math.sqrt(2))
    assert hit["pairs"][0]["document"]["end"] == len("Ships at sea.")
    [first, second] = call(
        server,
        "POST",
        "/similar",
        {"index": index, "mode": "coupled", "queries": [{"id": "a"}, {"id": "two"}]},
    )
    assert [(one["id"], one["co_citations"]) for one in first] == [("b", 1)]
    assert [one["id"] for one in second] == ["one"]
    assert call(server, "POST", "/similar", asked | {"links_from": "found"}) == []
    text = {"index": index, "mode": "coupled", "text": "Tea"}
    for body, said in [
        (text, "give the id"),
        ({"index": index, "mode": "coupled", "queries": [{"id": "a"}, {"text": "b"}]}, "id"),
        (text | {"mode": "words", "links_from": "given"}, "mode coupled"),
    ]:
        assert said in call(server, "POST", "/similar", body, status=422)["error"]
    call(server, "POST", "/similar", asked | {"id": "none"}, status=404)
