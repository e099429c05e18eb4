"""Vectors as an Arrow stream."""

from __future__ import annotations

from typing import Any

import numpy as np

MEDIA_TYPE = "application/vnd.apache.arrow.stream"


def stream(rows: list[Any]) -> bytes:
    """The stream of vectors, which are arrays of one length and type."""
    # a service that embeds only never loads it
    import pyarrow as pa

    matrix = np.stack(rows)
    flat = pa.array(matrix.reshape(-1))
    vectors = pa.FixedSizeListArray.from_arrays(flat, matrix.shape[1])
    batch = pa.record_batch({"embedding": vectors})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body
