"""Finds the one wrong bit of a file by the file's CRC-32, and flips it.

A CRC is linear: if two contents of one length differ in one bit, their CRCs differ by a value that
depends only on that bit's place. For 2**32 - 1 bits no two places give the same value. The caller
confirms the result by a digest.
"""

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
# the CRC difference that a wrong bit causes right after its byte
_BITS = {_TABLE[1 << bit]: bit for bit in range(8)}


def corrected(content: bytes, crc: int) -> bytes | None:
    """The content with one bit flipped, so that it has the CRC; None if no bit does that."""
    if len(content) > MOST_BYTES:
        return None
    # go back through the bytes after the wrong one: each of them has shifted the difference
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
