"""What to tell a caller who gives a name that is not known."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from functools import cache
from itertools import islice

from pydantic import BaseModel

# characters of the caller's name in a message
_SHOWN = 64
# names of a body that may mean a required field, and how similar to it they are
_LOOKED_AT, _CLOSE = 100, 0.8


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
    remedy = f"did you mean {close[0]}?" if close else others
    return f'"{shown}" is not known; {remedy}'


def misspelt(field: str, given: object) -> str | None:
    """The name in a body that seems to mean a required field, which the body lacks."""
    if not isinstance(given, dict):
        return None
    some = [name for name in islice(given, _LOOKED_AT) if len(name) <= _SHOWN]
    return next(iter(get_close_matches(field, some, 1, _CLOSE)), None)


@cache
def field_names(model: type[BaseModel]) -> tuple[str, ...]:
    """The names of a model's fields in JSON."""
    return tuple(field.alias or name for name, field in model.model_fields.items())
