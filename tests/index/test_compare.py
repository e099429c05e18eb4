"""Windows of stored documents, and the windows that make two documents resemble."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from service.errors import NotFoundError
from service.index import documents
from tests.conftest import Server
from tests.index.conftest import call, upsert
from tests.index.processes import Replicas, record, run


@pytest.fixture(scope="module")
def texts(peps: dict[str, str]) -> dict[str, str]:
    """Two documents with a shared paragraph in their middle, and a short one."""
    long = [text[:5000] for text in peps.values() if len(text) > 12_000]
    shared = long[2][:1500]
    one, other = (f"{text[:2500]}\n\n{shared}\n\n{text[2500:]}" for text in long[:2])
    return {"one": one, "a/other": other, "short": "A short document."}


@pytest.fixture(scope="module")
def filled(server: Server, texts: dict[str, str]) -> Iterator[Server]:
    call(server, "PUT", "/indexes/compare", {"fields": {}}, status=201)
    upsert(server, "compare", *({"id": name, "text": text} for name, text in texts.items()))
    yield server
    httpx.delete(f"{server.url}/indexes/compare")


def windows(server: Server, name: str) -> list[dict[str, Any]]:
    path = f"/indexes/compare/documents/{name}/windows"
    found: list[dict[str, Any]] = call(server, "GET", path)["windows"]
    return found


def compare(server: Server, status: int = 200, **body: Any) -> Any:
    return call(server, "POST", "/indexes/compare/compare", body, status=status)


@pytest.mark.parametrize("name", ["one", "a/other", "short"])
def test_the_windows_of_a_document_are_its_text(
    filled: Server, texts: dict[str, str], name: str
) -> None:
    found = windows(filled, name)
    assert "".join(texts[name][one["start"] : one["end"]] for one in found) == texts[name]
    assert len(found) == 1 if name == "short" else len(found) > 3
    assert all(one["page"] is None and one["heading"] is None for one in found)


def test_the_best_pair_is_what_two_documents_share(filled: Server, texts: dict[str, str]) -> None:
    best = compare(filled, id="one", other="a/other")["pairs"][0]
    own = texts["one"][best["query"]["start"] : best["query"]["end"]]
    other = texts["a/other"][best["document"]["start"] : best["document"]["end"]]
    assert best["cosine"] > 0.85
    assert len(set(own.split()) & set(other.split())) > 0.5 * len(set(own.split()))


def test_pairs_are_windows_and_have_the_cosines_of_their_texts(
    filled: Server, texts: dict[str, str]
) -> None:
    answer = compare(filled, id="one", other="a/other", top_k=50)
    pairs = answer["pairs"]
    assert len(pairs) == min(len(windows(filled, "one")), len(windows(filled, "a/other")))
    assert [pair["query"] in windows(filled, "one") for pair in pairs] == [True] * len(pairs)
    cosines = [pair["cosine"] for pair in pairs]
    assert cosines == sorted(cosines, reverse=True)
    assert len({pair["query"]["start"] for pair in pairs}) == len(pairs)
    assert len({pair["document"]["start"] for pair in pairs}) == len(pairs)
    body = {"inputs": [texts["one"], texts["a/other"]], "windows": True}
    said = call(filled, "POST", "/embed", body)
    vectors = [
        {one["start"]: np.array(one["embedding"]) for one in each} for each in said["windows"]
    ]
    for pair in (pairs[0], pairs[-1]):
        one, other = vectors[0][pair["query"]["start"]], vectors[1][pair["document"]["start"]]
        assert pair["cosine"] == pytest.approx(float(one @ other), abs=2e-3)
    assert answer["cosine"] == pytest.approx(float(np.dot(*said["embeddings"])), abs=2e-3)


def test_a_text_compares_as_the_same_stored_document(filled: Server, texts: dict[str, str]) -> None:
    stored = compare(filled, id="one", other="a/other")
    given = compare(filled, text=texts["one"], other="a/other")
    assert given["cosine"] == pytest.approx(stored["cosine"], abs=2e-3)
    assert given["pairs"][0]["document"] == stored["pairs"][0]["document"]
    assert len(compare(filled, id="one", other="short")["pairs"]) == 1


def test_bad_requests_say_what_was_wrong(filled: Server) -> None:
    for body in ({"id": "none", "other": "one"}, {"id": "one", "other": "none"}):
        assert "no document" in compare(filled, 404, **body)["error"]
    assert "text or id" in compare(filled, 422, other="one")["error"]
    assert "other" in compare(filled, 422, id="one")["error"]
    assert "top_k" in compare(filled, 422, id="one", other="short", top_k=51)["error"]
    assert call(filled, "GET", "/indexes/compare/documents/none/windows", status=404)
    assert call(filled, "GET", "/indexes/nowhere/documents/one/windows", status=404)


def test_an_id_that_ends_like_the_route_is_a_document(server: Server, index: str) -> None:
    upsert(server, index, {"id": "a", "text": "One."}, {"id": "b/windows", "text": "Two."})
    path = f"/indexes/{index}/documents"
    assert call(server, "GET", f"{path}/b/windows")["text"] == "Two."
    assert call(server, "GET", f"{path}/a/windows")["windows"][0]["end"] == 4


@run
async def test_one_read_tells_a_missing_document_from_a_damaged_one(replicas: Replicas) -> None:
    indexes = await replicas.open("a")
    await indexes.create("x", {})
    index = await indexes.open("x")
    # with a second read, a document that is stored in between would count as damaged
    with pytest.raises(NotFoundError):
        await documents.windows_of(index, "late")
    await index.put([record("late", "text")])
    assert (await documents.windows_of(index, "late")).ends == [4]
