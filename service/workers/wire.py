"""Frames between a front and the engine's process, over a pair of Unix sockets.

A frame is the lengths of its two parts (two little-endian uint32), a JSON object, and raw bytes:
keys, token ids and vectors as they lie in memory. Both ends are one version of this code on one
machine, so bytes need no order and ``time.monotonic`` is one clock (Linux: CLOCK_MONOTONIC).

==========  =========  =====================================================================
kind        sent by    fields and body
==========  =========  =====================================================================
start       engine     worker, revision, settings
status      engine     phase, degraded, closing, queued_tokens, engine (``EngineFacts`` or null),
                       calibration
get         front      id, deadline, cached, lasting, count, client, weight; keys, lengths
                       and ids of windows
vectors     engine     id, sources, looking, queued, computing; vectors
error       engine     id, error, message, retry_after
cancel      front      id: nobody waits for the answer any more
scrape      front      id
metrics     engine     id; the whole service's metrics as text
snapshot    engine     asks for the front's metrics
counted     front      metrics
alive       front      answers each status: closed, the connections of clients that have ended
==========  =========  =====================================================================
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from windowing.pooling import Vectors
from windowing.windows import Ids

# either end takes a silent one for dead after ``engine_timeout``, and no sooner than this
PATIENCE_SECONDS = 10.0
KEY_BYTES = 16
_LENGTHS = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class Frame:
    """A received frame."""

    fields: dict[str, Any]
    body: bytes


async def receive(reader: asyncio.StreamReader) -> Frame | None:
    """The next frame; None where the other end has gone."""
    try:
        header, body = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
        fields = orjson.loads(await reader.readexactly(header))
        return Frame(fields, await reader.readexactly(body))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def receive_now(connection: socket.socket) -> dict[str, Any]:
    """The fields of a first frame without a body, read from a blocking socket to its last byte."""
    header, _ = _LENGTHS.unpack(_exactly(connection, _LENGTHS.size))
    fields: dict[str, Any] = orjson.loads(_exactly(connection, header))
    return fields


def send(writer: asyncio.StreamWriter, fields: dict[str, Any], *body: bytes) -> None:
    """Write a frame; one to an end that has gone is lost, and ``receive`` tells."""
    if writer.is_closing():
        return
    header = orjson.dumps(fields)
    lengths = _LENGTHS.pack(len(header), sum(map(len, body)))
    writer.writelines((lengths, header, *body))


def pack_windows(keys: Sequence[bytes], windows: Sequence[Ids]) -> tuple[bytes, ...]:
    """Keys, lengths and token ids as a body."""
    lengths = np.array([len(ids) for ids in windows], dtype=np.int32)
    ids = np.concatenate(windows, dtype=np.int32) if windows else lengths
    return (b"".join(keys), lengths.tobytes(), ids.tobytes())


def unpack_windows(count: int, body: bytes) -> tuple[list[bytes], list[Ids]]:
    """The keys and the token ids of ``count`` windows; the ids are views of ``body``."""
    first = count * KEY_BYTES
    keys = [body[at : at + KEY_BYTES] for at in range(0, first, KEY_BYTES)]
    numbers = np.frombuffer(body, dtype=np.int32, offset=first)
    ends = np.cumsum(numbers[:count])
    return keys, np.split(numbers[count:], ends[:-1]) if count else []


def pack_vectors(vectors: Sequence[Vectors]) -> bytes:
    """Float32 vectors ``[dimensions]`` as a body."""
    return np.stack(vectors).astype(np.float32, copy=False).tobytes() if vectors else b""


def unpack_vectors(count: int, body: bytes) -> list[Vectors]:
    """``count`` vectors, read-only views of ``body``."""
    if not count:
        return []
    return list(np.frombuffer(body, dtype=np.float32).reshape(count, -1))


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise EOFError("the engine's process has ended")
        data += part
    return data
