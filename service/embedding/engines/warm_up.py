"""The first batches of an engine, before requests come."""

from typing import Any

import numpy as np

from docsplit.bundles.manifest import Contents
from service.embedding.engines.interface import Engine, EngineError


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
