"""The components for Haystack, on a running service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from docsplit_client import Client
from tests.conftest import Server

pytest.importorskip("haystack", reason="needs pip install './client[haystack]'")

from haystack import Document, Pipeline
from haystack.utils import Secret

from docsplit_client.haystack import (
    DocsplitDocumentEmbedder,
    DocsplitRanker,
    DocsplitRetriever,
    DocsplitTextEmbedder,
)

TEXTS = {"cat": "The cat sat on the mat. It slept.", "tax": "Taxes are due in May."}


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, tries=1) as made:
        made.create_index("stack", {"year": "integer"})
        made.upsert(
            "stack",
            [
                {"id": name, "text": text, "metadata": {"year": 2000 + place}}
                for place, (name, text) in enumerate(TEXTS.items())
            ],
        )
        yield made
        made.delete_index("stack")


def test_embedders_give_the_vectors_of_the_service(client: Client, server: Server) -> None:
    expected = client.embed([*TEXTS.values()])
    documents = [Document(id=name, content=text) for name, text in TEXTS.items()]
    with closing(DocsplitDocumentEmbedder(server.url)) as embedder:
        embedded = embedder.run(documents)["documents"]
        with pytest.raises(ValueError, match="no text"):
            embedder.run([Document(id="empty")])
    assert np.allclose([one.embedding for one in embedded], expected)
    assert [one.id for one in embedded] == [*TEXTS]
    assert documents[0].embedding is None
    with closing(DocsplitTextEmbedder(server.url)) as queries:
        assert np.allclose(queries.run(TEXTS["tax"])["embedding"], expected[1])


def test_a_pipeline_retrieves_and_ranks(client: Client, server: Server) -> None:
    pipeline = Pipeline()
    pipeline.add_component("retriever", DocsplitRetriever("stack", server.url))
    pipeline.add_component("ranker", DocsplitRanker(server.url, top_k=1))
    pipeline.connect("retriever", "ranker")
    written = pipeline.dumps()
    pipeline.close()
    asked = {"query": "A cat sleeps."}
    late = {"field": "year", "gt": 2000}
    allowed = ["docsplit_client.haystack"]
    with closing(Pipeline.loads(written, allowed_modules=allowed)) as read:
        found = read.run({"retriever": asked, "ranker": asked})["ranker"]["documents"]
        narrowed = read.run({"retriever": {**asked, "filters": late}, "ranker": asked})
    assert [(one.id, one.content) for one in found] == [("cat", TEXTS["cat"])]
    assert [one.id for one in narrowed["ranker"]["documents"]] == ["tax"]


def test_passages_carry_their_place(client: Client, server: Server) -> None:
    with closing(DocsplitRetriever("stack", server.url, passages=True, top_k=1)) as retriever:
        [passage] = retriever.run("A cat sleeps.")["documents"]
    span = slice(passage.meta["start"], passage.meta["end"])
    assert passage.meta["document"] == "cat"
    assert passage.content == TEXTS["cat"][span]


def test_a_pipelines_file_holds_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_KEY", "a-key-of-sixteen")
    with closing(DocsplitRanker(key=Secret.from_env_var("OTHER_KEY"))) as ranker:
        written = ranker.to_dict()
    assert "OTHER_KEY" in str(written)
    assert "a-key-of-sixteen" not in str(written)
