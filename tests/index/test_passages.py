"""Passages: found by a sentence in a long document, from rows that are verified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from docsplit.ranking import passages as ranking
from docsplit.ranking.terms import bag
from docsplit.ranking.terms import count as counted
from docsplit.ranking.words import lined, placed
from service.index.query import passages
from service.index.query.passages import Mode
from service.index.query.reading import Query
from tests.conftest import Server
from tests.index.conftest import FIELDS, call, upsert
from tests.index.processes import Replicas, record, run

PLANTED = "The lighthouse keeper of Skagen repaired the broken foghorn before the storm arrived."
PARAPHRASE = "Before a storm came, Skagen's lighthouse keeper fixed the foghorn, which was broken."


def shares(text: str, ends: Sequence[int], asked: ranking.Terms) -> ranking.Vectors:
    return ranking.shares_of([lined(text, ends)], asked)[0]


@pytest.fixture(scope="module")
def texts(peps: dict[str, str]) -> dict[str, str]:
    long = [(name, text) for name, text in peps.items() if len(text) > 5_000]
    return {name: text[:5_000] for name, text in long[:4]}


@pytest.fixture(scope="module")
def filled(server: Server, texts: dict[str, str]) -> Iterator[str]:
    """Four long documents; ``planted`` is the first again, with a sentence in its middle."""
    call(server, "PUT", "/indexes/passages", {"fields": FIELDS}, status=201)
    first = next(iter(texts.values()))
    middle = first.index(". ", len(first) // 2) + 2
    planted = first[:middle] + PLANTED + " " + first[middle:]
    documents: list[dict[str, Any]] = [
        {"id": name, "text": text, "title": name} for name, text in texts.items()
    ]
    documents.append({"id": "planted", "text": planted, "metadata": {"year": 1999}})
    upsert(server, "passages", *documents)
    yield planted
    httpx.delete(f"{server.url}/indexes/passages")


def find(server: Server, status: int = 200, **body: Any) -> Any:
    return call(server, "POST", "/passages", {"index": "passages"} | body, status=status)


@pytest.mark.parametrize("mode", ["cosine", "words", "hybrid"])
def test_a_paraphrase_finds_the_passage_of_a_long_document(
    server: Server, filled: str, texts: dict[str, str], mode: str
) -> None:
    found = find(server, text=PARAPHRASE, mode=mode)
    best = found[0]
    assert best["id"] == "planted"
    passage = best["passages"][0]
    assert PLANTED in filled[passage["start"] : passage["end"]]
    snippet = passage["snippet"]
    assert filled[snippet["start"] : snippet["end"]] == snippet["text"]
    assert "lighthouse" in snippet["text"]
    assert len(snippet["text"]) <= 300
    # only documents from files have them
    assert (passage["page"], passage["heading"]) == (None, None)
    assert best["score"] == passage["score"]
    scores = [one["score"] for one in best["passages"]]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    [control] = [one for one in found if one["id"] == next(iter(texts))] or [{"score": 0}]
    assert control["score"] < best["score"] - 0.1


def test_scores_are_cosines_and_shares_of_words(server: Server, filled: str) -> None:
    [best, *_] = find(server, text=PARAPHRASE, passages=1, snippet_characters=40)
    [passage] = best["passages"]
    inside = filled[passage["start"] : passage["end"]]
    one, two, whole = call(server, "POST", "/embed", {"inputs": [inside, PARAPHRASE, filled]})
    assert passage["cosine"] == pytest.approx(np.dot(one, two), abs=0.02)
    assert best["cosine"] == pytest.approx(np.dot(whole, two), abs=0.02)
    assert passage["score"] == pytest.approx(0.3 * passage["cosine"] + 0.7 * passage["words"])
    assert 0.5 < passage["words"] < 1
    assert len(passage["snippet"]["text"]) <= 40


def test_a_filter_limits_the_documents(server: Server, filled: str) -> None:
    old = {"field": "year", "eq": 1999}
    for mode in ("cosine", "words", "hybrid"):
        assert [one["id"] for one in find(server, text="a storm", mode=mode, filter=old)] in (
            ["planted"],
            [],
        )
        none = {"field": "year", "eq": 1998}
        assert find(server, text=PARAPHRASE, mode=mode, filter=none) == []
    assert len(find(server, text="python", filter=old)) == 1


def test_a_document_and_its_part_leave_the_document_out(
    server: Server, filled: str, texts: dict[str, str]
) -> None:
    first = next(iter(texts))
    whole = find(server, id=first)
    assert first not in [one["id"] for one in whole]
    assert whole[0]["id"] == "planted"
    spans = call(server, "POST", "/embed", {"inputs": texts[first], "windows": True})["windows"][0]
    start, end = (spans[1][edge] for edge in ("start", "end"))
    part = find(server, id=first, start=start, end=end, mode="cosine")
    assert first not in [one["id"] for one in part]
    assert part[0]["id"] == "planted"
    # the same window: it lies before the planted sentence
    twin = part[0]["passages"][0]
    assert filled[twin["start"] : twin["end"]] == texts[first][start:end]
    assert twin["cosine"] == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("triples", [0, 44])
def test_a_sentence_of_a_long_document_is_found_among_many_short_ones(
    light_server: Server, triples: int
) -> None:
    call(light_server, "PUT", "/indexes/short", {}, status=201)
    try:
        filler = [f"Sentence {number} is about nothing at all." for number in range(800)]
        sentence = "A quokka fears the zebra when harvest and winter come."
        long = " ".join([*filler[:400], sentence, *filler[400:]])
        # BM25 prefers each of these; some have three of the words
        pairs = 60 if triples else passages.WORDED + 30
        texts = [f"Harvest, winter: {n}." for n in range(pairs)]
        between = "Much else is said in this text. " * 25
        texts += [f"Harvest, winter. {between} Zebra {n}." for n in range(triples)]
        short = [{"id": f"s{n}", "text": text} for n, text in enumerate(texts)]
        others = [{"id": f"o{n}", "text": f"Other {n}."} for n in range(2 * len(short))]
        upsert(light_server, "short", *short, *others, {"id": "long", "text": long})
        query = {"index": "short", "text": "harvest winter zebra quokka", "mode": "words"}
        [best, *rest] = call(light_server, "POST", "/passages", query)
        assert best["id"] == "long"
        passage = best["passages"][0]
        assert sentence in long[passage["start"] : passage["end"]]
        assert passage["words"] > (1.2 if triples else 2) * rest[0]["score"]
        assert rest[0]["id"].startswith("s")
    finally:
        httpx.delete(f"{light_server.url}/indexes/short")


def test_a_deleted_document_has_no_passages(server: Server, filled: str) -> None:
    upsert(server, "passages", {"id": "soon gone", "text": "A zeppelin over Lake Constance."})
    query: dict[str, Any] = {"text": "zeppelin over the lake", "mode": "hybrid"}
    assert find(server, **query)[0]["id"] == "soon gone"
    call(server, "DELETE", "/indexes/passages/documents/soon gone", status=204)
    assert "soon gone" not in [one["id"] for one in find(server, **query)]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 422, "give either text or id"),
        ({"text": "a", "id": "planted"}, 422, "give either text or id"),
        ({"text": "a", "start": 0, "end": 5}, 422, "only with id"),
        ({"id": "planted", "start": 0}, 422, "start and end together"),
        ({"id": "planted", "start": 5, "end": 5}, 422, "above start"),
        ({"id": "planted", "start": 10**6, "end": 10**6 + 1}, 422, "the document ends before"),
        ({"text": "a", "top_k": 101}, 422, "top_k"),
        ({"text": "a", "passages": 11}, 422, "passages"),
        ({"text": "a", "snippet_characters": 2001}, 422, "snippet_characters"),
        ({"text": "a", "mode": "citation"}, 422, "mode"),
        ({"text": "a", "filter": {"field": "secret", "eq": 1}}, 422, "not declared"),
        ({"text": " "}, 400, "empty"),
        ({"id": "none"}, 404, "no document"),
        ({"text": "a", "index": "none"}, 404, "GET /indexes"),
    ],
)
def test_bad_requests_say_what_is_wrong(
    server: Server, filled: str, body: dict[str, Any], status: int, said: str
) -> None:
    assert said in find(server, status=status, **body)["error"]


def test_a_text_of_symbols_has_no_words(server: Server, filled: str) -> None:
    assert len(find(server, text="!?")) == 5
    assert find(server, text="!?", mode="words") == []


def test_an_endless_word_ends_no_service(server: Server, filled: str) -> None:
    # a longer one has more tokens than a document may have
    endless = "abab" * 100_000
    assert find(server, text=endless, mode="hybrid")
    best = find(server, text=f"{PARAPHRASE} {endless}", mode="words")[0]
    assert best["id"] == "planted"


def test_a_snippet_has_the_most_words_of_the_query() -> None:
    text = "Nothing here. " * 20 + "A rare walrus sings at dawn. " + "Nothing more. " * 20
    frequencies = counted(map(bag, 5 * ["nothing here", "nothing more", "nothing else", text]))
    text_asked = "the walrus sings, nothing else"
    asked = ranking.terms(text_asked, frequencies)
    assert "nothing" not in asked.weights
    start, end = ranking.snippet(text, 14, len(text), 40, asked)
    assert text[start:end] == "A rare walrus sings at dawn. Nothing"
    assert ranking.snippet(text, 14, len(text), 40, ranking.NONE) == (14, 54)
    assert ranking.snippet(text, 14, 30, 40, asked) == (14, 30)


HINDI = "यहाँ कोई नई बात नहीं लिखी है। " * 20


def test_a_snippet_and_the_shares_know_words_with_vowel_signs() -> None:
    sentence = "हिमालय में दुर्लभ पक्षी मिले। "
    text = HINDI + sentence + HINDI
    asked = ranking.Terms({"दुर्लभ": 2.0, "पक्षी": 2.0}, 12)
    start, end = ranking.snippet(text, 0, len(text), 80, asked)
    assert text[start:end].startswith(sentence)
    assert shares(text, [len(text)], asked) == pytest.approx(1)
    # a part of a word is none
    part = ranking.Terms({"दुर्ल": 1.0, "दुर": 1.0}, 12)
    assert shares(text, [len(text)], part) == 0


def test_a_snippet_near_the_end_begins_with_a_word() -> None:
    for last in range(4):
        text = "Nothing here at all. " * 20 + "a walrus" + "." * last
        asked = ranking.Terms({"walrus": 1.0}, 6)
        start, end = ranking.snippet(text, 0, len(text), 40, asked)
        assert text[start - 1] == " "
        assert 24 < end - start <= 40
        assert "walrus" in text[start:end]


def test_a_snippet_ends_with_a_word() -> None:
    text = "Some words, each of another length, stand here one after the other. " * 3
    for size in range(20, 60):
        start, end = ranking.snippet(text, 0, len(text), size, ranking.NONE)
        assert not (text[end - 1].isalnum() and text[end].isalnum())
        assert 0.6 * size <= end - start <= size
    # without blanks there is no other end
    assert ranking.snippet("電" * 99, 0, 99, 40, ranking.NONE) == (0, 40)


@pytest.mark.parametrize("unit", ["ก็ดี", "e\u0301", "👩\u200d🚀", "👍🏽"])
def test_a_snippet_parts_no_character(unit: str) -> None:
    text = unit * 50 + "walrus" + unit * 50
    for size in range(20, 24):
        for asked in (ranking.NONE, ranking.Terms({"walrus": 1.0}, 6)):
            for window in (len(text), len(unit) * 51 + 6):
                start, end = ranking.snippet(text, 0, window, size, asked)
                assert 12 < end - start <= size
                for place in (start, end):
                    before, after = text[:place], text[place:]
                    assert not after.startswith(("\u0e47", "\u0e35", "\u0301", "\u200d", "🏽"))
                    assert not before.endswith("\u200d")
    # marks without end belong to no character
    assert ranking.snippet("a" + "\u0301" * 99, 0, 100, 20, ranking.NONE) == (0, 20)


def test_words_close_together_weigh_more_than_words_apart() -> None:
    filler = "Other words stand here and fill some room. " * 8
    near = f"{filler}A rare walrus sings at dawn. {filler}"
    apart = f"A rare sight. {filler} The walrus is here. {filler} It sings at dawn. "
    text = near + apart + filler
    ends = [len(near), len(near + apart), len(text)]
    frequencies = counted(map(bag, 5 * ["other words", "some room", "the sea", text]))
    text_asked = "the rare walrus sings at dawn"
    asked = ranking.terms(text_asked, frequencies)
    together, scattered, none = shares(text, ends, asked)
    assert together == pytest.approx(1)
    assert 0.5 < scattered < 0.9
    assert none == 0
    # another form of a word does not count
    assert shares(text.replace("walrus", "walruses"), ends, asked)[0] < 0.9
    # a capital of one character that becomes two in lower case moves nothing
    assert shares("İ" + text, [end + 1 for end in ends], asked)[0] == pytest.approx(1)
    assert not shares(text, ends, ranking.NONE).any()


def test_words_are_found_whole() -> None:
    text = "An art. Articles of art; the arts, artless ART, cart and (art)_ x art\u4e00 art"
    asked = ranking.Terms({"art": 2.0, "articles": 1.0, "less": 1.0}, 10)
    wanted = [(3, "art"), (8, "articles"), (20, "art"), (43, "art"), (58, "art")]
    wanted += [(66, "art"), (71, "art")]
    assert [(start, word) for word, start, _ in placed(text, asked.weights.keys())] == wanted
    # bytes of a damaged row that are not UTF-8
    assert list(placed("\udcff art", asked.weights.keys())) == [("art", 2, 5)]


def test_words_in_several_texts_are_those_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    # a word would cross the border of the first two if nothing stood between them
    texts = ["An art", "icles of art. " * 3, "", "Ünlü \u4e00 art", "İ art " * 40, "no word"]
    ends = [[len(text) // 2, len(text)] if text else [0] for text in texts]
    asked = ranking.Terms({"art": 2.0, "articles": 1.0, "of": 1.0}, 10)
    each = [shares(text, own, asked) for text, own in zip(texts, ends, strict=True)]
    assert [bool(own.any()) for own in each] == [True, True, False, True, True, False]
    for step in (1, 7, 20, 1 << 16):
        monkeypatch.setattr(ranking, "_STEP", step)
        together = ranking.shares_of(list(map(lined, texts, ends)), asked)
        for own, found in zip(each, together, strict=True):
            np.testing.assert_array_equal(own, found)


@pytest.mark.parametrize("mode", ["cosine", "words", "hybrid"])
def test_the_next_document_replaces_a_damaged_one(tmp_path: Path, mode: Mode) -> None:
    @run
    async def scenario(replicas: Replicas) -> None:
        index, _ = await replicas.pair()
        fillers = [record(f"other {number}", f"Filler {number}.") for number in range(9)]
        texts = {"best": "A walrus sings.", "next": "A walrus sings, it is said."}
        texts["last"] = "A walrus, and much else, sings at sea."
        held = [record(name, text) for name, text in texts.items()]
        await index.put([*fillers, *held])
        query = Query(held[0].encoding.vector, "walrus sings")

        async def search(documents: int) -> list[passages.Found]:
            form = passages.Form(documents, 1, 300)
            return await passages.search(index, query, mode, form, None)

        before = {one.id: one for one in await search(11)}
        [first] = await search(1)
        assert first == before[first.id]
        for _ in range(2):
            await index.table.update({"title": "changed"}, where=f"id = '{first.id}'")
            [second] = await search(1)
            assert second == before[second.id]
            assert second.id != first.id
            assert second.passages[0].score <= first.passages[0].score
            first = second

    scenario(tmp_path)


@pytest.mark.parametrize("others", [0, 1])
def test_words_find_the_passage_in_an_index_of_one_or_two_documents(
    server: Server, index: str, others: int
) -> None:
    filler = "The weather was fine and people walked in the park all day long. " * 60
    documents = [{"id": f"d{number}", "text": filler} for number in range(others)]
    upsert(server, index, {"id": "book", "text": filler + PLANTED + " " + filler}, *documents)
    body = {"index": index, "text": "Who fixed the foghorn of the lighthouse?", "mode": "words"}
    best = call(server, "POST", "/passages", body | {"snippet_characters": 90})[0]
    assert best["id"] == "book"
    assert "broken foghorn" in best["passages"][0]["snippet"]["text"]
    assert best["score"] > best["passages"][1]["score"] > 0


@pytest.mark.parametrize("mode", ["words", "hybrid"])
@pytest.mark.parametrize("query", ["zyzzyva common words", "common words"])
def test_common_words_find_documents_if_no_other_word_does(
    server: Server, index: str, mode: str, query: str
) -> None:
    texts = [f"The common report {number}." for number in range(22)]
    texts += [f"Report {number} of the common words." for number in range(22)]
    upsert(server, index, *({"id": f"d{n}", "text": text} for n, text in enumerate(texts)))
    found = find(server, index=index, text=query, mode=mode)
    assert len(found) == 10
    if mode == "words":
        # those with both words, of which each is common
        assert all(int(one["id"][1:]) >= 22 for one in found)
        assert all("common words" in one["passages"][0]["snippet"]["text"] for one in found)
        assert all(one["score"] > 0 for one in found)
    # the control: a word of few documents decides
    rare = find(server, index=index, text=f"{query} 17", mode=mode)
    assert {one["id"] for one in rare[:2]} == {"d17", "d39"}
