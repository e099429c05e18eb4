"""Vectors and stored documents in answers."""

from __future__ import annotations

import base64
import json
import re
from typing import Any, Literal

import numpy as np
import orjson
from fastapi.responses import Response
from numpy.typing import NDArray

EncodingFormat = Literal["float", "base64"]

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def encode(vectors: NDArray[np.float32], form: EncodingFormat) -> list[Any]:
    """One entry per row: an array for JSON numbers, or base64 of little-endian float32."""
    if form == "float":
        return list(np.ascontiguousarray(vectors))
    return [base64.b64encode(row.astype("<f4").tobytes()).decode("ascii") for row in vectors]


def stored_object(metadata: str) -> orjson.Fragment:
    """Metadata from an index, a flat JSON object, for ``json_response``.

    Metadata from before the limits existed may have half surrogate pairs, which become U+FFFD, and
    integers of any size, which do not change.
    """
    if _ESCAPED_SURROGATE.search(metadata):
        held: dict[str, Any] = json.loads(metadata)
        metadata = json.dumps({_valid(key): _valid(value) for key, value in held.items()})
    return orjson.Fragment(metadata)


def _valid(value: Any) -> Any:
    return _SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value


def json_response(
    content: Any,
    headers: dict[str, str] | None = None,
    media_type: str | None = None,
    status: int = 200,
) -> Response:
    """JSON of plain values and float32 arrays; numbers keep float32's shortest form."""
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(body, status, headers, media_type=media_type or "application/json")
