"""Vectors as bytes: fp16 with a checksum."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from service.documents.pooling import Vectors, normalise

_CRC = struct.Struct("<I")


def pack(vector: Vectors) -> bytes:
    """A unit vector ``[dimensions]`` as CRC-32 and little-endian fp16."""
    body = vector.astype("<f2").tobytes()
    return _CRC.pack(zlib.crc32(body)) + body


def unpack(value: bytes, dimensions: int) -> Vectors | None:
    """The vector scaled back to unit length; None when the bytes are damaged or of another size."""
    body = value[_CRC.size :]
    if len(body) != 2 * dimensions or _CRC.unpack_from(value)[0] != zlib.crc32(body):
        return None
    return normalise(np.frombuffer(body, dtype="<f2").astype(np.float32))
