"""The shapes of requests and answers, by ``make client-types`` (client/generate.py).

docs/reference/api/index.md explains the fields. Offsets count Unicode code points.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Filter = dict[str, Any]
Direction = Literal["cites", "cited_by"]
LinksFrom = Literal["given", "found", "both"]
OnDuplicate = Literal["allow", "mark", "refuse"]
Mode = Literal["cosine", "words", "hybrid"]
FieldType = Literal["string", "integer", "number", "boolean", "date", "strings"]

class SearchOptions(TypedDict, total=False):
    top_k: int
    offset: int
    exclude: list[str]
    mode: Literal["cosine", "words", "hybrid", "citation", "coupled"]
    direction: Direction | None
    unlinked: bool
    links_from: LinksFrom | None
    filter: Filter | None
    area: Area | None
    adapt: bool
    diversity: float
    explain: bool

class Query(TypedDict, total=False):
    text: str
    id: str | None

class DocumentHead(TypedDict):
    id: str
    title: str | None
    metadata: dict[str, Any]
    version: str

class IndexHead(TypedDict):
    name: str
    model: str
    revision: str
    served_by: str | None
    current: bool
    fields: dict[str, FieldType]

class JobHead(TypedDict):
    id: str
    kind: Literal["files", "map"]
    index: str
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    files: JobFiles
    documents: JobDocuments
    refusals: int
    error: str | None
    started: str
    ended: str | None

class Span(TypedDict):
    start: int
    end: int

class Area(TypedDict):
    map: str
    corners: list[list[float]]

class SimilarOptions(SearchOptions, Query, total=False):
    pass

class EmbedOptions(TypedDict, total=False):
    normalize: bool
    truncate: bool | None
    truncation_direction: Literal["left", "right"]
    dimensions: int | None
    prompt_name: str | None
    model: str | None

class SimilarityOptions(TypedDict, total=False):
    truncate: bool | None
    truncation_direction: Literal["left", "right"]
    prompt_name: str | None
    model: str | None

class RerankOptions(TypedDict, total=False):
    raw_scores: bool
    return_text: bool
    truncate: bool | None
    truncation_direction: Literal["left", "right"]
    model: str | None

class ClassifyOptions(TypedDict, total=False):
    classifier: str | None
    top_k: int | None
    raw_scores: bool
    threshold: float
    none: bool
    truncate: bool | None

class PassagesOptions(Query, total=False):
    start: int | None
    end: int | None
    mode: Mode
    top_k: int
    passages: int
    snippet_characters: int
    filter: Filter | None
    area: Area | None

class NewDocument(TypedDict):
    id: str
    text: str
    title: NotRequired[str | None]
    metadata: NotRequired[dict[str, Any]]
    links: NotRequired[list[str]]
    if_version: NotRequired[str | None]

class UpsertOptions(TypedDict, total=False):
    force: bool
    on_duplicate: OnDuplicate

class Patch(TypedDict, total=False):
    title: str | None
    metadata: dict[str, Any] | None
    links: list[str] | None

class CompareOptions(Query, total=False):
    top_k: int

class DuplicatesOptions(Query, total=False):
    threshold: float
    top_k: int

class FindLinksOptions(TypedDict, total=False):
    ids: bool
    titles: bool
    fields: list[str]
    rules: list[LinkRule]

class LinkRule(TypedDict):
    ids: str
    name: str
    texts: NotRequired[str]

class TrainOptions(TypedDict, total=False):
    inputs: list[str] | None
    index: str | None
    ids: list[str] | None
    multi_label: bool
    unlabelled: str | None
    background: bool
    model: str | None

class SuggestOptions(TypedDict, total=False):
    count: int
    filter: Filter | None

class LabelsOf(TypedDict):
    id: str
    labels: list[str] | None

class JobFiles(TypedDict):
    total: int
    done: int
    failed: int

class JobDocuments(TypedDict):
    written: int
    unchanged: int
    marked: int

class Usage(TypedDict):
    tokens: int
    used_tokens: int
    unknown_tokens: int
    windows: int
    cached_windows: int
    truncated: bool

class Window(Span):
    tokens: int
    weight: float
    embedding: Vectors

class Detailed(TypedDict):
    model: str
    revision: str
    embeddings: Vectors
    windows: list[list[Window]]
    usage: list[Usage]

class Rank(TypedDict):
    index: int
    score: float
    text: NotRequired[str | None]

class Explained(TypedDict):
    labels: list[Prediction]
    windows: list[Share]

class Prediction(TypedDict):
    label: str
    score: float

class Share(Span):
    contribution: float

class Compared(TypedDict):
    cosine: float
    pairs: list[ComparedPair]

class ComparedPair(TypedDict):
    cosine: float
    query: Place
    document: Place

class Place(Span):
    page: NotRequired[int | None]
    heading: NotRequired[str | None]

class Hit(TypedDict):
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

class Pair(TypedDict):
    cosine: float
    query: Span
    document: Place

class Faceted(TypedDict):
    hits: list[Hit] | list[list[Hit]]
    facets: dict[str, Facet]

class Facet(TypedDict):
    values: list[Count]
    others: int

class Count(TypedDict):
    value: str | int | bool
    count: int

class Passages(TypedDict):
    id: str
    score: float
    cosine: float
    title: str | None
    metadata: dict[str, Any]
    passages: list[Passage]

class Passage(Span):
    score: float
    cosine: float
    words: float
    page: int | None
    heading: str | None
    snippet: Snippet

class Snippet(Span):
    text: str

class Info(TypedDict):
    model_id: str
    model_sha: str
    model_dtype: str
    model_type: dict[str, Any]
    max_input_length: int
    max_client_batch_size: int
    max_batch_tokens: int
    version: str
    dimensions: int
    window_tokens: int
    window_weights: WindowWeights
    matryoshka: list[int]
    prompts: list[str]
    licence: str
    source: str
    precisions: dict[str, Any]
    engine: Engine | None
    reranker: Ranker | None
    models: list[Model]

class WindowWeights(TypedDict, total=False):
    unit: Literal["tokens", "letters"]
    first: float

class Engine(TypedDict):
    name: str
    precision: str
    device: str
    streams: int
    batch_tokens: int
    reason: str
    processor: str
    calibration: Calibration | None

class Calibration(TypedDict):
    threads: int
    streams: int
    batch_tokens: int
    reason: str
    seconds: float
    measured: list[Measurement]

class Measurement(TypedDict):
    threads: int
    streams: int
    batch_tokens: int
    tokens_per_second: int
    ratio: float

class Ranker(TypedDict):
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

class Keys(TypedDict):
    required: bool
    keys: list[Key]

class Key(TypedDict):
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

class Index(IndexHead):
    documents: int
    generations: list[Generation]
    adaptation: Adaptation | None
    progress: Progress | None

class Generation(TypedDict):
    revision: str
    documents: int
    state: Literal["complete", "building"]
    current: bool

class Adaptation(TypedDict):
    used: bool
    documents: int
    halves: int
    raw: float
    adapted: float
    gain: float
    low: float
    high: float

class Progress(TypedDict):
    done: int
    total: int
    rate: float
    seconds_left: float | None

class Alias(TypedDict):
    alias: str
    index: str

class Upserted(TypedDict):
    upserted: int
    versions: list[str]
    duplicates: NotRequired[list[Duplicates] | None]

class Duplicates(TypedDict):
    position: int
    duplicates: list[Duplicate]

class Duplicate(TypedDict):
    id: str
    resemblance: float

class Document(DocumentHead):
    text: str
    links: list[str]

class Page(TypedDict):
    documents: list[DocumentHead]
    next: str | None

class Got(TypedDict):
    documents: list[DocumentText]
    missing: list[str]
    damaged: list[str]
    remaining: list[str]

class DocumentText(DocumentHead):
    text: NotRequired[str | None]

class Deleted(TypedDict):
    deleted: int

class Patched(TypedDict):
    version: str

class Match(TypedDict):
    id: str
    resemblance: float
    containment: float
    cosine: float
    title: str | None
    metadata: dict[str, Any]
    differs: list[Span]

class Groups(TypedDict):
    documents: int
    groups_found: int
    groups: list[Group]

class Group(TypedDict):
    size: int
    ids: list[str]
    resemblance: float

class FoundLinks(TypedDict):
    documents: int
    names: int
    ambiguous: int
    left_out: int
    links: int
    places: int
    cut: int
    seconds: float

class Links(TypedDict):
    links: list[Link]
    next: str | None

class Link(TypedDict):
    id: str
    direction: Direction
    title: str | None
    exists: bool
    given: bool
    found: bool
    places: int
    first_places: list[LinkPlace]

class LinkPlace(Span):
    kind: Literal["identifier", "title"]
    form: str | None

class Windows(TypedDict):
    windows: list[Place]
    pages: list[int]

class MissingPage(TypedDict):
    citations: list[Missing]
    documents: int
    next: str | None

class Missing(TypedDict):
    citing: str
    citing_title: str | None
    cited: str
    cited_title: str | None
    link_probability: float
    cosine: float
    place: LinkPlace | None

class Job(JobHead):
    step: JobStep | None
    refused: list[Refusal]
    duplicates: list[JobDuplicates]
    links: int | None

class JobStep(TypedDict):
    name: Literal["waiting", "reading", "layout", "placing", "topics", "writing"]
    done: float

class Refusal(TypedDict):
    id: str
    reason: str

class JobDuplicates(TypedDict):
    id: str
    duplicates: list[Duplicate]

class Jobs(TypedDict):
    jobs: list[JobHead]

class DocumentMap(TypedDict):
    made: str
    version: str
    total: int
    placed: int
    unplaced: int
    stale: float
    ids: list[str]
    positions: str
    topics: str
    values: FieldValues | None
    labels: MapLabels | None
    next: str | None

class FieldValues(TypedDict):
    field: str
    values: list[str | int | bool]
    codes: str

class MapLabels(TypedDict):
    classifier: str
    labels: list[str]
    codes: str
    scores: str
    pending: int

class Topics(TypedDict):
    made: str
    version: str
    total: int
    placed: int
    unplaced: int
    stale: float
    topics: list[Topic]
    without: int

class Topic(TypedDict):
    topic: int
    name: str
    words: list[str]
    size: int
    centre: list[float] | None
    examples: list[str]

class CitationHead(TypedDict):
    links: int
    citing: int
    inputs: NotRequired[Literal["features", "vectors"]]
    links_from: NotRequired[LinksFrom]
    links_used: int
    citing_used: int
    held_out: int
    mrr: float
    hybrid_mrr: float
    training_seconds: float

class Classifier(TypedDict):
    name: str
    training: NotRequired[Training | None]
    revision: NotRequired[str | None]
    current: NotRequired[bool | None]
    bundled: NotRequired[bool | None]
    multi_label: NotRequired[bool | None]
    outputs: NotRequired[list[str] | None]
    examples: NotRequired[int | None]
    unlabelled: NotRequired[int | None]
    labels: NotRequired[dict[str, int] | None]
    folds: NotRequired[int | None]
    accuracy: NotRequired[float | None]
    subset_accuracy: NotRequired[float | None]
    micro_f1: NotRequired[float | None]
    macro_f1: NotRequired[float | None]
    log_loss: NotRequired[float | None]
    temperature: NotRequired[float | None]
    none_below: NotRequired[float | None]
    training_seconds: NotRequired[float | None]
    history: NotRequired[list[FormerTraining] | None]

class Training(TypedDict):
    state: Literal["running", "failed", "lost"]
    stage: Literal["waiting", "embedding", "training"]
    done: int
    total: int
    started: str
    error: NotRequired[str | None]
    hint: NotRequired[str | None]

class FormerTraining(TypedDict, total=False):
    examples: int | None
    accuracy: float | None
    subset_accuracy: float | None
    macro_f1: float | None

class Suggestion(TypedDict):
    id: str
    title: str | None
    probabilities: list[Prediction]
    margin: float

class LabelledPage(TypedDict):
    documents: list[Labelled]
    next: str | None

class Labelled(TypedDict):
    index: str
    id: str
    labels: list[str]
    given: str

class FileText(TypedDict):
    text: str
    title: str | None
    author: str | None
    date: str | None
    pages: list[int]
    headings: list[FileHeading]

class FileHeading(TypedDict):
    start: int
    level: int
    title: str
