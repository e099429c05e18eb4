"""Vectors and stored documents in answers."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, Literal

import numpy as np
import orjson
from fastapi.responses import Response
from numpy.typing import NDArray

from service import precedence
from service.embedding.tokenising import FairSemaphore

ARROW = "application/vnd.apache.arrow.stream"
EncodingFormat = Literal["float", "base64", "int8", "uint8", "binary", "ubinary"]

# vectors that become JSON in one call, which lets nothing else run
_STEP = 64

# bytes of a component as JSON, about
_COMPONENT_BYTES = 12
# answers of more than ``precedence.LARGE`` that all requests of a process write at once
_large = FairSemaphore(4)

# the range of int8 in standard deviations of a component of a random unit vector
_RANGE = 6.0

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def encode(vectors: NDArray[np.float32], form: EncodingFormat) -> list[Any]:
    """One entry per row: an array for JSON numbers, or base64 of little-endian float32."""
    match form:
        case "float":
            return list(np.ascontiguousarray(vectors))
        case "base64":
            return [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors]
        case "int8":
            return list(small_integers(vectors))
        case "uint8":
            # 128 stands for 0
            return list(small_integers(vectors).view(np.uint8) ^ 0x80)
        case "ubinary":
            return list(np.packbits(vectors > 0, axis=-1))
        case "binary":
            return list((np.packbits(vectors > 0, axis=-1) ^ 0x80).view(np.int8))


def encode_each(vectors: NDArray[np.float32], form: EncodingFormat) -> Iterator[Any]:
    """The entries of ``encode``, made when they are needed."""
    for at in range(0, len(vectors), _STEP):
        yield from encode(vectors[at : at + _STEP], form)


@asynccontextmanager
async def writing(vectors: NDArray[np.float32], forms: int = 1) -> AsyncIterator[None]:
    """Wait until few other requests write large answers: their memory is not reserved yet.

    Args:
        forms: in which it has them.
    """
    if vectors.size * forms * _COMPONENT_BYTES <= precedence.LARGE:
        yield
    else:
        async with _large.turn():
            yield


async def json_list(entries: Iterable[Any]) -> orjson.Fragment:
    """JSON of a list for ``json_response``; other requests go on between its parts."""
    parts: list[bytes] = []
    rest = iter(entries)
    while step := list(islice(rest, _STEP)):
        if parts:
            await asyncio.sleep(0)
        parts.append(orjson.dumps(step, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1])
    return orjson.Fragment(b"[" + b",".join(parts) + b"]")


def small_integers(vectors: NDArray[np.float32]) -> NDArray[np.int8]:
    """Unit vectors ``[n, dimensions]`` as integers from -127 to 127, all in one scale.

    So cosines and dot products of these integers rank as those of the vectors do.
    """
    scale = 127 / min(1.0, _RANGE / vectors.shape[-1] ** 0.5)
    integers: NDArray[np.int8] = np.clip(np.rint(vectors * scale), -127, 127).astype(np.int8)
    return integers


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
    # pydantic writes times in the same form
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_UTC_Z)
    return Response(body, status, headers, media_type=media_type or "application/json")


def arrow_stream(rows: list[Any]) -> bytes:
    """An Arrow stream of vectors, which are arrays of one length and type."""
    # a service that embeds only never loads it
    import pyarrow as pa

    matrix = np.stack(rows)
    flat = pa.array(matrix.reshape(-1))
    vectors = pa.FixedSizeListArray.from_arrays(flat, matrix.shape[1])
    batch = pa.record_batch({"embedding": vectors})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body
