"""Bodies of the routes for documents."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi.responses import Response
from pydantic import (
    BaseModel,
    BeforeValidator,
    FailFast,
    Field,
    WithJsonSchema,
)

from service.index.rows import fields
from service.server.bodies.body import Body
from service.server.bodies.encoding import json_response
from service.server.bodies.fields import TEXT, valid_text
from service.server.bodies.names import Identifier, NewIdentifier, optional_text
from service.server.edge.errors import NativeError

# lowest resemblance of near-duplicates, unless a request gives another
THRESHOLD = 0.4
# near-duplicates that an upsert names of each document
MOST_MATCHES = 10
_VERSION = Field(description="changes with every write of the document")


def _metadata(value: Any) -> Any:
    if problem := fields.problem(value):
        raise ValueError(problem)
    return value


def _title(value: Any) -> str | None:
    title = optional_text(value)
    if title is not None and len(title) > fields.TITLE_CHARACTERS:
        raise ValueError(f"{len(title)} characters; the limit is {fields.TITLE_CHARACTERS}")
    return title


Metadata = Annotated[
    dict[str, Any],
    BeforeValidator(_metadata),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": fields.MOST_KEYS,
            "propertyNames": {"minLength": 1, "maxLength": fields.KEY_CHARACTERS},
            "additionalProperties": {
                "anyOf": [
                    {"type": "string", "maxLength": fields.METADATA_BYTES},
                    {"type": "boolean"},
                    {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
                    {"type": "number"},
                    {"type": "null"},
                    {
                        "type": "array",
                        "items": {"type": "string"},
                        "maxItems": fields.MOST_ITEMS,
                    },
                ]
            },
            "description": f"at most {fields.METADATA_BYTES} bytes as JSON in UTF-8",
        }
    ),
]


Title = Annotated[str | None, BeforeValidator(_title)]


class DocumentIn(Body):
    """A document to store. An upsert replaces the whole document: omitted fields become empty."""

    id: NewIdentifier
    text: Annotated[str, BeforeValidator(valid_text), TEXT] = Field(description="of any length")
    title: Title = Field(None, json_schema_extra={"maxLength": fields.TITLE_CHARACTERS})
    metadata: Metadata = Field(default_factory=dict)
    links: Annotated[list[Identifier], FailFast()] = Field(
        default_factory=list, max_length=10_000, description="ids of the documents that it cites"
    )
    if_version: Annotated[str, BeforeValidator(valid_text)] | None = Field(
        None,
        max_length=64,
        description="write only over this version; * for any, an empty string for no document",
    )


class UpsertRequest(Body):
    """Documents to insert, or to replace if their id exists."""

    documents: Annotated[list[DocumentIn], FailFast()] = Field(min_length=1)
    force: bool = Field(
        False, description="embed every text again; use no vector from the index or a cache"
    )
    on_duplicate: Literal["allow", "mark", "refuse"] = Field(
        "allow",
        description="compare each text with other documents of the index: `mark` lists "
        "near-duplicates in the answer, `refuse` writes nothing if there are any",
    )


class DuplicateOut(BaseModel):
    """A document of the index that is nearly the same as one of the request."""

    id: str
    resemblance: float


class DuplicatesOut(BaseModel):
    """Near-duplicates of one document of the request."""

    position: int = Field(description="of the document in the request, from 0")
    duplicates: list[DuplicateOut] = Field(max_length=MOST_MATCHES)


class DuplicateError(NativeError):
    """The index has near-duplicates of these documents; nothing is written."""

    duplicates: list[DuplicatesOut]


def duplicates_refused(near: list[dict[str, Any]]) -> Response:
    """409: the index has near-duplicates of documents of the request."""
    content = {
        "error": "the index has near-duplicates of these documents: leave them out, or send "
        "on_duplicate: allow",
        "error_type": "Conflict",
        "duplicates": near,
    }
    return json_response(content, status=409)


class UpsertOut(BaseModel):
    """All documents are durable."""

    upserted: int
    versions: list[str] = Field(description="of the documents, in the order of the request")
    duplicates: list[DuplicatesOut] | None = Field(None, description="with `on_duplicate: mark`")


class DocumentHead(BaseModel):
    """A document without its text."""

    id: str
    title: str | None
    metadata: dict[str, Any]
    version: str = _VERSION


class DocumentOut(DocumentHead):
    """A document as the client sent it."""

    text: str
    links: list[str]


class PageOut(BaseModel):
    """Documents in the order of their ids."""

    documents: list[DocumentHead]
    next: str | None = Field(description="`after` of the next page; null on the last")


class VersionOut(BaseModel):
    """The version of one document of a request."""

    position: int = Field(description="of the document in the request, from 0")
    version: str | None = Field(description="null if no document has that id")


class MismatchError(NativeError):
    """Documents that do not have the required version."""

    conflicts: list[VersionOut] = Field(description="present versions; these are not written")
    written: list[VersionOut] = Field(
        description="empty, unless another write came between the check and the commit"
    )
