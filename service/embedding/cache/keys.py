"""The cache key of a window's vector."""

import hashlib

import numpy as np

from docsplit.windowing.windows import Ids


def window_key(ids: Ids) -> bytes:
    """A 16-byte digest of a window's token ids.

    The ids decide the vector, not the text: texts that differ only in what the tokenizer drops
    share one entry.
    """
    return hashlib.blake2b(np.ascontiguousarray(ids).tobytes(), digest_size=16).digest()
