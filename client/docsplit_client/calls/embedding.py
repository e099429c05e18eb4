"""Vectors, similarities and ranks of texts."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Unpack, cast

import httpx2
import numpy as np

from docsplit_client.answers import Detailed, Info, Keys, Rank, Vectors
from docsplit_client.calls.call import Call, parsed, several
from docsplit_client.options import EmbedOptions, RerankOptions, SimilarityOptions


def embed(texts: Sequence[str], **options: Unpack[EmbedOptions]) -> Call[Vectors]:
    """Vectors ``[texts, dimensions]`` of whole documents."""
    return Call("POST", "/embed", _vectors, _inputs(texts, options))


def embed_windows(texts: Sequence[str], **options: Unpack[EmbedOptions]) -> Call[Detailed]:
    """Vectors of whole documents and of their windows, with offsets and tokens."""
    return Call("POST", "/embed", _detailed, {**_inputs(texts, options), "windows": True})


def similarity(
    source: str, sentences: Sequence[str], **options: Unpack[SimilarityOptions]
) -> Call[Vectors]:
    """Cosines ``[sentences]`` of one text to others."""
    inputs = {"source_sentence": source, "sentences": [*several(sentences, "sentences")]}
    return Call("POST", "/similarity", _floats, {"inputs": inputs, **options})


def rerank(query: str, texts: Sequence[str], **options: Unpack[RerankOptions]) -> Call[list[Rank]]:
    """Texts by their relevance to a query, the best first."""
    body = {"query": query, "texts": [*several(texts, "texts")], **options}
    return Call("POST", "/rerank", parsed, body)


def keys() -> Call[Keys]:
    """All API keys and their use for a key that may do everything, otherwise only its own."""
    return Call("GET", "/keys", parsed)


def info() -> Call[Info]:
    """The served model and the limits of the service."""
    return Call("GET", "/info", parsed)


def _inputs(texts: Sequence[str], options: EmbedOptions) -> dict[str, Any]:
    return {"inputs": [*several(texts, "texts")], "encoding_format": "base64", **options}


def decoded(row: str) -> Vectors:
    """A vector from base64."""
    return np.frombuffer(base64.b64decode(row), "<f4").astype(np.float32)


def _vectors(response: httpx2.Response) -> Vectors:
    return np.stack([decoded(row) for row in response.json()])


def _floats(response: httpx2.Response) -> Vectors:
    return np.array(response.json(), np.float32)


def _detailed(response: httpx2.Response) -> Detailed:
    answer: dict[str, Any] = response.json()
    answer["embeddings"] = np.stack([decoded(row) for row in answer["embeddings"]])
    for windows in answer["windows"]:
        for window in windows:
            window["embedding"] = decoded(window["embedding"])
    return cast(Detailed, answer)
