"""The column ``terms``: a document's words and pairs of words, as ``ranking.bags`` has them.

A value begins with a checksum over itself and the digest of the row's content. So a damaged value
counts as missing, and so does one that a version without this column left beside a new text.
"""

import zlib

from ranking.bags import Bag, bag
from service.index.rows import checksums

COLUMN = "terms"
_SUM = 4


def sealed(text: str, digest: str) -> bytes:
    """The value for a text.

    Args:
        text: of the document.
        digest: value of the column ``digest``.
    """
    content = bag(text)
    return _sum(content, digest) + content


def opened(stored: bytes | None, digest: str) -> Bag | None:
    """The features of a stored value; None if it is missing or damaged."""
    if stored is None or stored[:_SUM] != _sum(stored[_SUM:], digest):
        return None
    return stored[_SUM:]


def _sum(content: bytes, digest: str) -> bytes:
    start = zlib.crc32(checksums.content(digest).encode("utf-8", "replace"))
    return zlib.crc32(content, start).to_bytes(_SUM, "little")
