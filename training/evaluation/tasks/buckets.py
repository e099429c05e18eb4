"""Documents by their length in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# The papers' buckets (SimLTE, appendix A) end with "more than 300"; long documents need more.
EDGES = (50, 100, 200, 300, 600, 1200, 2400)
NAMES = ("0-50", "51-100", "101-200", "201-300", "301-600", "601-1200", "1201-2400", "> 2400")


def bucket_of(texts: Sequence[str]) -> npt.NDArray[np.int64]:
    """Number of each text's bucket, int64 ``[texts]``."""
    words = np.asarray([len(text.split()) for text in texts])
    return np.asarray(np.searchsorted(EDGES, words, side="left"), dtype=np.int64)
