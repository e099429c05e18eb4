"""Relative positions as tables.

MPNet and DeBERTa put the distance of two tokens into a bucket by its logarithm (Raffel et al. 2020,
arXiv:1910.10683, section 2.1). A graph would compute it in its own precision, and the attention
would read the wrong bias. With the divisor in fp16, the distances 16, 32 and 64 of MPNet fall into
another bucket; in bf16, so do 73 of the 383 distances of DeBERTa-v3 that share buckets.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.deberta_v2 import modeling_deberta_v2

from export.checkpoint.rotary import positions_of

_Bucket = Callable[..., Tensor]
# the names of the function in transformers
_MPNET = "relative_position_bucket"
_DEBERTA = "make_log_bucket_position"


@contextmanager
def tabled_buckets(encoder: PreTrainedModel, tokens: int) -> Iterator[None]:
    """In this context ``encoder`` reads its buckets from tables for windows of ``tokens``.

    Encoders without such buckets do not change.
    """
    size = positions_of(tokens)
    with ExitStack() as restored:
        for module in encoder.modules():
            if bucket := getattr(module, _MPNET, None):
                setattr(module, _MPNET, _tabled(bucket, size))
                restored.callback(delattr, module, _MPNET)
        if encoder.config.model_type == "deberta-v2":
            bucket = modeling_deberta_v2.make_log_bucket_position
            setattr(modeling_deberta_v2, _DEBERTA, _tabled(bucket, size))
            restored.callback(setattr, modeling_deberta_v2, _DEBERTA, bucket)
        yield


def _tabled(bucket: _Bucket, tokens: int) -> _Bucket:
    """``bucket`` as a table of the distances below ``tokens``."""

    def read(distances: Tensor, *settings: int, **named: int) -> Tensor:
        """``distances`` int64 of any shape → buckets int64 of this shape."""
        found = bucket(torch.arange(1 - tokens, tokens), *settings, **named)
        # a trace does not follow values through NumPy, so it keeps the table
        table = torch.from_numpy(found.numpy().astype(np.int64))
        return table[distances + (tokens - 1)]

    return read
