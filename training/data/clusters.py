"""Batches of documents that resemble each other, so that their negatives are hard.

Each batch comes from one cluster of the start weights' vectors (Merrick 2024, "Embedding And
Clustering Your Data Can Improve Contrastive Pretraining"; before it TAS-B, Hofstätter et al. 2021,
for queries).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from training.data.cache import Numbers
from training.data.stored_arrays import StoredArrays


@dataclass(frozen=True)
class Neighbourhood(StoredArrays):
    """The start weights' vectors of the training documents, and their clusters.

    Attributes:
        documents: int64 ``[documents]``, their numbers in the cache, ascending.
        vectors: float32 ``[documents, dimensions]``, unit length.
        clusters: int64 ``[documents]``, the cluster of each.
        made_from: what determines all of this, as text.
    """

    documents: npt.NDArray[np.int64]
    vectors: npt.NDArray[np.float32]
    clusters: npt.NDArray[np.int64]
    made_from: str

    @classmethod
    def of(
        cls,
        documents: Numbers,
        vectors: npt.NDArray[np.float32],
        *,
        size: int,
        seed: int,
        made_from: str,
    ) -> "Neighbourhood":
        """Cluster documents by k-means.

        Args:
            documents: their numbers in the cache.
            vectors: float32 ``[documents, dimensions]``, unit length.
            size: average number of documents in a cluster; 0 makes one cluster of all.
            seed: of k-means.
            made_from: what determines the vectors and clusters.
        """
        # opening scikit-learn takes a second, which most runs don't need
        from sklearn.cluster import MiniBatchKMeans

        order = np.argsort(documents)
        numbers, vectors = np.asarray(documents, dtype=np.int64)[order], vectors[order]
        count = max(1, round(len(numbers) / size)) if size else 1
        clusters = np.zeros(len(numbers), dtype=np.int64)
        if count > 1:
            means = MiniBatchKMeans(count, random_state=seed % (1 << 32), n_init=3, batch_size=4096)
            clusters = means.fit_predict(vectors).astype(np.int64)
        return cls(numbers, vectors, clusters, made_from)

    def near(self, documents: Numbers, others: Numbers, least: float) -> npt.NDArray[np.bool_]:
        """Which pairs have at least this cosine, bool ``[documents, others]``."""
        near: npt.NDArray[np.bool_] = self.cosines(documents, others) >= least
        return near

    def cosines(self, documents: Numbers, others: Numbers) -> npt.NDArray[np.float32]:
        """Cosines of all pairs, float32 ``[documents, others]``."""
        rows, columns = (
            self.vectors[np.searchsorted(self.documents, numbers)]
            for numbers in (documents, others)
        )
        cosines: npt.NDArray[np.float32] = rows @ columns.T
        return cosines


class ClusterOrder:
    """Batches of an endless stream, each from one cluster. The number of a batch determines it.

    Every epoch shuffles the documents of each cluster. Documents that fill no batch of their own
    cluster share batches with those of other clusters. Each epoch leaves out a remainder smaller
    than a batch; the remainder differs between epochs.
    """

    def __init__(self, neighbourhood: Neighbourhood, *, batch_size: int, seed: int) -> None:
        """Draw from the documents of ``neighbourhood``.

        Raises:
            ValueError: there are fewer documents than one batch needs.
        """
        count = len(neighbourhood.documents)
        if count < batch_size:
            raise ValueError(f"{count} documents are fewer than a batch of {batch_size}")
        self._neighbourhood = neighbourhood
        self._batch_size = batch_size
        self._seed = seed
        self.per_epoch = count // batch_size
        self._drawn: tuple[int, npt.NDArray[np.int64]] | None = None

    def __getitem__(self, number: int) -> list[int]:
        """Documents of batch ``number``, counted from 0 through all epochs."""
        epoch, within = divmod(number, self.per_epoch)
        # other threads may ask for other epochs
        drawn = self._drawn
        if drawn is None or drawn[0] != epoch:
            self._drawn = drawn = epoch, self._draw(epoch)
        batch: list[int] = drawn[1][within].tolist()
        return batch

    def _draw(self, epoch: int) -> npt.NDArray[np.int64]:
        """The batches of an epoch, ``[batches, batch size]``."""
        rng = np.random.default_rng([self._seed, epoch])
        order = rng.permutation(len(self._neighbourhood.documents))
        clusters = self._neighbourhood.clusters[order]
        full, rest = [], []
        for cluster in rng.permutation(clusters.max() + 1):
            members = order[clusters == cluster]
            whole = len(members) - len(members) % self._batch_size
            full.append(members[:whole])
            rest.append(members[whole:])
        places = np.concatenate(full + rest)[: self.per_epoch * self._batch_size]
        batches = self._neighbourhood.documents[places.reshape(-1, self._batch_size)]
        shuffled: npt.NDArray[np.int64] = rng.permutation(batches, axis=0)
        return shuffled
