"""Vectors on the wire."""

from __future__ import annotations

import base64
from typing import Any, Literal

import numpy as np
import orjson
from fastapi.responses import Response
from numpy.typing import NDArray

EncodingFormat = Literal["float", "base64"]


def encode(vectors: NDArray[np.float32], form: EncodingFormat) -> list[Any]:
    """One entry a row: an array for JSON numbers, or base64 of little-endian float32."""
    if form == "float":
        return list(np.ascontiguousarray(vectors))
    return [base64.b64encode(row.astype("<f4").tobytes()).decode("ascii") for row in vectors]


def json_response(content: Any, headers: dict[str, str], media_type: str | None = None) -> Response:
    """JSON of plain values and float32 arrays; numbers keep float32's shortest form."""
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(body, headers=headers, media_type=media_type or "application/json")
