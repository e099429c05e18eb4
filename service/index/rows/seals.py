"""Values of columns that are computed or optional: a checksum ties each to its row's content.

A damaged value counts as missing, and so does one that a version without the column left beside a
new text.
"""

import zlib

from service.index.rows import checksums

_SUM = 4


def seal(content: bytes, digest: str) -> bytes:
    """The stored value.

    Args:
        content: to store.
        digest: value of the column ``digest``.
    """
    return _sum(content, digest) + content


def unseal(stored: bytes | None, digest: str) -> bytes | None:
    """The content of a stored value; None if it is missing or damaged."""
    if stored is None or stored[:_SUM] != _sum(stored[_SUM:], digest):
        return None
    return stored[_SUM:]


def _sum(content: bytes, digest: str) -> bytes:
    start = zlib.crc32(checksums.content(digest).encode("utf-8", "replace"))
    return zlib.crc32(content, start).to_bytes(_SUM, "little")
