"""Blocks: some consecutive texts of a file, or their vectors, as the bytes that a table holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

# a block ends at one of these; a longer text has a block of its own
BLOCK_TEXTS = 1024
BLOCK_BYTES = 1 << 19

# a vector ``[width]``, or why the text has none
Outcome = NDArray[np.float32] | str


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of a block.

    Attributes:
        ids: as in the file; None where the file has none.
    """

    ids: Sequence[str | None]
    texts: Sequence[str]


def packed(block: Texts) -> bytes:
    """The bytes of a block of texts."""
    batch = pa.record_batch(
        {"id": pa.array(block.ids, pa.string()), "text": pa.array(block.texts, pa.large_string())}
    )
    return _written(batch, pa.ipc.IpcWriteOptions(compression="zstd"))


def unpacked(data: bytes) -> Texts:
    """The texts of a block."""
    batch = rows(data)
    return Texts(batch["id"].to_pylist(), batch["text"].to_pylist())


def result(ids: Sequence[str | None], outcomes: Sequence[Outcome], width: int) -> bytes:
    """The bytes of a block of vectors, with the columns of ``schema``."""
    missing = np.array([isinstance(one, str) for one in outcomes])
    matrix = np.zeros((len(outcomes), width), np.float32)
    for place, one in enumerate(outcomes):
        if not isinstance(one, str):
            matrix[place] = one
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array(matrix.reshape(-1)), width, mask=pa.array(missing)
    )
    errors = [one if isinstance(one, str) else None for one in outcomes]
    columns = [pa.array(ids, pa.string()), vectors, pa.array(errors, pa.string())]
    # random digits do not compress
    return _written(pa.record_batch(columns, schema=schema(width)), pa.ipc.IpcWriteOptions())


def schema(width: int) -> pa.Schema:
    """The columns of vectors: each row has a vector or an error.

    Args:
        width: components of a vector.
    """
    return pa.schema(
        [
            ("id", pa.string()),
            ("vector", pa.list_(pa.float32(), width)),
            ("error", pa.string()),
        ]
    )


def rows(data: bytes) -> pa.RecordBatch:
    """The rows of a block."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


def _written(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
