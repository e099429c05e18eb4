"""The service in LlamaIndex: embeddings, a retriever and a vector store.

The service embeds texts itself, so the store and the retriever send texts, not vectors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Self

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import (
    BaseNode,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from docsplit_client.calls import Retrieved, described
from docsplit_client.clients import AsyncClient, Client
from docsplit_client.types import FieldType, Filter, Mode, NewDocument

# the field that names the source document of a node
SOURCE = "ref_doc_id"
_TESTS = {
    FilterOperator.EQ: "eq",
    FilterOperator.NE: "ne",
    FilterOperator.GT: "gt",
    FilterOperator.GTE: "gte",
    FilterOperator.LT: "lt",
    FilterOperator.LTE: "lte",
    FilterOperator.IN: "in",
    FilterOperator.CONTAINS: "contains",
}
# they rank in the mode of the store
_OF_STORE = (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR)
_MODES: dict[VectorStoreQueryMode, Mode] = {
    VectorStoreQueryMode.HYBRID: "hybrid",
    VectorStoreQueryMode.SPARSE: "words",
    VectorStoreQueryMode.TEXT_SEARCH: "words",
}
# most ids in one request
_IDS = 1000


class DocsplitEmbedding(BaseEmbedding):
    """Vectors of whole documents.

    Args:
        client: of the service.
        query_prompt: name of the model's prompt for queries; None for its default.
        text_prompt: name of the model's prompt for documents; None for its default.
    """

    _client: Client = PrivateAttr()
    _query_prompt: str | None = PrivateAttr()
    _text_prompt: str | None = PrivateAttr()

    def __init__(
        self, client: Client, query_prompt: str | None = None, text_prompt: str | None = None
    ) -> None:
        super().__init__(model_name="docsplit", embed_batch_size=64)
        self._client = client
        self._query_prompt = query_prompt
        self._text_prompt = text_prompt

    def _get_query_embedding(self, query: str) -> list[float]:
        found: list[float] = self._client.embed([query], prompt_name=self._query_prompt)[0].tolist()
        return found

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        vectors = self._client.embed_all(texts, prompt_name=self._text_prompt)
        found: list[list[float]] = vectors.tolist()
        return found


class DocsplitRetriever(BaseRetriever):
    """Documents or passages of an index that fit a query.

    Args:
        client: of the service.
        index: its name.
        top_k: most documents or passages.
        passages: whether to return passages; their metadata has ``document``, ``start``, ``end``.
        mode: how searches rank, see ``Client.similar``.
        filter: a condition on documents.
        async_client: of the same service, for ``aretrieve``; None lets that use ``client``.
    """

    def __init__(
        self,
        client: Client,
        index: str,
        top_k: int = 10,
        *,
        passages: bool = False,
        mode: Mode = "hybrid",
        filter: Filter | None = None,  # noqa: A002
        async_client: AsyncClient | None = None,
    ) -> None:
        super().__init__()
        self._client, self._async_client = client, async_client
        self._passages = passages
        self._search: dict[str, Any] = {
            "index": index,
            "top_k": top_k,
            "passages": passages,
            "mode": mode,
            "filter": filter,
        }

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        query = query_bundle.query_str
        hits = self._client.retrieve(query=query, **self._search)
        return [self._node(hit) for hit in hits]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if self._async_client is None:
            return await asyncio.to_thread(self._retrieve, query_bundle)
        query = query_bundle.query_str
        hits = await self._async_client.retrieve(query=query, **self._search)
        return [self._node(hit) for hit in hits]

    def _node(self, hit: Retrieved) -> NodeWithScore:
        name = f"{hit.id}:{hit.metadata['start']}" if self._passages else hit.id
        node = TextNode(id_=name, text=hit.text, metadata=hit.metadata)
        return NodeWithScore(node=node, score=hit.score)


class DocsplitVectorStore(BasePydanticVectorStore):
    """An index of the service; ``create`` makes one.

    Args:
        client: of the service.
        index: its name; it must exist, with the field ``ref_doc_id``.
        mode: how searches rank whose query has the default mode.
    """

    stores_text: bool = True
    is_embedding_query: bool = False
    _client: Client = PrivateAttr()
    _index: str = PrivateAttr()
    _mode: Mode = PrivateAttr()

    def __init__(self, client: Client, index: str, mode: Mode = "hybrid") -> None:
        super().__init__(stores_text=True, is_embedding_query=False)
        self._client, self._index, self._mode = client, index, mode

    @classmethod
    def create(
        cls,
        client: Client,
        index: str,
        fields: Mapping[str, FieldType] | None = None,
        mode: Mode = "hybrid",
    ) -> Self:
        """Create an index, if there is none of that name.

        Args:
            client: of the service.
            index: its name.
            fields: metadata that filters may name, with its types.
            mode: how searches rank.
        """
        client.create_index(index, {**(fields or {}), SOURCE: "string"})
        return cls(client, index, mode)

    @property
    def client(self) -> Client:
        """The client of the service."""
        return self._client

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Store the texts of nodes, not their vectors; of those with one id the last counts."""
        documents: dict[str, NewDocument] = {}
        for node in nodes:
            source = {} if node.ref_doc_id is None else {SOURCE: node.ref_doc_id}
            text = node.get_content(MetadataMode.NONE)
            metadata = {**node.metadata, **source}
            documents[node.node_id] = {"id": node.node_id, "text": text, "metadata": metadata}
        self._client.upsert_all(self._index, documents.values())
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Delete all nodes of a source document."""
        self._client.delete_documents(self._index, filter={"field": SOURCE, "eq": ref_doc_id})

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **_: Any,
    ) -> None:
        """Delete the nodes of ids, or those that pass filters; missing ones are no error.

        Raises:
            ValueError: not one of both.
        """
        condition = None if filters is None else _condition(filters)
        if (node_ids is None) == (condition is None):
            raise ValueError("node_ids, filters: give one of both")
        if condition is not None:
            self._client.delete_documents(self._index, filter=condition)
            return
        ids = node_ids or []
        for at in range(0, len(ids), _IDS):
            self._client.delete_documents(self._index, ids[at : at + _IDS])

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """The nodes of the ids that exist, in the order of the ids.

        Raises:
            ValueError: no ids, or filters.
        """
        if node_ids is None or filters is not None:
            raise ValueError("get_nodes: the service has stored nodes by node_ids, not by filters")
        found = self._client.get_all(self._index, node_ids)
        held = [found[name] for name in node_ids if name in found]
        return [_node(one["id"], one.get("text") or "", described(one)) for one in held]

    def query(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        """The nodes that fit the text of a query, by its filters and source documents.

        Raises:
            ValueError: the service cannot do what the query asks for.
        """
        if query.query_str is None:
            raise ValueError("query_str: the service searches by text, not by vector")
        if query.node_ids:
            raise ValueError("node_ids: the service has no filter by ids; give doc_ids or filters")
        mode = self._mode if query.mode in _OF_STORE else _MODES.get(query.mode)
        if mode is None:
            raise ValueError(f"mode: the service has no search {query.mode.value!r}")
        hits = self._client.retrieve(
            self._index,
            query.query_str,
            query.similarity_top_k,
            mode=mode,
            filter=_within(query),
            diversity=_diversity(query),
        )
        return VectorStoreQueryResult(
            nodes=[_node(hit.id, hit.text, hit.metadata) for hit in hits],
            similarities=[hit.score for hit in hits],
            ids=[hit.id for hit in hits],
        )

    async def aquery(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        """The same in a thread."""
        return await asyncio.to_thread(self.query, query)

    async def async_add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """The same as ``add`` in a thread."""
        return await asyncio.to_thread(self.add, nodes)

    async def adelete(self, ref_doc_id: str, **_: Any) -> None:
        """The same as ``delete`` in a thread."""
        await asyncio.to_thread(self.delete, ref_doc_id)

    async def adelete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **_: Any,
    ) -> None:
        """The same as ``delete_nodes`` in a thread."""
        await asyncio.to_thread(self.delete_nodes, node_ids, filters)

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """The same as ``get_nodes`` in a thread."""
        return await asyncio.to_thread(self.get_nodes, node_ids, filters)


def _node(name: str, text: str, metadata: dict[str, Any]) -> TextNode:
    node = TextNode(id_=name, text=text, metadata=metadata)
    if (source := metadata.get(SOURCE)) is not None:
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=source)
    return node


def _diversity(query: VectorStoreQuery) -> float:
    if query.mode != VectorStoreQueryMode.MMR:
        return 0.0
    # the default of llama_index's own search
    return 1 - (0.5 if query.mmr_threshold is None else query.mmr_threshold)


def _within(query: VectorStoreQuery) -> Filter | None:
    given = None if query.filters is None else _condition(query.filters)
    if not query.doc_ids:
        return given
    sources: Filter = {"field": SOURCE, "in": query.doc_ids}
    return sources if given is None else {"and": [given, sources]}


def _condition(filters: MetadataFilters) -> Filter | None:
    """A filter of LlamaIndex in the service's form."""
    parts = [
        _condition(one) if isinstance(one, MetadataFilters) else _test(one)
        for one in filters.filters
    ]
    given = [part for part in parts if part is not None]
    if not given:
        return None
    name = "and" if filters.condition is None else filters.condition.value
    if name == "not":
        return {"not": {"or": given}}
    return {name: given}


def _test(one: MetadataFilter) -> Filter:
    if one.operator == FilterOperator.NIN:
        return {"not": {"field": one.key, "in": one.value}}
    if one.operator not in _TESTS:
        raise ValueError(f"filters: the service has no test {one.operator.value!r}")
    return {"field": one.key, _TESTS[one.operator]: one.value}
