"""Blocks of vectors as a Parquet file, in pieces."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Literal

import numpy as np

from service import executors
from service.server.bodies.encoding import encode

if TYPE_CHECKING:
    import pyarrow as pa

MEDIA_TYPE = "application/vnd.apache.parquet"
VectorFormat = Literal["float", "int8", "uint8", "binary", "ubinary"]


async def pieces(
    first: bytes, others: AsyncIterator[bytes], form: VectorFormat
) -> AsyncIterator[bytes]:
    """The bytes of the file: one row group for each block, and the footer at the end.

    Args:
        first: block of ``service.textfiles``.
        others: the blocks after it.
        form: of the vectors.
    """
    file = await executors.STORE.run(_File, first, form)
    yield file.taken()
    async for block in others:
        await executors.STORE.run(file.add, block)
        yield file.taken()
    await executors.STORE.run(file.close)
    yield file.taken()


class _File:
    """A Parquet file whose bytes are taken while it is written."""

    def __init__(self, first: bytes, form: VectorFormat) -> None:
        import pyarrow.parquet as pq

        batch = _batch(first, form)
        self._form: VectorFormat = form
        self._sink = _Sink()
        # vectors are hardly smaller in a dictionary or compressed
        self._writer = pq.ParquetWriter(
            self._sink, batch.schema, compression="none", use_dictionary=["error"]
        )
        self._writer.write_batch(batch)

    def add(self, block: bytes) -> None:
        """Write a block."""
        self._writer.write_batch(_batch(block, self._form))

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()

    def taken(self) -> bytes:
        """What was written since the last call."""
        return self._sink.take()


class _Sink(io.RawIOBase):
    """Keeps what is written until it is taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]  # pyarrow writes only bytes
        self._parts.append(bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _batch(block: bytes, form: VectorFormat) -> pa.RecordBatch:
    import pyarrow as pa

    from service.textfiles.blocks import rows

    batch = rows(block)
    if form == "float":
        return batch
    vectors = batch["vector"]
    matrix = vectors.values.to_numpy().reshape(len(vectors), -1)
    encoded = np.stack(encode(matrix, form))
    column = pa.FixedSizeListArray.from_arrays(
        pa.array(encoded.reshape(-1)), encoded.shape[1], mask=vectors.is_null()
    )
    return batch.set_column(1, "vector", column)
