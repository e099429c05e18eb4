"""Checks of texts for several routes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

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
