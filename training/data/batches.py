"""Choose the documents of each batch."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from training.data.cache import Numbers


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
