"""What to tell a caller who gives an unknown name or a wrong value."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from pydantic import BaseModel

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# characters of the caller's name in a message
_SHOWN = 64
# names of a body that may mean a required field, and how similar to it they are
_LOOKED_AT, _CLOSE = 100, 0.8

_REMEDIES = {
    "bool_parsing": "give true or false",
    "bool_type": "give true or false",
    "dict_type": "give an object",
    "float_parsing": "give a number",
    "float_type": "give a number",
    "greater_than": "give a number above {gt}",
    "greater_than_equal": "give {ge} or more",
    "int_from_float": "give an integer",
    "int_parsing": "give an integer",
    "int_type": "give an integer",
    "less_than": "give a number below {lt}",
    "less_than_equal": "give {le} or less",
    "list_type": "give a list",
    "literal_error": "give {expected}",
    "model_attributes_type": "give an object",
    "model_type": "give an object",
    "string_too_long": "give a text of {max_length} or fewer characters",
    "string_too_short": "give a text of {min_length} or more characters",
    "string_type": "give a string",
    "too_long": "give {max_length} or fewer of them",
    "too_short": "give {min_length} or more of them",
    "tuple_type": "give a list",
}
"""Messages for errors of pydantic, by their types: its own speak of its validation."""


def remedy(error: ErrorDetails, forms: Mapping[str, str]) -> str:
    """The message of an error of pydantic, in plain words and without the value.

    Args:
        error: one of ``ValidationError.errors()``.
        forms: what to say of a text that does not have the form of a pattern, by pattern.
    """
    said = error["msg"].removeprefix("Value error, ")
    values = error.get("ctx", {})
    if error["type"] == "string_pattern_mismatch":
        return forms.get(values["pattern"], said)
    kind = error["type"]
    if isinstance(error.get("input"), str) and f"string_{kind}" in _REMEDIES:
        # after a validator of our own, pydantic takes a text for any value with a length
        kind = f"string_{kind}"
    known = _REMEDIES.get(kind)
    return said if known is None else known.format(**values)


def unknown_name(given: Iterable[str], known: Collection[str]) -> str | None:
    """A message about the first name that is not known; None if all are.

    A body may have hundreds of thousands of such names, so the others do not matter.
    """
    name = next((name for name in given if name not in known), None)
    if name is None:
        return None
    shown = name[:_SHOWN]
    close = get_close_matches(shown, known, 1)
    others = f"give {', '.join(known)}" if known else "leave it out"
    advice = f"did you mean {close[0]}?" if close else others
    return f'"{shown}" is not known; {advice}'


def misspelt(field: str, given: object) -> str | None:
    """The name in a body that seems to mean a required field, which the body lacks."""
    if not isinstance(given, dict):
        return None
    some = [name for name in islice(given, _LOOKED_AT) if len(name) <= _SHOWN]
    return next(iter(get_close_matches(field, some, 1, _CLOSE)), None)


def meant(given: Collection[str], known: Collection[str]) -> str | None:
    """The known name that an unknown one among a few seems to mean."""
    some = (name for name in islice(given, _LOOKED_AT) if name not in known)
    close = (get_close_matches(name, known, 1, _CLOSE) for name in some if len(name) <= _SHOWN)
    return next((found[0] for found in close if found), None)


@cache
def field_names(model: type[BaseModel]) -> tuple[str, ...]:
    """The names of a model's fields in JSON."""
    return tuple(field.alias or name for name, field in model.model_fields.items())
