"""Checks of texts that several routes share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

# characters checked in one call, which no other thread can interrupt
_STEP = 1 << 16


def valid_text(value: Any) -> str:
    """One string that is valid Unicode.

    Raises:
        ValueError: anything else, with a hint; the value is not repeated.
    """
    if isinstance(value, str):
        try:
            for at in range(0, 0 if value.isascii() else len(value), _STEP):
                value[at : at + _STEP].encode()
        except UnicodeEncodeError:
            raise ValueError("the text has half a surrogate pair: send valid Unicode") from None
        return value
    if isinstance(value, int | list) and not isinstance(value, bool):
        raise ValueError("token ids are not taken: send the text")
    raise ValueError("give a string")


def valid_texts(value: Any) -> list[str]:
    """A list of strings."""
    if not isinstance(value, list):
        raise ValueError("give a list of strings")
    for index, item in enumerate(value):
        try:
            valid_text(item)
        except ValueError as error:
            raise ValueError(f"item {index}: {error}") from None
    return value


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
