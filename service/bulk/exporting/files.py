"""Writes rows into Parquet or Arrow files of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

SUFFIXES = {"parquet": ".parquet", "arrow": ".arrow"}
# before compression; a single row may have more
FILE_BYTES = 512 * 2**20
GROUP_BYTES = 16 * 2**20
GROUP_ROWS = 8192


class Cutter:
    """Decides after which rows of a file a row group ends, and when the file is full.

    Args:
        most: rows of the file.
    """

    def __init__(self, most: int) -> None:
        self._left = [most, FILE_BYTES]
        self._group = [GROUP_ROWS, GROUP_BYTES]

    @property
    def whole(self) -> bool:
        """Whether the file is full."""
        return min(self._left) <= 0

    def cuts(self, sizes: npt.NDArray[np.int64]) -> Iterator[int]:
        """Numbers of rows after which a group ends, until the file is full.

        Args:
            sizes: bytes of the next rows.
        """
        for row, size in enumerate(sizes.tolist(), 1):
            for left in (self._left, self._group):
                left[0] -= 1
                left[1] -= size
            if self.whole or min(self._group) <= 0:
                self._group = [GROUP_ROWS, GROUP_BYTES]
                yield row
                if self.whole:
                    return


class Writer:
    """An open file; each group of rows is written at once."""

    def __init__(self, stream: Any, schema: pa.Schema, form: str) -> None:
        self._pending: list[pa.Table] = []
        self._schema = schema
        self.rows = 0
        self._parquet: Any = None
        self._arrow: Any = None
        if form == "parquet":
            self._parquet = pq.ParquetWriter(
                stream, schema, compression="zstd", use_dictionary=False
            )
        else:
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            self._arrow = pa.ipc.new_file(stream, schema, options=options)

    def add(self, rows: pa.Table) -> None:
        """Add rows to the present group."""
        self._pending.append(rows)
        self.rows += rows.num_rows

    def flush(self) -> None:
        """End the present group."""
        group = pa.concat_tables([self._schema.empty_table(), *self._pending]).combine_chunks()
        self._pending = []
        if not group.num_rows:
            return
        if self._parquet is not None:
            self._parquet.write_table(group, row_group_size=group.num_rows)
        else:
            self._arrow.write_table(group)

    def close(self) -> None:
        """End the file."""
        self.flush()
        (self._parquet or self._arrow).close()

    def abandon(self) -> None:
        """Free what the file needs, after an error."""
        with suppress(Exception):
            (self._parquet or self._arrow).close()
        if self._parquet is not None:
            # otherwise it tries again when it is collected, and warns
            self._parquet.is_open = False


@contextmanager
def writer(path: Path, schema: pa.Schema, form: str) -> Iterator[Writer]:
    """A writer of a new file."""
    with path.open("wb") as stream:
        made = Writer(stream, schema, form)
        try:
            yield made
            made.close()
        except BaseException:
            made.abandon()
            raise
