"""LangChain's standard suites; ``test_langchain.py`` runs them in a process of their own.

Their plugins for pytest would change the other tests.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import (
    EmbeddingsIntegrationTests,
    RetrieversIntegrationTests,
    VectorStoreIntegrationTests,
)

from docsplit_client import Client
from docsplit_client.langchain import DocsplitEmbeddings, DocsplitRetriever, DocsplitVectorStore

CLIENT = Client(os.environ["DOCSPLIT_URL"])
INDEX = "suites"


class TestVectorStore(VectorStoreIntegrationTests):
    """The store, on a new index for each test."""

    @pytest.fixture
    def vectorstore(self) -> Iterator[VectorStore]:
        name = f"suite-{uuid.uuid4().hex}"
        CLIENT.create_index(name)
        yield DocsplitVectorStore(CLIENT, name)
        CLIENT.delete_index(name)


class TestEmbeddings(EmbeddingsIntegrationTests):
    """The embeddings."""

    @property
    def embeddings_class(self) -> type[DocsplitEmbeddings]:
        return DocsplitEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"client": CLIENT}


class OnAnIndex(RetrieversIntegrationTests):
    """A retriever on an index of four documents."""

    @pytest.fixture(autouse=True)
    def filled(self) -> None:
        CLIENT.create_index(INDEX)
        CLIENT.upsert_all(
            INDEX, [{"id": f"d{n}", "text": f"The cat number {n} sleeps."} for n in range(4)]
        )

    @property
    def retriever_constructor(self) -> type[DocsplitRetriever]:
        return DocsplitRetriever

    @property
    def retriever_query_example(self) -> str:
        return "Where does the cat sleep?"


class TestDocuments(OnAnIndex):
    """It returns documents."""

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"client": CLIENT, "index": INDEX}


class TestPassages(OnAnIndex):
    """It returns passages."""

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"client": CLIENT, "index": INDEX, "passages": True}


# the base has no parameters
del OnAnIndex
