"""Choose the documents of each batch, and the rows that are encoded together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from training.tokens import Numbers

# Arrays in the folder of a run, from which an interrupted run goes on.


class StoredArrays:
    """The base of dataclasses of arrays with ``made_from``, the text that says what they depend
    on."""

    made_from: str

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what ``save`` wrote."""
        with np.load(path) as held:
            names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
            read: dict[str, Any] = {name: held[name] for name in names}
        return cls(**read | {"made_from": str(read["made_from"])})

    def save(self, path: Path) -> None:
        """Write to an ``.npz`` file, all or nothing."""
        partial = path.with_name(f"partial-{path.name}")
        np.savez(partial, **vars(self))
        partial.replace(path)


class BatchOrder:
    """Batches of an endless shuffled stream. The number of a batch determines its documents.

    Every epoch has its own order. The class draws ``group`` batches at a time from the stream,
    sorts their documents by length, and returns the batches in shuffled order. The documents of a
    batch then have similar lengths and need little padding. Each epoch leaves out a remainder
    smaller than a batch; the remainder differs between epochs.
    """

    def __init__(
        self,
        documents: Numbers,
        length: Callable[[int], int],
        *,
        batch_size: int,
        group: int,
        seed: int,
    ) -> None:
        """Draw from ``documents``; ``length`` returns the number of tokens of a document.

        Raises:
            ValueError: there are fewer documents than one batch needs.
        """
        if len(documents) < batch_size:
            raise ValueError(f"{len(documents)} documents are fewer than a batch of {batch_size}")
        self._documents = documents
        self._length = length
        self._batch_size = batch_size
        self._group = group
        self._seed = seed
        self.per_epoch = len(documents) // batch_size
        self._order: tuple[int, npt.NDArray[np.int64]] | None = None
        self._held: tuple[tuple[int, int], list[list[int]]] | None = None

    def __getitem__(self, number: int) -> list[int]:
        """Documents of batch ``number``, counted from 0 through all epochs."""
        epoch, within = divmod(number, self.per_epoch)
        block, place = divmod(within, self._group)
        # other threads may ask for other blocks
        held = self._held
        if held is None or held[0] != (epoch, block):
            self._held = held = (epoch, block), self._draw(epoch, block)
        return held[1][place]

    def _draw(self, epoch: int, block: int) -> list[list[int]]:
        held = self._order
        if held is None or held[0] != epoch:
            draw = np.random.default_rng([self._seed, epoch])
            self._order = held = epoch, draw.permutation(len(self._documents))
        order = held[1]
        first, size = block * self._group, self._batch_size
        batches = min(self._group, self.per_epoch - first)
        places = order[first * size : (first + batches) * size].tolist()
        drawn = [int(self._documents[place]) for place in places]
        if self._group > 1:
            drawn.sort(key=lambda d: (self._length(d), d))
        shuffled = np.random.default_rng([self._seed, epoch, block]).permutation(batches)
        return [drawn[i * size :][:size] for i in shuffled.tolist()]


# Batches of documents that resemble each other, so that their negatives are hard.
#
# Each batch comes from one cluster of the start weights' vectors (Merrick 2024, "Embedding And
# Clustering Your Data Can Improve Contrastive Pretraining"; before it TAS-B, Hofstätter et al.
# 2021, for queries).


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


_CPU = 2_048
_OTHER = 8_192
_MOST = 65_536
# of the longest row of a chunk, and of a full chunk
_SIMILAR, _FILLED = 0.75, 0.25
# share of a device's memory for the activations of a chunk
_SHARE = 0.4
# Bytes that a token takes for each layer and dimension, forwards and backwards in bf16: a chunk of
# 65,536 tokens of MiniLM (6 layers of 384) took 21 GB of an H100.
_BYTES = 140


def plan_chunks(lengths: Sequence[int], budget: int, processes: int) -> list[list[int]]:
    """Group rows of similar length into chunks of at most ``budget`` padded tokens.

    A row that is shorter than three quarters of the longest of its chunk begins the next one, if
    the chunk is a quarter full. The number of chunks is a multiple of ``processes`` if there are
    enough rows; ``shared`` gives every process about as much work.

    Args:
        lengths: tokens of each row. A row longer than ``budget`` is a chunk by itself.
        budget: padded tokens of a chunk.
        processes: number of processes that share the chunks.

    Returns:
        Lists of row numbers, the largest first, each with its longest row first; every row is in
        one of them.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    total = sum(lengths)
    # every process needs so many chunks; they share the tokens equally
    rounds = max(1, -(-total // (budget * processes)))
    most = -(-total // (rounds * processes))
    chunks: list[list[int]] = []
    for row in order:
        if chunks and _joins(lengths[row], len(chunks[-1]), lengths[chunks[-1][0]], most):
            chunks[-1].append(row)
        else:
            chunks.append([row])

    def size(chunk: list[int]) -> int:
        return len(chunk) * lengths[chunk[0]]

    while len(chunks) % processes:
        largest = max((one for one in chunks if len(one) > 1), key=size, default=None)
        if largest is None:
            break
        half = len(largest) // 2
        chunks.append(largest[half:])
        del largest[half:]
    return sorted(chunks, key=size, reverse=True)


def shared(chunks: int, rank: int, processes: int) -> list[int]:
    """The chunks of process ``rank``, by their number: in every second round of turns the
    processes choose in reverse order."""
    order = [*range(processes), *reversed(range(processes))]
    return [i for i in range(chunks) if order[i % len(order)] == rank]


def _joins(length: int, rows: int, width: int, most: int) -> bool:
    if (rows + 1) * width > most:
        return False
    return length >= _SIMILAR * width or rows * width < _FILLED * most


def chunk_tokens(device: torch.device, config: Any) -> int:
    """Padded tokens of a chunk, by the device and the encoder.

    Depends on the whole memory of the device and not on what is free, so that a run gives the
    same results again.

    Args:
        device: where the encoder computes.
        config: the encoder's configuration.
    """
    if device.type == "cpu":
        return _CPU
    if device.type != "cuda":
        return _OTHER
    memory = torch.cuda.get_device_properties(device).total_memory
    layers = getattr(config, "num_hidden_layers", 1)
    return fitting(memory, layers * config.hidden_size)


def fitting(memory: int, units: int) -> int:
    """The largest power of two that fits, at least 1,024 and at most 65,536.

    Args:
        memory: bytes of the device.
        units: layers times dimensions of the encoder.
    """
    tokens = max(1_024, int(_SHARE * memory / (_BYTES * units)))
    return min(_MOST, 1 << (tokens.bit_length() - 1))
