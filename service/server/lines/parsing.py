"""From a line of JSON to its text."""

from __future__ import annotations

import orjson

from service import executors, precedence
from service.errors import InvalidError, MalformedError, TooLargeError
from service.server.bodies.fields import valid_text
from service.server.bodies.large import marks, parse, values

# values of the object in a line
_MOST_VALUES = 64
_FORM = 'send a JSON string, or an object {"inputs": "…"}, in UTF-8'


async def text_of(line: bytes, options: frozenset[str]) -> str:
    """The text of a line.

    Args:
        line: JSON, not blank.
        options: names that belong into the query.

    Raises:
        MalformedError: the line is not JSON.
        InvalidError, TooLargeError: it is not one text.
    """
    if line[:1] not in (b'"', b"{"):
        raise InvalidError(f"the line holds no text: {_FORM}", "inputs")
    if line[:1] == b"{" and marks(line) > _MOST_VALUES:
        _count(line)
    try:
        if len(line) > precedence.LARGE:
            value = await executors.BODIES.run(parse, line)
        else:
            value = orjson.loads(line)
    except (ValueError, RecursionError):
        raise MalformedError(f"the line is not valid JSON: {_FORM}") from None
    if isinstance(value, dict):
        if misplaced := sorted(options & value.keys()):
            raise InvalidError(
                f"{misplaced[0]}: options hold for all lines, so give them in the query of the "
                "path, such as /embed?encoding_format=base64",
                misplaced[0],
            )
        if "inputs" not in value:
            raise InvalidError(f"inputs: the line has no such field: {_FORM}", "inputs")
        value = value["inputs"]
    try:
        return valid_text(value)
    except ValueError as error:
        raise InvalidError(f"inputs: {error}", "inputs") from None


def _count(line: bytes) -> None:
    for found in values(line):
        if found > _MOST_VALUES:
            raise TooLargeError(f"the line holds more than {_MOST_VALUES} JSON values: {_FORM}")
