"""Store vectors on disk by revision of the encoder and digest of the text."""

import hashlib
import sqlite3
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from docsplit.corpora.fields import DataError
from training.evaluation.encoders.interface import Reading, Vectors

_AT_ONCE = 500
_TABLES = """
CREATE TABLE IF NOT EXISTS vectors (
    reading TEXT, digest BLOB, vector BLOB, PRIMARY KEY (reading, digest)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spent (words INTEGER, seconds REAL);
"""


def text_digest(text: str) -> bytes:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class Store:
    """Vectors of one encoder in an SQLite file.

    Vectors survive a kill once ``put`` has returned. Two processes may share the file.

    Args:
        folder: the folder of all stores.
        revision: revision of the encoder.
    """

    def __init__(self, folder: Path, revision: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = path = folder / f"{hashlib.sha256(revision.encode()).hexdigest()[:32]}.sqlite"
        try:
            self._database = sqlite3.connect(path, timeout=60)
            self._database.executescript(_TABLES)
        except sqlite3.DatabaseError as error:
            raise DataError(f"{path}: not a readable vector cache ({error}); delete it") from None

    def get(self, digests: Sequence[bytes], reading: Reading) -> dict[bytes, Vectors]:
        """The stored vectors among those requested, each float32 ``[dimensions]``."""
        found: dict[bytes, Vectors] = {}
        for first in range(0, len(digests), _AT_ONCE):
            part = list(digests[first : first + _AT_ONCE])
            marks = ",".join("?" * len(part))
            rows = self._database.execute(
                f"SELECT digest, vector FROM vectors WHERE reading = ? AND digest IN ({marks})",  # noqa: S608 - only question marks
                [reading, *part],
            )
            found.update((digest, np.frombuffer(vector, dtype="<f4")) for digest, vector in rows)
        return found

    def put(
        self, digests: Sequence[bytes], vectors: Vectors, reading: Reading, words: int, secs: float
    ) -> None:
        """Store vectors and the time that they took.

        Raises:
            DataError: the disk is full or not writable.
        """
        rows = [
            (reading, digest, np.asarray(vector, dtype="<f4").tobytes())
            for digest, vector in zip(digests, vectors, strict=True)
        ]
        try:
            with self._database:
                self._database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
                self._database.execute("INSERT INTO spent VALUES (?, ?)", (words, secs))
        except sqlite3.DatabaseError as error:
            raise DataError(
                f"{self._path}: could not be written ({error}); free space, then repeat the command"
            ) from None

    def pace(self) -> float | None:
        """Seconds for 1,000 words: the median over all groups of texts computed so far.

        Texts repeated a hundred times, whose windows are cached, would dominate a mean.
        """
        spent = self._database.execute("SELECT words, seconds FROM spent WHERE words > 0")
        found = [1000 * seconds / words for words, seconds in spent]
        return statistics.median(found) if found else None

    def close(self) -> None:
        """Close the file."""
        self._database.close()
