"""Released client libraries, and a smoke test of many clients at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
from huggingface_hub import InferenceClient

from docsplit.bundles.format import DEFAULT_BUNDLE
from tests.conftest import Server, serving

MODEL = DEFAULT_BUNDLE.name


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_openai_in_both_encodings(client: openai.OpenAI) -> None:
    # openai requests base64 by default
    default = client.embeddings.create(model=MODEL, input=["one", "two"])
    plain = client.embeddings.create(model=MODEL, input=["one", "two"], encoding_format="float")
    assert default.model == MODEL
    assert default.usage.prompt_tokens == 6
    assert [item.index for item in default.data] == [0, 1]
    for first, second in zip(default.data, plain.data, strict=True):
        assert np.allclose(first.embedding, second.embedding, atol=1e-7)


def test_openai_dimensions_and_models(client: openai.OpenAI) -> None:
    [item] = client.embeddings.create(model=MODEL, input="text", dimensions=32).data
    assert len(item.embedding) == 32
    assert np.linalg.norm(item.embedding) == pytest.approx(1, abs=1e-6)
    assert [model.id for model in client.models.list()] == [MODEL]


def test_openai_errors_become_its_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no such model"):
        client.embeddings.create(model="other", input="text")
    with pytest.raises(openai.UnprocessableEntityError, match="token ids"):
        client.embeddings.create(model=MODEL, input=[[1, 2, 3]])
    with pytest.raises(openai.BadRequestError, match="empty"):
        client.embeddings.create(model=MODEL, input="")


def test_openai_with_a_key_and_an_alias(tmp_path: Path, light: tuple[str, ...]) -> None:
    aliases = "text-embedding-3-small,acme/small"
    flags = ("--api-keys", "a-key-for-tests-only", "--model-aliases", aliases, *light)
    with (
        serving(tmp_path / "log", *flags) as locked,
        openai.OpenAI(base_url=f"{locked.url}/v1", api_key="a-key-for-tests-only") as right,
        openai.OpenAI(base_url=f"{locked.url}/v1", api_key="wrong", max_retries=0) as wrong,
    ):
        for name in aliases.split(","):
            assert right.embeddings.create(model=name, input="a").data
            assert right.models.retrieve(name).id == name
        with pytest.raises(openai.AuthenticationError):
            wrong.embeddings.create(model=MODEL, input="a")


def test_hub_inference_client(server: Server) -> None:
    client = InferenceClient(server.url, provider="hf-inference")
    one = client.feature_extraction("a text", normalize=True, truncate=False)
    assert one.shape == (1, 384)
    cut = client.feature_extraction("a text", truncate=True, truncation_direction="right")
    assert np.allclose(one, cut, atol=1e-6)
    scores = client.sentence_similarity("a cat", other_sentences=["a kitten", "a tax return"])
    assert scores[0] > scores[1]
    assert client.health_check()
    info = client.get_endpoint_info()
    assert info["model_id"] == MODEL
    assert info["model_type"] == {"embedding": {"pooling": "mean"}}
    assert info["engine"]["reason"]


def test_many_clients_at_once_are_all_answered(server: Server, peps: dict[str, str]) -> None:
    """Like the load tests of text-embeddings-inference: one text, `truncate` on."""
    texts = [text[:80] for text in list(peps.values())[:96]]

    async def smoke() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=32)
        async with httpx.AsyncClient(base_url=server.url, timeout=60, limits=limits) as client:
            posts = (client.post("/embed", json={"inputs": t, "truncate": True}) for t in texts)
            return await asyncio.gather(*posts)

    answers = asyncio.run(smoke())
    assert {answer.status_code for answer in answers} == {200}
    assert all(len(answer.json()[0]) == 384 for answer in answers)
