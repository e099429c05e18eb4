"""Round batches up to a few shapes, so that a device sees only these.

A device's arena keeps the memory that it once took, and pieces of ever new sizes leave unusable
gaps. With a few sizes, the largest first, pieces find their old places.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from service.embedding.engines.interface import Engine, EngineError

# Sizes between two powers of two: rounding adds at most an eighth, on average half of that.
PARTS = 8
# Numbers of tokens are multiples of it: tensor cores work best so, and the queue rounds alike.
STEP = 8

Ids = NDArray[np.int64]
Shape = tuple[int, int]


class Buckets:
    """Rounds batches of ``[rows, tokens]`` up.

    Args:
        max_tokens: longest window; no batch exceeds it, because positions end there.
        pad_token_id: fills the rest.
    """

    def __init__(self, max_tokens: int, pad_token_id: int) -> None:
        self._max_tokens = max_tokens
        self._pad = pad_token_id

    def shape(self, rows: int, tokens: int) -> Shape:
        """The shape that ``[rows, tokens]`` is rounded up to."""
        return _up(rows, 1), max(tokens, min(_up(tokens, STEP), self._max_tokens))

    def fill(self, input_ids: Ids, mask: Ids) -> tuple[Ids, Ids]:
        """The batch in its bucket, the rest masked; the first rows of the output are the results.

        A row without tokens has no mean, so each added row has one token.

        Args:
            input_ids: ``[rows, tokens]``.
            mask: 1 for tokens, 0 for padding, ``[rows, tokens]``.
        """
        rows, tokens = input_ids.shape
        shape = self.shape(rows, tokens)
        if shape == (rows, tokens):
            return input_ids, mask
        rest = (0, shape[0] - rows), (0, shape[1] - tokens)
        filled = np.pad(input_ids, rest, constant_values=self._pad)
        masked = np.pad(mask, rest)
        masked[rows:, 0] = 1
        return filled, masked

    def largest(self, batch_tokens: int) -> list[Shape]:
        """The buckets that need most memory: by tokens, and by products of a row's tokens.

        Args:
            batch_tokens: most padded tokens in a batch, in rows of multiples of ``STEP``; a longer
                window gets its own batch.
        """
        rounded = (min(n, self._max_tokens) for n in range(STEP, self._max_tokens + STEP, STEP))
        found = [self.shape(max(1, batch_tokens // tokens), tokens) for tokens in rounded]
        by_tokens = max(found, key=lambda shape: shape[0] * shape[1])
        by_products = max(found, key=lambda shape: shape[0] * shape[1] ** 2)
        return list(dict.fromkeys((by_tokens, by_products)))


def reserve(engine: Engine, buckets: Buckets, batch_tokens: int) -> None:
    """Run the largest buckets in all streams at once, so that the arena gets its size early.

    Args:
        engine: engine on the device.
        buckets: the buckets of the engine.
        batch_tokens: most padded tokens in a batch.

    Raises:
        EngineError: it fails, most likely for lack of memory.
    """
    with ThreadPoolExecutor(engine.streams) as pool:
        for rows, tokens in buckets.largest(batch_tokens):
            ids = np.zeros((rows, tokens), dtype=np.int64)
            running = [pool.submit(engine.run, ids, ids + 1) for _ in range(engine.streams)]
            try:
                for one in running:
                    one.result()
            except Exception as error:
                raise EngineError(
                    f"{engine.name}: {engine.streams} batches of {rows} x {tokens} tokens at once "
                    f"fail, lower batch_tokens: {error}"
                ) from error


def _up(size: int, step: int) -> int:
    """The next multiple of ``step``, or of a part of an octave if that is wider."""
    octave = 1 << (size - 1).bit_length()
    width = max(step, octave // (2 * PARTS))
    return -(-size // width) * width
