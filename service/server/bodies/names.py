"""Names in paths, and ids of documents."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from pydantic import AfterValidator, BeforeValidator, WithJsonSchema
from starlette.convertors import PathConvertor, register_url_convertor

from service.index.rows.fields import valid_id, wrong_id
from service.server.bodies.fields import INDEX_NAME, valid_text

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
