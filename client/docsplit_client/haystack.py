"""The service in Haystack: embedders, a retriever and a ranker.

The file of a pipeline holds the service's URL and where its key is, never the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.utils import Secret

from docsplit_client.clients import Client
from docsplit_client.types import Filter, Mode

URL = "http://localhost:8080"
KEY = Secret.from_env_var("DOCSPLIT_KEY", strict=False)


class _Component:
    """What all components share: the service, and their form in a pipeline's file.

    ``component`` makes another class of a component, so ``super()`` would not find this one.

    Args:
        url: of the service.
        key: API key; by default the environment variable DOCSPLIT_KEY, if it is set.
        options: of the component.
    """

    def __init__(self, url: str, key: Secret, **options: Any) -> None:
        self._parameters = {"url": url, "key": key, **options}
        self._client = Client(url, key=key.resolve_value())

    def to_dict(self) -> dict[str, Any]:
        """The component for a pipeline's file."""
        written: dict[str, Any] = default_to_dict(self, **self._parameters)
        return written

    def close(self) -> None:
        """Close the connections; pipelines call this."""
        self._client.close()

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Any:
        """The component of a pipeline's file."""
        return default_from_dict(cls, data)


@component
class DocsplitTextEmbedder(_Component):
    """The vector of a query.

    Args:
        url: of the service.
        key: API key; by default the environment variable DOCSPLIT_KEY, if it is set.
        prompt: name of the model's prompt for queries; None for its default.
    """

    def __init__(self, url: str = URL, key: Secret = KEY, prompt: str | None = None) -> None:
        _Component.__init__(self, url, key, prompt=prompt)
        self._prompt = prompt

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, list[float]]:
        """Embed a text."""
        return {"embedding": self._client.embed([text], prompt_name=self._prompt)[0].tolist()}


@component
class DocsplitDocumentEmbedder(_Component):
    """The vectors of whole documents.

    Args:
        url: of the service.
        key: API key; by default the environment variable DOCSPLIT_KEY, if it is set.
        prompt: name of the model's prompt for documents; None for its default.
    """

    def __init__(self, url: str = URL, key: Secret = KEY, prompt: str | None = None) -> None:
        _Component.__init__(self, url, key, prompt=prompt)
        self._prompt = prompt

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        """Embed documents, which must have texts."""
        vectors = self._client.embed_all(_texts(documents), prompt_name=self._prompt)
        pairs = zip(documents, vectors.tolist(), strict=True)
        return {"documents": [replace(one, embedding=vector) for one, vector in pairs]}


@component
class DocsplitRetriever(_Component):
    """Documents or passages of an index that fit a query.

    Args:
        index: its name.
        url: of the service.
        key: API key; by default the environment variable DOCSPLIT_KEY, if it is set.
        top_k: most documents or passages.
        passages: whether to return passages; their ``meta`` has ``document``, ``start``, ``end``.
        mode: how searches rank, see ``Client.similar``.
        filters: a condition on documents in the service's form.
    """

    def __init__(
        self,
        index: str,
        url: str = URL,
        key: Secret = KEY,
        *,
        top_k: int = 10,
        passages: bool = False,
        mode: Mode = "hybrid",
        filters: Filter | None = None,
    ) -> None:
        options = {"index": index, "top_k": top_k, "passages": passages, "mode": mode}
        _Component.__init__(self, url, key, **options, filters=filters)
        self._index, self._top_k, self._filters = index, top_k, filters
        self._passages, self._mode = passages, mode

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, top_k: int | None = None, filters: Filter | None = None
    ) -> dict[str, list[Document]]:
        """Search; the arguments replace those of the component."""
        hits = self._client.retrieve(
            self._index,
            query,
            self._top_k if top_k is None else top_k,
            passages=self._passages,
            mode=self._mode,
            filter=self._filters if filters is None else filters,
        )
        documents = []
        for hit in hits:
            name = f"{hit.id}:{hit.metadata['start']}" if self._passages else hit.id
            documents.append(
                Document(id=name, content=hit.text, meta=hit.metadata, score=hit.score)
            )
        return {"documents": documents}


@component
class DocsplitRanker(_Component):
    """Documents by their relevance to a query.

    Args:
        url: of the service.
        key: API key; by default the environment variable DOCSPLIT_KEY, if it is set.
        top_k: most documents to return.
    """

    def __init__(self, url: str = URL, key: Secret = KEY, top_k: int = 10) -> None:
        _Component.__init__(self, url, key, top_k=top_k)
        self._top_k = top_k

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, documents: list[Document], top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Rank documents, which must have texts."""
        if not documents:
            return {"documents": []}
        ranks = self._client.rerank(query, _texts(documents))
        best = ranks[: self._top_k if top_k is None else top_k]
        ranked = [replace(documents[one["index"]], score=one["score"]) for one in best]
        return {"documents": ranked}


def _texts(documents: Sequence[Document]) -> list[str]:
    texts = [one.content for one in documents if one.content is not None]
    if len(texts) < len(documents):
        raise ValueError("documents: one of them has no text (content)")
    return texts
