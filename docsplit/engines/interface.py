"""The interface between batcher and engine."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from docsplit.bundles.manifest import BundleError, Contents
from docsplit.engines.choice import Arithmetic, EngineName


class EngineError(BundleError):
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


def warm_up(engine: Engine, manifest: Contents[Any]) -> None:
    """Run a short, a usual and the longest batch.

    Args:
        engine: just compiled.
        manifest: of its bundle; the graph has no positions beyond its window.

    Raises:
        EngineError: the engine returns values that are not finite.
    """
    for length in sorted({min(n, manifest.max_tokens) for n in (16, 128, manifest.max_tokens)}):
        ids = np.full((1, length), manifest.pad_token_id, dtype=np.int64)
        if not np.isfinite(engine.run(ids, np.ones_like(ids))).all():
            raise EngineError(f"{engine.name} returns vectors that are not finite")
