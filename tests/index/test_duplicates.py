"""Near-duplicates in an index of real documents."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unicodedata import normalize

import httpx
import numpy as np
import pytest

from docsplit.ranking import duplicates
from service.index.indexes import Indexes, Model, connect
from service.index.query.duplicates import Group, Held, groups, like
from service.index.query.reading import Query
from tests.conftest import Server
from tests.index.conftest import call, count, upsert
from tests.index.processes import record

SHARES = (0.01, 0.05, 0.2)


def changed(text: str, share: float, seed: int) -> str:
    """The text with a share of its words replaced by others of its own."""
    draw = random.Random(seed)
    words = text.split()
    return " ".join(draw.choice(words) if draw.random() < share else word for word in words)


@pytest.fixture(scope="module")
def server(light_server: Server) -> Server:
    """The texts and their words matter, and no vector."""
    return light_server


@pytest.fixture(scope="module")
def originals(peps: dict[str, str]) -> dict[str, str]:
    long = [(name, text) for name, text in peps.items() if len(text) > 7000]
    return {name: text[3000:7000] for name, text in long[40:52]}


@pytest.fixture(scope="module")
def copies(originals: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Copies with some words changed, by id: the original's id, and the text."""
    return {
        f"{name}-copy": (name, changed(text, SHARES[i % 3], i))
        for i, (name, text) in enumerate(list(originals.items())[:9])
    }


@pytest.fixture(scope="module")
def filled(
    server: Server, originals: dict[str, str], copies: dict[str, tuple[str, str]]
) -> Iterator[str]:
    call(server, "PUT", "/indexes/copies", {}, status=201)
    documents = [{"id": name, "text": text} for name, text in originals.items()]
    documents += [{"id": name, "text": text} for name, (_, text) in copies.items()]
    upsert(server, "copies", *documents)
    yield "copies"
    httpx.delete(f"{server.url}/indexes/copies")


def find(server: Server, status: int = 200, **body: Any) -> Any:
    return call(server, "POST", "/indexes/copies/duplicates", body, status=status)


def test_every_copy_is_in_a_group_with_only_its_original(
    server: Server, filled: str, copies: dict[str, tuple[str, str]]
) -> None:
    found = call(server, "GET", f"/indexes/{filled}/duplicates")
    pairs = {tuple(group["ids"]) for group in found["groups"]}
    assert pairs == {tuple(sorted((name, copy))) for copy, (name, _) in copies.items()}
    assert (found["documents"], found["groups_found"]) == (18, 9)
    assert all(group["size"] == 2 and 0.4 <= group["resemblance"] < 1 for group in found["groups"])


def test_a_higher_threshold_leaves_only_the_closest_copies(
    server: Server, filled: str, copies: dict[str, tuple[str, str]]
) -> None:
    found = call(server, "GET", f"/indexes/{filled}/duplicates?threshold=0.9&limit=1")
    assert found["groups_found"] == 3
    assert len(found["groups"]) == 1


def test_a_document_finds_its_copy_and_the_windows_that_differ(
    server: Server, filled: str, originals: dict[str, str]
) -> None:
    name, text = next(iter(originals.items()))
    [same, *rest] = find(server, text=text)
    assert (same["id"], same["resemblance"], same["differs"]) == (name, 1, [])
    assert [one["id"] for one in rest] == [f"{name}-copy"]
    [copy] = find(server, id=name)
    assert copy["id"] == f"{name}-copy"
    other = "A paragraph about the price of tea in small towns. " * 30
    [longer] = find(server, text=text[:2000], threshold=0.1, top_k=1)
    assert longer["containment"] > 0.9 > longer["resemblance"]
    spans = longer["differs"]
    assert spans
    assert all(span["end"] > 1900 for span in spans)
    assert find(server, text=other) == []


def test_an_upsert_marks_or_refuses_duplicates(
    server: Server, index: str, originals: dict[str, str]
) -> None:
    first, second, third = list(originals.values())[:3]
    upsert(server, index, {"id": "a", "text": first})
    body = {
        "documents": [{"id": "x", "text": second}, {"id": "b", "text": changed(first, 0.05, 1)}]
    }
    path = f"/indexes/{index}/documents"
    refused = call(server, "POST", path, body | {"on_duplicate": "refuse"}, status=409)
    [one] = refused["duplicates"]
    assert (one["position"], [d["id"] for d in one["duplicates"]]) == (1, ["a"])
    assert count(server, index) == 1
    marked = call(server, "POST", path, body | {"on_duplicate": "mark"})
    assert marked["duplicates"] == refused["duplicates"]
    assert count(server, index) == 3
    again = {"documents": [{"id": "a", "text": first, "title": "new"}, {"id": "c", "text": third}]}
    known = call(server, "POST", path, again | {"on_duplicate": "mark"})["duplicates"]
    assert [(d["position"], d["duplicates"][0]["id"]) for d in known] == [(0, "b")]
    assert "duplicates" not in call(server, "POST", path, again)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "give either text or id"),
        ({"id": "a", "text": "b"}, "give either text or id"),
        ({"id": "a", "threshold": 0}, "threshold"),
        ({"id": "a", "top_k": 51}, "top_k"),
    ],
)
def test_bad_requests_say_what_is_wrong(
    server: Server, filled: str, body: dict[str, Any], said: str
) -> None:
    assert said in find(server, status=422, **body)["error"]


def test_an_unknown_document_or_index_is_not_found(server: Server, filled: str) -> None:
    find(server, status=404, id="none")
    call(server, "GET", "/indexes/none/duplicates", status=404)


def test_an_empty_index_and_texts_without_words_have_no_duplicates(
    server: Server, index: str
) -> None:
    path = f"/indexes/{index}/duplicates"
    assert call(server, "GET", path)["groups"] == []
    upsert(server, index, {"id": "a", "text": "..."}, {"id": "b", "text": "..."})
    assert call(server, "GET", path)["groups"] == []
    assert call(server, "POST", path, {"text": "???"}) == []


def test_resemblance_and_containment_are_those_of_the_sets() -> None:
    one, other = duplicates.shingles("a b c d"), duplicates.shingles("A, b: c!")
    assert len(one) == 7
    assert len(other) == 5
    assert duplicates.resemblance(one, other) == pytest.approx(5 / 7)
    assert duplicates.containment(one, other) == 1
    assert duplicates.resemblance(one, duplicates.shingles("d c b a")) == pytest.approx(4 / 10)


def letters(first: int, many: int) -> list[str]:
    return [chr(first + place) for place in range(many)]


SCRIPTS = {
    "Hindi": ([c + v for c in letters(0x915, 36) for v in ("", "\u093f", "\u0940", "\u0947")], " "),
    "Arabic": ([c + v for c in letters(0x628, 19) for v in ("", "\u064e", "\u0650")], " "),
    "Thai": ([c + v for c in letters(0xE01, 40) for v in ("", "\u0e32", "\u0e34")], ""),
    "Chinese": (letters(0x4E00, 900), ""),
    "Japanese": (letters(0x3041, 80) + letters(0x4E00, 400), ""),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_copies_resemble_and_other_texts_do_not_in_any_script(script: str) -> None:
    syllables, blank = SCRIPTS[script]
    draw = random.Random(0)
    # real texts repeat short words
    known = ["".join(draw.choices(syllables, k=draw.choice((1, 2, 2)))) for _ in range(3000)]

    def drawn() -> list[str]:
        return [known[int(3000 ** draw.random()) - 1] for _ in range(1000)]

    one, other = drawn(), drawn()
    copy = [draw.choice(known) if draw.random() < 0.05 else word for word in one]
    sets = [duplicates.shingles(blank.join(words)) for words in (one, other, copy)]
    assert duplicates.resemblance(sets[0], sets[1]) < 0.2
    assert duplicates.resemblance(sets[0], sets[2]) > 0.6


def test_the_composition_of_characters_does_not_count() -> None:
    text = "L'\u00e9t\u00e9 \u00e0 Li\u00e8ge, \u304c\u304e"
    one, other = (duplicates.shingles(normalize(form, text)) for form in ("NFC", "NFD"))
    assert np.array_equal(one, other)


def test_an_endless_run_takes_no_more_time_than_its_length() -> None:
    marks = "a" + "\u0323\u0301" * 100_000
    assert len(duplicates.shingles(marks)) == 1
    run = "".join(letters(0x4E00, 51)) * 2000
    seconds = []
    for text, words in ((run, 0), (f"a{run}", 2)):
        started = time.perf_counter()
        # 51 runs of two characters and as many of three; a, and a with the first of two
        assert len(duplicates.shingles(text)) == 2 * 51 + words
        seconds.append(time.perf_counter() - started)
    assert seconds[1] < 10 * seconds[0] + 1


def test_keys_meet_as_often_as_documents_resemble() -> None:
    draw = np.random.default_rng(0)

    def met(share: float) -> float:
        """How often two sets with that resemblance have a key in common."""
        shared = round(2000 * share / (1 + share))
        hits = 0
        for _ in range(60):
            drawn = draw.integers(0, 1 << 32, 2000, dtype=np.uint32)
            one = drawn[:1000]
            other = np.concatenate((one[:shared], drawn[1000 : 2000 - shared]))
            hits += bool((duplicates.keys(one) == duplicates.keys(other)).any())
        return hits / 60

    assert met(0.5) > 0.9
    assert met(0.05) < 0.1


def test_one_text_in_many_documents_makes_few_candidates() -> None:
    same = np.tile(duplicates.keys(duplicates.shingles("the same text")), (500, 1))
    found = duplicates.pairs(same)
    assert len(found) == 499
    assert duplicates.groups(500, [tuple(pair) for pair in found.tolist()]) == [list(range(500))]


def test_documents_of_a_request_share_the_words_of_stored_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = {f"s{at}": f"stored{at} " + " ".join(f"w{at}x{n}" for n in range(60)) for at in (1, 2)}
    split: list[str] = []
    shingles = duplicates.shingles

    def noted(text: str) -> duplicates.Shingles:
        split.append(text.split()[0])
        return shingles(text)

    monkeypatch.setattr(duplicates, "shingles", noted)

    async def scenario() -> list[list[str]]:
        databases = [await connect(f"{tmp_path}/{part}") for part in ("indexes", "leases")]
        indexes = Indexes(databases[0], databases[1], Model("model", "a" * 64, 4))
        await indexes.create("x", {})
        index = await indexes.open("x")
        await index.put([record(name, text) for name, text in stored.items()])
        held, found = Held(), []
        for at in range(8):
            own = stored["s1"] if at == 7 else f"asked{at} and more"
            query = Query(record("new", own).encoding.vector, own, "new")
            found.append([one.hit.id for one in await like(index, query, 0.5, 9, held)])
        return found

    assert asyncio.run(scenario()) == [[]] * 7 + [["s1"]]
    # to know it, as the query, and again with its window for what differs
    assert (split.count("stored1"), split.count("stored2")) == (4, 1)


def test_groups_are_compared_and_made_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, set[str]] = {"resemblance": set(), "groups": set()}
    for name, seen in threads.items():
        call = getattr(duplicates, name)

        def noted(*given: Any, call: Any = call, seen: set[str] = seen) -> Any:
            seen.add(threading.current_thread().name.partition("_")[0])
            return call(*given)

        monkeypatch.setattr(duplicates, name, noted)

    async def scenario() -> None:
        databases = [await connect(f"{tmp_path}/{part}") for part in ("indexes", "leases")]
        indexes = Indexes(databases[0], databases[1], Model("model", "a" * 64, 4))
        await indexes.create("x", {})
        index = await indexes.open("x")
        words = " ".join(f"word{number}" for number in range(50))
        await index.put([record(name, words) for name in "abc"] + [record("d", "another text")])
        assert await groups(index, 0.5) == [Group(["a", "b", "c"], 1.0)]

    asyncio.run(scenario())
    assert threads == {"resemblance": {"words"}, "groups": {"words"}}
