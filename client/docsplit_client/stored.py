"""What the service answers about stored things: indexes, documents and trained heads."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from docsplit_client.answers import Direction, Place, Span
from docsplit_client.maps import JobStep

FieldType = Literal["string", "integer", "number", "boolean", "date", "strings"]


class Generation(TypedDict):
    """The documents of an index that one bundle has embedded."""

    revision: str
    documents: int
    state: Literal["complete", "building"]
    current: bool


class Progress(TypedDict):
    """Documents that are re-embedded, and all."""

    done: int
    total: int


class Adaptation(TypedDict):
    """The adapted cosine of an index, and what it gains."""

    used: bool
    documents: int
    halves: int
    raw: float
    adapted: float
    gain: float
    low: float
    high: float


class IndexHead(TypedDict):
    """An index, as a key may see it that only writes."""

    name: str
    model: str
    revision: str
    served_by: str | None
    current: bool
    fields: dict[str, FieldType]


class Index(IndexHead):
    """An index."""

    documents: int
    generations: list[Generation]
    adaptation: Adaptation | None
    progress: Progress | None


class Alias(TypedDict):
    """An alias and its index."""

    alias: str
    index: str


class Duplicate(TypedDict):
    """A document of the index that is nearly the same as one of the request."""

    id: str
    resemblance: float


class Duplicates(TypedDict):
    """Near-duplicates of the document at a position of the request."""

    position: int
    duplicates: list[Duplicate]


class Upserted(TypedDict):
    """All documents are durable; versions are in the order of the request."""

    upserted: int
    versions: list[str]
    duplicates: NotRequired[list[Duplicates] | None]


class DocumentHead(TypedDict):
    """A stored document without its text."""

    id: str
    title: str | None
    metadata: dict[str, Any]
    version: str


class Document(DocumentHead):
    """A stored document."""

    text: str
    links: list[str]


class DocumentText(DocumentHead):
    """A stored document without its links."""

    text: NotRequired[str | None]


class Page(TypedDict):
    """Documents in the order of their ids; ``next`` is None on the last page."""

    documents: list[DocumentHead]
    next: str | None


class Got(TypedDict):
    """Documents of some ids; ``remaining`` are those to ask for again."""

    documents: list[DocumentText]
    missing: list[str]
    damaged: list[str]
    remaining: list[str]


class Deleted(TypedDict):
    """The number of deleted documents."""

    deleted: int


class Patched(TypedDict):
    """The new version of a document."""

    version: str


class Match(TypedDict):
    """A near-duplicate, and the windows in which it differs."""

    id: str
    resemblance: float
    containment: float
    cosine: float
    title: str | None
    metadata: dict[str, Any]
    differs: list[Span]


class Group(TypedDict):
    """Documents that near-duplicates connect."""

    size: int
    ids: list[str]
    resemblance: float


class Groups(TypedDict):
    """Groups of near-duplicates, the largest first."""

    documents: int
    groups_found: int
    groups: list[Group]


class FoundLinks(TypedDict):
    """What the last search for links in texts read and found."""

    documents: int
    names: int
    ambiguous: int
    left_out: int
    links: int
    places: int
    cut: int
    seconds: float


class LinkPlace(Span):
    """A place in the text of the citing document."""

    kind: Literal["identifier", "title"]
    form: str | None


class Link(TypedDict):
    """A link of a document, with the first places where it stands in the citing text."""

    id: str
    direction: Direction
    title: str | None
    exists: bool
    given: bool
    found: bool
    places: int
    first_places: list[LinkPlace]


class Windows(TypedDict):
    """The windows of a document; joined, they are its text."""

    windows: list[Place]


class Links(TypedDict):
    """Links in the order of direction and id; ``next`` is None on the last page."""

    links: list[Link]
    next: str | None


class Missing(TypedDict):
    """Two documents without a link, though the first one seems to cite the second one."""

    citing: str
    citing_title: str | None
    cited: str
    cited_title: str | None
    link_probability: float
    cosine: float
    place: LinkPlace | None


class MissingPage(TypedDict):
    """Missing citations of some documents, the likeliest first; ``next`` is None at the end."""

    citations: list[Missing]
    documents: int
    next: str | None


class JobFiles(TypedDict):
    """The files of a job."""

    total: int
    done: int
    failed: int


class JobDocuments(TypedDict):
    """The documents in the files of a job; ``marked`` ones have near-duplicates."""

    written: int
    unchanged: int
    marked: int


class JobHead(TypedDict):
    """A job; ``ended`` is None until its state is final."""

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


class Refusal(TypedDict):
    """A file, a file in an archive, or a document that was refused."""

    id: str
    reason: str


class JobDuplicates(TypedDict):
    """A written document, and documents of the index that are nearly the same."""

    id: str
    duplicates: list[Duplicate]


class Job(JobHead):
    """A job with the first refusals and marked documents; ``step`` is for the kind ``map``."""

    step: JobStep | None
    refused: list[Refusal]
    duplicates: list[JobDuplicates]
    links: int | None


class Jobs(TypedDict):
    """Jobs, the newest first."""

    jobs: list[JobHead]


class CitationHead(TypedDict):
    """The head that predicts citations, and its quality."""

    links: int
    citing: int
    inputs: NotRequired[Literal["features", "vectors"]]
    links_from: NotRequired[Literal["given", "found", "both"]]
    links_used: int
    citing_used: int
    held_out: int
    mrr: float
    hybrid_mrr: float
    training_seconds: float


class FileHeading(TypedDict):
    """A heading in the text of a file; 1 is the highest level."""

    start: int
    level: int
    title: str


class FileText(TypedDict):
    """The text of a file; places count Unicode code points."""

    text: str
    title: str | None
    author: str | None
    date: str | None
    pages: list[int]
    headings: list[FileHeading]
