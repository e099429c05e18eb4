"""Metadata that filters may use: declared with a type when an index is created."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import orjson

from service.errors import InvalidError

FieldType = Literal["string", "integer", "number", "boolean", "date", "strings"]
Scalar = str | int | float | bool

# of the columns of declared fields
PREFIX = "metadata_"
_PLAIN = re.compile("[a-z][a-z0-9_]*")
# a year, or a year and a month
_PARTIAL = re.compile("[0-9]{4}(-[0-9]{2})?")
INT64 = range(-(2**63), 2**63)
MOST_KEYS = 64
KEY_CHARACTERS = 64
# limit of one document's metadata as JSON in UTF-8
METADATA_BYTES = 65_536
# strings in one list
MOST_ITEMS = 256
TITLE_CHARACTERS = 4096
ID_CHARACTERS = 512
# limit of one document's stored title and metadata: the title in UTF-8, the metadata as JSON in
# ASCII, which is at most three times as long as in UTF-8
HEAD_BYTES = 4 * TITLE_CHARACTERS + 3 * METADATA_BYTES
_DATE_CHARACTERS = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SURROGATE = "has half a surrogate pair: send valid Unicode"


def column_name(field: str) -> str:
    """The column of a declared field.

    A name that LanceDB's SQL would fold or not take without quotes stands in hexadecimal.
    """
    return PREFIX + (field if _PLAIN.fullmatch(field) else f"_{field.encode().hex()}")


def fits(kind: FieldType, value: object) -> bool:
    """Whether a JSON value has the type; an integer is also a number, a boolean is neither."""
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "string":
        return isinstance(value, str)
    if kind == "date":
        return instant(value) is not None
    if kind == "strings":
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if isinstance(value, bool):
        return False
    if kind == "integer":
        return isinstance(value, int) and value in INT64
    return isinstance(value, float) or (isinstance(value, int) and value in INT64)


def instant(value: object) -> int | None:
    """Microseconds since the epoch of a date or time in ISO 8601; None for any other value.

    A date, a month (``2020-05``) and a year mean their first moment, and a time without an offset
    is in UTC.
    """
    if not isinstance(value, str) or len(value) > _DATE_CHARACTERS:
        return None
    if _PARTIAL.fullmatch(value):
        value += "-01-01"[len(value) - 4 :]
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def column(kind: FieldType, value: Any) -> Any:
    """A declared field's value as its column has it, for filters."""
    if value is None:
        return None
    match kind:
        case "number":
            return float(value)
        case "date":
            return instant(value)
        case "strings":
            return list(dict.fromkeys(value))
    return value


def problem(metadata: object, *, name: bool = False) -> str | None:
    """Why an index cannot store metadata, and the remedy; None if it can.

    Args:
        metadata: that may have any type.
        name: whether the message names keys; it does by their position, from 0, in answers to
            clients, whose texts no answer repeats.
    """
    if not isinstance(metadata, dict):
        return "give an object of strings, numbers, booleans, null and lists of strings"
    if len(metadata) > MOST_KEYS:
        return f"{len(metadata)} keys; the limit is {MOST_KEYS}"
    for position, (key, value) in enumerate(metadata.items()):
        if not isinstance(key, str) or not 1 <= len(key) <= KEY_CHARACTERS:
            return f"key {position}: give 1 to {KEY_CHARACTERS} characters"
        if not valid_unicode(key):
            return f"key {position} {_SURROGATE}"
        if wrong := _wrong(value):
            return f"the value of {repr(key) if name else f'key {position}'} {wrong}"
    size = len(orjson.dumps(metadata))
    if size > METADATA_BYTES:
        return f"{size} bytes as JSON; the limit is {METADATA_BYTES}: put long texts into text"
    return None


def unservable(
    name: str, text: str, title: str | None, metadata: object, links: Iterable[str]
) -> str | None:
    """Why an index cannot store a document, and the remedy; None if it can."""
    if wrong := wrong_id(name):
        return f"id: {wrong}"
    if title is not None and len(title) > TITLE_CHARACTERS:
        return f"title: {len(title)} characters; the limit is {TITLE_CHARACTERS}"
    if not all(map(valid_unicode, (name, text, title or "", *links))):
        return f"a text {_SURROGATE}"
    if wrong := problem(metadata, name=True):
        return f"metadata: {wrong}"
    return None


def valid_id(name: str) -> bool:
    """Whether a text can be the id of a stored document."""
    return 0 < len(name) <= ID_CHARACTERS and not any(c < " " or c == "\x7f" for c in name)


def wrong_id(name: str) -> str | None:
    """Why a text cannot be the id of a new document, and the remedy; None if it can.

    Browsers and many other HTTP clients remove ``.`` and ``..`` from paths, encoded or not. Earlier
    versions stored such ids.
    """
    if not valid_id(name):
        return f"it must have 1 to {ID_CHARACTERS} characters, none of them a control character"
    if name in (".", ".."):
        return f'many HTTP clients remove "{name}" from the path of a URL: use another id'
    return None


def valid_unicode(text: str) -> bool:
    """Whether a text has only whole surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _wrong(value: object) -> str | None:
    match value:
        case None | bool():
            return None
        case int():
            return None if value in INT64 else "is an integer beyond 64 bits: send it as a string"
        case float():
            return None if math.isfinite(value) else "is not a finite number"
        case str():
            return None if valid_unicode(value) else _SURROGATE
        case list():
            return _wrong_list(value)
    return "is not a string, number, boolean, null or list of strings"


def _wrong_list(value: list[object]) -> str | None:
    if len(value) > MOST_ITEMS:
        return f"has {len(value)} items; the limit is {MOST_ITEMS}"
    for item in value:
        if not isinstance(item, str):
            return "is a list with an item that is not a string"
        if not valid_unicode(item):
            return _SURROGATE
    return None


def check(fields: Mapping[str, FieldType], metadata: Mapping[str, object], index: int) -> None:
    """Raise if a declared field of document ``index`` has a value of another type.

    Raises:
        InvalidError: with the name of the field as the index declares it.
    """
    if wrong := mistyped(fields, metadata):
        raise InvalidError(f"documents.{index}.{wrong}", "documents")


_EXAMPLES: dict[FieldType, str] = {
    "boolean": "true or false",
    "date": "a text such as 2020, 2020-05, 2020-05-01 or 2020-05-01T12:00:00Z",
    "integer": "an integer of 64 bits",
    "number": "a number",
    "string": "a string",
    "strings": "a list of strings",
}


def declared(kind: FieldType) -> str:
    """What to say of a value that does not have the type of its field."""
    return f"declared as {kind}: give {_EXAMPLES[kind]}"


def mistyped(fields: Mapping[str, FieldType], metadata: Mapping[str, object]) -> str | None:
    """The declared field whose value has another type, as an error; None if there is none."""
    for name, kind in fields.items():
        value = metadata.get(name)
        if value is not None and not fits(kind, value):
            return f"metadata.{name} is {declared(kind)}"
    return None
