"""What the service answers. The keys are those of its interface (docs/reference/api/index.md)."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Direction = Literal["cites", "cited_by"]


class Span(TypedDict):
    """Characters of a document, counted in Unicode code points."""

    start: int
    end: int


class Place(Span):
    """Characters of a stored document, and where they begin in the file that it came from."""

    page: NotRequired[int | None]
    heading: NotRequired[str | None]


class Window(Span):
    """A window of a document with its vector ``[dimensions]``."""

    tokens: int
    weight: float
    embedding: Vectors


class Usage(TypedDict):
    """The tokens of a document."""

    tokens: int
    used_tokens: int
    windows: int
    cached_windows: int
    truncated: bool


class Detailed(TypedDict):
    """Vectors ``[documents, dimensions]`` with the windows of each document."""

    model: str
    revision: str
    embeddings: Vectors
    windows: list[list[Window]]
    usage: list[Usage]


class Rank(TypedDict):
    """A ranked text: its position in the request, and its score."""

    index: int
    score: float
    text: NotRequired[str | None]


class Prediction(TypedDict):
    """A label and its calibrated probability, or logit."""

    label: str
    score: float


class Share(Span):
    """A window, and by how much the first label's probability falls without it."""

    contribution: float


class Explained(TypedDict):
    """The labels of a document, with the windows that decided."""

    labels: list[Prediction]
    windows: list[Share]


class Pair(TypedDict):
    """Two windows that resemble each other."""

    cosine: float
    query: Span
    document: Place


class ComparedPair(TypedDict):
    """Two windows that resemble each other; both places name page and heading."""

    cosine: float
    query: Place
    document: Place


class Compared(TypedDict):
    """The cosine of two documents, and their most similar windows."""

    cosine: float
    pairs: list[ComparedPair]


class Hit(TypedDict):
    """A document that a search found."""

    id: str
    score: float
    cosine: float
    title: str | None
    metadata: dict[str, Any]
    link_probability: NotRequired[float | None]
    shared_references: NotRequired[int | None]
    co_citations: NotRequired[int | None]
    direction: NotRequired[Direction | None]
    pairs: NotRequired[list[Pair] | None]


class Count(TypedDict):
    """A value and the number of documents that have it."""

    value: str | int | bool
    count: int


class Facet(TypedDict):
    """Values of a field, the most frequent first."""

    values: list[Count]
    others: int


class Faceted(TypedDict):
    """Hits, and the values of fields over all documents that pass the filter."""

    hits: list[Hit] | list[list[Hit]]
    facets: dict[str, Facet]


class Snippet(Span):
    """The part of a passage that has the most of the query's words."""

    text: str


class Passage(Span):
    """A window of a document."""

    score: float
    cosine: float
    words: float
    page: int | None
    heading: str | None
    snippet: Snippet


class Passages(TypedDict):
    """A document with its best passages, the best first."""

    id: str
    score: float
    cosine: float
    title: str | None
    metadata: dict[str, Any]
    passages: list[Passage]


class Ranker(TypedDict):
    """The re-ranker of the service."""

    name: str
    revision: str
    window_tokens: int
    query_tokens: int
    licence: str
    source: str
    precisions: dict[str, Any]
    engine: str
    precision: str
    reason: str


class Model(TypedDict):
    """A bundle that ``model`` can name."""

    name: str
    revision: str
    dimensions: int
    window_tokens: int
    prompts: list[str]
    licence: str
    source: str
    state: Literal["loaded", "unloaded", "failed"]
    memory_bytes: int
    engine: str
    precision: str


class WindowWeights(TypedDict, total=False):
    """How much each window of a document counts in its vector."""

    unit: Literal["tokens", "letters"]
    first: float


class Info(TypedDict):
    """The default model, the limits of the service, and all models."""

    model_id: str
    model_sha: str
    model_dtype: str
    model_type: dict[str, Any]
    max_input_length: int
    max_client_batch_size: int
    max_batch_tokens: int
    version: str
    dimensions: int
    matryoshka: list[int]
    window_tokens: int
    window_weights: WindowWeights
    prompts: list[str]
    licence: str
    source: str
    precisions: dict[str, Any]
    engine: dict[str, Any] | None
    reranker: Ranker | None
    models: list[Model]


class Key(TypedDict):
    """An API key without its token, and what it has used of one process."""

    name: str
    own: bool
    everything: bool
    read_indexes: list[str]
    write_indexes: list[str]
    use_classifiers: list[str]
    train_classifiers: list[str]
    requests_per_second: float | None
    tokens_per_second: float | None
    expires: str | None
    revoked: bool
    requests: int
    tokens: int


class Keys(TypedDict):
    """The keys that the client's key may see."""

    required: bool
    keys: list[Key]
