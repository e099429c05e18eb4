"""Both clients against a running service."""

from __future__ import annotations

import asyncio
import base64
import gc
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import httpx2
import numpy as np
import pytest

from docsplit_client import (
    ApiError,
    AsyncClient,
    BadRequestError,
    Client,
    NotFoundError,
    UnreachableError,
    VersionError,
    clients,
)
from docsplit_client.types import Job, NewDocument
from tests.conftest import Server, free_port

TEXTS = ["The cat sat on the mat. It slept.", "Taxes are due in May.", "A kitten plays."]
ODD_IDS = ["a/../b", "a//b", "a?b=c#d", "a%2Fb", "%2e%2e", "ü 文 +&", "get", "\\", "a;b"]


@pytest.fixture(scope="module")
def server(light_server: Server) -> Server:
    """A service whose vectors tell only which words texts share."""
    return light_server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, tries=1) as made:
        yield made


def new(name: str, text: str, year: int, *links: str) -> NewDocument:
    return {"id": name, "text": text, "metadata": {"year": year}, "links": [*links]}


def test_vectors_are_those_of_the_service(client: Client, server: Server) -> None:
    plain = httpx.post(f"{server.url}/embed", json={"inputs": TEXTS}).json()
    vectors = client.embed(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (3, len(plain[0]))
    assert np.array_equal(vectors, np.array(plain, np.float32))
    assert not np.array_equal(vectors, client.embed(TEXTS[::-1]))
    assert client.embed(TEXTS, dimensions=8).shape == (3, 8)
    assert np.array_equal(client.similarity(TEXTS[0], TEXTS[1:]).argsort(), [0, 1])
    assert [one["index"] for one in client.rerank(TEXTS[0], TEXTS[1:])] == [1, 0]


def test_a_stream_of_texts_gets_vectors_and_errors(
    client: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MOST_LINES", 2)
    read = 0

    def texts() -> Iterator[str]:
        nonlocal read
        for text in [*TEXTS, "", *TEXTS] * 4:
            read += 1
            yield text

    stream = client.embed_stream(texts(), parallel=2, dimensions=8)
    first = next(stream)
    # two requests of two texts, and the text that did not fit into the second
    assert read <= 5
    rest = [*stream]
    [error] = {str(one) for one in rest if isinstance(one, BadRequestError)}
    assert "empty" in error
    assert read == 28
    vectors = [one for one in [first, *rest] if not isinstance(one, ApiError)]
    assert np.array_equal(vectors[:3], client.embed(TEXTS, dimensions=8))

    async def later() -> list[object]:
        async with AsyncClient(server.url) as made:
            return [one async for one in made.embed_stream(TEXTS, dimensions=8)]

    assert np.array_equal(np.asarray(asyncio.run(later())), vectors[:3])
    with pytest.raises(BadRequestError, match="dimensions"):
        next(client.embed_stream(TEXTS, dimensions=4000))


def test_a_stream_goes_on_after_half_a_surrogate_pair(client: Client) -> None:
    first, broken, last = client.embed_stream(["First.", "half \ud800", "Last."])
    assert isinstance(broken, ApiError)
    assert broken.status == 400
    expected = client.embed(["First.", "Last."])
    for found, wanted in zip((first, last), expected, strict=True):
        assert not isinstance(found, ApiError)
        assert np.allclose(found, wanted, atol=1e-5)


def test_a_stream_sends_lines_again_that_had_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    vector = base64.b64encode(np.ones(2, "<f4").tobytes()).decode()
    found = f'{{"index":0,"embedding":"{vector}"}}\n'
    full = '{"index":1,"status":429,"error":"full","error_type":"Overloaded","code":null}\n'
    end = '{"lines":2,"errors":0,"tokens":4}'
    stop = '{"lines":1,"errors":0,"tokens":4,"status":503,"error":"ends","error_type":"Unhealthy"}'
    bodies = [found + full + end, found + stop]
    sent: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.content)
        return httpx2.Response(200, text=bodies[len(sent) - 1])

    monkeypatch.setattr(time, "sleep", lambda _: None)
    with Client(http=httpx2.Client(transport=httpx2.MockTransport(answer))) as client:
        outcomes = [*client.embed_stream(["a", "b"])]
    assert sent == [b'"a"\n"b"\n', b'"b"\n']
    assert np.array_equal(np.asarray(outcomes), np.ones((2, 2)))


def test_windows_join_to_the_document(client: Client, peps: dict[str, str]) -> None:
    text = peps["pep-8"][:4000]
    detailed = client.embed_windows([text])
    [windows] = detailed["windows"]
    assert "".join(text[one["start"] : one["end"]] for one in windows) == text
    assert len(windows) == detailed["usage"][0]["windows"] > 1
    assert windows[0]["embedding"].shape == detailed["embeddings"][0].shape


def test_both_clients_send_the_same(client: Client, server: Server) -> None:
    async def later() -> tuple[object, ...]:
        async with AsyncClient(server.url) as made:
            parts = [await made.embed_all(TEXTS), await made.rerank(TEXTS[0], TEXTS)]
            await made.create_index("later", {"year": "integer"})
            count = await made.upsert_all("later", (new(t[:5], t, 1) for t in TEXTS))
            ids = [one["id"] async for one in made.all_documents("later")]
            return (*parts, count, ids, await made.info())

    vectors, ranks, count, ids, info = asyncio.run(later())
    assert np.array_equal(np.asarray(vectors), client.embed(TEXTS))
    assert ranks == client.rerank(TEXTS[0], TEXTS)
    assert (count, ids) == (3, sorted(t[:5] for t in TEXTS))
    assert info == client.info()


def test_an_index_from_its_creation_to_its_end(client: Client) -> None:
    client.create_index("life", {"year": "integer"})
    assert "life" in client.indexes()
    done: list[int] = []
    documents = [new(f"d{n}", f"{TEXTS[n % 3]} {n}", 2000 + n) for n in range(70)]
    assert client.upsert_all("life", documents, done.append) == 70
    assert done == [64, 70]
    assert client.index("life")["documents"] == 70

    late = {"field": "year", "gte": 2060}
    hits = client.similar("life", text=TEXTS[2], filter=late, top_k=3, explain=True)
    assert len(hits) == 3
    assert all(hit["metadata"]["year"] >= 2060 and hit["pairs"] for hit in hits)
    assert (
        client.similar_each("life", [{"text": TEXTS[2]}], filter=late, top_k=3)[0][0]["id"]
        == (hits[0]["id"])
    )
    [found] = client.passages("life", id="d0", top_k=1)
    assert found["passages"][0]["snippet"]["text"]
    assert client.similar_faceted("life", ["year"], id="d0")["facets"]["year"]["values"]
    assert client.duplicates("life", id="d0", threshold=0.5)
    assert client.duplicate_groups("life", limit=1)["groups"]

    assert client.get_all("life", ["d1", "d0", "none"]).keys() == {"d0", "d1"}
    assert [one["id"] for one in client.all_documents("life")] == sorted(
        one["id"] for one in documents
    )
    version = client.document("life", "d0")["version"]
    newer = client.patch_document("life", "d0", {"title": "T"}, if_version=version)["version"]
    with pytest.raises(VersionError) as caught:
        client.patch_document("life", "d0", {"title": None}, if_version=version)
    assert caught.value.body["conflicts"] == [{"position": 0, "version": newer}]
    assert client.delete_documents("life", filter=late, dry_run=True)["deleted"] == 10
    assert client.delete_documents("life", ids=["d1", "none"])["deleted"] == 1
    client.set_alias("other", "life")
    assert client.alias("other") in client.aliases()
    client.delete_alias("other")
    client.delete_index("life")
    with pytest.raises(NotFoundError, match="no index"):
        client.index("life")


def test_any_id_reaches_its_document(client: Client) -> None:
    client.create_index("odd")
    client.upsert_all("odd", [{"id": name, "text": f"Text {n}."} for n, name in enumerate(ODD_IDS)])
    for number, name in enumerate(ODD_IDS):
        assert client.document("odd", name)["text"] == f"Text {number}."
    for name in ODD_IDS[::2]:
        client.delete_document("odd", name)
    assert [one["id"] for one in client.all_documents("odd")] == sorted(ODD_IDS[1::2])


@pytest.mark.parametrize("name", [".", ".."])
def test_an_id_of_an_earlier_version_reaches_its_route(client: Client, name: str) -> None:
    client.create_index("dots")
    with pytest.raises(NotFoundError, match="no document"):
        client.document("dots", name)


def test_files_become_documents(client: Client, server: Server, tmp_path: Path) -> None:
    client.create_index("files")
    (tmp_path / "cats.md").write_text("# Cats\n\nThey sleep.")
    job = client.upload("files", [tmp_path / "cats.md"])
    states = [job["state"]]
    ended = client.wait_for_job(job["id"], lambda one: states.append(one["state"]), 0.05)
    assert (states[0], ended["state"]) == ("queued", "succeeded")
    assert set(states) <= {"queued", "running"}
    assert client.document("files", "cats.md")["title"] == "Cats"
    assert client.job(job["id"]) == ended
    assert job["id"] in [one["id"] for one in client.jobs(1000)["jobs"]]

    async def later() -> Job:
        async with AsyncClient(server.url) as made:
            files = {"2026/cats.md": tmp_path / "cats.md", "tax.txt": b"Taxes are due in May."}
            job = await made.upload("files", files, on_duplicate="refuse")
            return await made.wait_for_job(job["id"], seconds=0.05)

    careful = asyncio.run(later())
    assert [one["id"] for one in careful["refused"]] == ["2026/cats.md"]
    assert careful["documents"]["written"] == 1
    assert client.cancel_job(careful["id"])["state"] == "succeeded"
    with pytest.raises(ValueError, match="same name"):
        client.upload("files", [tmp_path / "cats.md", "cats.md"])


def test_a_classifier_and_a_citation_head(client: Client, peps: dict[str, str]) -> None:
    texts = [f"{text} {n}" for n in range(4) for text in TEXTS]
    report = client.train_classifier("topics", ["cat", "tax", "cat"] * 4, inputs=texts)
    assert report["labels"] == {"cat": 8, "tax": 4}
    assert client.wait_for_classifier("topics")["revision"] == report["revision"]
    assert client.classify(["A cat."], classifier="topics", top_k=1)[0][0]["label"] == "cat"
    [explained] = client.explain_labels(["A cat."], classifier="topics")
    assert explained["windows"]
    assert client.classifier_network("topics").startswith(b"PK")
    client.create_index("cited")
    names = [f"d{n}" for n in range(12)]
    client.upsert_all(
        "cited",
        [new(name, peps["pep-8"][200 * n :][:900], 1, *names[:n]) for n, name in enumerate(names)],
    )
    assert client.suggest("topics", "cited", count=2)
    head = client.with_timeout(60).train_citation_head("cited")
    assert head == client.citation_head("cited")
    assert client.citation_network("cited").startswith(b"PK")
    hits = client.similar("cited", id="d9", mode="citation", direction="cites", top_k=2)
    assert {hit["direction"] for hit in hits} == {"cites"}
    client.delete_classifier("topics")
    assert "topics" not in client.classifiers()


def test_errors_have_the_hint_of_the_service(client: Client) -> None:
    with pytest.raises(BadRequestError, match="limit is 2048: send several requests") as caught:
        client.embed(["a"] * 2049)
    assert (caught.value.status, caught.value.kind) == (413, "TooLarge")
    with pytest.raises(BadRequestError, match="x-request-timeout: give seconds"):
        client.with_timeout(1e6).info()
    with pytest.raises(TypeError, match="list"):
        client.embed("one text")
    with pytest.raises(ValueError, match="surrogates"):
        client.embed(["\ud800"])
    with (
        Client(f"http://127.0.0.1:{free_port()}", tries=1) as nowhere,
        pytest.raises(UnreachableError, match="ConnectError"),
    ):
        nowhere.info()


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_a_wrong_timeout_is_explained(client: Client, seconds: float) -> None:
    for made in (Client, AsyncClient):
        with pytest.raises(ValueError, match="timeout: give seconds above 0"):
            made(timeout=seconds)
    with pytest.raises(ValueError, match="timeout: give seconds above 0"):
        client.with_timeout(seconds)


# a closed loop has left its connections open: the garbage collector closes them
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_an_async_client_works_in_one_event_loop_after_another(server: Server) -> None:
    shared = AsyncClient(server.url, tries=1)

    async def info() -> str:
        return (await shared.info())["model_id"]

    assert len({asyncio.run(info()) for _ in range(4)}) == 1
    asyncio.run(shared.close())
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(info())
    gc.collect()


def test_a_wrong_url_is_explained(server: Server) -> None:
    for made in (Client, AsyncClient):
        with pytest.raises(ValueError, match=r"url: begin it with http://"):
            made("localhost:8080")
        with pytest.raises(ValueError, match=r"url: Invalid port"):
            made("http://localhost:port")
    with (
        Client(f"{server.url}/v1", tries=1) as below,
        pytest.raises(NotFoundError, match="no such route; GET /docs lists them"),
    ):
        below.embed(["a"])
