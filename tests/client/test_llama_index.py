"""The classes for LlamaIndex, on a running service."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from docsplit_client import AsyncClient, Client
from tests.conftest import Server

pytest.importorskip("llama_index.core", reason="needs pip install './client[llama-index]'")

from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from docsplit_client.llama_index import DocsplitEmbedding, DocsplitRetriever, DocsplitVectorStore

TEXTS = {
    "cat": "The cat sat on the mat. It slept.",
    "tax": "Taxes are due in May.",
    "kitten": "A kitten plays.",
}


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, tries=1) as made:
        yield made


@pytest.fixture
def store(client: Client) -> Iterator[DocsplitVectorStore]:
    made = DocsplitVectorStore.create(client, "llama", {"year": "integer"})
    nodes = []
    for place, (name, text) in enumerate(TEXTS.items()):
        node = TextNode(id_=name, text=text, metadata={"year": 2000 + place})
        source = "taxes" if name == "tax" else "animals"
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=source)
        nodes.append(node)
    assert made.add(nodes) == [*TEXTS]
    yield made
    client.delete_index("llama")


async def test_embeddings_are_those_of_the_service(client: Client) -> None:
    embedding = DocsplitEmbedding(client)
    expected = client.embed([*TEXTS.values()])
    assert np.allclose(embedding.get_text_embedding_batch([*TEXTS.values()]), expected)
    query = await embedding.aget_query_embedding(TEXTS["tax"])
    assert np.allclose(query, expected[1])


def test_an_index_over_the_store_searches_by_text(
    store: DocsplitVectorStore, client: Client
) -> None:
    index = VectorStoreIndex.from_vector_store(store, embed_model=DocsplitEmbedding(client))
    found = index.as_retriever(similarity_top_k=2).retrieve("A cat sleeps.")
    assert [one.node_id for one in found] == ["cat", "kitten"]
    assert found[0].text == TEXTS["cat"]
    assert found[0].node.ref_doc_id == "animals"
    # LlamaIndex embeds nodes first; the store takes their texts
    context = StorageContext.from_defaults(vector_store=store)
    VectorStoreIndex(
        [TextNode(id_="new", text="Wool is soft.")],
        storage_context=context,
        embed_model=DocsplitEmbedding(client),
    )
    assert client.document("llama", "new")["text"] == "Wool is soft."


def test_filters_and_deletions_by_source(store: DocsplitVectorStore, client: Client) -> None:
    def ids(*tests: MetadataFilter, condition: FilterCondition = FilterCondition.AND) -> set[str]:
        filters = MetadataFilters(filters=[*tests], condition=condition)
        query = VectorStoreQuery(query_str="a cat", similarity_top_k=3, filters=filters)
        return {*(store.query(query).ids or ())}

    late = MetadataFilter(key="year", value=2000, operator=FilterOperator.GT)
    last = MetadataFilter(key="year", value=[2002], operator=FilterOperator.NIN)
    assert ids(late) == {"tax", "kitten"}
    assert ids(late, last) == {"tax"}
    assert ids(late, last, condition=FilterCondition.OR) == {*TEXTS}
    assert ids(late, condition=FilterCondition.NOT) == {"cat"}
    with pytest.raises(ValueError, match="text_match"):
        ids(MetadataFilter(key="year", value="a", operator=FilterOperator.TEXT_MATCH))
    with pytest.raises(ValueError, match="by text"):
        store.query(VectorStoreQuery(query_embedding=[1.0]))
    store.delete("animals")
    assert {one["id"] for one in client.all_documents("llama")} == {"tax"}


def test_searches_keep_to_source_documents(store: DocsplitVectorStore, client: Client) -> None:
    index = VectorStoreIndex.from_vector_store(store, embed_model=DocsplitEmbedding(client))
    retriever = index.as_retriever(similarity_top_k=3, doc_ids=["animals"])
    assert {one.node_id for one in retriever.retrieve("When are taxes due?")} == {"cat", "kitten"}
    late = MetadataFilters(
        filters=[MetadataFilter(key="year", value=2000, operator=FilterOperator.GT)]
    )
    both = VectorStoreQuery(
        query_str="a cat", similarity_top_k=3, filters=late, doc_ids=["animals", "none"]
    )
    assert store.query(both).ids == ["kitten"]
    with pytest.raises(ValueError, match="node_ids"):
        store.query(VectorStoreQuery(query_str="a cat", node_ids=["cat"]))


def test_nodes_are_read_and_deleted_by_id_or_filter(store: DocsplitVectorStore) -> None:
    late = MetadataFilters(
        filters=[MetadataFilter(key="year", value=2000, operator=FilterOperator.GT)]
    )
    found = store.get_nodes(["tax", "none", "cat"])
    assert [(one.node_id, one.ref_doc_id) for one in found] == [
        ("tax", "taxes"),
        ("cat", "animals"),
    ]
    assert found[1].get_content() == TEXTS["cat"]
    assert found[1].metadata["year"] == 2000
    asyncio.run(store.adelete_nodes(["cat", "none"]))
    assert [one.node_id for one in asyncio.run(store.aget_nodes([*TEXTS]))] == ["tax", "kitten"]
    for given in ((None, None), (["tax"], late), (None, MetadataFilters(filters=[]))):
        with pytest.raises(ValueError, match="give one of both"):
            store.delete_nodes(*given)
    for given in ((None, None), (None, late), (["tax"], late)):
        with pytest.raises(ValueError, match="by node_ids"):
            store.get_nodes(*given)
    store.delete_nodes([])
    store.delete_nodes(filters=late)
    assert store.get_nodes([*TEXTS]) == []


def test_of_nodes_with_one_id_the_last_counts(store: DocsplitVectorStore) -> None:
    nodes = [TextNode(id_="twice", text=text) for text in ("Wool is soft.", "Silk is smooth.")]
    assert store.add(nodes) == ["twice", "twice"]
    [found] = store.get_nodes(["twice"])
    assert found.get_content() == "Silk is smooth."


def test_a_query_has_the_mode_that_it_names(store: DocsplitVectorStore) -> None:
    def ids(mode: VectorStoreQueryMode) -> list[str]:
        query = VectorStoreQuery(query_str="taxes", similarity_top_k=3, mode=mode)
        return store.query(query).ids or []

    assert ids(VectorStoreQueryMode.TEXT_SEARCH) == ids(VectorStoreQueryMode.SPARSE) == ["tax"]
    assert set(ids(VectorStoreQueryMode.DEFAULT)) == {*TEXTS}
    assert ids(VectorStoreQueryMode.HYBRID) == ids(VectorStoreQueryMode.DEFAULT)
    with pytest.raises(ValueError, match="no search 'svm'"):
        ids(VectorStoreQueryMode.SVM)


def test_marginal_relevance_leaves_out_copies(store: DocsplitVectorStore) -> None:
    store.add([TextNode(id_=f"copy-{n}", text=f"{TEXTS['cat']} Copy {n}.") for n in range(3)])
    query = VectorStoreQuery(query_str=TEXTS["cat"], similarity_top_k=3)
    copies = {"copy-0", "copy-1", "copy-2"}
    plain = store.query(query).ids or []
    assert len(copies & {*plain}) == 2
    query.mode = VectorStoreQueryMode.MMR
    few = store.query(query).ids or []
    assert few[0] == plain[0]
    assert len(copies & {*few}) < 2
    query.mmr_threshold = 1
    assert store.query(query).ids == plain


async def test_other_tasks_run_while_the_service_works(
    store: DocsplitVectorStore, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedding, retriever = DocsplitEmbedding(client), DocsplitRetriever(client, "llama")
    threads: list[threading.Thread] = []
    attempt = client._try

    def noted(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return attempt(*given)

    monkeypatch.setattr(client, "_try", noted)

    await embedding.aget_query_embedding("a cat")
    await embedding.aget_text_embedding_batch(["a cat", "a tax"])
    await retriever.aretrieve("a cat")
    await store.aquery(VectorStoreQuery(query_str="a cat"))
    await store.async_add([TextNode(id_="new", text="Wool is soft.")])
    await store.adelete("taxes")
    assert len(threads) >= 6
    assert threading.main_thread() not in threads


def test_the_retriever_returns_documents_or_passages(
    store: DocsplitVectorStore, server: Server, client: Client
) -> None:
    [best] = DocsplitRetriever(client, "llama", 1).retrieve("A cat sleeps.")
    assert best.node_id == "cat"

    async def passages() -> list[str]:
        async with AsyncClient(server.url) as other:
            retriever = DocsplitRetriever(client, "llama", 1, passages=True, async_client=other)
            [found] = await retriever.aretrieve("A cat sleeps.")
            span = slice(found.metadata["start"], found.metadata["end"])
            return [found.text, TEXTS[found.metadata["document"]][span]]

    text, expected = asyncio.run(passages())
    assert text == expected
