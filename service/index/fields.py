"""Metadata that filters may name: declared with a type when an index is created."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from service.index.faults import InvalidError

FieldType = Literal["string", "integer", "number", "boolean"]
Scalar = str | int | float | bool

INT64 = range(-(2**63), 2**63)


def fits(kind: FieldType, value: object) -> bool:
    """Whether a JSON value is of the type; an integer is also a number, a boolean is neither."""
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "string":
        return isinstance(value, str)
    if isinstance(value, bool):
        return False
    if kind == "integer":
        return isinstance(value, int) and value in INT64
    return isinstance(value, int | float)


def check(fields: Mapping[str, FieldType], metadata: Mapping[str, object], index: int) -> None:
    """Raise where a declared field of document ``index`` has a value of another type."""
    for name, kind in fields.items():
        value = metadata.get(name)
        if value is not None and not fits(kind, value):
            raise InvalidError(
                f"document {index}: metadata.{name} is declared as {kind}", "documents"
            )
