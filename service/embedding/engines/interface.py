"""The interface between batcher and engine."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from docsplit.bundles.arithmetic import Arithmetic, EngineName
from service.errors import ServiceError


class EngineError(ServiceError):
    """An engine that cannot start, and the reason."""


class Engine(Protocol):
    """A compiled graph. ``run`` is called from ``streams`` threads at once."""

    name: EngineName
    arithmetic: Arithmetic
    device: str
    streams: int
    batch_tokens: int

    def run(self, input_ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """Compute a padded batch.

        Args:
            input_ids: ``[batch, tokens]``.
            mask: 1 for tokens, 0 for padding, ``[batch, tokens]``.

        Returns:
            Of an encoder, unit vectors, ``[batch, dimensions]``. Of a re-ranker, its outputs,
            ``[batch, 1]``.
        """
        ...
