"""What paths and bodies hold: texts, names, ids, queries, and places in documents; their checks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from starlette.convertors import PathConvertor, register_url_convertor

from service.index.rows.fields import valid_id, wrong_id
from service.unknown import field_names, unknown_name

# forms of names
INDEX_NAME = "^[a-z0-9][a-z0-9_-]{0,62}$"
FIELD_NAME = r"^[^\x00-\x1f\x7f]{1,64}$"
REVISION = "^[0-9a-f]{12}([0-9a-f]{52})?$"
JOB_ID = "^[0-9a-f]{32}$"
FORMS = {
    INDEX_NAME: "a name has 1 to 63 lower-case letters, digits, - and _, and begins with a letter "
    "or digit",
    FIELD_NAME: "the name of a field has 1 to 64 characters, none of them a control character",
    REVISION: "give the revision that GET /indexes/{name} lists, or its first 12 digits",
    JOB_ID: "the id of a job has 32 digits from 0 to f; GET /jobs lists them",
}
"""What to say of a text that does not have the form of a pattern."""
# characters checked in one call, which blocks all other threads
_STEP = 1 << 16


def valid_text(value: Any) -> str:
    """Return the value if it is a string of valid Unicode.

    Raises:
        ValueError: for anything else, with a hint but without the value.
    """
    if isinstance(value, str):
        try:
            for at in range(0, 0 if value.isascii() else len(value), _STEP):
                value[at : at + _STEP].encode()
        except UnicodeEncodeError:
            raise ValueError("the text has half a surrogate pair: send valid Unicode") from None
        return value
    if isinstance(value, list) and value and isinstance(value[0], str):
        raise ValueError("give a string, not a list of strings")
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError("give a string, not a number")
    raise ValueError("give a string")


def valid_texts(value: Any) -> list[str]:
    """Return the value if it is a list of valid strings."""
    if not isinstance(value, list):
        raise ValueError("give a list of strings")
    for index, item in enumerate(value):
        try:
            if _token_ids(item):
                raise ValueError(
                    "token ids are not accepted: send the text (OpenAIEmbeddings of LangChain does "
                    "with check_embedding_ctx_length=False)"
                )
            valid_text(item)
        except ValueError as error:
            raise ValueError(f"item {index}: {error}") from None
    return value


def _token_ids(value: Any) -> bool:
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, int) and not isinstance(first, bool)


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


ModelName = Annotated[
    str | None,
    Field(description="the name of a bundle, or an alias; a service with one bundle ignores it"),
]
"""The bundle that a request to a native route chooses."""

Flag = Annotated[
    bool,
    BeforeValidator(lambda value: False if value is None else value),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": False}),
]
"""A switch that is off by default, also by null, which clients of other servers send."""

CutSide = Annotated[Literal["left", "right"], BeforeValidator(_lower)]
"""The side of a document that ``truncate`` cuts off."""


def _one_or_more(value: Any) -> str | list[str]:
    if isinstance(value, list):
        return valid_texts(value)
    if isinstance(value, str):
        return valid_text(value)
    raise ValueError("give a string or a list of strings")


_TEXT = {"type": "string", "minLength": 1}
TEXT = WithJsonSchema(_TEXT)
_SCHEMA = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
Inputs = Annotated[str | list[str], BeforeValidator(_one_or_more), WithJsonSchema(_SCHEMA)]


class Body(BaseModel):
    """A body without unknown fields: a misspelt one would otherwise have no effect.

    Bodies that other servers take, too, ignore such fields, as those servers do.
    """

    model_config = ConfigDict(strict=True, json_schema_extra={"additionalProperties": False})

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        return cls.known(value)

    @classmethod
    def known(cls, value: Any) -> Any:
        """Refuse the first unknown field. ``extra="forbid"`` would make an error of each."""
        if isinstance(value, dict) and (message := unknown_name(value, field_names(cls))):
            raise ValueError(message)
        return value


_ID = "^[^\\x00-\\x1f\\x7f]{1,512}$"
_NEW_ID = "^(?!\\.\\.?$)[^\\x00-\\x1f\\x7f]{1,512}$"

# only lower case, because some file systems treat A and a as equal
Name = Annotated[
    str,
    Path(
        pattern=INDEX_NAME,
        description="lower-case letters, digits, - and _; first a letter or digit; up to 63",
    ),
]


class _WholePath(PathConvertor):
    # ``.*$`` also matches before a line break at the end: "a\n" would be the document "a"
    regex = r"[\s\S]*"


register_url_convertor("path", _WholePath())

DocumentId = Annotated[
    str,
    Path(description="the document's id; it may contain slashes", min_length=1, max_length=512),
]


def identifier(value: str) -> str:
    """Return the value if it is a valid document id.

    Raises:
        ValueError: it is not valid.
    """
    if not valid_id(value):
        raise ValueError("an id has 1 to 512 characters, none of them a control character")
    return value


Identifier = Annotated[
    str,
    BeforeValidator(valid_text),
    AfterValidator(identifier),
    WithJsonSchema({"type": "string", "pattern": _ID}),
]
"""A document's id: any text of 1 to 512 characters without control characters."""


def _new(value: str) -> str:
    if wrong := wrong_id(value):
        raise ValueError(wrong)
    return value


NewIdentifier = Annotated[
    Identifier, AfterValidator(_new), WithJsonSchema({"type": "string", "pattern": _NEW_ID})
]
"""The id of a document to store: an earlier version also stored ``.`` and ``..``."""


def optional_text(value: Any) -> str | None:
    """None, or valid text."""
    return None if value is None else valid_text(value)


Source = Literal["given", "found", "both"]


class QueryIn(Body):
    """One of several queries."""

    text: Annotated[str | None, BeforeValidator(optional_text), TEXT] = Field(
        None, description="a document of any length; or give id"
    )
    id: Identifier | None = Field(None, description="a document of the index; it is left out")

    @model_validator(mode="after")
    def _text_or_id(self) -> QueryIn:
        if (self.text is None) == (self.id is None):
            raise ValueError("give either text or id")
        return self


class Span(BaseModel):
    """Characters of a document, counted in Unicode code points."""

    start: int
    end: int


class Place(Span):
    """Characters of a stored document, and where they begin in the file that it came from."""

    page: int | None = Field(None, description="from 1")
    heading: str | None = Field(None, description="the last one up to there")


MOST_CORNERS = 256
# positions on maps are far below it
_FARTHEST = 1e9

Coordinate = Annotated[float, Field(ge=-_FARTHEST, le=_FARTHEST)]
Corner = Annotated[list[Coordinate], Field(min_length=2, max_length=2, description="x and y")]


class AreaIn(Body):
    """A polygon on the index's map."""

    map: str = Field(max_length=64, description="`version` of the map")
    corners: list[Corner] = Field(min_length=3, max_length=MOST_CORNERS, fail_fast=True)
