"""Vectors of windows in a column: one list of float16 vectors for each document.

Tables of an earlier version hold the same numbers as binary values. Both forms give the same bytes,
so one checksum fits both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from docsplit.windowing.pooling import Vectors


def windows_type(dimensions: int) -> pa.DataType:
    """The type of the column, which LanceDB can search."""
    return pa.list_(pa.list_(pa.float16(), dimensions))


def windows_searchable(schema: pa.Schema) -> bool:
    """Whether LanceDB can search the column ``windows`` of a table."""
    return bool(pa.types.is_list(schema.field("windows").type))


def windows_column(windows: Sequence[Vectors], kind: pa.DataType) -> pa.Array:
    """The column for windows ``[windows, dimensions]`` of each document."""
    if not pa.types.is_list(kind):
        return pa.array([own.astype("<f2").tobytes() for own in windows], kind)
    ends = np.cumsum([0, *(len(own) for own in windows)], dtype=np.int32)
    flat = np.concatenate(windows).astype(np.float16).ravel()
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(flat), kind.value_type.list_size)
    return pa.ListArray.from_arrays(pa.array(ends), vectors)


def window_blobs(held: pa.ChunkedArray) -> list[bytes | None]:
    """Each document's windows as little-endian float16 ``[windows, dimensions]``."""
    if not pa.types.is_list(held.type):
        values: list[bytes | None] = held.to_pylist()
        return values
    return [blob for chunk in held.chunks for blob in _blobs(chunk)]


def _blobs(chunk: pa.ListArray) -> list[bytes | None]:
    lengths = chunk.value_lengths().to_pylist()
    inner = chunk.flatten()
    size = inner.type.list_size
    # unlike ``flatten``, this keeps the places of vectors that damage made null
    leaf = inner.values.slice(inner.offset * size, len(inner) * size)
    flat = leaf.to_numpy(zero_copy_only=False).astype("<f2")
    found: list[bytes | None] = []
    at = 0
    for length in lengths:
        end = at + (length or 0) * size
        found.append(None if length is None else flat[at:end].tobytes())
        at = end
    return found


def vector_matrix(found: pa.Table) -> Vectors:
    """The ``vector`` column as float32 ``[rows, dimensions]``."""
    column = found["vector"].combine_chunks()
    flat: Vectors = np.asarray(column.flatten(), dtype=np.float32)
    return flat.reshape(len(column), -1)
