"""Cohere's and Jina's forms of embedding, and vectors of small numbers."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cohere
import httpx
import numpy as np
import pyarrow as pa
import pytest
from fastapi import Request

from docsplit.bundles import format as bundle
from docsplit.bundles.format import DEFAULT_BUNDLE
from service.embedding.cache.layers import Source
from service.embedding.embedder import Document, DocumentWindow, Embedded
from service.embedding.prompts import for_purpose
from service.server.app import create_app
from service.server.bodies.encoding import ARROW, small_integers
from service.server.encoders import open_bundles
from service.server.lifecycle import Service
from service.server.routes import inference
from service.settings import Settings
from tests.conftest import Server, serving

MODEL = DEFAULT_BUNDLE.name
TEXTS = ["The cat sat on the mat.", "Taxes are due in May.", "A kitten plays with wool."]
MANY = 2000
FORMS = ["float", "int8", "uint8", "binary", "ubinary", "base64"]


@pytest.fixture
def client(server: Server) -> Iterator[cohere.ClientV2]:
    # Cohere's client does not close its connections
    with httpx.Client() as connections:
        yield cohere.ClientV2("none", base_url=server.url, max_retries=0, httpx_client=connections)


def exact(server: Server, **options: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    body = {"inputs": TEXTS, **options}
    return np.array(httpx.post(f"{server.url}/embed", json=body).json(), np.float32)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/embed",
        "/embeddings",
        "/api/embed",
        "/api/embeddings",
        "/embed_sparse",
        "/embed_all",
        "/tokenize",
        "/decode",
    ],
)
def test_a_form_that_the_table_refuses_has_no_route(server: Server, path: str) -> None:
    body = {"model": MODEL, "input": "a", "inputs": "a", "texts": ["a"]}
    assert httpx.post(f"{server.url}{path}", json=body).status_code == 404


def test_the_client_of_cohere_gets_every_form(server: Server, client: cohere.ClientV2) -> None:
    answer = client.embed(
        model=MODEL, texts=TEXTS, input_type="search_document", embedding_types=FORMS
    )
    found, vectors = answer.embeddings, exact(server)
    assert np.array_equal(np.array(found.float_, np.float32), vectors)
    assert found.base64 is not None
    assert [base64.b64decode(row) for row in found.base64] == [row.tobytes() for row in vectors]
    assert np.array_equal(found.int8 or [], small_integers(vectors))
    assert np.array_equal(np.array(found.uint8) - 128, found.int8 or [])
    bits = np.unpackbits(np.array(found.ubinary, np.uint8), axis=1)
    assert np.array_equal(bits, vectors > 0)
    assert np.array_equal(np.array(found.binary) + 128, found.ubinary or [])
    assert answer.meta is not None
    assert answer.meta.tokens is not None
    assert (answer.meta.tokens.input_tokens or 0) > 15


@pytest.mark.parametrize("form", ["float", "int8", "ubinary"])
def test_an_arrow_stream_holds_the_same_numbers(server: Server, form: str) -> None:
    body = {"inputs": TEXTS, "encoding_format": form}
    plain = httpx.post(f"{server.url}/embed", json=body)
    headers = {"accept": ARROW}
    for _ in range(2):
        # the second answer comes from memory
        answer = httpx.post(f"{server.url}/embed", json=body, headers=headers)
        assert answer.headers["content-type"] == ARROW
        assert answer.headers["x-compute-tokens"] == plain.headers["x-compute-tokens"]
        with pa.ipc.open_stream(answer.content) as reader:
            rows = np.array(reader.read_all()["embedding"].to_pylist(), np.float32)
        assert np.array_equal(rows, np.array(plain.json(), np.float32))
    body["encoding_format"] = "base64"
    answer = httpx.post(f"{server.url}/embed", json=body, headers=headers)
    assert (answer.status_code, answer.json()["error_type"]) == (422, "Validation")


def test_cohere_takes_parts_and_fewer_dimensions(server: Server, client: cohere.ClientV2) -> None:
    parts = [{"content": [{"type": "text", "text": text}]} for text in TEXTS]
    answer = client.embed(
        model=MODEL,
        inputs=parts,
        input_type="clustering",
        output_dimension=32,
    )
    assert answer.embeddings.int8 is None
    assert np.array_equal(
        np.array(answer.embeddings.float_, np.float32), exact(server, dimensions=32)
    )


@pytest.mark.parametrize(
    ("options", "error", "hint"),
    [
        ({"texts": TEXTS, "model": "other"}, cohere.NotFoundError, "no such model"),
        ({"images": ["data:image/png;base64,AA=="]}, cohere.UnprocessableEntityError, "only texts"),
        ({"texts": TEXTS, "input_type": "image"}, cohere.UnprocessableEntityError, "input_type"),
        ({"texts": TEXTS, "embedding_types": ["int4"]}, cohere.UnprocessableEntityError, "_types"),
        ({"texts": []}, cohere.UnprocessableEntityError, "texts"),
        ({}, cohere.UnprocessableEntityError, "either texts or inputs"),
        (
            {"inputs": [{"content": [{"type": "image_url", "image_url": {"url": "a"}}]}]},
            cohere.UnprocessableEntityError,
            "inputs.0.content.0.type",
        ),
    ],
)
def test_errors_become_those_of_cohere(
    client: cohere.ClientV2, options: dict[str, Any], error: type[Exception], hint: str
) -> None:
    with pytest.raises(error, match=hint):
        client.embed(**{"model": MODEL, "input_type": "search_query", **options})


def test_the_client_of_cohere_ranks(client: cohere.ClientV2) -> None:
    answer = client.rerank(model=MODEL, query=TEXTS[0], documents=TEXTS[1:], top_n=1)
    assert [one.index for one in answer.results] == [1]


def without_id(answer: Any) -> Any:
    return {**answer, "id": None} if isinstance(answer, dict) else answer


@pytest.mark.parametrize(
    ("path", "body", "nulls"),
    [
        ("/embed", {"inputs": "a"}, ["truncate", "dimensions", "prompt_name"]),
        ("/rerank", {"query": "a", "texts": ["b"]}, ["truncate"]),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b"]}}, ["parameters"]),
        ("/v1/embeddings", {"model": MODEL, "input": "a"}, ["encoding_format", "dimensions"]),
        (
            "/v2/embed",
            {"model": MODEL, "texts": ["a"], "input_type": "clustering"},
            ["embedding_types", "output_dimension"],
        ),
        (
            "/v2/rerank",
            {"model": MODEL, "query": "a", "documents": ["b"]},
            ["top_n", "return_documents"],
        ),
    ],
)
def test_null_means_the_default(
    server: Server, path: str, body: dict[str, Any], nulls: list[str]
) -> None:
    plain = httpx.post(f"{server.url}{path}", json=body)
    null = httpx.post(f"{server.url}{path}", json=body | dict.fromkeys(nulls))
    assert (plain.status_code, null.status_code) == (200, 200)
    assert without_id(null.json()) == without_id(plain.json())
    # what has no meaning is still refused
    wrong = httpx.post(f"{server.url}{path}", json=body | {nulls[0]: "?"})
    assert wrong.status_code == 422


def test_options_of_tei_for_pairs(server: Server) -> None:
    long = " ".join(f"Sentence {number} of a long text." for number in range(400))
    pair = {"inputs": {"source_sentence": "The end.", "sentences": [long]}}
    answers = [
        httpx.post(f"{server.url}/similarity", json=pair | options)
        for options in ({}, {"truncate": True}, {"parameters": {"truncate": True}})
    ]
    whole, top, nested = (answer.json() for answer in answers)
    assert nested == top != whole
    assert answers[2].headers["x-truncated"] == "true"
    left = {"parameters": {"truncate": True, "truncation_direction": "left"}}
    assert httpx.post(f"{server.url}/similarity", json=pair | left).json() not in (top, whole)
    unknown = {"parameters": {"prompt_name": "nope"}}
    assert httpx.post(f"{server.url}/similarity", json=pair | unknown).status_code == 422


def test_a_model_is_found_by_its_name(server: Server) -> None:
    listed = httpx.get(f"{server.url}/v1/models").json()["data"]
    one = httpx.get(f"{server.url}/v1/models/{MODEL}")
    assert one.json() == listed[0]
    none = httpx.get(f"{server.url}/v1/models/none")
    assert none.status_code == 404
    assert "GET /v1/models lists all" in none.json()["error"]["message"]


def test_small_numbers_keep_the_cosine(server: Server) -> None:
    vectors = exact(server)
    integers = exact(server, encoding_format="int8")
    rows = integers / np.linalg.norm(integers, axis=1, keepdims=True)
    # twice the deviation of a cosine between vectors rounded to steps of .0072
    assert np.allclose(rows @ rows.T, vectors @ vectors.T, atol=6e-3)
    # far coarser numbers do not
    coarse = np.sign(vectors) / vectors.shape[1] ** 0.5
    assert not np.allclose(coarse @ coarse.T, vectors @ vectors.T, atol=6e-3)
    # a component beyond the range does not wrap around
    assert small_integers(np.eye(1, 384, dtype=np.float32))[0, 0] == 127


def test_windows_have_the_form_of_the_vectors(server: Server) -> None:
    body = {"inputs": TEXTS[0], "windows": True, "encoding_format": "ubinary"}
    answer = httpx.post(f"{server.url}/embed", json=body).json()
    assert answer["windows"][0][0]["embedding"] == answer["embeddings"][0]
    assert len(answer["embeddings"][0]) == 48


def jina(server: Server, **options: Any) -> httpx.Response:
    body = {"model": MODEL, "input": TEXTS, **options}
    return httpx.post(f"{server.url}/v1/embeddings", json=body)


def test_the_fields_of_jina_are_accepted(server: Server) -> None:
    options = {"task": "retrieval.query", "late_chunking": False, "embedding_type": "ubinary"}
    data = jina(server, **options, normalized=True).json()["data"]
    bits = np.unpackbits(np.array([one["embedding"] for one in data], np.uint8), axis=1)
    assert np.array_equal(bits, exact(server) > 0)
    plain = jina(server, normalized=False).json()["data"][0]["embedding"]
    assert np.allclose(plain, exact(server, normalize=False)[0])


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"late_chunking": True}, "late_chunking: the service embeds each window by itself"),
        ({"task": "code.query"}, "task: this service knows only the tasks retrieval.query, "),
        ({"task": ["text-matching"]}, "task: "),
        ({"embedding_type": "float", "encoding_format": "float"}, "either encoding_format or"),
        ({"embedding_type": ["float"]}, "embedding_type: "),
    ],
)
def test_what_jina_offers_more_is_refused_by_name(
    server: Server, options: dict[str, Any], hint: str
) -> None:
    refused = jina(server, **options)
    assert refused.status_code == 422
    assert hint in refused.json()["error"]["message"]


@pytest.fixture(scope="module")
def prompted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The shipped bundle with two prompts."""
    folder = tmp_path_factory.mktemp("prompted")
    shutil.copytree(DEFAULT_BUNDLE, folder / "bundle")
    fields = dict(bundle.load(folder / "bundle").manifest)
    for computed in ("files", "revision"):
        del fields[computed]
    prompts = {"query": "Question: ", "passage": "Answer: "}
    bundle.seal(folder / "bundle", **fields | {"prompts": prompts})
    with serving(folder / "log", "--bundle", str(folder / "bundle")) as running:
        yield running


@pytest.mark.skipif(
    os.environ.get("HYPOTHESIS_PROFILE") != "nightly", reason="NIGHTLY: starts another service"
)
def test_a_purpose_chooses_the_prompt(prompted: Server) -> None:
    plain = exact(prompted)
    for name, purpose, task in [
        ("query", "search_query", "retrieval.query"),
        ("passage", "search_document", "retrieval.passage"),
    ]:
        asked = exact(prompted, prompt_name=name)
        assert not np.allclose(asked, plain, atol=1e-3)
        body = {"model": MODEL, "texts": TEXTS, "input_type": purpose}
        answer = httpx.post(f"{prompted.url}/v2/embed", json=body).json()
        assert np.allclose(answer["embeddings"]["float"], asked, atol=1e-6)
        data = jina(prompted, task=task).json()["data"]
        assert np.allclose([one["embedding"] for one in data], asked, atol=1e-6)
    body = {"model": MODEL, "texts": TEXTS, "input_type": "clustering"}
    answer = httpx.post(f"{prompted.url}/v2/embed", json=body).json()
    assert np.allclose(answer["embeddings"]["float"], plain, atol=1e-6)


def test_a_purpose_has_the_names_that_encoders_give_it() -> None:
    manifest = bundle.load(DEFAULT_BUNDLE).manifest
    assert for_purpose(manifest, "query") is None
    named = manifest.model_copy(update={"prompts": {"passage": "a", "search_query": "b"}})
    found = [for_purpose(named, purpose) for purpose in ("query", "document", "clustering")]
    assert found == ["search_query", "passage", None]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embed", {"inputs": ["a"] * MANY}),
        ("/embed", {"inputs": ["a"] * MANY, "encoding_format": "base64"}),
        ("/v1/embeddings", {"model": MODEL, "input": ["a"] * MANY}),
        ("/v2/embed", {"model": MODEL, "input_type": "clustering", "texts": ["a"] * MANY}),
    ],
)
async def test_other_requests_go_on_while_a_long_answer_is_written(
    path: str, body: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(index_path=str(tmp_path))
    app = create_app(Service(settings, open_bundles(settings)))
    turns = begun = 0

    async def embed(request: Request, texts: list[str], **_: Any) -> Embedded:
        nonlocal begun
        vectors = np.eye(384, dtype=np.float32)
        ids = np.zeros(1, dtype=np.int32)
        windows = [
            DocumentWindow(0, 1, 1, ids, 1, vectors[n % 384], Source.ENGINE) for n in range(MANY)
        ]
        request.scope["docsplit.usage"] = {"windows": MANY}
        begun = turns
        return Embedded([Document(1, 1, [window]) for window in windows])

    monkeypatch.setattr(inference, "embed", embed)

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(turn())
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        answer = await client.post(path, json=body)
    other.cancel()
    assert answer.status_code == 200
    assert turns - begun > MANY / 100
    found = answer.json()
    rows = found if path == "/embed" else found.get("data") or found["embeddings"]["float"]
    assert len(rows) == MANY
    assert rows[1] != rows[0] == rows[384] if path != "/v1/embeddings" else rows[9]["index"] == 9
