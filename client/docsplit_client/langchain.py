"""The service in LangChain: embeddings, a retriever and a vector store.

The service embeds texts itself, so the store and the retriever send texts, not vectors.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore

from docsplit_client.calls import Retrieved, described
from docsplit_client.clients import Client
from docsplit_client.types import DocumentText, FieldType, Filter, Mode, NewDocument


class DocsplitEmbeddings(Embeddings):
    """Vectors of whole documents.

    Args:
        client: of the service.
        query_prompt: name of the model's prompt for queries; None for its default.
        document_prompt: name of the model's prompt for documents.
    """

    def __init__(
        self,
        client: Client,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
    ) -> None:
        self._client = client
        self._query_prompt = query_prompt
        self._document_prompt = document_prompt

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector for each text."""
        vectors = self._client.embed_all(texts, prompt_name=self._document_prompt)
        found: list[list[float]] = vectors.tolist()
        return found

    def embed_query(self, text: str) -> list[float]:
        """The vector of a query."""
        found: list[float] = self._client.embed([text], prompt_name=self._query_prompt)[0].tolist()
        return found


class DocsplitVectorStore(VectorStore):
    """An index of the service.

    Args:
        client: of the service.
        index: its name; it must exist.
        mode: how searches rank, see ``Client.similar``.
    """

    def __init__(self, client: Client, index: str, mode: Mode = "cosine") -> None:
        self._client = client
        self._index = index
        self._mode = mode

    @property
    def embeddings(self) -> Embeddings:
        """The embeddings of the service, which are those of the index."""
        return DocsplitEmbeddings(self._client)

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **_: Any,
    ) -> list[str]:
        """Store texts; one with an existing id replaces the former document.

        Args:
            texts: of any length.
            metadatas: of each text: strings, numbers, booleans, None and lists of strings.
            ids: of each text; None stands for a new one.

        Returns:
            The ids.
        """
        given = [*texts]
        names = [name or str(uuid.uuid4()) for name in ids or (None for _ in given)]
        held = metadatas or [{} for _ in given]
        documents: dict[str, NewDocument] = {
            name: {"id": name, "text": text, "metadata": metadata}
            for name, text, metadata in zip(names, given, held, strict=True)
        }
        self._client.upsert_all(self._index, documents.values())
        return names

    def delete(self, ids: list[str] | None = None, **_: Any) -> bool:
        """Delete documents; those that do not exist are no error."""
        if ids is None:
            raise ValueError("ids: name the documents; Client.delete_index deletes all")
        for at in range(0, len(ids), 1000):
            self._client.delete_documents(self._index, ids[at : at + 1000])
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """The documents of the ids that exist."""
        found = self._client.get_all(self._index, ids)
        return [_document(found[name]) for name in ids if name in found]

    def similarity_search(
        self,
        query: str,
        k: int = 4,
        filter: Filter | None = None,  # noqa: A002
        **_: Any,
    ) -> list[Document]:
        """The documents that resemble a text most."""
        return [one for one, _ in self.similarity_search_with_score(query, k, filter)]

    def similarity_search_with_score(
        self,
        query: str,
        k: int = 4,
        filter: Filter | None = None,  # noqa: A002
        **_: Any,
    ) -> list[tuple[Document, float]]:
        """The documents that resemble a text most, with the scores of the mode."""
        hits = self._client.retrieve(self._index, query, k, mode=self._mode, filter=filter)
        return [(_found(hit), hit.score) for hit in hits]

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: Filter | None = None,  # noqa: A002
        **_: Any,
    ) -> list[Document]:
        """The documents that resemble a text most, without those that resemble each other.

        Args:
            query: of any length.
            k: most documents.
            fetch_k: ignored, because the service chooses from 100 hits or more.
            lambda_mult: 1 for the most similar documents, 0 for the most diverse ones.
            filter: a condition on documents.
        """
        hits = self._client.retrieve(
            self._index, query, k, mode=self._mode, filter=filter, diversity=1 - lambda_mult
        )
        return [_found(hit) for hit in hits]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        if self._mode != "cosine":
            raise NotImplementedError("relevance scores from 0 to 1 need the mode cosine")
        return lambda cosine: min(max((1 + cosine) / 2, 0.0), 1.0)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        client: Client | None = None,
        index: str = "langchain",
        fields: Mapping[str, FieldType] | None = None,
        **_: Any,
    ) -> Self:
        """Create an index if there is none of that name, and store texts.

        Args:
            texts: of any length.
            embedding: ignored, because the service embeds.
            metadatas: of each text.
            ids: of each text.
            client: of the service; None for one on this machine.
            index: name of the index.
            fields: metadata that filters may name, with its types.
        """
        client = Client() if client is None else client
        client.create_index(index, fields)
        store = cls(client, index)
        store.add_texts(texts, metadatas, ids=ids)
        return store


class DocsplitRetriever(BaseRetriever):
    """Documents or passages of an index that fit a query.

    Attributes:
        client: of the service.
        index: its name.
        k: most documents or passages.
        passages: whether to return passages; their metadata has ``document``, ``start``, ``end``
            and ``score``, besides the document's own.
        mode: how searches rank.
        filter: a condition on documents.
    """

    client: Client
    index: str
    k: int = 4
    passages: bool = False
    mode: Mode = "hybrid"
    filter: Filter | None = None

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        most = self.k if k is None else k
        if not self.passages:
            store = DocsplitVectorStore(self.client, self.index, self.mode)
            return store.similarity_search(query, most, self.filter)
        hits = self.client.retrieve(
            self.index, query, most, passages=True, mode=self.mode, filter=self.filter
        )
        return [
            Document(page_content=hit.text, metadata={**hit.metadata, "score": hit.score})
            for hit in hits
        ]


def _found(hit: Retrieved) -> Document:
    return Document(id=hit.id, page_content=hit.text, metadata=hit.metadata)


def _document(stored: DocumentText) -> Document:
    text = stored.get("text") or ""
    return Document(id=stored["id"], page_content=text, metadata=described(stored))
