"""Finds the one bit of a file that is wrong, by the file's CRC-32, and turns it back.

A CRC is linear: the CRCs of two contents of one length that differ in one bit differ by a value
that depends on that bit's place alone, and for 2**32 - 1 bits no two places give the same value.
The reader confirms the result by a digest.
"""

from __future__ import annotations

import zlib

# more would take minutes, and from 2**29 bytes on the place is ambiguous
MOST_BYTES = 1 << 28
_POLYNOMIAL = 0xEDB88320


def _table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()
_BY_TOP = {value >> 24: byte for byte, value in enumerate(_TABLE)}
# what a wrong bit leaves right behind its byte
_BITS = {_TABLE[1 << bit]: bit for bit in range(8)}


def mended(content: bytes, crc: int) -> bytes | None:
    """The content with one bit turned, so that it has the CRC; None where no one bit does it."""
    if len(content) > MOST_BYTES:
        return None
    # back over the bytes behind the wrong one, of which each has moved the difference on
    difference = zlib.crc32(content) ^ crc
    for place in range(len(content) - 1, -1, -1):
        bit = _BITS.get(difference)
        if bit is not None:
            whole = bytearray(content)
            whole[place] ^= 1 << bit
            return bytes(whole)
        byte = _BY_TOP[difference >> 24]
        difference = (difference ^ _TABLE[byte]) << 8 & 0xFFFFFFFF | byte
    return None
