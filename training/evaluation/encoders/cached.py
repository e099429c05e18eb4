"""An encoder that computes no text twice."""

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from docsplit.corpora.fields import DataError
from training.data.sentences import valid
from training.evaluation.encoders.interface import Encoder, Reading, Vectors
from training.evaluation.encoders.store import Store, text_digest
from training.evaluation.progress import EmbeddingProgress

_GROUP_TEXTS = 64
_GROUP_CHARACTERS = 200_000
_UNIT = 1e-3


class CachedEncoder:
    """A ``Representation`` of an encoder that keeps its vectors on disk.

    It stores each group of texts as soon as it is computed, so an interruption loses at most one
    group.

    Args:
        encoder: computes missing vectors.
        store: the vectors of the encoder's revision.
        progress: shows the progress.
        clock: the time in seconds.
    """

    readings: tuple[Reading, ...] = ("whole", "first")
    sparse = False

    def __init__(
        self,
        encoder: Encoder,
        store: Store,
        progress: EmbeddingProgress | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.kind = encoder.name, encoder.kind
        self.revision, self.details = encoder.revision, encoder.details
        self.encoder, self._store = encoder, store
        self._progress = progress or EmbeddingProgress()
        self._clock = clock

    def fitted(self, texts: Sequence[str]) -> "CachedEncoder":
        """Itself, because it learns nothing from a set."""
        del texts
        return self

    def features(self, texts: Sequence[str], reading: Reading = "whole") -> Vectors:
        """Unit vectors, float32 ``[texts, dimensions]``.

        Raises:
            DataError: the encoder returned something else.
        """
        digests = [text_digest(text) for text in texts]
        by_digest = dict(zip(digests, texts, strict=True))
        held = self._store.get(list(by_digest), reading)
        missing = [digest for digest in by_digest if digest not in held]
        if missing:
            # Texts of similar length need the least padding.
            missing.sort(key=lambda digest: len(by_digest[digest]))
            held |= self._computed(missing, by_digest, reading)
        return np.stack([held[digest] for digest in digests])

    def _computed(
        self, missing: list[bytes], texts: dict[bytes, str], reading: Reading
    ) -> dict[bytes, Vectors]:
        found: dict[bytes, Vectors] = {}
        total = sum(len(texts[digest]) for digest in missing)
        with self._progress.embedding(self.name, len(missing), total) as advance:
            for group in _groups(missing, texts):
                own = [valid(texts[digest]) for digest in group]
                began = self._clock()
                vectors = self._checked(self.encoder.encode(own, reading), len(own))
                seconds = self._clock() - began
                # First windows hold only some of the words.
                words = sum(len(text.split()) for text in own) if reading == "whole" else 0
                self._store.put(group, vectors, reading, words, seconds)
                found.update(zip(group, vectors, strict=True))
                advance(sum(map(len, own)))
        return found

    def _checked(self, vectors: Vectors, count: int) -> Vectors:
        vectors = np.asarray(vectors, dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != count or not np.isfinite(vectors).all():
            raise DataError(
                f"{self.name}: expected {count} finite vectors, got an array of {vectors.shape}"
            )
        lengths = np.linalg.norm(vectors, axis=1)
        if np.abs(lengths - 1).max() > _UNIT:
            raise DataError(f"{self.name}: vectors have length {lengths.min()} to {lengths.max()}")
        return vectors

    def pace(self) -> float | None:
        """Seconds for 1,000 words, in this and earlier runs."""
        return self._store.pace()


def _groups(digests: list[bytes], texts: dict[bytes, str]) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    characters = 0
    for digest in digests:
        length = len(texts[digest])
        if group and (len(group) == _GROUP_TEXTS or characters + length > _GROUP_CHARACTERS):
            yield group
            group, characters = [], 0
        group.append(digest)
        characters += length
    yield group
