"""What requests may say, as keyword arguments. Each has the interface's name and default."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from docsplit_client.answers import Direction

Side = Literal["left", "right"]
OnDuplicate = Literal["allow", "mark", "refuse"]
Filter = dict[str, Any]


class CutOptions(TypedDict, total=False):
    """How to cut texts; without ``truncate`` the service reads all of them."""

    truncate: bool | None
    truncation_direction: Side


class EmbedOptions(CutOptions, total=False):
    """Options of the vectors."""

    normalize: bool
    dimensions: int | None
    prompt_name: str | None
    model: str | None


class SimilarityOptions(CutOptions, total=False):
    """Options of ``similarity``."""

    prompt_name: str | None
    model: str | None


class RerankOptions(CutOptions, total=False):
    """Options of ``rerank``."""

    raw_scores: bool
    return_text: bool
    model: str | None


class ClassifyOptions(TypedDict, total=False):
    """Options of ``classify`` and ``explain_labels``."""

    classifier: str | None
    top_k: int | None
    raw_scores: bool
    threshold: float
    truncate: bool | None


class Query(TypedDict, total=False):
    """A text of any length, or the id of a stored document."""

    text: str
    id: str | None


class Area(TypedDict):
    """A polygon on the map of an index: the map's version, and x and y of 3 to 256 corners."""

    map: str
    corners: list[list[float]]


class SearchOptions(TypedDict, total=False):
    """Options of a search for documents."""

    top_k: int
    offset: int
    exclude: list[str]
    mode: Literal["cosine", "words", "hybrid", "citation", "coupled"]
    direction: Direction | None
    links_from: Literal["given", "found", "both"] | None
    filter: Filter | None
    area: Area | None
    adapt: bool
    diversity: float
    explain: bool
    unlinked: bool


class SimilarOptions(Query, SearchOptions, total=False):
    """A query with options."""


class PassagesOptions(Query, total=False):
    """A query for passages with options."""

    start: int | None
    end: int | None
    mode: Literal["cosine", "words", "hybrid"]
    top_k: int
    passages: int
    snippet_characters: int
    filter: Filter | None
    area: Area | None


class NewDocument(TypedDict):
    """A document to store."""

    id: str
    text: str
    title: NotRequired[str | None]
    metadata: NotRequired[dict[str, Any]]
    links: NotRequired[list[str]]
    if_version: NotRequired[str | None]


class UpsertOptions(TypedDict, total=False):
    """Options of an upsert."""

    force: bool
    on_duplicate: OnDuplicate


class Patch(TypedDict, total=False):
    """Changes of a document: None removes a title, all metadata or one key of it."""

    title: str | None
    metadata: dict[str, Any] | None
    links: list[str] | None


class DuplicatesOptions(Query, total=False):
    """A document to compare with those of an index."""

    threshold: float
    top_k: int


class CompareOptions(Query, total=False):
    """A document to compare with one of an index."""

    top_k: int


class LinkRule(TypedDict):
    """A further name of documents; ``*`` stands for the same characters in both forms."""

    ids: str
    name: str
    texts: NotRequired[str]


class FindLinksOptions(TypedDict, total=False):
    """The names to look for in texts."""

    ids: bool
    titles: bool
    fields: list[str]
    rules: list[LinkRule]


class TrainOptions(TypedDict, total=False):
    """Labelled documents, as ``inputs`` or as ``ids`` of an ``index``."""

    inputs: list[str] | None
    index: str | None
    ids: list[str] | None
    multi_label: bool
    unlabelled: str | None
    background: bool
    model: str | None


class LabelsOf(TypedDict):
    """A document and its labels; None removes them."""

    id: str
    labels: list[str] | None


class SuggestOptions(TypedDict, total=False):
    """Options of ``suggest``."""

    count: int
    filter: Filter | None
